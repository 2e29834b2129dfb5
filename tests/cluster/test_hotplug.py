"""Disks and NICs that are hotplugged into real guests: where the guest sees them, before and after a restart."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest
import pytest_asyncio

from kinds.meta import UNDEFAULTED
from local.engine.resources import find_condition
from local.paths import StackPaths
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import PVCS, VMIS, VMS, Resource
from tests.cluster import test_guests
from tests.cluster.test_engine import asked, delete_all, nothing_left, vm
from tests.cluster.test_guests import UP, Console, created, hardware
from tests.conftest import stack
from tests.waiting import eventually

Json = dict[str, Any]

pytestmark = test_guests.pytestmark

DISK, NIC, BALLOON = "1af4:1042", "1af4:1041", "1af4:1045"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    paths = StackPaths(tmp_path_factory.mktemp("hotplug"))
    with stack(paths, "--engine", "qemu"):
        yield paths


@pytest_asyncio.fixture
async def api(paths: StackPaths) -> AsyncIterator[Api]:
    async with await Api.connect(paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api
        await delete_all(api, VMS, PVCS)
        await eventually(lambda: nothing_left(api))


async def test_hotplugged_devices_stay_at_their_addresses(api: Api, paths: StackPaths) -> None:
    made = await created(api, hardware(vm("guest"), ["root"], ["net"]))
    console = Console(paths, "guest")
    await console.shows(UP)
    started = await console.devices(1)
    await claim(api, "data")
    stored = await edit(api, made, lambda spec: (plug(spec, "data"), add_nic(spec, "second")))
    places = addresses(stored)
    assert UNDEFAULTED not in stored["metadata"]["annotations"]
    await console.shows(f"plugged: {places['data']} {identity(DISK)}")
    await console.shows(f"plugged: {places['second']} {identity(NIC)}")
    status = await volume_status(api, "data", "Ready")
    assert status["target"] == "vdb"
    vmi = await api.get(VMIS, "default", "guest")
    assert {each["name"] for each in vmi["status"]["interfaces"]} == {"net", "second"}
    assert find_condition((await api.get(VMS, "default", "guest"))["status"]["conditions"], "RestartRequired") is None

    await eventually(lambda: asked(api, "guest", "restart"))
    await console.shows(UP, times=2)
    restarted = await console.devices(2)
    assert started < restarted
    found = {line.split()[1]: line.split()[2] for line in restarted - started}
    assert {places["data"]: DISK, places["second"]: NIC}.items() <= found.items()
    await volume_status(api, "data", "Ready")

    await edit(api, stored, lambda spec: (unplug(spec, "data"), absent(spec, "second")))
    await console.shows(f"unplugged: {places['data']}")
    await console.shows(f"unplugged: {places['second']}")

    async def gone() -> bool:
        document, vmi = await api.get(VMS, "default", "guest"), await api.get(VMIS, "default", "guest")
        left = {**addresses(document), **{each["name"]: "" for each in vmi["status"]["volumeStatus"]}}
        return not {"data", "second"} & left.keys()

    await eventually(gone)


async def test_an_occupied_address_is_reported(api: Api, paths: StackPaths) -> None:
    made = await created(api, hardware(vm("full"), ["root"], ["net"]))
    console = Console(paths, "full")
    await console.shows(UP)
    (balloon,) = [line.split()[1] for line in await console.devices(1) if BALLOON in line]
    await claim(api, "more")
    stored = await edit(api, made, lambda spec: plug(spec, "more", pciAddress=balloon))

    async def refused() -> Any:
        vmi = await api.get(VMIS, "default", "full")
        found = find_condition(vmi["status"]["conditions"], "Synchronized")
        return found if found is not None and found["status"] == "False" else None

    found = await eventually(refused)
    assert found["reason"] == "Synchronizing with the Domain failed."
    assert re.search("[Aa]ttempted double use of PCI Address", found["message"])
    assert (await volume_status(api, "more", "MountedToPod")).get("target") is None
    await edit(api, stored, lambda spec: unplug(spec, "more"))
    await eventually(lambda: unreported(api))


async def unreported(api: Api) -> bool:
    vmi = await api.get(VMIS, "default", "full")
    return find_condition(vmi["status"]["conditions"], "Synchronized") is None


async def test_a_volume_is_added_and_removed_by_virtctl(api: Api, paths: StackPaths) -> None:
    await created(api, hardware(vm("asked"), ["root"], ["net"]))
    console = Console(paths, "asked")
    await console.shows(UP)
    await claim(api, "more")
    options = {
        "name": "more",
        "disk": {"disk": {"bus": "virtio"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "more"}},
    }
    subresource = Resource("subresources.kubevirt.io", "v1", "virtualmachines", "")
    await api.put_subresource(subresource, "default", "asked", "addvolume", options)
    with pytest.raises(ApiError, match=r"Unable to add volume \[more\]"):
        await api.put_subresource(subresource, "default", "asked", "addvolume", options)
    stored = await api.get(VMS, "default", "asked")
    await console.shows(f"plugged: {addresses(stored)['more']} {identity(DISK)}")
    await api.put_subresource(subresource, "default", "asked", "removevolume", {"name": "more"})
    await console.shows(f"unplugged: {addresses(stored)['more']}")


def identity(text: str) -> str:
    return ":".join(f"0x{part}" for part in text.split(":"))


async def claim(api: Api, name: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Mi"}}}
    metadata = {"name": name, "namespace": "default"}
    await api.create(PVCS, {"apiVersion": "v1", "kind": PVCS.kind, "metadata": metadata, "spec": spec})


async def edit(api: Api, document: Json, change: Any) -> Json:
    """Changes the template of a VM as it is stored now."""
    name = document["metadata"]["name"]

    async def edited() -> Json | None:
        stored = await api.get(VMS, "default", name)
        wanted = deepcopy(stored)
        change(wanted["spec"]["template"]["spec"])
        try:
            return await api.replace(VMS, wanted)
        except ApiError as error:
            if error.status == 409:
                return None
            raise

    found = await eventually(edited)
    assert isinstance(found, dict)
    return found


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


async def volume_status(api: Api, name: str, phase: str) -> Json:
    async def reported() -> Json | None:
        for vmi in (await api.list(VMIS, "default"))[0]:
            for status in (vmi.get("status") or {}).get("volumeStatus") or ():
                if (status["name"], status.get("phase")) == (name, phase):
                    return dict(status)
        return None

    found = await eventually(reported)
    assert isinstance(found, dict)
    return found
