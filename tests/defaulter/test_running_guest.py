"""What the domain of a running VM says, and what of it is noted in the VMI and written into the VM."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from defaulter.adoption import adopt
from defaulter.running_guest import (
    GUEST_ADDRESSES,
    MAX_DOMAIN_BYTES,
    InvalidDomain,
    forget_addresses,
    guest_addresses,
    needed_reading,
    note_addresses,
    read_domain,
)
from tests.defaulter.builders import disk, inner, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt
from tests.defaulter.test_added_devices import Running, plugged, where

Json = dict[str, Any]
UID = "0a1b"
ROOT = ("disk", "root")


def guest(*devices: Json, phase: str = "Running", noted: Json | None = None, **status: Any) -> Json:
    """A VMI whose NICs and disks are in its domain."""
    content = spec(*devices)
    interfaces = [{"name": each["name"], "infoSource": "domain"} for each in content["domain"]["devices"]["interfaces"]]
    found = vmi(content, uid=UID)
    if noted is not None:
        found["metadata"]["annotations"] = {GUEST_ADDRESSES: json.dumps({"vmi": UID, "addresses": noted})}
    volumes = [{"name": each["name"]} for each in content["domain"]["devices"]["disks"]]
    return {**found, "status": {"phase": phase, "interfaces": interfaces, "volumeStatus": volumes, **status}}


def hotplug(phase: str) -> list[Json]:
    return [{"name": "root"}, {"name": "data", "hotplugVolume": {"attachPodName": "hp"}, "phase": phase}]


BOTH = {"disk root": "0000:07:00.0", "interface default": "0000:01:00.0"}


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        pytest.param(guest(disk(), nic()), "read", id="it was never read"),
        pytest.param(guest(disk(), nic(), noted=BOTH), "", id="all devices are noted"),
        pytest.param(guest(disk(), nic(), noted={**BOTH, "disk root": ""}), "", id="the domain did not have it"),
        pytest.param(guest(disk(), phase="Scheduled"), "", id="it has no domain yet"),
        pytest.param(guest(disk(), phase="Succeeded"), "", id="the guest has ended"),
        pytest.param(guest(disk("root", "sata")), "", id="a spec has no address for a SATA disk"),
        pytest.param(guest(disk(pciAddress="0000:05:00.0")), "", id="the spec has the address"),
        pytest.param(
            guest(disk(), disk("data"), volumeStatus=hotplug("Bound"), noted={"disk root": ""}), "", id="soon"
        ),
        pytest.param(
            guest(disk(), disk("data"), volumeStatus=[{"name": "root"}], noted={"disk root": ""}),
            "",
            id="a disk that is hotplugged is in the spec first",
        ),
        pytest.param(
            guest(disk(), disk("data"), volumeStatus=hotplug("Ready"), noted={"disk root": ""}),
            "read",
            id="a disk was hotplugged",
        ),
        pytest.param(guest(disk(), noted={"disk root": "", "disk data": ""}), "forget", id="a disk was unplugged"),
        pytest.param(guest(nic(), interfaces=[{"name": "default", "infoSource": "multus-status"}]), "", id="!"),
        pytest.param(guest(nic(model="e1000")), "", id="behind a bridge, no address keeps its device"),
        pytest.param(
            {**guest(disk(), noted=BOTH), "metadata": {"uid": "other", "annotations": {GUEST_ADDRESSES: "{}"}}},
            "read",
            id="the note of another VMI",
        ),
    ],
)
def test_when_a_domain_is_read(running: Json, expected: str) -> None:
    assert needed_reading(running) == expected


def test_a_vmi_that_is_deleted_is_not_read_and_keeps_its_note() -> None:
    running = guest(disk(), noted={"disk root": "0000:07:00.0", "disk data": "0000:08:00.0"})
    running["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert needed_reading(running) == ""
    assert guest_addresses(running) == {ROOT: "0000:07:00.0"}


def test_the_note_of_a_device_that_is_gone_is_dropped() -> None:
    gone = guest(disk(), noted={"disk root": "0000:07:00.0", "disk data": "0000:08:00.0"})
    left = forget_addresses(gone)
    assert left is not None
    assert json.loads(left) == {"vmi": UID, "addresses": {"disk root": "0000:07:00.0"}}
    assert forget_addresses(guest(disk(), noted={"disk data": "0000:08:00.0"})) is None


DOMAIN = """
<domain type='kvm'><name>ns_a</name><os><type machine='pc-q35-9.2'>hvm</type></os><devices>
  <disk type='block'><target dev='vda' bus='virtio'/><alias name='ua-root'/>
    <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/></disk>
  <disk type='block'><target dev='vdb' bus='virtio'/><alias name='ua-foreign'/>
    <address type='pci' domain='0x0000' bus='0x0b' slot='0x00' function='0x0'/></disk>
  <interface type='ethernet'><model type='virtio-non-transitional'/><alias name='ua-default'/>
    <address type='drive' controller='0' bus='0' target='0' unit='0'/></interface>
