"""Spellings that mean the same to KubeVirt and CDI, and near misses that do not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse.api.kubevirt import meaning
from poolhouse.api.kubevirt.fields import _KUBERNETES_TYPES, _TYPES, VM_SPEC, VMI_SPEC, declared_fields
from poolhouse.api.kubevirt.meaning import DATA_VOLUME_SPEC, VM_TEMPLATE, canonical, changed_fields, mean_the_same

DISK: dict[str, Any] = {"storage": {"resources": {"requests": {"storage": "1Ti"}}}, "source": {"blank": {}}}


def size(text: Any) -> dict[str, Any]:
    return {"storage": {"resources": {"requests": {"storage": text}}}}


def guest(value: Any) -> dict[str, Any]:
    return {"domain": {"memory": {"guest": value}}}


def devices(**fields: Any) -> dict[str, Any]:
    return {"domain": {"devices": fields}}


def interface(**fields: Any) -> dict[str, Any]:
    return devices(interfaces=[{"name": "default", **fields}])


def vmi_spec(**fields: Any) -> dict[str, Any]:
    """The spec of a VM with these fields of the VMI."""
    return {"template": {"spec": fields}}


def _wrapped(owner: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a VMI with one object of the type `owner`."""
    return {
        "ACPIState": {"domain": {"features": {"acpi": fields}}},
        "Devices": devices(**fields),
        "Disk": devices(disks=[fields]),
        "TPMDevice": devices(tpm=fields),
        VMI_SPEC: fields,
    }[owner]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
IN_XY = {"key": "a", "operator": "In", "values": ["x", "y"]}
HAS_B = {"key": "b", "operator": "Exists"}

