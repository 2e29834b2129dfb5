"""Edits of a VM with defaults: what Poolhouse filled gives way, what the author wrote never does."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from defaulter.contract import forbidden_changes
from defaulter.field_record import DEFAULTED_FIELDS, flatten
from defaulter.superseded import follow_author, preserve_stored_values, record_defaults
from poolhouse.api.apimachinery.merge_patch import LAST_APPLIED
from tests.defaulter.builders import disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt
from tests.defaulter.test_defaulting_properties import HOW, contents

Json = dict[str, Any]
Change = Callable[[Json], None]


@dataclass(frozen=True)
class Stored:
    object: Json
    warnings: tuple[str, ...]


def admit(libvirt: Libvirt, document: Json, old: Json | None = None) -> Stored:
    """The document that the API server stores, with the values that virt-api fills first, and with the checks and the
    record of the client."""
    document = deepcopy(document)
    content = inner(document)
    content.setdefault("architecture", "amd64")
    content["domain"].setdefault("machine", {}).setdefault("type", "q35")
    answer = libvirt.default(document, **({} if old is None else {"oldObject": old}))
    edit = follow_author(document, old)
    assert forbidden_changes(edit.document, answer.object) == []
    return Stored(record_defaults(edit, answer.object), tuple(answer.warnings))


def put(path: str, value: Any) -> Change:
    """Sets a field below the VMI's spec. Items of lists are named in brackets."""

    def change(document: Json) -> None:
        device = path.partition("[")
        items = _find(inner(document), device[0])
        name = device[2].partition("]")[0]
        if name and not any(item["name"] == name for item in items[0][items[1]]):
            items[0][items[1]].append({"name": name})
        holder, key = _find(inner(document), path)
        holder[key] = value

    return change


def drop(path: str) -> Change:
    """Removes a field or an item of a list, where it exists."""

    def change(document: Json) -> None:
        try:
            holder, key = _find(inner(document), path)
        except StopIteration:
            return
        if isinstance(holder, list):
            del holder[key]
        else:
            holder.pop(key, None)

    return change


def append(path: str, item: Json) -> Change:
    def change(document: Json) -> None:
        holder, key = _find(inner(document), path)
        holder[key] = [*(holder.get(key) or ()), item]

    return change


def _find(value: Any, path: str) -> tuple[Any, Any]:
    steps = path.replace("[", ".[").split(".")
    for depth, step in enumerate(steps):
        key = step if not step.startswith("[") else next(i for i, x in enumerate(value) if x["name"] == step[1:-1])
        if depth == len(steps) - 1:
            return value, key
        value = value[key] if isinstance(key, int) else value.setdefault(key, {})
    raise AssertionError(path)


def on_vm(field: str, value: Any) -> Change:
    def change(document: Json) -> None:
        document["spec"][field] = value

    return change