</devices></domain>"""


def test_only_devices_of_the_vmi_are_noted_and_only_pci_addresses() -> None:
    noted = json.loads(note_addresses(guest(disk(), disk("data"), nic()), read_domain(DOMAIN, "ns_a")))
    assert noted == {
        "vmi": UID,
        "addresses": {"disk root": "0000:07:00.0", "disk data": "", "interface default": ""},
    }


def test_a_disk_that_is_not_attached_yet_is_noted_later() -> None:
    running = guest(disk(), disk("data"), volumeStatus=hotplug("MountedToPod"))
    assert json.loads(note_addresses(running, read_domain(DOMAIN)))["addresses"] == {"disk root": "0000:07:00.0"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("error: failed to get domain", id="no XML"),
        pytest.param("<domain/>", id="no devices"),
        pytest.param("<!DOCTYPE domain [<!ENTITY a 'b'>]><domain>&a;</domain>", id="entities"),
        pytest.param(DOMAIN.replace("0x07", "0x7777777777"), id="a number that no address has"),
        pytest.param(DOMAIN.replace("0x07", "seven"), id="no number"),
        pytest.param(DOMAIN.replace("ns_a", "ns_b"), id="another domain"),
        pytest.param(DOMAIN + " " * MAX_DOMAIN_BYTES, id="too large"),
    ],
)
def test_what_is_no_domain_is_refused(text: str) -> None:
    with pytest.raises(InvalidDomain):
        read_domain(text, "ns_a")


@pytest.mark.parametrize(
    "note",
    [
        "[]",
        "no JSON",
        "7",
        json.dumps({"vmi": UID}),
        json.dumps({"vmi": UID, "addresses": []}),
        json.dumps({"vmi": UID, "addresses": {"disk root": 7, "disk data": "0000:zz:00.0", "x": "0000:01:00.0"}}),
        json.dumps({"vmi": "other", "addresses": BOTH}),
    ],
)
def test_a_note_that_a_user_wrote_says_nothing(note: str) -> None:
    running = guest(disk(), nic())
    running["metadata"]["annotations"] = {GUEST_ADDRESSES: note}
    assert guest_addresses(running) == {}
    assert needed_reading(running) in ("read", "forget")


def place(document: Json, index: int = 0) -> str | None:
    found: str | None = inner(document)["domain"]["devices"]["disks"][index]["disk"].get("pciAddress")
    return found


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param(spec(disk(), nic()), "0000:07:00.0", id="the guest's address"),
        pytest.param(spec(disk(pciAddress="0000:0a:00.0"), nic()), "0000:0a:00.0", id="the author's address stays"),
        pytest.param(spec(disk(), disk("other", pciAddress="0000:07:00.0")), None, id="the author gave it to another"),
        pytest.param(spec(disk("root", "scsi"), nic()), None, id="the author changed the bus"),
        pytest.param(spec(disk(), nic(model="rtl8139")), None, id="now there is a bridge"),
    ],
)
def test_a_vm_that_stops_gets_the_addresses_of_its_guest(stored: Json, expected: str | None) -> None:
    running = guest(disk(), nic(), noted=BOTH, phase="Succeeded")
    found = adopt(vm(deepcopy(stored)), running)
    assert place(found) == expected
    assert adopt(found, running) == found


def test_devices_that_a_vm_does_not_list_get_their_addresses_too() -> None:
    stored = vm({"domain": {"devices": {}}, "volumes": [{"name": "root", "containerDisk": {"image": "guest"}}]})
    devices = inner(adopt(stored, guest(disk(), nic(), noted=BOTH)))["domain"]["devices"]
    assert devices["disks"] == [{"name": "root", "disk": {"bus": "virtio", "pciAddress": "0000:07:00.0"}}]
    assert devices["interfaces"][0]["pciAddress"] == "0000:01:00.0"


OLDER = [
    pytest.param([disk(), nic()], {}, id="a disk and a NIC"),
    pytest.param([disk("root", "sata"), nic()], {"rng": {}}, id="a SATA disk"),
    pytest.param([disk(), *(nic(f"n{each}") for each in range(5))], {}, id="five NICs"),
]


@dataclass(frozen=True)
class Restart:
    """The PCI addresses of an older VM before and after a restart, with a virtio disk that was hotplugged."""

    before: dict[str, str]
    after: dict[str, str]

    @property
    def moved(self) -> set[str]:
        return {name for name, address in self.before.items() if self.after[name] != address}


def restart(libvirt: Libvirt, devices: list[Json], extra: Json, *, noted: bool, placeholder: bool = False) -> Restart:
    content = spec(*devices, domain={"machine": {"type": "pc-q35-7.2"}, "devices": extra})
    first = libvirt.domain(vmi(deepcopy(content)))
    running, empty = vmi(deepcopy(content), uid=UID), Running(first).empty
    port = empty[0] if placeholder else next(each for each in empty if each > max(where(first).values()))
    running["status"] = {**guest(*devices)["status"], "volumeStatus": hotplug("Ready")}
    stored = vm(deepcopy(content))
    for document in (stored, running):
        plugged(document, "data", "")
    if noted:
        live = first.replace("</devices>", _attached(port) + "</devices>")
        running["metadata"]["annotations"] = {GUEST_ADDRESSES: note_addresses(running, read_domain(live))}
    halted = adopt(stored, running)
    started = libvirt.default(halted, oldObject=halted, may_have_run=True).object
    return Restart({**where(first), "data": port}, where(libvirt.domain(started)))


@pytest.mark.libvirt
@pytest.mark.parametrize(("devices", "extra"), OLDER)
def test_a_virtio_disk_hotplugged_into_an_older_vm_stays_where_it_was(
    libvirt: Libvirt, devices: list[Json], extra: Json
) -> None:
    assert restart(libvirt, devices, extra, noted=True).moved == set()


@pytest.mark.libvirt
def test_without_the_note_a_disk_changes_places_with_the_balloon(libvirt: Libvirt) -> None:
    """As seen on KubeVirt 1.7 to 1.9."""
    found = restart(libvirt, [disk("root", "sata"), nic()], {}, noted=False)
    assert found.moved == {"data", "memballoon None None"}
    assert found.after["data"] == found.before["memballoon None None"]


@pytest.mark.libvirt
def test_a_disk_in_the_port_of_a_placeholder_stays_and_moves_what_a_spec_cannot_hold(libvirt: Libvirt) -> None:
    found = restart(libvirt, [disk(), nic()], {}, noted=True, placeholder=True)
    assert "data" not in found.moved
    assert not {"root", "default"} & found.moved


def _attached(address: str) -> str:
    """How libvirt shows a disk that was hotplugged."""
    bus = address.split(":")[1]
    return (
        "<disk type='block' device='disk'><target dev='vdz' bus='virtio'/><alias name='ua-data'/>"
        f"<address type='pci' domain='0x0000' bus='0x{bus}' slot='0x00' function='0x0'/></disk>"
    )
