from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from defaulter.contract import undefaulted_fields
from tests.defaulter.builders import disk, nic, pool, spec, vm, vmi


def open_fields(document: dict[str, Any]) -> set[str]:
    return {path.split("spec.domain.")[-1] for path in undefaulted_fields(document)}


def test_a_bare_vm_has_no_machine_type_identity_and_addresses() -> None:
    found = open_fields(vm(spec(disk(), nic())))
    assert {"machine.type", "firmware.uuid", "firmware.serial", "cpu.sockets"} <= found
    assert {"devices.disks[0].disk.pciAddress", "devices.interfaces[0].pciAddress"} <= found
    assert {"devices.interfaces[0].macAddress", "devices.interfaces[0].model"} <= found


@pytest.mark.parametrize(
    ("machine", "is_open"),
    [
        ("q35", False),
        ("pc-q35-7.2", False),
        ("pc-q35-rhel9.4.0", False),
        ("virt", False),
        ("virt-8.2", False),
        ("virt-rhel9.6.0", False),
        ("s390-ccw-virtio", False),
        ("s390-ccw-virtio-7.2", False),
        ("pc-i440fx-7.2", False),
        ("pc", False),
        ("", True),
    ],
)
def test_an_alias_is_a_value_like_a_canonical_type(machine: str, is_open: bool) -> None:
    assert ("machine.type" in open_fields(vm(spec(domain={"machine": {"type": machine}})))) is is_open


def test_templates_need_no_identity() -> None:
    found = open_fields(pool(spec(disk(), nic())))
    assert not {"firmware.uuid", "firmware.serial", "devices.interfaces[0].macAddress"} & found
    assert "devices.interfaces[0].pciAddress" in found


def test_an_instance_type_sets_cpu_and_memory() -> None:
    found = open_fields(vm(spec(), instancetype={"name": "small"}))
    assert not [path for path in found if path.startswith(("cpu.", "memory."))]


def test_a_preference_decides_all_but_what_it_overrides() -> None:
    found = open_fields(vm(spec(disk(bus=None), nic()), preference={"name": "windows"}))
    assert {"firmware.uuid", "machine.type", "devices.disks[0].disk.bus", "devices.interfaces[0].model"} <= found
    assert "features.acpi.enabled" not in found


@pytest.mark.parametrize("interface", [{"name": "x", "sriov": {}}, nic("x", state="absent")])
def test_an_interface_that_is_not_emulated_needs_nothing(interface: dict[str, Any]) -> None:
    assert not [path for path in open_fields(vm(spec(interface))) if "interfaces" in path]


def test_mac_addresses_are_not_missing_with_the_policy_leave() -> None:
    assert not [path for path in undefaulted_fields(vmi(spec(nic())), macs="leave") if path.endswith("macAddress")]


def test_an_opted_out_document_misses_nothing() -> None:
    document = vm(spec(disk()))
    document["metadata"]["labels"] = {"poolhouse.dev/defaulting": "disabled"}
    assert undefaulted_fields(document) == []


@pytest.mark.parametrize("kind", ["Pod", None, 3, {"a": 1}])
def test_a_kind_without_a_vm_misses_nothing(kind: object) -> None:
    assert undefaulted_fields({"kind": kind, "spec": {}}) == []


@pytest.mark.parametrize(
    "broken",
    [
        None,
        3,
        "x",
        [],
        {"domain": 3},
        {"domain": {"devices": [], "cpu": "x"}},
        {"domain": {"devices": {"disks": {}, "interfaces": [None, 3]}}},
        {"domain": "x", "volumes": [{"name": "a"}]},
        {"domain": {"devices": {"disks": True}}, "volumes": [{"name": "a"}]},
        {"domain": {"devices": {"disks": [{"name": []}], "panicDevices": [{"model": {}}]}}, "volumes": [{"name": "a"}]},
    ],
)
def test_malformed_documents_never_raise(broken: object) -> None:
    document = vm(spec())
    document["spec"]["template"]["spec"] = broken
    before = deepcopy(document)
    undefaulted_fields(document)
    assert document == before