def annotate(name: str, value: str) -> Change:
    def change(document: Json) -> None:
        document["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})[name] = value

    return change


def rich() -> Json:
    """A VM of which most fields are left open."""
    content = spec(
        disk("root"),
        disk("data"),
        {"name": "seed", "cdrom": {}},
        nic(),
        domain={
            "memory": None,
            "resources": {"requests": {"memory": "256Mi", "cpu": "2"}},
            "devices": {
                "rng": {},
                "watchdog": {"name": "dog"},
                "sound": {"name": "sound"},
                "inputs": [{"name": "tablet"}],
                "panicDevices": [{}],
            },
        },
    )
    del content["domain"]["memory"]
    content["domain"]["devices"].pop("autoattachPodInterface")
    content["volumes"].append({"name": "bare", "emptyDisk": {"capacity": "1Mi"}})
    return vm(content)


def bare() -> Json:
    """A VM without disks and interfaces, to which KubeVirt adds both."""
    content = spec(domain={"resources": {"requests": {"memory": "128Mi"}}})
    devices = content["domain"]["devices"]
    del content["domain"]["memory"], content["networks"]
    content["domain"]["devices"] = {
        k: v for k, v in devices.items() if k not in ("disks", "interfaces", "autoattachPodInterface")
    }
    content["volumes"] = [{"name": "root", "emptyDisk": {"capacity": "1Mi"}}]
    return vm(content)


CPU = {f"domain.cpu.{part}" for part in ("cores", "sockets", "threads", "model")}
ROOT, NIC, ADDED = "domain.devices.disks[root]", "domain.devices.interfaces[default]", "domain.devices.disks[bare]"

Row = tuple[Callable[[], Json], list[Change], set[str]]

# Each row: the author's VM, an edit, and the defaults that give way to it. Another value or no value may replace them.
ROWS: dict[str, Row] = {
    "no graphics device, so no video": (
        rich,
        [put("domain.devices.autoattachGraphicsDevice", False)],
        {"domain.devices.video.type"},
    ),
    "EFI brings another display adapter": (
        rich,
        [put("domain.firmware.bootloader", {"efi": {"secureBoot": False}})],
        {"domain.devices.video.type"},
    ),
    "an instance type beside CPU and memory": (
        lambda: vm(spec(disk("root"), nic(), domain={"memory": None})),
        [on_vm("instancetype", {"name": "small"})],
        CPU,
    ),
    "an instance type instead of requests": (
        rich,
        [drop("domain.resources"), on_vm("instancetype", {"name": "small"})],
        CPU | {"domain.memory.guest"},
    ),
    "the request for memory grows": (
        rich,
        [put("domain.resources.requests.memory", "512Mi")],
        {"domain.memory.guest"},
    ),
    "the limit of memory shrinks": (
        lambda: vm(spec(disk("root"), domain={"memory": {}, "resources": {"limits": {"memory": "1Gi"}}})),
        [put("domain.resources.limits.memory", "512Mi")],
        {"domain.memory.guest"},
    ),
    "hugepages become the only source of memory": (
        lambda: vm(spec(disk("root"), domain={"memory": {"hugepages": {"pageSize": "2Mi"}}})),
        [put("domain.memory.hugepages.pageSize", "1Gi")],
        {"domain.memory.guest"},
    ),
    "the request for CPUs grows": (rich, [put("domain.resources.requests.cpu", "4")], {"domain.cpu.sockets"}),
    "the limit of CPUs shrinks below": (
        lambda: vm(spec(domain={"resources": {"limits": {"cpu": "4"}}})),
        [put("domain.resources.limits.cpu", "2")],
        {"domain.cpu.sockets"},
    ),
    "cores instead of the sockets of a request": (rich, [put("domain.cpu.cores", 2)], {"domain.cpu.sockets"}),
    "fewer sockets at most than were requested": (
        rich,
        [put("domain.cpu.maxSockets", 1), put("domain.resources.requests.cpu", "1")],
        {"domain.cpu.sockets"},
    ),
    "another bus": (rich, [put(f"{ROOT}.disk.bus", "sata")], {f"{ROOT}.disk.pciAddress"}),
    "a disk becomes a CD-ROM": (
        rich,
        [drop(f"{ADDED}.disk"), put(f"{ADDED}.cdrom", {})],
        {f"{ADDED}.disk.bus"},
    ),
    "a CD-ROM beside the target of a disk": (
        lambda: vm(spec({"name": "root", "disk": {}}) | {"volumes": [{"name": "root"}, {"name": "bare"}]}),
        [put(f"{ADDED}.cdrom", {})],
        {f"{ADDED}.disk.bus"},
    ),
    "a disk becomes a LUN": (rich, [drop(f"{ROOT}.disk"), put(f"{ROOT}.lun", {"bus": "scsi"})], set()),
    "a CD-ROM becomes a disk": (
        rich,
        [drop("domain.devices.disks[seed].cdrom"), put("domain.devices.disks[seed].disk", {"bus": "virtio"})],
        {f"domain.devices.disks[seed].cdrom.{field}" for field in ("bus", "tray", "readonly")},
    ),
    "the volume of an added disk goes": (rich, [drop("volumes[bare]")], {ADDED}),
    "the volume and the author's disk go": (rich, [drop("volumes[data]"), drop("domain.devices.disks[data]")], set()),
    "a NIC of another model": (rich, [put(f"{NIC}.model", "e1000e")], {f"{NIC}.pciAddress"}),
    "a NIC on conventional PCI takes every address away": (
        rich,
        [put(f"{NIC}.model", "e1000")],
        {f"{NIC}.pciAddress", f"{ROOT}.disk.pciAddress", "domain.devices.disks[data].disk.pciAddress"},
    ),
    "transitional virtio takes every address away": (
        rich,
        [put("domain.devices.useVirtioTransitional", True)],
        {f"{NIC}.pciAddress", f"{ROOT}.disk.pciAddress", "domain.devices.disks[data].disk.pciAddress"},
    ),
    "devices on the root complex": (
        rich,
        [annotate("kubevirt.io/placePCIDevicesOnRootComplex", "true")],
        {f"{NIC}.pciAddress", f"{ROOT}.disk.pciAddress", "domain.devices.disks[data].disk.pciAddress"},
    ),
    "an SR-IOV function instead of an emulated NIC": (
        rich,
        [drop(f"{NIC}.masquerade"), put(f"{NIC}.sriov", {})],
        {f"{NIC}.model", f"{NIC}.macAddress", f"{NIC}.pciAddress"},
    ),
    "another binding": (rich, [drop(f"{NIC}.masquerade"), put(f"{NIC}.bridge", {})], set()),
    "a new disk takes the address of another": (
        rich,
        [
            append("domain.devices.disks", disk("new", pciAddress="0000:09:00.0")),
            append("volumes", {"name": "new", "emptyDisk": {"capacity": "1Mi"}}),
        ],
        {f"{ROOT}.disk.pciAddress"},
    ),
    "a preference decides what is open": (
        rich,
        [on_vm("preference", {"name": "linux"})],
        {
            f"{NIC}.model",
            f"{NIC}.pciAddress",
            f"{ADDED}.disk.bus",
            "domain.devices.disks[seed].cdrom.bus",
            "domain.features.acpi.enabled",
            "domain.devices.inputs[tablet].bus",
            "domain.devices.inputs[tablet].type",
            "domain.devices.video.type",
            *(f"domain.devices.autoattach{part}" for part in ("GraphicsDevice", "SerialConsole", "MemBalloon")),
        },
    ),
    "no watchdog": (rich, [drop("domain.devices.watchdog")], set()),
    "another model of the sound card": (rich, [put("domain.devices.sound.model", "ac97")], set()),
    "no input device": (rich, [drop("domain.devices.inputs[tablet]")], set()),
    "no serial console": (rich, [put("domain.devices.autoattachSerialConsole", False)], set()),
    "no balloon": (rich, [put("domain.devices.autoattachMemBalloon", False)], set()),
    "no hotplug": (rich, [put("domain.devices.disableHotplug", True)], set()),
    "no ACPI": (rich, [put("domain.features.acpi.enabled", False)], set()),
    "another CPU model": (rich, [put("domain.cpu.model", "Nehalem")], set()),
    "spinlocks off": (
        lambda: vm(spec(domain={"features": {"hyperv": {"spinlocks": {}}}})),
        [put("domain.features.hyperv.spinlocks", {"enabled": False})],
        set(),
    ),
    "no EFI, no secure boot": (
        lambda: vm(
            spec(disk("root"), domain={"firmware": {"bootloader": {"efi": {}}}, "features": {"smm": {"enabled": True}}})
        ),
        [drop("domain.firmware.bootloader"), drop("domain.features.smm")],
        {"domain.devices.video.type"},
    ),
    "the author's own MAC address": (rich, [put(f"{NIC}.macAddress", "02:00:00:00:00:01")], set()),
    "no Pod network for a VM to which KubeVirt adds it": (
        bare,
        [put("domain.devices.autoattachPodInterface", False)],
        {NIC, "networks[default]"},
    ),
    "the added network goes, another one comes": (
        bare,
        [
            drop("networks[default]"),
            append("networks", {"name": "blue", "multus": {"networkName": "blue"}}),
            append("domain.devices.interfaces", {"name": "blue", "bridge": {}}),
        ],
        {NIC},
    ),
    "masquerade instead of the default binding": (
        bare,
        [
            put("domain.devices.interfaces", [{"name": "default", "masquerade": {}}]),
            put("networks", [{"name": "default", "pod": {}}]),
        ],
        set(),
    ),
    "the only volume goes": (bare, [drop("volumes[root]")], {"domain.devices.disks[root]"}),
    "labels, strategies and volumes that no default depends on": (
        rich,
        [
            on_vm("runStrategy", "Halted"),
            put("terminationGracePeriodSeconds", 5),
            put("domain.ioThreadsPolicy", "auto"),
        ],
        set(),
    ),
}


def edited(document: Json, changes: list[Change]) -> Json:
    found = deepcopy(document)
    for change in changes:
        change(found)
    return found


def fields(document: Json) -> Json:
    return flatten(inner(document))


def recorded(document: Json) -> Json:
    """The values in the record, without the objects and lists that Poolhouse created."""
    record = json.loads(document["metadata"]["annotations"][DEFAULTED_FIELDS])
    return {path: value for path, value in record.items() if value not in ({}, [])}


PLACES = ("pciAddress", "macAddress")


@pytest.mark.libvirt
@pytest.mark.parametrize(("author", "changes", "gives_way"), ROWS.values(), ids=ROWS.keys())
def test_a_default_gives_way_to_an_edit(
    libvirt: Libvirt, author: Callable[[], Json], changes: list[Change], gives_way: set[str]
) -> None:
    stored = admit(libvirt, author())
    before = fields(stored.object)
    answer = admit(libvirt, edited(stored.object, changes), stored.object)
    after, fresh = fields(answer.object), fields(admit(libvirt, edited(author(), changes)).object)
    # The hardware is that of the same edit without defaults; only addresses and identity are those of the stored VM.
    assert {p: v for p, v in after.items() if not p.endswith(PLACES)} == {
        p: v for p, v in fresh.items() if not p.endswith(PLACES)
    }
    # Stored addresses stay where a new VM would get none: its preference is unknown, or they would move a bridge.
    stays = {p for p in before if p.endswith(PLACES) and p in after}
    assert {p for p in after if p.endswith(PLACES)} == {p for p in fresh if p.endswith(PLACES)} | stays
    kept = {p: v for p, v in before.items() if p.endswith(PLACES) and p in after and p not in gives_way}
    written = {p: v for p, v in fields(edited(author(), changes)).items() if p.endswith(PLACES)}
    assert {p: after[p] for p in kept} == {**kept, **{p: v for p, v in written.items() if p in kept}}
    assert all(before.get(path) != after.get(path) for path in gives_way)
    for path in gives_way:
        assert (
            any(warning.startswith(f"spec.template.spec.{path},") for warning in answer.warnings) or len(gives_way) > 10
        )


@pytest.mark.libvirt
@pytest.mark.parametrize(("author", "changes", "gives_way"), ROWS.values(), ids=ROWS.keys())
def test_the_manifest_applied_again_gives_the_same(
    libvirt: Libvirt, author: Callable[[], Json], changes: list[Change], gives_way: set[str]
) -> None:
    """A client that sends the author's document without defaults and annotations, and one that edits the stored VM."""
    stored = admit(libvirt, author()).object
    edit = admit(libvirt, edited(stored, changes), stored).object
    applied = admit(libvirt, edited(author(), changes), stored).object
    assert fields(applied) == fields(edit)
    assert recorded(applied) == recorded(edit)
    assert admit(libvirt, edit, edit).object == edit


def with_history(document: Json, applied: Json | None = None, owned: Json | None = None, **entry: str) -> Json:
    """The VM with `managedFields` and, for `kubectl apply`, the last applied configuration."""
    found = deepcopy(document)
    metadata = found["metadata"]
    manager = {"manager": "kubectl", "operation": "Update", **entry}
    names: Json = {"f:spec": {"f:template": {"f:spec": {"f:domain": owned or {}}}}}
    if applied is not None:
        metadata["annotations"] = metadata.get("annotations", {}) | {LAST_APPLIED: json.dumps(applied)}
        names["f:metadata"] = {"f:annotations": {f"f:{LAST_APPLIED}": {}}}
    return found | {"metadata": metadata | {"managedFields": [manager | {"fieldsV1": names}]}}


def without_record(document: Json) -> Json:
    metadata = {key: value for key, value in document["metadata"].items() if key != "annotations"}
    return document | {"metadata": metadata}


@pytest.mark.libvirt
class TestAuthor:
    """What the author wrote stays, however the author's hand is known."""

    NO_GRAPHICS = (put("domain.devices.autoattachGraphicsDevice", False),)

    def test_a_value_of_the_first_manifest_stays(self, libvirt: Libvirt) -> None:
        stored = admit(libvirt, edited(rich(), [put("domain.devices.video", {"type": "vga"})])).object
        answer = admit(libvirt, edited(stored, [*self.NO_GRAPHICS]), stored)
        assert fields(answer.object)["domain.devices.video.type"] == "vga"
        assert not answer.warnings

    def test_a_default_that_the_author_has_changed_stays(self, libvirt: Libvirt) -> None:
        stored = admit(libvirt, rich()).object
        changed = admit(libvirt, edited(stored, [put("domain.memory.guest", "1Gi")]), stored).object
        assert "domain.memory.guest" not in recorded(changed)
        answer = admit(libvirt, edited(changed, [put("domain.resources.requests.memory", "2Gi")]), changed)
        assert fields(answer.object)["domain.memory.guest"] == "1Gi"

    def test_a_default_that_kubectl_apply_repeats_is_the_authors(self, libvirt: Libvirt) -> None:
        stored = admit(libvirt, rich()).object
        manifest = edited(rich(), [put("domain.memory.guest", "256Mi"), put("domain.resources.requests.memory", "1Gi")])
        new = with_history(edited(stored, [put("domain.resources.requests.memory", "1Gi")]), manifest)
        answer = admit(libvirt, new, stored)
        assert fields(answer.object)["domain.memory.guest"] == "256Mi"
        assert "domain.memory.guest" not in recorded(answer.object)

    def test_a_default_that_server_side_apply_repeats_is_the_authors(self, libvirt: Libvirt) -> None:
        stored = admit(libvirt, rich()).object
        new = edited(stored, [put("domain.resources.requests.memory", "1Gi")])
        owned: Json = {"f:memory": {"f:guest": {}}}
        answer = admit(libvirt, with_history(new, owned=owned, operation="Apply"), stored)
        assert fields(answer.object)["domain.memory.guest"] == "256Mi"

    def test_a_value_that_the_author_removes_becomes_a_default(self, libvirt: Libvirt) -> None:
        stored = admit(
            libvirt, edited(rich(), [put("domain.memory.guest", "1Gi"), put(f"{ROOT}.disk.bus", "scsi")])
        ).object
        answer = admit(libvirt, edited(stored, [drop("domain.memory"), drop(f"{ROOT}.disk.bus")]), stored).object
        assert fields(answer)["domain.memory.guest"] == "256Mi"
        assert fields(answer)[f"{ROOT}.disk.bus"] == "sata"

    def test_a_mac_address_and_a_firmware_id_that_the_author_removes_stay(self, libvirt: Libvirt) -> None:
        own = [
            put(f"{NIC}.macAddress", "02:00:00:00:00:01"),
            put("domain.firmware", {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}),
        ]
        stored = admit(libvirt, edited(rich(), own)).object
        answer = admit(libvirt, edited(stored, [drop(f"{NIC}.macAddress"), drop("domain.firmware")]), stored).object
        assert fields(answer) == fields(stored)


@pytest.mark.libvirt
class TestWithoutRecord:
    """VMs whose record a client has removed: `managedFields` and `kubectl apply` show what the author wrote."""

    EDIT = (
        put("domain.devices.autoattachGraphicsDevice", False),
        put("domain.resources.requests.memory", "512Mi"),
        put(f"{ROOT}.disk.bus", "sata"),
    )

    def test_fields_that_no_client_owns_are_defaults(self, libvirt: Libvirt) -> None:
        stored = with_history(without_record(admit(libvirt, rich()).object))
        answer = admit(libvirt, edited(stored, [*self.EDIT]), stored)
        after = fields(answer.object)
        assert "domain.devices.video.type" not in after
        assert after["domain.memory.guest"] == "512Mi"
        assert f"{ROOT}.disk.pciAddress" not in after
        assert len(answer.warnings) == 3
        assert recorded(answer.object)["domain.cpu.sockets"] == 2

    def test_fields_that_a_client_owns_stay(self, libvirt: Libvirt) -> None:
        owned: Json = {"f:memory": {"f:guest": {}}, "f:devices": {"f:video": {"f:type": {}}, "f:disks": {}}}
        stored = with_history(without_record(admit(libvirt, rich()).object), owned=owned)
        after = fields(admit(libvirt, edited(stored, [*self.EDIT]), stored).object)
        assert after["domain.devices.video.type"] == "vga"
        assert after["domain.memory.guest"] == "256Mi"
        assert f"{ROOT}.disk.pciAddress" not in after  # it is valid on no other bus

    def test_without_any_history_only_impossible_addresses_go(self, libvirt: Libvirt) -> None:
        stored = without_record(admit(libvirt, rich()).object)
        before, after = fields(stored), fields(admit(libvirt, edited(stored, [*self.EDIT]), stored).object)
        lost = {path for path, value in before.items() if path not in after or after[path] != value}
        changed = {"domain.devices.autoattachGraphicsDevice", "domain.resources.requests.memory", f"{ROOT}.disk.bus"}
        assert lost == changed | {f"{ROOT}.disk.pciAddress"}

    def test_kubectl_apply_tells_about_lists(self, libvirt: Libvirt) -> None:
        owned: Json = {"f:devices": {"f:disks": {}, "f:interfaces": {}}}
        stored = with_history(without_record(admit(libvirt, rich()).object), rich(), owned)
        answer = admit(libvirt, edited(stored, [on_vm("preference", {"name": "linux"})]), stored)
        assert f"{ADDED}.disk.bus" not in fields(answer.object)
        assert fields(answer.object)[f"{ROOT}.disk.bus"] == "virtio"

    def test_a_later_editor_of_the_list_makes_it_unknown(self, libvirt: Libvirt) -> None:
        stored = with_history(without_record(admit(libvirt, rich()).object), rich())
        lists: Json = {"f:spec": {"f:template": {"f:spec": {"f:domain": {"f:devices": {"f:disks": {}}}}}}}
        stored["metadata"]["managedFields"].append(
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": lists}
        )
        answer = admit(libvirt, edited(stored, [on_vm("preference", {"name": "linux"})]), stored)
        assert fields(answer.object)[f"{ADDED}.disk.bus"] == "sata"


@pytest.mark.libvirt
def test_a_copied_manifest_keeps_what_fits(libvirt: Libvirt) -> None:
    """A manifest of a stored VM, exported and created anew with an edit that contradicts a default."""
    exported = admit(libvirt, rich()).object
    answer = admit(libvirt, edited(exported, [put("domain.devices.autoattachGraphicsDevice", False)]))
    lost = fields(exported).keys() - fields(answer.object).keys()
    assert lost == {"domain.devices.video", "domain.devices.video.type"}
    assert len(answer.warnings) == 1


@pytest.mark.libvirt
def test_a_removed_nic_keeps_its_fields_until_it_is_unplugged(libvirt: Libvirt) -> None:
    stored = admit(libvirt, rich()).object
    answer = admit(libvirt, edited(stored, [put(f"{NIC}.state", "absent")]), stored)
    assert fields(answer.object) == fields(stored) | {f"{NIC}.state": "absent"}
    assert recorded(answer.object) == recorded(stored)
    assert not answer.warnings


def test_an_object_with_only_defaulted_fields_counts_as_defaulted() -> None:
    firmware = {"uuid": "00000000-0000-4000-8000-000000000001", "serial": "a"}
    record = {f"domain.firmware.{name}": value for name, value in firmware.items()}
    record |= {"domain": {}, "domain.firmware": {}, "domain.devices": {}, "domain.devices.disks": []}
    record |= {"domain.devices.disks[root]": {}, "domain.devices.disks[root].disk": {}}
    domain = {"devices": {"disks": [{"name": "root", "disk": {}}]}, "firmware": firmware}
    preference = {"preference": {"name": "linux"}}
    stored = vm({"domain": domain, "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]}, **preference)
    stored["metadata"]["annotations"] = {DEFAULTED_FIELDS: json.dumps(record)}
    edit = follow_author(vm({}, **preference), stored)
    answer = record_defaults(edit, vm({"domain": {"firmware": firmware}}, **preference))
    assert json.loads(answer["metadata"]["annotations"][DEFAULTED_FIELDS]).keys() == {
        *("domain", "domain.firmware", "domain.firmware.uuid", "domain.firmware.serial")
    }


@pytest.mark.libvirt
@pytest.mark.parametrize(
    ("stored", "changes"),
    [
        pytest.param(None, [on_vm("preference", {"name": "linux"})], id="creation with an unknown preference"),
        pytest.param(
            vm(spec(disk("root"))), [append("volumes", {"name": "data"})], id="update of a VM without defaults"
        ),
        pytest.param({**vm(spec()), "spec": {}}, [], id="update of a VM without a template"),
    ],
)
def test_a_second_call_for_the_same_request_keeps_the_record(
    libvirt: Libvirt, stored: Json | None, changes: list[Change]
) -> None:
    """An API server calls a webhook again if a later one changed the object."""
    first = admit(libvirt, edited(vm(spec(disk("root"))), changes), stored).object
    assert recorded(first)
    assert admit(libvirt, first, stored).object == first


@pytest.mark.libvirt
@pytest.mark.parametrize("base", ["edit", "manifest"])
@pytest.mark.parametrize(("author", "changes"), [row[:2] for row in ROWS.values()], ids=ROWS.keys())
def test_a_second_call_for_an_edit_changes_nothing(
    libvirt: Libvirt, author: Callable[[], Json], changes: list[Change], base: str
) -> None:
    stored = admit(libvirt, author()).object
    first = admit(libvirt, edited(stored if base == "edit" else author(), changes), stored).object
    assert admit(libvirt, first, stored).object == first


@pytest.mark.libvirt
@pytest.mark.parametrize(
    "change",
    [put("domain.cpu.threads", 2), put("domain.cpu", {}), put("domain.devices.disks", []), put("domain", {})],
    ids=["a value", "an object", "a list", "the domain"],
)
def test_a_second_call_fills_again_what_another_client_has_changed(libvirt: Libvirt, change: Change) -> None:
    """The stored record then has values that the stored spec has not, and the new record may equal it."""
    manifest = edited(bare(), [on_vm("preference", {"name": "linux"})])
    stored = edited(admit(libvirt, manifest).object, [change])
    first = admit(libvirt, manifest, stored).object
    assert admit(libvirt, first, stored).object == first


def test_an_edit_that_sets_a_changed_field_to_its_old_default_is_the_authors() -> None:
    record = json.dumps({"domain.cpu.threads": 1})
    stored = edited(vm(spec(domain={"cpu": {"threads": 2}})), [])
    stored["metadata"]["annotations"] = {DEFAULTED_FIELDS: record}
    document = with_history(edited(stored, [put("domain.cpu.threads", 1)]), owned={"f:cpu": {"f:threads": {}}})
    edit = follow_author(document, stored)
    assert "domain.cpu.threads" not in {**edit.defaults, **edit.repeated}


def test_a_record_that_is_damaged_or_of_other_values_is_ignored() -> None:
    document = vm(spec(disk("root")))
    for record in ("{", "[]", '{"domain.devices.disks[root].disk.bus":"sata","domain.cpu.cores":1}'):
        document["metadata"]["annotations"] = {DEFAULTED_FIELDS: record}
        assert follow_author(document, document).defaults == {}


EDITS: st.SearchStrategy[list[Change]] = st.lists(
    st.one_of(
        st.builds(put, st.just("domain.devices.autoattachGraphicsDevice"), st.booleans()),
        st.builds(put, st.just("domain.devices.useVirtioTransitional"), st.booleans()),
        st.builds(put, st.just("domain.devices.disableHotplug"), st.booleans()),
        st.builds(put, st.just("domain.cpu.cores"), st.integers(5, 8)),
        st.builds(put, st.just("domain.memory.guest"), st.sampled_from(["64Mi", "3Gi"])),
        st.builds(
            put, st.just("domain.firmware.bootloader"), st.sampled_from([{"efi": {"secureBoot": False}}, {"bios": {}}])
        ),
        st.builds(put, st.just("domain.resources"), st.sampled_from([{"requests": {"memory": "1Gi", "cpu": "2"}}, {}])),
        st.builds(on_vm, st.just("instancetype"), st.just({"name": "small"})),
        st.builds(on_vm, st.just("preference"), st.just({"name": "linux"})),
        st.builds(drop, st.sampled_from(["domain.devices.watchdog", "domain.devices.sound", "domain.devices.rng"])),
        st.builds(annotate, st.just("kubevirt.io/placePCIDevicesOnRootComplex"), st.just("true")),
    ),
    max_size=3,
)


@HOW
@pytest.mark.libvirt
@given(contents(), EDITS, st.data())
def test_an_edit_gives_the_hardware_of_the_same_edit_without_defaults(
    libvirt: Libvirt, content: Json, changes: list[Change], data: st.DataObject
) -> None:
    author = vm(content)
    for kind in ("disks", "interfaces"):
        for device in content["domain"]["devices"][kind]:
            field = "disk" if kind == "disks" else None
            if data.draw(st.integers(0, 3), label=f"edit {device['name']}") == 0:
                path = f"domain.devices.{kind}[{device['name']}]"
                bus = put(f"{path}.disk", {"bus": data.draw(st.sampled_from(["virtio", "sata", "scsi"]))})
                model = put(f"{path}.model", data.draw(st.sampled_from(["virtio", "e1000e", "rtl8139"])))
                changes = [*changes, drop(f"{path}.cdrom"), drop(f"{path}.lun"), bus] if field else [*changes, model]
    first = libvirt.default(author)
    assume(first.status == 200)
    stored = admit(libvirt, author).object
    # An edit that writes the value of a default again is no change.
    written = {p: v for p, v in fields(edited(author, changes)).items() if p not in fields(author)}
    assume(not any(recorded(stored).get(path) == value for path, value in written.items()))
    goal = libvirt.default(edited(author, changes))
    assume(goal.status == 200)
    fresh = fields(admit(libvirt, edited(author, changes)).object)
    after = fields(admit(libvirt, edited(stored, changes), stored).object)
    assert {p: v for p, v in after.items() if not p.endswith(PLACES)} == {
        p: v for p, v in fresh.items() if not p.endswith(PLACES)
    }
    # Stored addresses stay where a new VM would get none: its preference is unknown, or they would move a bridge.
    stays = {p for p in fields(stored) if p.endswith(PLACES) and p in after}
    assert {p for p in after if p.endswith(PLACES)} == {p for p in fresh if p.endswith(PLACES)} | stays


def test_an_object_of_a_default_goes_with_it() -> None:
    """Even before the defaulter answers: KubeVirt refuses an empty `video` without a graphics device."""
    stored = vm(spec(domain={"devices": {"video": {"type": "vga"}}}))
    record = {"domain.devices.video": {}, "domain.devices.video.type": "vga", "domain.machine.type": "pc-q35-7.2"}
    stored["metadata"]["annotations"] = {DEFAULTED_FIELDS: json.dumps(record)}
    change = put("domain.devices.autoattachGraphicsDevice", False)
    assert "video" not in inner(follow_author(edited(stored, [change]), stored).document)["domain"]["devices"]
    arm = preserve_stored_values(edited(stored, [put("architecture", "arm64")]), stored)
    assert "video" not in inner(arm)["domain"]["devices"]


@pytest.mark.parametrize("alias", ["q35", "pc-q35-7.2"])
def test_an_alias_that_is_applied_again_leaves_the_record_unchanged(alias: str) -> None:
    """The field has a manager, who sets the alias; its version is Poolhouse's. A version is the manager's own."""
    stored = vm(spec(domain={"machine": {"type": "pc-q35-7.2"}}))
    owned = {"f:spec": {"f:template": {"f:spec": {"f:domain": {"f:machine": {"f:type": {}}}}}}}
    stored["metadata"] |= {
        "annotations": {DEFAULTED_FIELDS: json.dumps({"domain.machine.type": "pc-q35-7.2"})},
        "managedFields": [{"manager": "gitops", "operation": "Apply", "fieldsV1": owned}],
    }
    edit = follow_author(edited(stored, [put("domain.machine.type", alias)]), stored)
    assert ("domain.machine.type" in edit.defaults) == (alias == "q35")