SAME = [
    pytest.param(DATA_VOLUME_SPEC, size("1Ti"), size("1024Gi"), id="a size in another unit"),
    pytest.param(DATA_VOLUME_SPEC, size("1Ti"), size(1099511627776), id="a size as a number"),
    pytest.param(DATA_VOLUME_SPEC, size("1Gi"), size(" 1Gi "), id="a size with spaces"),
    pytest.param(DATA_VOLUME_SPEC, {"contentType": "kubevirt"}, {}, id="a content type that CDI assumes"),
    pytest.param(DATA_VOLUME_SPEC, {"finalCheckpoint": False}, {}, id="false in a field that is no pointer"),
    pytest.param(
        DATA_VOLUME_SPEC, {"storage": {"accessModes": ["A", "B"]}}, {"storage": {"accessModes": ["B", "A"]}}, id="a set"
    ),
    pytest.param(VMI_SPEC, guest("1.2Gi"), guest("1288490188800m"), id="memory in milli-bytes"),
    pytest.param(VMI_SPEC, guest("128Mi"), guest(134217728), id="memory as a number"),
    pytest.param(
        VMI_SPEC,
        {"domain": {"resources": {"requests": {"cpu": 1}}}},
        {"domain": {"resources": {"requests": {"cpu": "1000m"}}}},
        id="CPUs in milli-CPUs",
    ),
    pytest.param(VMI_SPEC, {"domain": {"resources": {"requests": None}}}, {}, id="an object that null empties"),
    pytest.param(VMI_SPEC, {"domain": {"machine": {"type": None}}}, {}, id="a machine without a type"),
    pytest.param(VMI_SPEC, {"domain": {"machine": {"type": ""}}}, {}, id="a machine with an empty type"),
    pytest.param(VMI_SPEC, {"domain": {"cpu": {"model": ""}}}, {"domain": {}}, id="an empty CPU model"),
    pytest.param(VMI_SPEC, {"domain": {"firmware": {"uuid": ""}}}, {"domain": {}}, id="an empty UUID"),
    pytest.param(VMI_SPEC, {"tolerations": []}, {}, id="an empty list"),
    pytest.param(VMI_SPEC, {"nodeSelector": {}}, {}, id="an empty map"),
    pytest.param(VMI_SPEC, {"tolerations": [None]}, {"tolerations": [{}]}, id="null in a list of objects"),
    pytest.param(
        DATA_VOLUME_SPEC,
        {"storage": {"accessModes": [None]}},
        {"storage": {"accessModes": [""]}},
        id="null in texts",
    ),
    pytest.param(VMI_SPEC, {"affinity": {"nodeAffinity": {}}}, {}, id="an affinity to nothing"),
    pytest.param(VMI_SPEC, {"hostname": ""}, {}, id="an empty text"),
    pytest.param(VMI_SPEC, interface(macAddress=""), interface(), id="an empty MAC address"),
    pytest.param(VMI_SPEC, interface(acpiIndex=0, ports=[]), interface(), id="zero in a field that is no pointer"),
    pytest.param(VMI_SPEC, devices(disableHotplug=False), {}, id="false in a field of a device list"),
    pytest.param(
        VMI_SPEC,
        {"domain": {"features": {"smm": {"enabled": True}}}},
        {"domain": {"features": {"smm": {}}}},
        id="a feature that is named is enabled",
    ),
    pytest.param(
        VMI_SPEC, {"tolerations": [{"key": "a", "operator": "Equal"}]}, {"tolerations": [{"key": "a"}]}, id="operator"
    ),
    pytest.param(
        VMI_SPEC,
        {"tolerations": [{"key": "a"}, {"key": "b"}]},
        {"tolerations": [{"key": "b"}, {"key": "a"}]},
        id="the order of tolerations",
    ),
    pytest.param(VM_SPEC, {"running": True}, {"runStrategy": "Always"}, id="both fields of the run strategy"),
    pytest.param(VM_SPEC, {"running": False}, {"runStrategy": "Halted"}, id="both fields of a halted VM"),
    pytest.param(
        VM_SPEC,
        {"dataVolumeTemplates": [{"metadata": {"name": "a", "creationTimestamp": None}, "kind": "DataVolume"}]},
        {"dataVolumeTemplates": [{"metadata": {"name": "a"}, "apiVersion": "v1", "status": {}, "spec": {}}]},
        id="what the type of a disk template implies",
    ),
    pytest.param(
        VM_SPEC,
        {"dataVolumeTemplates": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]},
        {"dataVolumeTemplates": [{"metadata": {"name": "b"}}, {"metadata": {"name": "a"}}]},
        id="the order of disk templates",
    ),
    pytest.param(VM_TEMPLATE, {"metadata": {"creationTimestamp": None, "labels": {}}}, {}, id="empty metadata"),
    pytest.param(
        VMI_SPEC,
        {
            "readinessProbe": {
                "httpGet": {"port": 80, "scheme": "HTTP", "path": "/"},
                **{"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            }
        },
        {"readinessProbe": {"httpGet": {"port": 80}, "initialDelaySeconds": 0}},
        id="the numbers of a probe",
    ),
    pytest.param(
        VMI_SPEC,
        {"domain": {"cpu": {"features": [{"name": "a", "policy": "require"}]}}},
        {"domain": {"cpu": {"features": [{"name": "a"}]}}},
        id="a CPU feature is required",
    ),
    pytest.param(VMI_SPEC, devices(disks=[{"name": "a"}]), devices(disks=[{"name": "a", "disk": {}}]), id="a disk"),
    pytest.param(VMI_SPEC, devices(tpm={"enabled": True}), devices(tpm={}), id="a TPM that is named is enabled"),
    pytest.param(
        VMI_SPEC,
        {"domain": {"features": {"apic": {"enabled": True}, "hyperv": {"spinlocks": {}, "vendorid": {}}}}},
        {
            "domain": {
                "features": {"apic": {}, "hyperv": {"spinlocks": {"enabled": True}, "vendorid": {"enabled": True}}}
            }
        },
        id="features of Windows that are named are enabled",
    ),
    pytest.param(
        VMI_SPEC,
        {
            "domain": {
                "firmware": {
                    "bootloader": {"efi": {"persistent": False}},
                    "uuid": "5D307CA9-B3EF-428C-8861-06E72D69F223",
                }
            }
        },
        {"domain": {"firmware": {"bootloader": {"efi": {}}, "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}}},
        id="firmware",
    ),
    pytest.param(
        VMI_SPEC,
        interface(macAddress="02-00-00-AB-CD-E2"),
        interface(macAddress="02:00:00:ab:cd:e2"),
        id="a MAC address",
    ),
    pytest.param(
        VMI_SPEC, interface(macAddress="0200.00ab.cde2"), interface(macAddress="02:00:00:AB:cd:e2"), id="dots"
    ),
    pytest.param(
        VMI_SPEC, interface(ports=[{"port": 1, "protocol": "TCP"}]), interface(ports=[{"port": 1}]), id="a port of TCP"
    ),
    pytest.param(
        VMI_SPEC,
        devices(watchdog={"name": "w", "i6300esb": {"action": "reset"}}),
        devices(watchdog={"name": "w", "i6300esb": {}}),
        id="what a watchdog does",
    ),
    pytest.param(
        VMI_SPEC,
        {"volumes": [{"name": "a", "secret": {"secretName": "x", "optional": False}}]},
        {"volumes": [{"name": "a", "secret": {"secretName": "x"}}]},
        id="a Secret that must exist",
    ),
    *(
        pytest.param(
            VMI_SPEC,
            {"volumes": [{"name": "a", "containerDisk": {"image": image, "imagePullPolicy": policy}}]},
            {"volumes": [{"name": "a", "containerDisk": {"image": image}}]},
            id=f"the pull policy of {image}",
        )
        for image, policy in (
            ("guest:1", "IfNotPresent"),
            ("guest@sha256:0", "IfNotPresent"),
            ("guest:latest", "Always"),
            ("guest", "Always"),
        )
    ),
    pytest.param(VMI_SPEC, {"dnsPolicy": "ClusterFirst"}, {}, id="the DNS policy of Pods"),
    pytest.param(
        VMI_SPEC,
        {"topologySpreadConstraints": [{"minDomains": 1, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}]},
        {"topologySpreadConstraints": [{}]},
        id="defaults of constraints",
    ),
    pytest.param(
        VMI_SPEC,
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_XY, HAS_B]}]}}}},
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [HAS_B, {**IN_XY, "values": ["y", "x"]}], "matchFields": []}
                        ]
                    }
                }
            }
        },
        id="the order of conditions and of their values",
    ),
    pytest.param(
        VMI_SPEC,
        {
            "affinity": {
                "podAntiAffinity": {REQUIRED: [{"topologyKey": "a", "labelSelector": {}}, {"topologyKey": "b"}]}
            }
        },
        {
            "affinity": {
                "podAntiAffinity": {
                    REQUIRED: [
                        {"topologyKey": "b", "namespaces": []},
                        {"topologyKey": "a", "labelSelector": {"matchLabels": {}}},
                    ]
                }
            }
        },
        id="the order of terms, and empty selectors",
    ),
    *(
        pytest.param(VM_SPEC, {"instancetype": one}, {"instancetype": other}, id=name)
        for name, one, other in (
            ("a kind by default", {"name": "a", "kind": "VirtualMachineClusterInstancetype"}, {"name": "a"}),
            (
                "a kind in other letters",
                {"name": "a", "kind": "VirtualMachineInstancetype"},
                {"name": "a", "kind": "virtualmachineinstancetypes"},
            ),
            (
                "what an inference that fails does",
                {"inferFromVolume": "a", "inferFromVolumeFailurePolicy": "Reject"},
                {"inferFromVolume": "a"},
            ),
        )
    ),
    pytest.param(
        VM_SPEC,
        {"preference": {"name": "a", "kind": "virtualMachineClusterPreference"}},
        {"preference": {"name": "a"}},
        id="the kind of a preference",
    ),
    pytest.param(VM_TEMPLATE, {"spec": {"template": {"metadata": {}}}}, {"spec": {"template": {}}}, id="of VMIs too"),
    pytest.param(
        VM_SPEC,
        vmi_spec(domain={"features": {"acpi": {"enabled": True}}}, architecture="amd64"),
        vmi_spec(architecture="amd64"),
        id="ACPI, which no preference disables",
    ),
    pytest.param(
        VM_SPEC,
        {**vmi_spec(**devices(autoattachMemBalloon=True)), "preference": None},
        vmi_spec(),
        id="a device, beside null as preference",
    ),
    pytest.param(
        VM_TEMPLATE,
        {"spec": vmi_spec(**devices(disks=[{"name": "a", "shareable": False}, {"name": "b"}]))},
        {"spec": vmi_spec(**devices(disks=[{"name": "a"}, {"name": "b", "dedicatedIOThread": False}]))},
        id="fields of disks, in a template without a preference",
    ),
    *(
        pytest.param(VM_SPEC, vmi_spec(**_wrapped(owner, {name: value})), vmi_spec(**_wrapped(owner, {})), id=name)
        for (owner, name), value in meaning._DEFAULTS_WITHOUT_PREFERENCE.items()
    ),
]

