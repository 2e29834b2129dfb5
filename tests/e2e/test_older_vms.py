"""VMs that are older than Poolhouse: what their guests have stays, through restarts and hotplug.

In a namespace that has opted out, KubeVirt alone makes VMs, as before an installation. Then the namespace opts in.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.kinds import meta
from poolhouse.runtime.instancetypes import RESOURCES
from poolhouse.runtime.resource import NAMESPACES, VMIS, VMS
from tests.e2e.domains import differences, read_domain
from tests.e2e.scope import Json, Scope

IMPLICIT: Json = {"disks": None, "interfaces": None}
LISTED: Json = {
    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
    "interfaces": [{"name": "default", "masquerade": {}}],
}
MANY: Json = {
    **LISTED,
    "disks": [
        {"name": "root", "disk": {"bus": "scsi"}},
        {"name": "more", "disk": {"bus": "sata"}},
        {"name": "third", "disk": {"bus": "virtio"}},
    ],
    "watchdog": {"name": "w", "i6300esb": {"action": "reset"}},
    "sound": {"name": "s", "model": "ich9"},
    "rng": {},
}
BY_AUTHOR: Json = {
    **LISTED,
    "interfaces": [
        {"name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:77", "pciAddress": "0000:09:00.0"}
    ],
}


async def opt_out(scope: Scope) -> None:
    await label(scope, meta.DISABLED)


async def opt_in(scope: Scope) -> None:
    await label(scope, None)


async def label(scope: Scope, value: str | None) -> None:
    body = {"metadata": {"labels": {meta.DEFAULTING: value}}}
    await scope.api.patch(NAMESPACES, None, scope.namespace, body)


def older(scope: Scope, devices: Json, **domain: Any) -> Json:
    spec = scope.vm_spec()
    inner = spec["template"]["spec"]
    # The controllers write what the guest has while it shuts down. KubeVirt's default is 180 s.
    inner["terminationGracePeriodSeconds"] = 3
    inner["domain"] |= domain
    inner["domain"]["devices"] = {name: value for name, value in devices.items() if value is not None}
    if "interfaces" not in inner["domain"]["devices"]:
        del inner["networks"]
    for disk in devices.get("disks") or ():
        if disk["name"] not in ("root",):
            inner["volumes"].append({"name": disk["name"], "emptyDisk": {"capacity": "8Mi"}})
    return spec


@pytest.mark.parametrize(
    ("devices", "how"),
    [
        pytest.param(IMPLICIT, "restart", id="no devices listed"),
        pytest.param(IMPLICIT, "stop and start", id="no devices listed, and a stop"),
        pytest.param(LISTED, "stop and start", id="listed devices"),
        pytest.param(MANY, "stop and start", id="three buses, watchdog, sound"),
        pytest.param(BY_AUTHOR, "restart", id="an author's MAC and PCI address"),
    ],
)
async def test_an_older_vm_has_the_same_hardware_at_its_second_start(scope: Scope, devices: Json, how: str) -> None:
    """The second start of an older VM is like its first, MAC addresses included"""
    await opt_out(scope)
    await scope.make_vm("older", older(scope, devices))
    first = await scope.runs("older")
    before = await read_domain(scope, "older")
    await opt_in(scope)
    after = await start_again(scope, first, how)
    moved = differences(before, after)
    assert not moved, str(moved)


async def test_second_start_with_an_instance_type(scope: Scope) -> None:
    """The second start of an older VM with an instance type and a preference is like its first"""
    await opt_out(scope)
    spec = older(scope, IMPLICIT)
    guest = spec["template"]["spec"]["domain"].pop("memory")["guest"]
    for field, matched in (
        ("instancetype", {"cpu": {"guest": 1}, "memory": {"guest": guest}}),
        ("preference", {"devices": {"preferredDiskBus": "scsi", "preferredInterfaceModel": "e1000e"}}),
    ):
        resource, _ = RESOURCES[field]
        await scope.create(resource, "small", matched)
        spec[field] = {"kind": resource.kind, "name": "small"}
    await scope.make_vm("older", spec)
    first = await scope.runs("older")
    before = await read_domain(scope, "older")
    await opt_in(scope)
    moved = differences(before, await start_again(scope, first, "stop and start"))
    assert not moved, str(moved)


@pytest.mark.needs(source="blank")
@pytest.mark.parametrize(
    "devices", [pytest.param(IMPLICIT, id="no devices listed"), pytest.param(LISTED, id="listed devices")]
)
async def test_hotplugged(scope: Scope, devices: Json) -> None:
    """A disk that was hotplugged into an older VM stays where it is at the next start, and so do the others"""
    await opt_out(scope)
    await scope.make_vm("older", older(scope, devices))
    await scope.runs("older")
    await opt_in(scope)
    # A spec holds disks and interfaces only, and no record is as old as the VM.
    moved = await moved_after_hotplug(scope, "disk ", "interface ")
    assert not moved, str(moved)


@pytest.mark.needs(source="blank", hardware_record=True)
async def test_hardware_record(scope: Scope) -> None:
    """Of a VM with a hardware record nothing moves after four hotplugs, controllers and balloon included"""
    await scope.make_vm("older", older(scope, LISTED))
    await scope.runs("older")
    moved = await moved_after_hotplug(scope, "", disks=4)
    assert not moved, str(moved)


async def moved_after_hotplug(scope: Scope, *devices: str, disks: int = 1) -> Json:
    """Hotplugs disks and restarts the VM. Returns what has changed of devices that had the fact before and after."""
    first = await scope.runs("older")
    for name in [f"data-{number}" for number in range(disks)]:
        # KubeVirt hotplugs no claim without a disk image. CDI makes it.
        await scope.create(DATA_VOLUMES, name, scope.target.source("blank"))
        volume = {"dataVolume": {"name": name, "hotpluggable": True}}
        disk = {"disk": {"bus": "virtio"}}
        await scope.ask("older", "addvolume", {"name": name, "disk": disk, "volumeSource": volume})
        await scope.becomes(partial(volume_phase, scope, name), "Ready")
    before = await read_domain(scope, "older")
    moved = differences(before, await start_again(scope, first, "restart"))
    return {name: both for name, both in moved.items() if None not in both and name.startswith(devices)}


async def start_again(scope: Scope, first: Json, how: str) -> dict[str, str]:
    """The facts of a VM's domain after another start. `first` is the VMI that runs before."""
    name = first["metadata"]["name"]
    if how == "restart":
        await scope.ask(name, "restart")
    else:
        await scope.ask(name, "stop")
        await scope.stops(name)
        await scope.ask(name, "start")
    await scope.runs(name, besides=first["metadata"]["uid"])
    return await read_domain(scope, name)


