"""What the next restart of a VM changes, by its spec and its VMI."""

from __future__ import annotations

import json
from typing import Any

import pytest

from defaulter import fleet, hook, xml
from defaulter.field_record import DEFAULTED_FIELDS
from defaulter.fleet import EDITED, Guest, at_start, foreseeable, read_guest, report, shape, with_moves
from defaulter.inventory import NOT_SET
from defaulter.vm_paths import OPT_OUT
from tests.defaulter.builders import disk, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt, libvirt, user, warm

__all__ = ["libvirt", "user", "warm"]

Json = dict[str, Any]
MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
OPEN = spec(disk(), nic())
GUEST = Guest({"default": MAC}, "pc-q35-9.2", topology="v3")
MAC_CHANGE = ("nic default", "macAddress", MAC, None, NOT_SET)


def changes(document: Json, guest: Guest | None = GUEST) -> list[tuple[str, str, str, str | None, str]]:
    found = report(document, guest)
    return [(each.device, each.field, each.from_, each.to, each.reason) for each in found.changes]


@pytest.mark.parametrize(
    ("document", "guest", "expected"),
    [
        pytest.param(vm(OPEN), GUEST, [MAC_CHANGE], id="an open MAC address"),
        pytest.param(vm(spec(disk())), GUEST, [MAC_CHANGE], id="an implicit NIC"),
        pytest.param(vm(spec(nic(macAddress=MAC))), GUEST, [], id="the spec has the MAC address of the guest"),
        pytest.param(vm(spec(nic(macAddress="02-00-00-00-00-01"))), GUEST, [], id="the same in another notation"),
        pytest.param(
            vm(spec(nic(macAddress=OTHER))),
            GUEST,
            [("nic default", "macAddress", MAC, OTHER, EDITED)],
            id="the spec has another MAC address",
        ),
        pytest.param(
            vm(spec(domain={"machine": {"type": "pc-q35-10.0"}})),
            Guest(machine="pc-q35-9.2"),
            [("machine", "type", "pc-q35-9.2", "pc-q35-10.0", EDITED)],
            id="the spec has another machine type",
        ),
        pytest.param(
            vm(spec(domain={"machine": {"type": "q35"}})),
            Guest(machine="pc-q35-9.2"),
            [],
            id="an alias of the machine type changes nothing",
        ),
        pytest.param(vm(OPEN), None, [], id="no guest"),
        pytest.param(
            vm(spec(disk(pciAddress="0000:09:00.0"))),
            Guest(addresses={"disk root": "0000:07:00.0"}),
            [("disk root", "pciAddress", "0000:07:00.0", "0000:09:00.0", EDITED)],
            id="the spec has another PCI address",
        ),
        pytest.param(
            vm(spec(disk())),
            Guest(addresses={"disk root": "0000:07:00.0"}),
            [("disk root", "pciAddress", "0000:07:00.0", None, NOT_SET)],
            id="the spec has no PCI address any more",
        ),
        pytest.param(
            vm(spec(disk(pciAddress="0000:07:00.0"))),
            Guest(addresses={"disk root": "0000:07:00.0"}),
            [],
            id="the spec has the PCI address of the guest",
        ),
    ],
)
def test_changes(document: Json, guest: Guest | None, expected: list[tuple[str, ...]]) -> None:
    assert changes(document, guest) == expected


def labelled(document: Json) -> Json:
    return {**document, "metadata": {**document["metadata"], "labels": {OPT_OUT: "disabled"}}}


def recorded(document: Json, fields: Json) -> Json:
    return {**document, "metadata": {**document["metadata"], "annotations": {DEFAULTED_FIELDS: json.dumps(fields)}}}


PLACED = spec(disk(), nic(macAddress=MAC))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(vm(OPEN), "No", id="nothing set"),
        pytest.param(vm(PLACED), "Partly", id="the author set a MAC address"),
        pytest.param(vm(spec(disk(pciAddress="0000:07:00.0"), nic())), "Partly", id="the author placed a disk"),
        pytest.param(
            recorded(vm(PLACED), {"domain.devices.interfaces[default].macAddress": MAC}), "Partly", id="by Poolhouse"
        ),
        pytest.param(labelled(vm(PLACED)), "OptedOut", id="opted out"),
    ],
)
def test_who_set_the_hardware(document: Json, expected: str) -> None:
    found = report(document, None)
    assert found.defaulted == expected


def test_an_object_that_is_no_vm_has_no_report() -> None:
    assert report({**vm(OPEN), "kind": "Secret"}, None) is None
    assert report(vmi(OPEN), None) is None


