"""Pools of one namespace that name their disks alike, on the real API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from poolhouse.runtime.resource import VMS
from tests.cluster.pooling import Place, controller, template, until


@pytest.mark.parametrize("names", [("ace", "bay"), ("bay", "ace")], ids=" then ".join)
async def test_of_pools_made_at_once_no_two_vms_have_one_disk(
    control_plane: Any, place: Place, names: tuple[str, str]
) -> None:
    """Both were asked for before the controllers could see what became of the other: the order of their names decides,
    or who was first; never both."""
    vms = 30

    async with controller(control_plane.kubeconfig):
        await asyncio.gather(*(place.pool(vms, name) for name in names))
        await until(lambda: enough(place, vms), True)
        await asyncio.sleep(1)
        disks = Counter(
            template["metadata"]["name"]
            for vm in (await place.vms()).values()
            for template in vm["spec"]["dataVolumeTemplates"]
        )
        assert [disk for disk, count in disks.items() if count > 1] == []


async def test_a_disk_that_two_vms_have_is_said_until_one_of_them_goes(control_plane: Any, place: Place) -> None:
    async def shared() -> tuple[str, bool]:
        found = await place.condition("DisksShared")
        return found.get("status", ""), "which is VM db's" in found.get("message", "")

    await place.pool(1)
    async with controller(control_plane.kubeconfig):
        await until(place.names, ["web-1"])
        spec = template()["spec"]
        spec["dataVolumeTemplates"][0]["metadata"]["name"] = "root-1"
        spec["template"]["spec"]["volumes"][0]["dataVolume"]["name"] = "root-1"
        body = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": spec}
        await place.api.create(VMS, {**body, "metadata": {"namespace": place.namespace, "name": "db"}})
        await until(shared, ("True", True))
        await place.api.delete(VMS, place.namespace, "db")
        await until(shared, ("False", False))


async def enough(place: Place, vms: int) -> bool:
    return len(await place.vms()) >= vms