async def volume_phase(scope: Scope, name: str) -> str:
    vmi = await scope.get(VMIS, "older") or {}
    found = [each for each in (vmi.get("status") or {}).get("volumeStatus") or () if each["name"] == name]
    return str(found[0].get("phase")) if found else ""


async def test_pinned_machine_type(scope: Scope) -> None:
    """A halted VM that lists no devices and has a canonical machine type gets KubeVirt's addresses"""
    await opt_out(scope)
    spec = older(scope, IMPLICIT) | {"runStrategy": "Halted"}
    stored = await scope.make_vm("alias", spec)
    await opt_in(scope)
    await scope.becomes(lambda: nic_address(scope, "alias"), "0000:01:00.0")
    machine = (await scope.get(VMS, "alias") or stored)["spec"]["template"]["spec"]["domain"]["machine"]["type"]
    await opt_out(scope)
    pinned = older(scope, IMPLICIT, machine={"type": machine}) | {"runStrategy": "Halted"}
    await scope.make_vm("pinned", pinned)
    await opt_in(scope)
    await scope.becomes(lambda: nic_address(scope, "pinned"), "0000:01:00.0")


async def nic_address(scope: Scope, name: str) -> str | None:
    devices = (await scope.get(VMS, name) or {})["spec"]["template"]["spec"]["domain"]["devices"]
    interfaces = devices.get("interfaces") or [{}]
    return interfaces[0].get("pciAddress")
