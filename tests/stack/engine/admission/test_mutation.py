"""What virt-api fills before the webhook of Poolhouse sees a VM."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import without_nulls
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.stack.engine.admission.mutation import default_vm, default_vmi

Json = dict[str, Any]


def settings(version: str = "v1.9.0", **fields: Any) -> ClusterSettings:
    return ClusterSettings(versions=(version,), **fields)


def vm(*, metadata: Json | None = None, **domain: Any) -> Json:
    return {"metadata": {"name": "a", **(metadata or {})}, "spec": {"template": {"spec": {"domain": domain}}}}


@pytest.mark.parametrize(
    ("version", "firmware", "topology"),
    [
        pytest.param("v1.5.3", None, None, id="1.5 fills no identity"),
        pytest.param("v1.6.0", {"uuid": "drawn"}, None, id="1.6 fills the UUID"),
        pytest.param("v1.7.0", {"uuid": "drawn", "serial": "drawn"}, None, id="1.7 fills the serial too"),
        pytest.param("v1.8.4", {"uuid": "drawn", "serial": "drawn"}, "v3", id="1.8 names the PCI topology"),
    ],
)
def test_a_new_vm_gets_what_its_release_fills(version: str, firmware: Json | None, topology: str | None) -> None:
    template = default_vm(vm(), "CREATE", settings(version), lambda: "drawn")["spec"]["template"]
    assert template["spec"]["domain"].get("firmware") == firmware
    assert template["spec"]["architecture"] == "amd64"
    assert template["spec"]["domain"]["machine"] == {"type": "q35"}
    annotations = template.get("metadata", {}).get("annotations") or {}
    assert annotations.get("kubevirt.io/pci-topology-version") == topology


def test_an_updated_vm_gets_architecture_and_machine_type_only() -> None:
    found = default_vm(vm(), "UPDATE", settings())["spec"]["template"]
    assert found["spec"]["domain"] == {"machine": {"type": "q35"}, "devices": {}, "resources": {}}
    assert "metadata" not in found


def test_values_of_the_author_stay() -> None:
    given = vm(machine={"type": "pc-q35-8.2"}, firmware={"uuid": "mine", "bootloader": {"bios": {}}})
    domain = default_vm(given, "CREATE", settings(), lambda: "drawn")["spec"]["template"]["spec"]["domain"]
    assert domain["machine"] == {"type": "pc-q35-8.2"}
    assert domain["firmware"] == {"uuid": "mine", "serial": "drawn", "bootloader": {"bios": {}}}


def test_the_kubevirt_object_chooses_architecture_and_machine_type() -> None:
    chosen = settings(architecture="arm64", machine_types={"arm64": "virt-9.1"})
    spec = default_vm(vm(), "CREATE", chosen)["spec"]["template"]["spec"]
    assert (spec["architecture"], spec["domain"]["machine"]["type"]) == ("arm64", "virt-9.1")


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(vm(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="a VM that is being deleted"),
        pytest.param({"metadata": {"name": "a"}, "spec": {"running": False}}, id="a VM without a template"),
    ],
)
def test_some_vms_are_left_alone(document: Json) -> None:
    assert default_vm(document, "CREATE", settings()) == document


def test_a_new_vmi_gets_memory_and_processors_from_its_requests() -> None:
    requests = {"memory": "1Gi", "cpu": "2"}
    vmi = {"metadata": {}, "spec": {"domain": {"resources": {"requests": requests}}}}
    domain = default_vmi(vmi, settings(cpu_model="Haswell"))["spec"]["domain"]
    assert domain["memory"] == {"guest": "1Gi"}
    assert domain["cpu"] == {"cores": 1, "threads": 1, "sockets": 2, "model": "Haswell"}


def test_the_engine_drops_nulls_as_kubevirt_does() -> None:
    given = vm(machine=None, devices={"interfaces": [{"name": "default", "masquerade": {}, "sriov": None}]})
    given["spec"] |= {"running": None, "runStrategy": "Halted", "instancetype": None}
    for document in (given, vm(machine=None, devices=None, resources=None)):
        spec = default_vm(document, "CREATE", settings())["spec"]
        assert spec == without_nulls(spec)
        assert spec["template"]["spec"]["domain"]["machine"] == {"type": "q35"}
        assert default_vm({**given, "spec": {"template": {"spec": None}}}, "CREATE", settings())["spec"]["template"][
            "spec"
        ]
    inner = {"domain": {"cpu": None, "devices": {"disks": None}}, "volumes": None}
    found = default_vmi({"metadata": {}, "spec": inner}, settings())["spec"]
    assert found == without_nulls(found)
    assert found["domain"]["cpu"]["sockets"] == 1


def devices(spec: Json, **fields: Any) -> Json:
    """The networks and devices of the VMI that is created with this spec."""
    found = default_vmi({"metadata": {"name": "a"}, "spec": spec}, settings(**fields))["spec"]
    return {"networks": found.get("networks"), **found["domain"]["devices"]}


POD: Json = {"networks": [{"name": "default", "pod": {}}], "interfaces": [{"name": "default", "bridge": {}}]}
LISTED: Json = {"networks": [{"name": "n", "pod": {}}], "interfaces": [{"name": "n", "masquerade": {}}]}


@pytest.mark.parametrize(
    ("spec", "fields", "expected"),
    [
        pytest.param({}, {}, POD, id="a NIC on the pod network"),
        pytest.param(
            {}, {"network": "masquerade"}, {**POD, "interfaces": [{"name": "default", "masquerade": {}}]}, id="binding"
        ),
        pytest.param(
            {"domain": {"devices": {"autoattachPodInterface": False}}},
            {},
            {"networks": None, "autoattachPodInterface": False},
            id="no NIC is wanted",
        ),
        pytest.param(
            {"networks": LISTED["networks"], "domain": {"devices": {"interfaces": LISTED["interfaces"]}}},
            {},
            LISTED,
            id="a listed NIC",
        ),
        pytest.param(
            {"volumes": [{"name": "root"}]},
            {},
            {**POD, "disks": [{"name": "root", "disk": {"bus": "sata"}}]},
            id="a volume without a disk",
        ),
        pytest.param(
            {"architecture": "arm64", "volumes": [{"name": "root"}]},
            {},
            {**POD, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
            id="the bus of another architecture",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}, {"name": "b"}], "domain": {"devices": {"disks": [{"name": "b", "cdrom": {}}]}}},
            {},
            {**POD, "disks": [{"name": "b", "cdrom": {"bus": "sata"}}, {"name": "a", "disk": {"bus": "sata"}}]},
            id="a disk without a bus",
        ),
        pytest.param(
            {"volumes": [{"name": "share"}], "domain": {"devices": {"filesystems": [{"name": "share"}]}}},
            {},
            {**POD, "filesystems": [{"name": "share"}]},
            id="a volume of a file system",
        ),
    ],
)
def test_a_new_vmi_gets_the_devices_that_kubevirt_adds(spec: Json, fields: Json, expected: Json) -> None:
    assert devices(spec, **fields) == expected
