"""Updates: each strategy, with disks, surge and snapshots, and the way back."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from poolhouse.runtime.resource import PVCS, VMIS, VMS
from tests.e2e.scope import POOLS, Json, Scope


def other(scope: Scope) -> Json:
    """A template with another image."""
    return {"spec": scope.vm_spec(image=scope.target.other_image)}


async def set_template(scope: Scope, template: Json, **spec: Any) -> None:
    def change(pool: Json) -> None:
        pool["spec"] |= {"template": template, **spec}

    await scope.change(POOLS, "web", change)


async def images(scope: Scope) -> dict[str, str]:
    """The image with which each guest has been started."""
    vmis = await scope.objects(VMIS)
    return {name: vmi["spec"]["volumes"][0]["containerDisk"]["image"] for name, vmi in vmis.items()}


async def test_proactive(scope: Scope) -> None:
    """A proactive update restarts VMs, one at a time, and says what it will do beforehand"""
    await scope.pool(2)
    await scope.complete()
    vms, before = await scope.uids(VMS), await scope.uids(VMIS)
    await set_template(scope, other(scope))
    await scope.complete()
    assert set((await images(scope)).values()) == {scope.target.other_image}
    assert await scope.uids(VMS) == vms, "the VMs stay"
    assert not set((await scope.uids(VMIS)).values()) & set(before.values())


async def test_opportunistic(scope: Scope) -> None:
    """An opportunistic update waits until a VM is stopped"""
    await scope.pool(1, updateStrategy={"opportunistic": {}})
    await scope.complete()
    before = await scope.uids(VMIS)
    await set_template(scope, other(scope))
    await scope.becomes(lambda: outdated(scope), 1)
    assert await scope.uids(VMIS) == before
    await scope.ask("web-1", "stop")
    await scope.stops("web-1")
    await scope.becomes(lambda: outdated(scope), 0)
    await scope.ask("web-1", "start")
    await scope.complete()
    assert await images(scope) == {"web-1": scope.target.other_image}


async def test_unmanaged(scope: Scope) -> None:
    """An unmanaged update changes no VM"""
    await scope.pool(1, vm=scope.vm_spec(run_strategy="Halted"), updateStrategy={"unmanaged": {}})
    await scope.becomes(lambda: outdated(scope), 0)
    before = await generation(scope, "web-1")
    await set_template(scope, {"spec": scope.vm_spec(image=scope.target.other_image, run_strategy="Halted")})
    await scope.becomes(lambda: outdated(scope), 1)
    assert await generation(scope, "web-1") == before


async def test_spelling(scope: Scope) -> None:
    """A template in another spelling of the same meaning restarts nobody"""
    await scope.pool(1)
    await scope.complete()
    before = await scope.uids(VMIS), await generation(scope, "web-1")
    template = {"spec": scope.vm_spec()}
    domain = template["spec"]["template"]["spec"]["domain"]
    domain["memory"]["guest"] = "134217728"
    domain["devices"]["rng"] = None
    await set_template(scope, template)
    await scope.becomes(lambda: outdated(scope), 0)
    assert (await scope.uids(VMIS), await generation(scope, "web-1")) == before


async def test_surge(scope: Scope) -> None:
    """With maxSurge a new VM is ready before an old one is deleted"""
    numbers: set[tuple[int, int]] = set()

    async def look() -> None:
        while True:
            vms = (await scope.objects(VMS)).values()
            here = [vm.get("status") or {} for vm in vms if "deletionTimestamp" not in vm["metadata"]]
            numbers.add((len(here), sum(status.get("ready") is True for status in here)))
            await asyncio.sleep(0.1)

    await scope.pool(1, updateStrategy={"proactive": {"maxSurge": 1}})
    await scope.complete()
    before = await scope.uids(VMS)
    looking = asyncio.create_task(look())
    await set_template(scope, other(scope))
    await scope.complete()
    assert not looking.done(), "nobody was looking"
    looking.cancel()
    assert {all for all, _ in numbers} == {1, 2}
    assert 0 not in {ready for _, ready in numbers}
    assert set((await images(scope)).values()) == {scope.target.other_image}
    assert not set((await scope.uids(VMS)).values()) & set(before.values())


@pytest.mark.needs(source="blank")
async def test_recreate(scope: Scope) -> None:
    """With replacePolicy Recreate a changed disk is made anew, before the VM stops"""
    disk = scope.target.source("blank")
    strategy = {"proactive": {"replacePolicy": "Recreate"}}
    await scope.pool(1, vm=scope.vm_spec(disk=disk), updateStrategy=strategy)
    await scope.complete()
    before = await scope.uids(PVCS)
    larger = deepcopy(disk)
    larger["pvc"]["resources"]["requests"]["storage"] = "96Mi"
    await set_template(scope, {"spec": scope.vm_spec(disk=larger)})
    await scope.complete()
    vmi = await scope.runs("web-1")
    claim = vmi["spec"]["volumes"][0]["dataVolume"]["name"]
    claims = await scope.objects(PVCS)
    assert claims[claim]["metadata"]["uid"] not in before.values()


@pytest.mark.needs(snapshots=True, source="blank")
async def test_snapshots(scope: Scope) -> None:
    """A snapshot is taken before the update, and `undo --restore-snapshots` restores it"""
    disk = scope.target.source("blank")
    spec = scope.vm_spec(disk=disk)
    await scope.pool(1, vm=spec, updateStrategy={"proactive": {"snapshotBeforeUpdate": True}})
    await scope.complete()
    changed = deepcopy(spec)
    changed["template"]["spec"]["domain"]["memory"]["guest"] = "144Mi"
    await set_template(scope, {"spec": changed})
    await scope.complete()
    status = (await scope.get(POOLS, "web") or {})["status"]
    assert status["snapshots"] == 1
    await scope.poolhouse("rollout", "undo", "web", "--restore-snapshots")
    await scope.becomes(lambda: memory(scope, "web-1"), "128Mi")
    await scope.complete()


async def memory(scope: Scope, name: str) -> Any:
    return (await scope.get(VMS, name) or {})["spec"]["template"]["spec"]["domain"]["memory"]["guest"]


async def outdated(scope: Scope) -> int | None:
    """VMs without the pool's template; None until the controller has seen the pool's last change."""
    pool = await scope.get(POOLS, "web") or {}
    status = pool.get("status") or {}
    if status.get("observedGeneration") != pool["metadata"]["generation"]:
        return None
    return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))


async def generation(scope: Scope, name: str) -> int:
    return int((await scope.get(VMS, name) or {})["metadata"]["generation"])
