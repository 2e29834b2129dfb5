"""Hotplug: where the guest sees disks and NICs that are added while it runs, before and after a restart."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import NAMESPACES, PVCS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.guests.console import UP, Console, created, hardware
from tests.cluster.pooling import clear
from tests.cluster.simulated.test_engine import vm
from tests.e2e.scope import Json, Scope
from tests.e2e.target import Target
from tests.resources import VM_REQUESTS
from tests.waiting import PATIENCE_SECONDS, eventually

DISK, NIC, BALLOON = "1af4:1042", "1af4:1041", "1af4:1045"


@pytest_asyncio.fixture
async def scope(api: Api, paths: StackPaths) -> AsyncIterator[Scope]:
    made = await api.create(NAMESPACES, {"metadata": {"generateName": "hotplug-"}})
    target = Target(paths.kubeconfig, embedded=paths, patience_seconds=PATIENCE_SECONDS)
    found = Scope(api, made["metadata"]["name"], target)
    yield found
    await clear(api, found.namespace)
    await found.becomes(lambda: found.remains(VMS, VMIS), False)


@pytest.mark.sentence("4.6", "4.13", "4.14")
async def test_addresses(scope: Scope) -> None:
    """Hotplugged devices stay at their addresses, and go without a restart"""
    console = await running_guest(scope, "guest")
    started = await console.devices(1)
    await claim(scope, "data")
    stored = await edit(scope, "guest", lambda spec: (plug(spec, "data"), add_nic(spec, "second")))
    places = addresses(stored)
    assert UNDEFAULTED not in stored["metadata"]["annotations"]
    await console.shows(f"plugged: {places['data']} {identity(DISK)}")
    await console.shows(f"plugged: {places['second']} {identity(NIC)}")
    status = await volume_status(scope, "guest", "data", "Ready")
    assert status["target"] == "vdb"
    vmi = await scope.get(VMIS, "guest") or {}
    assert {each["name"] for each in vmi["status"]["interfaces"]} == {"net", "second"}
    assert await scope.condition(VMS, "guest", "RestartRequired") == {}

    await scope.ask("guest", "restart")
    await console.shows(UP, times=2)
    restarted = await console.devices(2)
    assert started < restarted
    found = {line.split()[1]: line.split()[2] for line in restarted - started}
    assert {places["data"]: DISK, places["second"]: NIC}.items() <= found.items()
    await volume_status(scope, "guest", "data", "Ready")

    await edit(scope, "guest", lambda spec: (unplug(spec, "data"), absent(spec, "second")))
    await console.shows(f"unplugged: {places['data']}")
    await console.shows(f"unplugged: {places['second']}")

    async def left() -> set[str]:
        document, vmi = await scope.get(VMS, "guest") or {}, await scope.get(VMIS, "guest") or {}
        volumes = {each["name"] for each in vmi["status"]["volumeStatus"]}
        return {"data", "second"} & {*addresses(document), *volumes}

    await scope.becomes(left, set())


async def test_occupied_address(scope: Scope) -> None:
    """A disk that is added at an occupied address is reported, and the report ends with the disk"""
    console = await running_guest(scope, "full")
    (balloon,) = [line.split()[1] for line in await console.devices(1) if BALLOON in line]
    await claim(scope, "more")
    await edit(scope, "full", lambda spec: plug(spec, "more", pciAddress=balloon))

    async def refused() -> Json | None:
        found = await scope.condition(VMIS, "full", "Synchronized")
        return found if found.get("status") == "False" else None

    found = await eventually(refused, scope.target.patience_seconds)
    assert found["reason"] == "Synchronizing with the Domain failed."
    assert re.search("[Aa]ttempted double use of PCI Address", found["message"])
    assert (await volume_status(scope, "full", "more", "MountedToPod")).get("target") is None
    await edit(scope, "full", lambda spec: unplug(spec, "more"))
    await scope.becomes(lambda: scope.condition(VMIS, "full", "Synchronized"), {})


async def test_virtctl(scope: Scope) -> None:
    """A volume is added and removed as virtctl does it"""
    console = await running_guest(scope, "asked")
    await claim(scope, "more")
    options = {
        "name": "more",
        "disk": {"disk": {"bus": "virtio"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "more"}},
    }
    await scope.ask("asked", "addvolume", options)
    with pytest.raises(ApiError, match=r"Unable to add volume \[more\]"):
        await scope.api.put_subresource(VM_REQUESTS, scope.namespace, "asked", "addvolume", options)
    place = addresses(await scope.get(VMS, "asked") or {})["more"]
    await console.shows(f"plugged: {place} {identity(DISK)}")
    await scope.ask("asked", "removevolume", {"name": "more"})
    await console.shows(f"unplugged: {place}")


async def running_guest(scope: Scope, name: str) -> Console:
    """The console of a new guest with defaults."""
    document = hardware(vm(name), ["root"], ["net"])
    document["metadata"]["namespace"] = scope.namespace
    await created(scope.api, document)
    assert scope.target.embedded is not None
    console = Console(scope.target.embedded, name, scope.namespace)
    await console.shows(UP)
    return console


def identity(text: str) -> str:
    return ":".join(f"0x{part}" for part in text.split(":"))


async def claim(scope: Scope, name: str) -> None:
    await scope.create(PVCS, name, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Mi"}}})


async def edit(scope: Scope, name: str, change: Any) -> Json:
    """Changes the template of a VM as it is stored now."""
    return await scope.change(VMS, name, lambda document: change(document["spec"]["template"]["spec"]))


def plug(spec: Json, name: str, **address: str) -> None:
    volume = {"claimName": name, "hotpluggable": True}
    spec["volumes"].append({"name": name, "persistentVolumeClaim": volume})
    spec["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": "virtio", **address}})


def unplug(spec: Json, name: str) -> None:
    devices = spec["domain"]["devices"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != name]
    devices["disks"] = [each for each in devices["disks"] if each["name"] != name]


def add_nic(spec: Json, name: str) -> None:
    spec["networks"].append({"name": name, "multus": {"networkName": name}})
    spec["domain"]["devices"]["interfaces"].append({"name": name, "bridge": {}})


def absent(spec: Json, name: str) -> None:
    (nic,) = [each for each in spec["domain"]["devices"]["interfaces"] if each["name"] == name]
    nic["state"] = "absent"


def addresses(document: Json) -> dict[str, str | None]:
    devices = document["spec"]["template"]["spec"]["domain"]["devices"]
    disks = {each["name"]: each["disk"].get("pciAddress") for each in devices["disks"]}
    return {**disks, **{each["name"]: each.get("pciAddress") for each in devices["interfaces"]}}


async def volume_status(scope: Scope, vm: str, name: str, phase: str) -> Json:
    async def reported() -> Json | None:
        vmi = await scope.get(VMIS, vm) or {}
        volumes = (vmi.get("status") or {}).get("volumeStatus") or ()
        return next((each for each in volumes if (each["name"], each.get("phase")) == (name, phase)), None)

    return dict(await eventually(reported, scope.target.patience_seconds))
