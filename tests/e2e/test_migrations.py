"""Migrations: the policy that a VM obeys, and drains."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from controllers.migrationpolicy.observe import POLICIES
from poolhouse.api.kinds.meta import KUBEVIRT_DRAIN_TAINT
from poolhouse.runtime.errors import NotFound, Throttled
from poolhouse.runtime.resource import NODES, VMIS
from poolhouse.stack.engine.resources import MIGRATIONS
from tests.builders import manifest
from tests.e2e.scope import Json, Scope

pytestmark = pytest.mark.needs(nodes=2)


@pytest_asyncio.fixture
async def policy(scope: Scope) -> Any:
    name = f"e2e-{uuid4().hex[:8]}"
    selectors = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scope.namespace}}}
    spec = {"selectors": selectors, "bandwidthPerMigration": "64Mi"}
    await scope.api.create(POLICIES, manifest(POLICIES, name, spec))
    yield name
    await scope.api.delete(POLICIES, None, name)


async def test_policy(scope: Scope, policy: str) -> None:
    """A migration obeys the policy that Poolhouse names for the VM"""
    await scope.make_vm("vm", scope.vm_spec())
    first = await scope.runs("vm")
    await scope.becomes(lambda: explained(scope, policy), True)
    await scope.create(MIGRATIONS, "move", {"vmiName": "vm"})
    state = await moved(scope, first)
    assert state["migrationPolicyName"] == policy
    assert state["migrationConfiguration"]["bandwidthPerMigration"] == "64Mi"
    assert (await scope.runs("vm"))["metadata"]["uid"] == first["metadata"]["uid"]


async def test_drain(scope: Scope) -> None:
    """The VMs of a pool leave a node that is drained, without a restart"""
    spec = scope.vm_spec()
    spec["template"]["spec"]["evictionStrategy"] = "LiveMigrate"
    await scope.pool(1, vm=spec)
    await scope.complete()
    first = await scope.runs("web-1")
    node = first["status"]["nodeName"]
    try:
        await cordon(scope, node, True)
        await evict(scope, first)
        await moved(scope, first)
    finally:
        await cordon(scope, node, False)
    after = await scope.runs("web-1")
    assert after["metadata"]["uid"] == first["metadata"]["uid"]
    assert after["status"]["nodeName"] != node
    await scope.complete()


async def cordon(scope: Scope, node: str, unschedulable: bool) -> None:
    body: Json = {"unschedulable": unschedulable or None}
    if scope.target.embedded is not None:
        # The embedded stack has no Pods to evict. There, the taint with which KubeVirt drains a node moves the guests.
        body = {"taints": [{"key": KUBEVIRT_DRAIN_TAINT, "effect": "NoSchedule"}] if unschedulable else None}
    await scope.api.patch(NODES, None, node, {"spec": body})


async def evict(scope: Scope, vmi: Json) -> None:
    """Asks for an eviction as `kubectl drain` does."""
    if scope.target.embedded is not None:
        return
    pod = await scope.launcher(vmi)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": scope.namespace}}
    path = f"/api/v1/namespaces/{scope.namespace}/pods/{pod}/eviction"
    # virt-api refuses with 429 and migrates the VM; then the Pod ends by itself.
    with suppress(Throttled):
        await scope.api.respond("POST", path, body=body)


async def moved(scope: Scope, first: Json) -> Json:
    async def so() -> Any:
        try:
            vmi = await scope.api.get(VMIS, scope.namespace, first["metadata"]["name"])
        except NotFound:
            return None
        state = vmi["status"].get("migrationState") or {}
        return state if state.get("completed") and vmi["status"]["nodeName"] != first["status"]["nodeName"] else None

    return dict(await scope.patiently(so, "why", f"vm/{first['metadata']['name']}"))


async def explained(scope: Scope, policy: str) -> bool:
    return policy in await scope.poolhouse("policy", "explain", "vm", check=False)