def test_the_vms_of_a_namespace_that_opted_out_change_too() -> None:
    found = report(vm(OPEN), GUEST, opted_out_namespace=True)
    assert (found.defaulted, len(found.changes)) == ("OptedOut", 1)


@pytest.mark.parametrize(
    ("document", "guest", "expected"),
    [
        pytest.param(vm(OPEN), None, ["machine type: not set", "no VMI"], id="no guest"),
        pytest.param(vm(OPEN), GUEST, ["machine type: not set", "PCI addresses"], id="open addresses"),
        pytest.param(labelled(vm(OPEN)), GUEST, ["machine type: not set", "PCI addresses"], id="opted out"),
        pytest.param(
            vm(OPEN), Guest(), ["machine type: not set", "PCI addresses", "PCI ports"], id="of an older KubeVirt"
        ),
        pytest.param(
            vm(spec(domain={"machine": {"type": "q35"}})), GUEST, ["machine type: the alias q35"], id="an alias"
        ),
        pytest.param(
            vm(OPEN),
            Guest(hotplugged=("data",), topology="v3"),
            ["machine type: not set", "PCI addresses", "PCI address of volume data"],
            id="a hotplugged volume",
        ),
        pytest.param(
            vm(spec(disk(), disk("data"), nic())),
            Guest(hotplugged=("data",), topology="v3", read=frozenset(("disk root", "disk data", "nic default"))),
            ["machine type: not set"],
            id="all addresses were read in the domain",
        ),
        pytest.param(
            vm(spec(disk(), disk("data"))),
            Guest(topology="v3", read=frozenset(("disk root", "disk foreign"))),
            ["machine type: not set", "PCI addresses: libvirt chooses 1"],
            id="an address of two was read",
        ),
        pytest.param(
            vm({"domain": {"devices": {}}, "volumes": [{"name": "root"}]}),
            Guest(topology="v3", read=frozenset(("disk root", "nic default"))),
            ["machine type: not set"],
            id="addresses of devices that KubeVirt adds",
        ),
    ],
)
def test_the_report_names_the_values_that_it_cannot_foresee(
    document: Json, guest: Guest | None, expected: list[str]
) -> None:
    found = report(document, guest)
    assert len(found.unknown) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found.unknown, expected, strict=True))


def test_a_vmi_shows_its_guest() -> None:
    document = vmi(spec(nic(), {"name": "fast", "sriov": {}}), annotations={"kubevirt.io/pci-topology-version": "v2"})
    document["status"] = {
        "machine": {"type": "pc-q35-9.2"},
        "interfaces": [
            {"name": "default", "mac": MAC, "infoSource": "domain, guest-agent"},
            {"name": "fast", "mac": OTHER, "infoSource": "domain"},
            {"mac": OTHER, "infoSource": "guest-agent"},
        ],
        "volumeStatus": [{"name": "root"}, {"name": "data", "hotplugVolume": {}}],
    }
    assert read_guest(document) == Guest({"default": MAC}, "pc-q35-9.2", ("data",), topology="v2")
    placed = read_guest(vmi(spec(disk(pciAddress="0000:07:00.0"), nic())))
    assert placed.addresses == {"disk root": "0000:07:00.0"}
    assert read_guest({}) == Guest()


def test_the_json_has_the_form_that_scripts_read() -> None:
    found = report(vm(OPEN), GUEST)
    row = found.as_json()
    assert list(row) == ["namespace", "name", "defaulted", "changes", "unknown", "held"]
    assert row["changes"] == [
        {"device": "nic default", "field": "macAddress", "from": MAC, "to": None, "reason": NOT_SET}
    ]


RECORDED = {"poolhouse.dev/hardware": "{}"}
HOOKED = {"hooks.kubevirt.io/hookSidecars": '[{"command": ["/var/run/kubevirt-hooks/poolhouse-hardware.sock"]}]'}


@pytest.mark.parametrize(
    ("annotations", "guest", "plugin", "expected"),
    [
        pytest.param({}, GUEST, True, False, id="no record"),
        pytest.param(RECORDED, GUEST, False, False, id="a record without a hook"),
        pytest.param(RECORDED, GUEST, True, True, id="a plugin"),
        pytest.param(RECORDED, None, True, True, id="a plugin, and no guest"),
        pytest.param(RECORDED, Guest(hooked=True), False, True, id="a sidecar by the webhook"),
        pytest.param(RECORDED, Guest(hooked=True), None, True, id="a sidecar, and plugins are hidden"),
        pytest.param(RECORDED | HOOKED, None, False, True, id="a sidecar in the template"),
        pytest.param(RECORDED, None, False, None, id="the next VMI may get a sidecar"),
        pytest.param(RECORDED, GUEST, None, None, id="the user may not see plugins"),
    ],
)
def test_whose_hardware_is_held_by_the_hook(
    annotations: Json, guest: Guest | None, plugin: bool | None, expected: bool | None
) -> None:
    found = report(vm(PLACED, annotations=annotations), guest, plugin=plugin)
    assert found.held is expected