OTHER = [
    pytest.param(DATA_VOLUME_SPEC, size("1Ti"), size("1T"), id="a decimal unit"),
    pytest.param(DATA_VOLUME_SPEC, size("1Ti"), size("1025Gi"), id="another size"),
    pytest.param(DATA_VOLUME_SPEC, {"contentType": "archive"}, {}, id="another content type"),
    pytest.param(DATA_VOLUME_SPEC, {"source": {"blank": {}}}, {"source": {}}, id="an empty source is a choice"),
    pytest.param(
        DATA_VOLUME_SPEC, {"storage": {"storageClassName": ""}}, {"storage": {}}, id="no class is not the default class"
    ),
    pytest.param(DATA_VOLUME_SPEC, {"preallocation": False}, {}, id="false in a pointer"),
    pytest.param(
        VMI_SPEC,
        {"domain": {"memory": {"hugepages": {"pageSize": "1Gi"}}}},
        {"domain": {"memory": {"hugepages": {"pageSize": "1024Mi"}}}},
        id="the size of huge pages is a part of a resource's name",
    ),
    pytest.param(VMI_SPEC, interface(masquerade={}), interface(), id="a binding"),
    pytest.param(VMI_SPEC, interface(masquerade={}), interface(bridge={}), id="another binding"),
    pytest.param(VMI_SPEC, devices(rng={}), devices(), id="a device without fields"),
    pytest.param(VMI_SPEC, devices(disks=[{"cdrom": {}}]), devices(disks=[{}]), id="a CD-ROM drive"),
    pytest.param(
        VMI_SPEC, {"schedulerName": "default-scheduler"}, {}, id="the scheduler, which an instance type may name"
    ),
    pytest.param(VMI_SPEC, devices(tpm={}), devices(), id="a TPM"),
    pytest.param(VMI_SPEC, devices(tpm={"enabled": False}), devices(tpm={}), id="a disabled TPM"),
    pytest.param(
        VMI_SPEC,
        {"volumes": [{"containerDisk": {"image": "a:1", "imagePullPolicy": "Always"}}]},
        {"volumes": [{"containerDisk": {"image": "a:1"}}]},
        id="another pull policy",
    ),
    pytest.param(
        VMI_SPEC,
        {"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": True}}}}},
        {"domain": {"firmware": {"bootloader": {"efi": {}}}}},
        id="secure boot, which depends on the architecture",
    ),
    pytest.param(
        VM_SPEC,
        {"instancetype": {"inferFromVolume": "a", "kind": "VirtualMachineClusterInstancetype"}},
        {"instancetype": {"inferFromVolume": "a"}},
        id="a kind that is inferred",
    ),
    pytest.param(
        VM_SPEC,
        {"instancetype": {"name": "a", "kind": "VirtualMachineInstancetype"}},
        {"instancetype": {"name": "a"}},
        id="an instance type of the namespace",
    ),
    pytest.param(VMI_SPEC, devices(autoattachPodInterface=False), devices(), id="false where true is the default"),
    pytest.param(VMI_SPEC, devices(disks=[{"bootOrder": 0}]), devices(disks=[{}]), id="zero in a pointer"),
    pytest.param(VMI_SPEC, {"tolerations": [None]}, {}, id="null in a list, which KubeVirt refuses"),
    pytest.param(VMI_SPEC, {"terminationGracePeriodSeconds": 0}, {}, id="no grace period"),
    pytest.param(VMI_SPEC, {"nodeSelector": {"a": ""}}, {}, id="an empty value of a map"),
    pytest.param(VMI_SPEC, {"nodeSelector": {"a": "1Ki"}}, {"nodeSelector": {"a": "1024"}}, id="text of a map"),
    pytest.param(
        VMI_SPEC,
        {"topologySpreadConstraints": [{"labelSelector": {}}]},
        {"topologySpreadConstraints": [{}]},
        id="an empty selector selects all",
    ),
    pytest.param(
        VMI_SPEC,
        devices(disks=[{"name": "a"}, {"name": "b"}]),
        devices(disks=[{"name": "b"}, {"name": "a"}]),
        id="order",
    ),
    pytest.param(
        VMI_SPEC,
        {"domain": {"features": {"acpi": {"enabled": True}}}},
        {"domain": {"features": {"acpi": {}}}},
        id="ACPI, which a preference may disable",
    ),
    *(
        pytest.param(
            VM_SPEC,
            {**vmi_spec(**_wrapped(owner, {name: value})), "preference": {"name": "a"}},
            {**vmi_spec(**_wrapped(owner, {})), "preference": {"name": "a"}},
            id=f"{name} beside a preference",
        )
        for (owner, name), value in meaning._DEFAULTS_WITHOUT_PREFERENCE.items()
    ),
    pytest.param(
        VM_SPEC,
        vmi_spec(**devices(autoattachMemBalloon=False)),
        vmi_spec(),
        id="a device that is left out, without a preference",
    ),
    pytest.param(
        VM_SPEC,
        vmi_spec(domain={"features": {"acpi": {"enabled": True}}}, architecture="s390x"),
        vmi_spec(architecture="s390x"),
        id="ACPI on s390x",
    ),
    pytest.param(VM_SPEC, {"runStrategy": "Always"}, {"runStrategy": "RerunOnFailure"}, id="another run strategy"),
    pytest.param(VM_SPEC, {"running": False}, {}, id="no run strategy"),
    pytest.param("", {"a": "1Ti"}, {"a": "1024Gi"}, id="text of an unknown type"),
    pytest.param("", {"a": True}, {"a": 1}, id="truth is not a number"),
]


