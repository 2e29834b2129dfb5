"""Warm pools: a claim's VM in each mode of standby, and claims on a pool without VMs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMS
from tests.e2e.scope import CLAIMS, WARM_POOLS, Json, Scope


def warm(scope: Scope, **spec: Any) -> Json:
    vm = scope.vm_spec()
    del vm["runStrategy"]
    return {"replicas": 1, "template": {"spec": vm}, **spec}


@pytest.mark.parametrize(
    ("mode", "launch"), [("Running", "Warm"), ("Paused", "Resumed"), ("Stopped", "Started")], ids=str
)
async def test_claim(scope: Scope, mode: str, launch: str, record_property: Callable[[str, Any], None]) -> None:
    """A claim gets a waiting VM, and gives it back"""
    # Without a limit the pool would start another guest beside the claimed one.
    await scope.create(WARM_POOLS, "warm", warm(scope, standby={"mode": mode}, maxTotal=1))
    await scope.becomes(lambda: ready(scope), 1)
    await scope.create(CLAIMS, "mine", {"poolName": "warm"})
    status = await handed_over(scope, "mine")
    assert status["launchType"] == launch
    record_property("ready after", f"{status['timings']['totalMs']} ms")
    name = status["vmRef"]["name"]
    await scope.runs(name)
    annotations = (await scope.get(VMS, name) or {})["metadata"]["annotations"]
    assert (meta.ACTIVATED_AT in annotations) == (mode != "Running")
    await scope.api.delete(CLAIMS, scope.namespace, "mine")
    await scope.becomes(lambda: name_of(scope, status["vmRef"]["uid"]), None)


async def test_claim_before_vms(scope: Scope) -> None:
    """A claim that waits for a boot takes a VM of the pool that is ready first"""
    # The claim may start no guest beside that of the pool.
    await scope.create(WARM_POOLS, "warm", warm(scope, maxTotal=1))
    await scope.becomes(lambda: number_of_vms(scope), 1)
    (uid,) = (await scope.uids(VMS)).values()
    await scope.create(CLAIMS, "early", {"poolName": "warm", "onEmpty": "ColdStart"})
    status = await handed_over(scope, "early")
    assert (status["launchType"], status["vmRef"]["uid"]) == ("Warm", uid)


async def handed_over(scope: Scope, name: str) -> Json:
    """The status of the claim when it is Ready and owns its VM."""
    await scope.becomes(lambda: phase(scope, name), "Ready")
    claim = await scope.get(CLAIMS, name) or {}
    vm = await scope.get(VMS, claim["status"]["vmRef"]["name"]) or {}
    assert [each["uid"] for each in vm["metadata"]["ownerReferences"]] == [claim["metadata"]["uid"]]
    status: Json = claim["status"]
    return status


async def number_of_vms(scope: Scope) -> int:
    return len(await scope.uids(VMS))


async def ready(scope: Scope) -> int:
    found = await scope.get(WARM_POOLS, "warm") or {}
    return int((found.get("status") or {}).get("readyReplicas") or 0)


async def phase(scope: Scope, name: str) -> str:
    return str(((await scope.get(CLAIMS, name) or {}).get("status") or {}).get("phase"))


async def name_of(scope: Scope, uid: str) -> str | None:
    return next((name for name, found in (await scope.uids(VMS)).items() if found == uid), None)