def test_a_vmi_shows_its_hook() -> None:
    assert read_guest(vmi(OPEN, annotations=HOOKED)).hooked
    assert not read_guest(vmi(OPEN, annotations={"hooks.kubevirt.io/hookSidecars": "[{}]"})).hooked


BALLOON = "memballoon virtio-non-transitional"
V3 = {"kubevirt.io/pci-topology-version": "v3"}
RUNNING = spec(disk(), disk("more"), nic(model="virtio"))


def hotplugged(content: Json, *names: str) -> Json:
    status = {"volumeStatus": [{"name": name, "hotplugVolume": {}} for name in names]}
    return {**vmi(content, annotations=V3), "status": status}


@pytest.mark.libvirt
@pytest.mark.parametrize(
    ("now", "running", "moved"),
    [
        pytest.param(RUNNING, vmi(RUNNING, annotations=V3), [], id="the same devices"),
        pytest.param(spec(disk(), disk("more"), nic()), vmi(RUNNING, annotations=V3), [], id="what KubeVirt fills"),
        pytest.param(
            spec(disk(), disk("new"), disk("more"), nic(model="virtio")),
            vmi(RUNNING, annotations=V3),
            ["disk more", BALLOON],
            id="a disk was added before another",
        ),
        pytest.param(
            spec(disk("more"), nic(model="virtio")),
            vmi(RUNNING, annotations=V3),
            ["disk more", BALLOON],
            id="the first disk was removed",
        ),
        pytest.param(
            spec(disk(), disk("more"), disk("late"), nic(model="virtio")),
            hotplugged(spec(disk(), disk("more"), disk("late"), nic(model="virtio")), "late"),
            [BALLOON],
            id="a disk was hotplugged",
        ),
    ],
)
def test_addresses_that_move_are_foreseen(libvirt: Libvirt, now: Json, running: Json, moved: list[str]) -> None:
    document, guest, start = vm(now, annotations=V3), read_guest(running), at_start(running)
    found = report(document, guest)
    assert found is not None
    assert start is not None
    before, after = (
        hook.read_record(hook.build_record(xml.read(libvirt.domain(each)), "", "")) for each in (start, document)
    )
    foreseen = with_moves(found, guest, before, after)
    changes = [each for each in foreseen.changes if each.field == "pciAddress"]
    assert [each.device for each in changes] == moved
    assert all(each.reason == fleet.PLACED and each.from_ != each.to for each in changes)
    assert not any(text.startswith("PCI addresses") for text in foreseen.unknown)


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        pytest.param(OPEN, {}, True, id="a VM"),
        pytest.param(OPEN, {"instancetype": {"name": "u1"}}, False, id="an instance type"),
        pytest.param(OPEN, {"preference": {"name": "linux"}}, False, id="a preference"),
    ],
)
def test_which_vms_the_defaulter_can_foresee(content: Json, fields: Json, expected: bool) -> None:
    assert foreseeable(vm(content, **fields)) is expected


@pytest.mark.parametrize("annotations", [{}, {"kubevirt.io/pci-topology-version": "v2"}])
def test_guests_of_older_rules_are_not_foreseen(annotations: Json) -> None:
    assert at_start(vmi(OPEN, annotations=annotations)) is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        pytest.param(vm(OPEN), vm(OPEN, name="b", namespace="other"), True, id="names"),
        pytest.param(vm(OPEN), vm(PLACED), True, id="MAC addresses"),
        pytest.param(vm(OPEN), vm(spec(disk("data"), nic())), False, id="names of disks"),
        pytest.param(vm(OPEN), vm(OPEN, annotations=V3), False, id="annotations of the VMI"),
        pytest.param(vm(OPEN), vmi(OPEN), False, id="kinds"),
        pytest.param(vm(OPEN), {"kind": "VirtualMachine"}, False, id="no spec"),
    ],
)
def test_vms_of_one_shape_are_asked_about_once(one: Json, other: Json, equal: bool) -> None:
    assert (shape(one) == shape(other)) is equal
