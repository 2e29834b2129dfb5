"""What virt-api refuses, with its messages."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.stack.engine.admission.validation import (
    check_changed_vm,
    check_changed_vmi,
    check_data_volume_namespaces,
    check_new_vmi,
    check_snapshot,
    check_vm,
)

Json = dict[str, Any]

NEW, OLD = ClusterSettings(versions=("v1.9.0",)), ClusterSettings(versions=("v1.8.4",))
PODS = {"networks": [{"name": "default", "pod": {}}]}


def vm(spec: Json | None = None, inner: Json | None = None, **domain: Any) -> Json:
    base = {"domain": {"memory": {"guest": "128Mi"}, **domain}, **(inner or {})}
    return {"metadata": {"name": "a"}, "spec": {"runStrategy": "Always", "template": {"spec": base}, **(spec or {})}}


def disk(bus: str = "virtio", kind: str = "disk", **fields: Any) -> Json:
    target = {"bus": bus, **fields.pop("target", {})}
    return {"name": "root", kind: target, **fields}


def with_disk(*disks: Json, volumes: int = 1) -> Json:
    volume = {"name": "root", "containerDisk": {"image": "tiny"}}
    return vm(inner={"volumes": [volume] * volumes}, devices={"disks": list(disks)})


def with_nic(**nic: Any) -> Json:
    return vm(inner=PODS, devices={"interfaces": [{"name": "default", "masquerade": {}, **nic}]})


@pytest.mark.parametrize(
    ("document", "settings"),
    [
        pytest.param(vm(), NEW, id="the smallest VM"),
        pytest.param(with_disk(disk(target={"pciAddress": "0000:08:00.0"}), volumes=1), NEW, id="an addressed disk"),
        pytest.param(with_nic(pciAddress="0000:01:00.0"), NEW, id="an addressed interface"),
        pytest.param(vm(rebootPolicy="Terminate"), NEW, id="a reboot policy since 1.9"),
        pytest.param(vm(devices={"video": {"type": "vga"}}), NEW, id="video since 1.9"),
        pytest.param(vm(machine={"type": "pc-q35-10.0"}), NEW, id="a machine type"),
        pytest.param(
            vm(
                firmware={"bootloader": {"efi": {"secureBoot": True}}},
                features={"smm": {"enabled": True}},
            ),
            NEW,
            id="secure boot with SMM",
        ),
        pytest.param(
            vm({"instancetype": {"name": "u1.small"}}, memory=None), NEW, id="an instance type brings the memory"
        ),
    ],
)
def test_accepted_vms(document: Json, settings: ClusterSettings) -> None:
    assert check_vm(document, settings) == []


REFUSED = [
    pytest.param(vm({"template": None}), "missing virtual machine template.", id="no template"),
    pytest.param(vm({"runStrategy": None}), "RunStrategy must be specified", id="no run strategy"),
    pytest.param(vm({"running": True}), "mutually exclusive", id="two run strategies"),
    pytest.param(vm({"runStrategy": "Often"}), "Invalid RunStrategy (Often)", id="an unknown run strategy"),
    pytest.param(vm(machine={"type": "pc-i440fx-7.2"}), "is not supported: pc-i440fx-7.2", id="an i440fx machine"),
    pytest.param(
        vm(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        "spec.template.spec.domain.resources.requests.memory '2Gi' is greater than",
        id="a limit below the request",
    ),
    pytest.param(with_disk(disk(), volumes=0), "disks[0].Name 'root' not found.", id="a disk without a volume"),
    pytest.param(with_disk(disk(), volumes=2), "volumes[1] and spec", id="two volumes of one name"),
    pytest.param(with_disk(disk(), disk()), "disks[1] and spec", id="two disks of one name"),
    pytest.param(with_disk(disk("ide")), "IDE bus is not supported", id="an IDE disk"),
    pytest.param(with_disk(disk(kind="cdrom")), "invalid for CD-ROM device", id="a virtio CD-ROM"),
    pytest.param(
        with_disk(disk("sata", target={"pciAddress": "0000:01:00.0"})),
        "setting a PCI address is only possible with bus type virtio.",
        id="an address of a SATA disk",
    ),
    pytest.param(with_disk(disk(target={"pciAddress": "8"})), "malformed PCI address (8)", id="no PCI address"),
    pytest.param(with_disk(disk(bootOrder=0)), "must have a boot order > 0", id="boot order 0"),
    pytest.param(with_disk(disk(serial="a b")), "[A-Za-z0-9_.+-]", id="a serial with a space"),
    pytest.param(vm(inner=PODS), "spec.template.spec.networks[0].name 'default' not found.", id="no interface"),
    pytest.param(
        vm(devices={"interfaces": [{"name": "other"}]}), "interfaces[0].name 'other' not found.", id="no network"
    ),
    pytest.param(with_nic(pciAddress="x"), "malformed PCI address (x)", id="no PCI address of a NIC"),
    pytest.param(
        vm(firmware={"bootloader": {"efi": {}}}), "SecureBoot requires SMM", id="secure boot without SMM is the default"
    ),
    pytest.param(
        vm(devices={"video": {"type": "vga"}, "autoattachGraphicsDevice": False}),
        "not allowed when autoattachGraphicsDevice is set to false",
        id="video without graphics",
    ),
    pytest.param(
        vm({"instancetype": {"name": "u1.small"}}, cpu={"cores": 2}),
        "VM field(s) spec.template.spec.domain.cpu.cores, spec.template.spec.domain.memory.guest conflicts with",
        id="an instance type beside cores and memory",
    ),
    pytest.param(vm(inner={"livenessProbe": {}}), "must be set if a", id="a probe without a handler"),
    pytest.param(
        vm(inner={"startStrategy": "Paused", "livenessProbe": {"guestAgentPing": {}}}),
        "Pausing VMI with LivenessProbe is not supported",
        id="a paused start with a liveness probe",
    ),
    pytest.param(
        vm({"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"pvc": {}, "source": {"blank": {}}}}]}),
        "must be referenced in the VMI template's 'volumes' list",
        id="an unused DataVolume",
    ),
    pytest.param(
        vm(
            {
                "template": {
                    "metadata": {"labels": {"kubevirt.io/nodeName": "n"}},
                    "spec": vm()["spec"]["template"]["spec"],
                }
            }
        ),
        "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        id="a label of KubeVirt",
    ),
]


@pytest.mark.parametrize(("document", "message"), REFUSED)
def test_refused_vms(document: Json, message: str) -> None:
    found = check_vm(document, NEW)
    assert len(found) == 1, found
    assert message in found[0].message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(vm(rebootPolicy="Terminate"), "RebootPolicy feature gate", id="reboot policy"),
        pytest.param(vm(devices={"video": {"type": "vga"}}), "VideoConfig feature gate", id="video"),
        pytest.param(vm(devices={"panicDevices": [{"model": "pvpanic"}]}), "Panic Devices feature gate", id="panic"),
        pytest.param(
            vm(devices={"disks": [{"name": "cd", "cdrom": {"bus": "sata"}}]}),
            "DeclarativeHotplugVolumes feature gate not enabled",
            id="an empty CD-ROM",
        ),
    ],
)
def test_feature_gates(document: Json, message: str) -> None:
    assert [message in cause.message for cause in check_vm(document, OLD)] == [True]
    gates = frozenset({"VideoConfig", "PanicDevices", "RebootPolicy", "DeclarativeHotplugVolumes"})
    assert check_vm(document, ClusterSettings(versions=("v1.8.4",), feature_gates=gates)) == []


def test_a_vm_that_is_being_deleted_is_not_checked() -> None:
    document = vm({"template": None})
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert check_vm(document, NEW) == []


def test_a_vmi_needs_memory_and_a_disk_for_each_volume() -> None:
    vmi = {"metadata": {}, "spec": {"domain": {}, "volumes": [{"name": "root", "emptyDisk": {}}]}}
    messages = [cause.message for cause in check_new_vmi(vmi, NEW, by_kubevirt=False)]
    assert [message.split(",")[0] for message in messages] == [
        "spec.domain.volumes[0].name 'root' not found.",
        "no memory requested",
    ]


@pytest.mark.parametrize(
    ("change", "by_kubevirt", "message"),
    [
        pytest.param({"spec": {"domain": {"cpu": {}}}}, False, "update of VMI object is restricted", id="the spec"),
        pytest.param({"spec": {"domain": {"cpu": {}}}}, True, "", id="the spec, by KubeVirt"),
        pytest.param({"metadata": {"labels": {"team": "a"}}}, False, "", id="a label of a user"),
        pytest.param(
            {"metadata": {"labels": {"kubevirt.io/nodeName": "n"}}}, False, "is prohibited", id="a label of KubeVirt"
        ),
    ],
)
def test_changes_of_vmis(change: Json, by_kubevirt: bool, message: str) -> None:
    old: Json = {"metadata": {}, "spec": {}}
    found = check_changed_vmi(old, {**old, **change}, by_kubevirt=by_kubevirt)
    assert [message in cause.message for cause in found] == ([True] if message else [])


TAKING = {"snapshotInProgress": "s"}


@pytest.mark.parametrize(
    ("status", "changed", "message"),
    [
        pytest.param({}, {"runStrategy": "Halted"}, "", id="nothing in progress"),
        pytest.param(
            TAKING,
            {"runStrategy": "Halted"},
            'Cannot update vm running state until snapshot "s" completes',
            id="a stop during a snapshot",
        ),
        pytest.param(
            TAKING,
            {"template": {"spec": {"volumes": [{"name": "new"}]}}},
            'Cannot update vm disks or volumes until snapshot "s" completes',
            id="a disk during a snapshot",
        ),
        pytest.param(TAKING, {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}, "", id="a label"),
        pytest.param(
            {"restoreInProgress": "r"},
            {"runStrategy": "Always"},
            "",
            id="the run strategy that it has, during a restore",
        ),
        pytest.param(
            {"restoreInProgress": "r"},
            {"runStrategy": "Manual"},
            'Cannot update VM runStrategy until restore "r" completes',
            id="a start during a restore",
        ),
    ],
)
def test_changes_of_a_vm_during_a_snapshot_or_a_restore(status: Json, changed: Json, message: str) -> None:
    old = {"spec": {"runStrategy": "Always", "template": {"spec": {}}}}
    new = {"spec": {**old["spec"], **changed}, "status": status}
    assert [cause.message for cause in check_changed_vm(old, new)] == ([message] if message else [])


SOURCE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"}


@pytest.mark.parametrize(
    ("old", "source", "message"),
    [
        pytest.param(None, SOURCE, "", id="a VM"),
        pytest.param(None, {**SOURCE, "apiGroup": None}, "missing apiGroup", id="no group"),
        pytest.param(None, {**SOURCE, "apiGroup": "apps"}, "invalid apiGroup", id="another group"),
        pytest.param(None, {**SOURCE, "kind": "Pod"}, "invalid kind", id="another kind"),
        pytest.param({"spec": {"source": SOURCE}}, SOURCE, "", id="no change"),
        pytest.param(
            {"spec": {"source": SOURCE}}, {**SOURCE, "name": "b"}, "spec in immutable after creation", id="a change"
        ),
    ],
)
def test_snapshots(old: Json | None, source: Json, message: str) -> None:
    found = check_snapshot(old, {"spec": {"source": source}}, "source")
    assert [cause.message for cause in found] == ([message] if message else [])


def disk_templates(*namespaces: Any, own: str | None = "default") -> Json:
    templates = [{"metadata": {"name": f"d{index}", "namespace": each}} for index, each in enumerate(namespaces)]
    return {"metadata": {"name": "a", "namespace": own}, "spec": {"dataVolumeTemplates": templates}}


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        pytest.param(None, disk_templates(None, "", "default"), [], id="its own namespace, or none"),
        pytest.param(None, disk_templates("default", "other"), [1], id="another namespace"),
        pytest.param(None, disk_templates("a", "b"), [0, 1], id="two other namespaces"),
        pytest.param(None, disk_templates("default", own=None), [], id="a VM without a namespace has the request's"),
        pytest.param(None, disk_templates("other", own=None), [0], id="another namespace of a VM without a namespace"),
        pytest.param(disk_templates("other"), disk_templates("other"), [], id="templates that stay as they are"),
        pytest.param(disk_templates("other"), disk_templates("other", None), [0], id="a change beside it"),
        pytest.param(disk_templates(None), {"metadata": {"name": "a"}, "spec": {}}, [], id="no templates any more"),
    ],
)
def test_disk_templates_of_another_namespace(old: Json | None, new: Json, fields: list[int]) -> None:
    found = check_data_volume_namespaces(old, new, "default")
    assert [cause.field for cause in found] == [f"spec.dataVolumeTemplates[{index}]" for index in fields]
    for cause, index in zip(found, fields, strict=True):
        given = new["spec"]["dataVolumeTemplates"][index]["metadata"]["namespace"]
        assert cause.message == f"Embedded DataVolume namespace {given} differs from VM namespace default"


BLANK: Json = {"source": {"blank": {}}}
BOTH = {"blank": {}, "pvc": {"name": "a", "namespace": "b"}}


@pytest.mark.parametrize(
    ("template", "message", "field"),
    [
        pytest.param({"spec": {"pvc": {}, **BLANK}}, "'name' field must not be empty", "name", id="no name"),
        pytest.param({"spec": BLANK}, "Missing Data volume PVC or Storage", "PVC.Storage", id="no target"),
        pytest.param({"spec": {"pvc": {}, "storage": {}}}, "Duplicate storage", "PVC.Storage", id="two targets"),
        pytest.param({"spec": {"pvc": {}}}, "should have either Source", "source.sourceRef", id="no source"),
        pytest.param({"spec": {"pvc": {}, "source": {}}}, "Missing dataVolume valid", "source", id="an empty source"),
        pytest.param({"spec": {"pvc": {}, "source": BOTH}}, "Multiple dataVolume sources", "source", id="two sources"),
        pytest.param(
            {"spec": {"storage": {"dataSource": {}}, **BLANK}}, "External population", "source", id="populated twice"
        ),
    ],
)
def test_an_invalid_disk_template_has_one_cause(template: Json, message: str, field: str) -> None:
    metadata = {} if field == "name" else {"metadata": {"name": "d"}}
    (found,) = check_vm(vm({"dataVolumeTemplates": [{**metadata, **template}]}), NEW)
    assert message in found.message
    assert found.field == f"spec.dataVolumeTemplate[0].{field}"