@pytest.mark.parametrize(("type_name", "one", "other"), SAME)
def test_a_spelling_means_the_same(type_name: str, one: Any, other: Any) -> None:
    before = copy.deepcopy((one, other))
    assert mean_the_same(one, other, type_name)
    assert (one, other) == before


@pytest.mark.parametrize(("type_name", "one", "other"), OTHER)
def test_a_near_miss_counts(type_name: str, one: Any, other: Any) -> None:
    assert not mean_the_same(one, other, type_name)


def test_changed_fields_are_those_of_another_meaning() -> None:
    before = {"hostname": "", "domain": {"memory": {"guest": "1Gi"}}, "nodeSelector": {"a": "b"}}
    after = {"domain": {"memory": {"guest": "1024Mi"}, "cpu": {"cores": 2}}, "tolerations": None}
    found = changed_fields(before, after, VMI_SPEC)
    assert [(each.name, each.type) for each in found] == [("domain", "DomainSpec"), ("nodeSelector", "Map")]


def test_the_tables_name_declared_types_and_fields() -> None:
    known = {*_TYPES, *_KUBERNETES_TYPES, VM_TEMPLATE}
    assert known >= meaning._WITHOUT_EFFECT
    assert known >= meaning._IGNORED.keys()
    for owner, name in (
        *meaning._DEFAULTS,
        *meaning._DEFAULTS_WITHOUT_PREFERENCE,
        *meaning._KEYED,
        *meaning._SETS,
    ):
        assert name in declared_fields(owner), (owner, name)
    for owner in {*_TYPES, *_KUBERNETES_TYPES}:
        for name, field in declared_fields(owner).items():
            assert field.type in {"", "Quantity", "Quantities", "Map", *known}, (owner, name)


