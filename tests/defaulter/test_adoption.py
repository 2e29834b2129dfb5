"""What a guest has is written into its VM before the next start."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from defaulter.adoption import adopt
from tests.defaulter.builders import disk, inner, nic, spec, vm, vmi

Json = dict[str, Any]

MAC = "02:54:00:12:34:56"
ROOT = {"name": "root", "containerDisk": {"image": "registry.example/guest"}}


def running(content: Json, **status: Any) -> Json:
    found = {
        "machine": {"type": "pc-q35-9.2"},
        "interfaces": [{"name": "default", "mac": MAC, "infoSource": "domain, guest-agent"}],
    }
    return {**vmi(content), "status": {**found, **status}}


GUEST = spec(disk("root", "sata"), nic(model="e1000e"), domain={"cpu": {"sockets": 1, "cores": 2, "threads": 1}})
GUEST["domain"]["firmware"] = {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "s-1"}
GUEST["volumes"] = [ROOT]


def test_a_vm_that_lists_nothing_gets_what_its_guest_has() -> None:
    """What `virtctl create vm` writes."""
    stored = vm({"domain": {"devices": {}}, "volumes": [ROOT]})
    before, guest = deepcopy(stored), running(deepcopy(GUEST))
    found = inner(adopt(stored, guest))
    assert found["domain"]["machine"]["type"] == "pc-q35-9.2"
    assert found["domain"]["firmware"] == GUEST["domain"]["firmware"]
    assert found["domain"]["cpu"] == {"sockets": 1, "cores": 2, "threads": 1}
    assert found["domain"]["memory"] == {"guest": "128Mi"}
    assert found["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "sata"}}]
    assert found["domain"]["devices"]["interfaces"] == [
        {"name": "default", "masquerade": {}, "model": "e1000e", "macAddress": MAC}
    ]
    assert found["networks"] == [{"name": "default", "pod": {}}]
    assert stored == before
    assert guest == running(deepcopy(GUEST))
    again = adopt(stored, guest)
    assert adopt(again, guest) == again


@pytest.mark.parametrize(
    ("stored", "guest", "path", "expected"),
    [
        pytest.param(
            spec(nic(macAddress="02:00:00:00:00:01")),
            running(GUEST),
            ("devices", "interfaces", 0, "macAddress"),
            "02:00:00:00:00:01",
            id="the author's MAC address stays",
        ),
        pytest.param(
            spec(nic(model="virtio")),
            running(GUEST),
            ("devices", "interfaces", 0, "model"),
            "virtio",
            id="the author's model stays",
        ),
        pytest.param(
            spec(nic("other")),
            running(GUEST),
            ("devices", "interfaces", 0, "macAddress"),
            None,
            id="the guest does not have the NIC",
        ),
        pytest.param(
            spec(nic()),
            running(GUEST, interfaces=[{"mac": MAC, "infoSource": "guest-agent"}]),
            ("devices", "interfaces", 0, "macAddress"),
            None,
            id="a NIC that only the guest agent reports",
        ),
        pytest.param(
            spec({"name": "default", "sriov": {}}),
            running(GUEST),
            ("devices", "interfaces", 0, "macAddress"),
            None,
            id="a function of an SR-IOV NIC",
        ),
        pytest.param(
            spec(disk("root", "scsi")), running(GUEST), ("devices", "disks", 0, "disk", "bus"), "scsi", id="a bus stays"
        ),
        pytest.param(
            spec(domain={"cpu": {"cores": 4}}), running(GUEST), ("cpu", "sockets"), None, id="the author's topology"
        ),
        pytest.param(
            spec(domain={"resources": {"requests": {"cpu": 2}}}),
            running(GUEST),
            ("cpu",),
            None,
            id="a size by requests",
        ),
        pytest.param(
            spec(),
            running(GUEST, currentCPUTopology={"sockets": 2, "cores": 2, "threads": 1}),
            ("cpu", "sockets"),
            2,
            id="CPUs that were hotplugged",
        ),
        pytest.param(
            {"domain": {"devices": {}}},
            running(GUEST, memory={"guestCurrent": "256Mi"}),
            ("memory", "guest"),
            "256Mi",
            id="memory that was hotplugged",
        ),
        pytest.param(
            spec(domain={"machine": {"type": "pc-q35-8.0"}}),
            running(GUEST),
            ("machine", "type"),
            "pc-q35-8.0",
            id="the author's machine type",
        ),
    ],
)
def test_what_is_adopted(stored: Json, guest: Json, path: tuple[Any, ...], expected: Any) -> None:
    found: Any = inner(adopt(vm(deepcopy(stored)), guest))["domain"]
    for step in path:
        found = found.get(step) if isinstance(found, dict) else found[step] if found else None
    assert found == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param(["data"], ["root", "cloud", "data"], id="a disk that was hotplugged into a VM that listed none"),
        pytest.param(["root", "data"], ["root", "cloud", "data"], id="between those that are listed"),
        pytest.param(["data", "root"], ["cloud", "data", "root"], id="the order of the author stays"),
        pytest.param(["new"], ["new", "root", "cloud", "data"], id="the guest has none of those that are listed"),
        pytest.param([], ["root", "cloud", "data"], id="none is listed"),
    ],
)
def test_a_disk_that_is_not_listed_gets_its_place_in_the_guest(listed: list[str], expected: list[str]) -> None:
    names = ["root", "cloud", "data"]
    guest = {**spec(*map(disk, names)), "volumes": [{"name": name} for name in names]}
    stored = {**spec(*map(disk, listed)), "volumes": [{"name": name} for name in names]}
    found = inner(adopt(vm(stored), running(guest)))
    assert [each["name"] for each in found["domain"]["devices"]["disks"]] == expected


def test_an_instance_type_keeps_cpu_and_memory() -> None:
    stored = vm({"domain": {"devices": {}}}, instancetype={"name": "small"})
    domain = inner(adopt(stored, running(GUEST)))["domain"]
    assert not {"cpu", "memory"} & domain.keys()


def test_another_component_assigns_mac_addresses() -> None:
    stored = vm(spec(nic()))
    assert "macAddress" not in inner(adopt(stored, running(GUEST), "leave"))["domain"]["devices"]["interfaces"][0]


@pytest.mark.parametrize("guest", [None, {}, {"status": {}}, {"spec": []}, {"spec": {"domain": "damaged"}}])
def test_without_a_guest_nothing_is_adopted(guest: Any) -> None:
    stored = vm(spec(nic(), disk()))
    assert adopt(stored, guest) == stored


def test_a_vm_that_opted_out_stays() -> None:
    stored = vm(spec(nic()))
    stored["metadata"]["labels"] = {"poolhouse.dev/defaulting": "disabled"}
    assert adopt(stored, running(GUEST)) == stored
