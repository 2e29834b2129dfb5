"""Pools: scale-out, scale-in, healing of lost and of failing VMs, and what stays of a VM."""

from __future__ import annotations

import pytest

from poolhouse.api.kinds.meta import SIM_PREFIX
from poolhouse.runtime.resource import PVCS, VMIS, VMS
from tests.e2e.scope import POOLS, Json, Scope

# With this annotation, which is that of KubeVirt's own tests, the launcher crashes at each start.
FAILING_LAUNCHER = {"kubevirt.io/func-test-virt-launcher-fail-fast": "true"}
# The engine has no launcher that could fail, so that it injects the failure.
FAILING_START = {f"{SIM_PREFIX}fail": "CrashLoopBackOff", f"{SIM_PREFIX}retry-seconds": "1"}


async def test_scale(scope: Scope) -> None:
    """A pool is scaled out and in through its scale subresource, and rests"""
    await scope.pool(1, scaleInStrategy={"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}})
    await scope.complete()
    first = await scope.uids(VMIS)
    await scope.scale(2)
    await scope.complete()
    both = await scope.uids(VMIS)
    assert first.items() < both.items(), "scale-out restarts nobody"
    await scope.scale(1)
    await scope.becomes(lambda: scope.uids(VMS), {"web-1": (await scope.uids(VMS))["web-1"]})
    await scope.complete()
    assert await scope.uids(VMIS) == first


async def test_scale_in_order(scope: Scope) -> None:
    """Scale-in deletes the VM that the selection policy names"""
    order = {"orderedPolicies": [{"labelSelector": {"matchLabels": {"leaves": "first"}}}], "basePolicy": "Oldest"}
    strategy = {"proactive": {"selectionPolicy": order}}
    await scope.pool(2, vm=scope.vm_spec(run_strategy="Halted"), scaleInStrategy=strategy)
    await scope.becomes(lambda: names(scope), ["web-1", "web-2"])
    await scope.api.patch(VMS, scope.namespace, "web-2", {"metadata": {"labels": {"leaves": "first"}}})
    await scope.scale(1)
    await scope.becomes(lambda: names(scope), ["web-1"])


async def test_opportunistic_scale_in(scope: Scope) -> None:
    """Opportunistic scale-in waits until a VM is stopped"""
    await scope.pool(1, scaleInStrategy={"opportunistic": {}})
    await scope.complete()
    await scope.scale(0)
    await scope.becomes(lambda: observed(scope), True)
    assert await names(scope) == ["web-1"]
    await scope.ask("web-1", "stop")
    await scope.becomes(lambda: names(scope), [])


async def test_unmanaged_scale_in(scope: Scope) -> None:
    """Unmanaged scale-in deletes nothing"""
    await scope.pool(1, vm=scope.vm_spec(run_strategy="Halted"), scaleInStrategy={"unmanaged": {}})
    await scope.becomes(lambda: names(scope), ["web-1"])
    await scope.scale(0)
    await scope.becomes(lambda: observed(scope), True)
    assert await names(scope) == ["web-1"]
    await scope.api.delete(VMS, scope.namespace, "web-1")
    await scope.becomes(lambda: names(scope), [])


async def test_lost_vm(scope: Scope) -> None:
    """A VM that somebody deletes returns under its name"""
    await scope.pool(1)
    await scope.complete()
    before = await scope.uids(VMS)
    await scope.api.delete(VMS, scope.namespace, "web-1")
    await scope.becomes(lambda: is_another(scope, before), True)
    await scope.complete()


@pytest.mark.needs(source="blank")
@pytest.mark.sentence("1.42")
async def test_failing_vm(scope: Scope) -> None:
    """A VM that fails at each start is replaced with a new disk, and no other VM is"""
    spec = scope.vm_spec(disk=scope.target.source("blank"))
    await scope.pool(2, vm=spec, autohealing={"startupFailureThreshold": 2})
    await scope.complete()
    vms, disks, guests = await scope.uids(VMS), await scope.disks(), await scope.uids(VMIS)
    fails: Json = {"metadata": {"annotations": FAILING_START}}
    fails["spec"] = {"template": {"metadata": {"annotations": FAILING_LAUNCHER}}}
    await scope.api.patch(VMS, scope.namespace, "web-2", fails)
    await scope.api.delete(VMIS, scope.namespace, "web-2")
    await scope.becomes(lambda: replaced(scope), ["web-2"])
    await scope.becomes(lambda: is_another(scope, vms), True)
    await scope.complete()
    assert changed(vms, await scope.uids(VMS)) == {"web-2"}
    assert changed(disks, await scope.disks()) == {"root-2"}
    assert changed(guests, await scope.uids(VMIS)) == {"web-2"}
    assert "starts in a row failed" in await scope.poolhouse("why", "web-2")


@pytest.mark.needs(source="blank")
async def test_a_deleted_pool_takes_its_vms_and_disks_with_it(scope: Scope) -> None:
    """A deleted pool takes its VMs and disks with it"""
    await scope.pool(1, vm=scope.vm_spec(disk=scope.target.source("blank"), run_strategy="Halted"))
    await scope.becomes(lambda: names(scope), ["web-1"])
    await scope.becomes(lambda: scope.is_bound("root-1"), True)
    await scope.api.delete(POOLS, scope.namespace, "web")
    await scope.becomes(lambda: scope.uids(VMS), {})
    await scope.becomes(lambda: scope.uids(PVCS), {})


async def names(scope: Scope) -> list[str]:
    return sorted(await scope.uids(VMS))


async def observed(scope: Scope) -> bool:
    found = await scope.get(POOLS, "web") or {}
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])


async def is_another(scope: Scope, before: dict[str, str]) -> bool:
    now = await scope.uids(VMS)
    return now.keys() == before.keys() and now != before


async def replaced(scope: Scope) -> list[str]:
    """The VMs that healing has replaced. The status has them before it deletes them."""
    status: Json = (await scope.get(POOLS, "web") or {})["status"]
    return [each["name"] for each in (status.get("healing") or {}).get("vms") or ()]


def changed(before: dict[str, str], now: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