QUANTITIES = (("1Gi", "1024Mi"), ("1", "1000m"), (2, "2"), ("0.5Gi", "512Mi"), ("1k", "1e3"), ("1.5", "1500m"))


def spellings(owner: str, name: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of objects of the type `owner` whose field `name` means the same."""
    field = declared_fields(owner)[name]
    yield {name: None}, {}
    yield {name: []}, {}
    for one, other in QUANTITIES if field.type.startswith("Quantit") else ():
        wrapped = ({"cpu": each} for each in (one, other)) if field.type == "Quantities" else (one, other)
        before, after = wrapped
        yield {name: before}, {name: after}
    if field.type in ("Map", "Quantities"):
        yield {name: {}}, {}
        yield {name: {"key": None}}, {}
    if not field.type and not field.is_pointer and (owner, name) not in meaning._DEFAULTS:
        yield from (({name: zero}, {}) for zero in ("", 0, False))
    if (owner, name) in meaning._DEFAULTS:
        yield {name: meaning._DEFAULTS[owner, name]}, {}
    if field.type in meaning._WITHOUT_EFFECT:
        yield {name: {}}, {}


def near_misses(owner: str, name: str) -> Iterator[tuple[Any, Any]]:
    if name in meaning._IGNORED.get(owner, ()):
        return
    field = declared_fields(owner)[name]
    yield {name: "x"}, {name: "y"}
    yield {name: "x"}, {}
    if field.is_pointer:
        default = meaning._DEFAULTS.get((owner, name))
        yield from (({name: zero}, {}) for zero in ("", 0, False) if zero is not default)
    if field.type == "Quantity":
        yield {name: "1Gi"}, {name: "1G"}
    if field.type in _TYPES and field.type not in meaning._WITHOUT_EFFECT:
        yield {name: {}}, {}


@pytest.mark.parametrize("owner", sorted({*_TYPES, *_KUBERNETES_TYPES}))
def test_each_field_has_spellings_and_near_misses(owner: str) -> None:
    for name in declared_fields(owner):
        for one, other in spellings(owner, name):
            assert mean_the_same(one, other, owner), (one, other)
        for one, other in near_misses(owner, name):
            assert not mean_the_same(one, other, owner), (one, other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "1Gi", "1024Mi", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "domain", "cpu", "memory", "guest", "template", "x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(JSON, st.sampled_from([VM_TEMPLATE, VM_SPEC, VMI_SPEC, "DomainSpec", "Memory", ""]))
def test_any_value_has_one_form(value: Any, type_name: str) -> None:
    """The form is its own form, and the value stays as it is."""
    before = copy.deepcopy(value)
    form = canonical(value, type_name)
    assert value == before
    assert meaning.text_of(canonical(form, type_name)) == meaning.text_of(form)
