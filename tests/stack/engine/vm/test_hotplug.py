"""How a running VMI follows the template of its VM."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt.fields import VMI_SPEC
from poolhouse.stack.engine.objects import template_hash
from poolhouse.stack.engine.vm.hotplug import (
    HotplugRefused,
    add_volume,
    needs_hotplug,
    nic_hashes,
    nics_require_restart,
    plan_vm,
    plan_vmi,
    plugged_devices,
    remove_volume,
)
from tests.kubevirt.nulls import with_nulls

Json = dict[str, Any]


def hot(name: str, claim: str = "") -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim or name, "hotpluggable": True}}


def fixed(name: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def disk(name: str, bus: str = "virtio") -> Json:
    return {"name": name, "disk": {"bus": bus}}


def nic(name: str, **fields: Any) -> Json:
    return {"name": name, **(fields or {"bridge": {}})}


def spec(volumes: list[Json], disks: list[Json], nics: list[Json]) -> Json:
    networks = [{"name": each["name"], "multus": {"networkName": each["name"]}} for each in nics]
    return {"volumes": volumes, "networks": networks, "domain": {"devices": {"disks": disks, "interfaces": nics}}}


ROOT = spec([fixed("root")], [disk("root")], [nic("net")])
WITH_DATA = spec([fixed("root"), hot("data")], [disk("root"), disk("data")], [nic("net")])
WITH_NIC = spec([fixed("root")], [disk("root")], [nic("net"), nic("more")])
UNPLUGGING = spec([fixed("root")], [disk("root")], [nic("net"), nic("more", bridge={}, state="absent")])
PLUGGED: Json = {"interfaces": [{"name": "net"}, {"name": "more"}]}


def patched(spec: Json, patch: Json) -> Json:
    """A spec after its merge patch."""
    merged = {**spec, **patch}
    devices = {**spec["domain"]["devices"], **patch.get("domain", {}).get("devices", {})}
    return {**merged, "domain": {"devices": devices}}


@pytest.mark.parametrize(
    ("template", "vmi", "status", "wanted"),
    [
        pytest.param(ROOT, ROOT, {}, ROOT, id="nothing has changed"),
        pytest.param(WITH_DATA, ROOT, {}, WITH_DATA, id="a hotpluggable disk is plugged"),
        pytest.param(
            spec([fixed("root"), fixed("data")], [disk("root"), disk("data")], [nic("net")]),
            ROOT,
            {},
            ROOT,
            id="another disk waits for a restart",
        ),
        pytest.param(ROOT, WITH_DATA, {}, ROOT, id="a removed disk is unplugged"),
        pytest.param(
            spec([fixed("root"), hot("data", "b")], [disk("root"), disk("data")], [nic("net")]),
            WITH_DATA,
            {},
            ROOT,
            id="a disk whose volume has changed is unplugged first",
        ),
        pytest.param(
            WITH_DATA,
            ROOT,
            {"volumeStatus": [{"name": "data", "phase": "Detaching"}]},
            ROOT,
            id="a disk that is being unplugged is plugged again later",
        ),
        pytest.param(WITH_NIC, ROOT, {}, WITH_NIC, id="a NIC with a bridge is plugged"),
        pytest.param(
            spec([fixed("root")], [disk("root")], [nic("net"), nic("more", masquerade={})]),
            ROOT,
            {},
            ROOT,
            id="a NIC with another binding waits for a restart",
        ),
        pytest.param(UNPLUGGING, WITH_NIC, PLUGGED, UNPLUGGING, id="an absent NIC is unplugged"),
        pytest.param(UNPLUGGING, UNPLUGGING, {"interfaces": [{"name": "net"}]}, ROOT, id="an unplugged NIC is removed"),
    ],
)
def test_the_vmi_follows_the_template(template: Json, vmi: Json, status: Json, wanted: Json) -> None:
    assert patched(vmi, plan_vmi(template, vmi, status)) == wanted
    nulled = with_nulls(template, VMI_SPEC)
    assert plan_vmi(nulled, vmi, status) == plan_vmi(template, vmi, status)
    assert plan_vmi(nulled, with_nulls(vmi, VMI_SPEC), status) == plan_vmi(template, vmi, status)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        pytest.param(disk("data", "sata"), r"requires bus to be 'scsi' or 'virtio'\. \[sata\]", id="a SATA disk"),
        pytest.param({"name": "data", "disk": {}}, r"\[\] is not permitted", id="a disk without a bus"),
        pytest.param({"name": "data", "lun": {"bus": "virtio"}}, "requires bus to be 'scsi'", id="a LUN on virtio"),
        pytest.param({"name": "data", "cdrom": {"bus": "sata"}}, "type 'disk' or 'lun'", id="a CD-ROM"),
    ],
)
def test_some_disks_cannot_be_hotplugged(device: Json, message: str) -> None:
    template = spec([fixed("root"), hot("data")], [disk("root"), device], [nic("net")])
    with pytest.raises(HotplugRefused, match=message):
        plan_vmi(template, ROOT, {})
    with pytest.raises(HotplugRefused, match=message):
        plan_vmi(with_nulls(template, VMI_SPEC), ROOT, {})


@pytest.mark.parametrize(
    ("vmi", "status", "removed"),
    [
        pytest.param(UNPLUGGING, PLUGGED, False, id="it is plugged"),
        pytest.param(ROOT, PLUGGED, False, id="the guest has not released it"),
        pytest.param(ROOT, {"interfaces": [{"name": "net"}]}, True, id="it is unplugged"),
        pytest.param(None, {}, True, id="the VM does not run"),
    ],
)
def test_an_absent_nic_leaves_the_template(vmi: Json | None, status: Json, removed: bool) -> None:
    assert patched(UNPLUGGING, plan_vm(UNPLUGGING, vmi, status)) == (ROOT if removed else UNPLUGGING)


@pytest.mark.parametrize(
    ("after", "restarts"),
    [
        pytest.param(WITH_DATA, False, id="a hotplugged disk"),
        pytest.param(WITH_NIC, False, id="a hotplugged NIC"),
        pytest.param(UNPLUGGING, False, id="an unplugged NIC"),
        pytest.param(spec([fixed("root")], [disk("root")], []), True, id="a NIC that is removed at once"),
        pytest.param(spec([fixed("root")], [disk("root")], [nic("net", masquerade={})]), True, id="another binding"),
        pytest.param(spec([fixed("root")], [disk("root", "sata")], [nic("net")]), True, id="another bus"),
        pytest.param({**ROOT, "hostname": "x"}, True, id="another field"),
        pytest.param(
            {**WITH_NIC, "networks": [*ROOT["networks"], {"name": "more", "pod": {}}]}, True, id="the pod network"
        ),
    ],
)
def test_what_requires_a_restart(after: Json, restarts: bool) -> None:
    nics = nics_require_restart(nic_hashes(after), nic_hashes(ROOT))
    assert (nics or template_hash(after) != template_hash(ROOT)) == restarts
    nulled = with_nulls(after, VMI_SPEC)
    assert (nic_hashes(nulled), template_hash(nulled)) == (nic_hashes(after), template_hash(after))


def test_other_multus_networks_and_states_require_no_restart() -> None:
    after = spec([], [], [nic("net", bridge={}, state="down")])
    after["networks"][0]["multus"]["networkName"] = "other"
    assert nic_hashes(after) == nic_hashes(spec([], [], [nic("net")]))


@pytest.mark.parametrize(
    ("template", "vmi", "needed"),
    [
        pytest.param(ROOT, ROOT, False, id="the same devices"),
        pytest.param(WITH_DATA, ROOT, True, id="another disk"),
        pytest.param(WITH_DATA, None, False, id="the VM does not run"),
        pytest.param(UNPLUGGING, UNPLUGGING, True, id="a NIC that is being unplugged"),
        pytest.param(UNPLUGGING, None, True, id="an absent NIC of a VM that does not run"),
    ],
)
def test_when_a_hotplug_is_needed(template: Json, vmi: Json | None, needed: bool) -> None:
    assert needs_hotplug(plugged_devices(template), None if vmi is None else plugged_devices(vmi)) == needed
    assert plugged_devices(with_nulls(template, VMI_SPEC)) == plugged_devices(template)


def test_devices_of_a_template_and_its_vmi_are_compared_in_any_order() -> None:
    reversed_devices = spec([hot("data"), fixed("root")], [disk("data"), disk("root")], [nic("net")])
    assert plugged_devices(reversed_devices) == plugged_devices(WITH_DATA) != plugged_devices(ROOT)


OPTIONS: Json = {
    "name": "data",
    "disk": {"disk": {"bus": "virtio"}},
    "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}},
}


def test_a_volume_is_added_and_removed() -> None:
    added = patched(ROOT, add_volume(ROOT, OPTIONS))
    assert added == WITH_DATA
    assert patched(added, remove_volume(added, "data")) == ROOT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"name": "root"}, "a?lready exists", id="the name"),
        pytest.param(
            {"volumeSource": {"dataVolume": {"name": "root"}}}, r"volume source \[root\].* exists", id="the source"
        ),
        pytest.param({"volumeSource": {}}, "must be a PersistentVolumeClaim or a DataVolume", id="no source"),
    ],
)
def test_some_volumes_cannot_be_added(change: Json, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        add_volume(ROOT, OPTIONS | change)


@pytest.mark.parametrize(("name", "message"), [("nosuch", "does not exist"), ("root", "not hotpluggable")])
def test_some_volumes_cannot_be_removed(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        remove_volume(ROOT, name)
