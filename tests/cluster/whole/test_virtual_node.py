"""The virtual node on a stack with Kubernetes' own scheduler: the Node, its Lease, and who may write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound
from poolhouse.runtime.resource import LEASES, NODES, PODS, Resource
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.cluster.warm_pools import PoolNamespace, namespace
from tests.waiting import eventually, until

Json = dict[str, Any]

NODE = "poolhouse"
TOLERATION = {"key": meta.WARM_VM, "operator": "Exists"}


@pytest_asyncio.fixture
async def place(whole: StackPaths) -> AsyncIterator[PoolNamespace]:
    async with namespace(whole.kubeconfig) as found:
        await eventually(lambda: get(found.api, NODES, None, NODE))
        yield found


@pytest_asyncio.fixture
async def controllers(whole: StackPaths) -> AsyncIterator[Api]:
    """The rights of the controllers."""
    async with await Api.connect(Path(whole.kubeconfig_of("controllers")), user_agent="test") as api:
        yield api


def pod(namespace: str, name: str, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "example.test/app", "resources": {"requests": {"cpu": "2"}}}]
    return manifest(PODS, name, {"containers": containers, "tolerations": [TOLERATION], **spec}, namespace)


async def get(api: Api, resource: Resource, namespace: str | None, name: str) -> Json | None:
    try:
        return await api.get(resource, namespace, name)
    except NotFound:
        return None


async def capacity(api: Api, resource: str) -> str:
    found: Json = (await api.get(NODES, None, NODE))["status"]["capacity"]
    return str(found[resource])


async def scheduled(api: Api, namespace: str, name: str) -> tuple[str, str]:
    """The node of a Pod, and the scheduler's reason for none."""
    found = await api.get(PODS, namespace, name)
    conditions = (found.get("status") or {}).get("conditions") or ()
    reason = next((each.get("reason") or "" for each in conditions if each["type"] == "PodScheduled"), "")
    return found["spec"].get("nodeName") or "", reason


async def test_the_node_is_ready_and_has_its_lease(place: PoolNamespace) -> None:
    async def conditions() -> dict[str, str]:
        found = await place.api.get(NODES, None, NODE)
        return {each["type"]: each["status"] for each in found["status"]["conditions"]}

    assert await conditions() == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "NetworkUnavailable": "False",
    }
    node = await place.api.get(NODES, None, NODE)
    lease = await eventually(lambda: get(place.api, LEASES, "kube-node-lease", NODE))
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert lease["spec"]["holderIdentity"] == NODE


async def test_what_others_change_in_the_node_is_restored(place: PoolNamespace) -> None:
    async def taints() -> list[str]:
        return [each["key"] for each in (await place.api.get(NODES, None, NODE))["spec"].get("taints") or ()]

    await until(taints, [meta.WARM_VM])
    await place.api.patch(NODES, None, NODE, {"spec": {"taints": [{"key": "mine", "effect": "PreferNoSchedule"}]}})
    await until(taints, ["mine", meta.WARM_VM])
    await place.api.patch(NODES, None, NODE, {"spec": {"taints": [{"key": meta.WARM_VM, "effect": "NoSchedule"}]}})
    await until(taints, [meta.WARM_VM])


async def test_a_deleted_node_comes_back(place: PoolNamespace) -> None:
    before = (await place.api.get(NODES, None, NODE))["metadata"]["uid"]
    await place.api.delete(NODES, None, NODE)

    async def uids() -> tuple[str, str]:
        nodes = {each["metadata"]["name"]: each["metadata"]["uid"] for each in (await place.api.list(NODES))[0]}
        leases = (await place.api.list(LEASES, "kube-node-lease"))[0]
        owners = [e["metadata"]["ownerReferences"][0]["uid"] for e in leases if e["metadata"]["name"] == NODE]
        return nodes.get(NODE, ""), next(iter(owners), "")

    async def is_new() -> bool:
        node, owner = await uids()
        return node == owner and node not in ("", before)

    await eventually(is_new)


async def test_the_scheduler_binds_only_pods_that_tolerate_the_taint(place: PoolNamespace) -> None:
    await until(lambda: capacity(place.api, "pods"), "0")
    await place.api.create(PODS, pod(place.namespace, "meant"))
    await place.api.create(PODS, pod(place.namespace, "other", tolerations=[]))
    await until(lambda: scheduled(place.api, place.namespace, "meant"), ("", "Unschedulable"))
    await place.pool(0, maxTotal=2, claimPolicy={"allowPods": True, "onEmpty": "Queue"})
    await until(lambda: scheduled(place.api, place.namespace, "meant"), (NODE, ""))
    await until(lambda: scheduled(place.api, place.namespace, "other"), ("", "Unschedulable"))


async def test_a_pod_may_ask_for_a_ready_vm(place: PoolNamespace) -> None:
    limits = {"resources": {"limits": {meta.WARM_VM: "1"}}}
    containers = [{"name": "main", "image": "example.test/app", **limits}]
    await place.pool(0, claimPolicy={"allowPods": True})
    await place.api.create(PODS, pod(place.namespace, "now", containers=containers))
    await until(lambda: scheduled(place.api, place.namespace, "now"), ("", "Unschedulable"))
    await place.change(replicas=1)
    await until(lambda: scheduled(place.api, place.namespace, "now"), (NODE, ""))


async def test_the_api_server_asks_the_node_for_logs(place: PoolNamespace) -> None:
    """The Pod names its node, and no pool gives it a VM."""
    await place.api.create(PODS, pod(place.namespace, "quiet", nodeName=NODE))

    async def answer() -> str:
        try:
            return await place.api.text(PODS.path(place.namespace, "quiet", "log"))
        except ApiError as error:
            return error.message

    await until(answer, "Pod quiet has no VM now, so that there are no logs; the events of the Pod say why")


async def test_the_controllers_may_write_no_other_node_lease_or_pod(place: PoolNamespace, controllers: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}}
    with pytest.raises(Forbidden, match="only node poolhouse"):
        await controllers.create(NODES, body)
    with pytest.raises(Forbidden):
        await controllers.patch(NODES, None, "node-1", {"spec": {"unschedulable": True}})
    with pytest.raises(Forbidden):
        await controllers.patch(NODES, None, "node-1", {"status": {}}, subresource="status")
    lease = {"metadata": {"namespace": "kube-node-lease", "name": "another"}, "spec": {}}
    with pytest.raises(Forbidden, match="only the Lease of node poolhouse"):
        await controllers.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", **lease})
    await place.api.create(PODS, pod(place.namespace, "elsewhere", schedulingGates=[{"name": "example.test/wait"}]))
    with pytest.raises(Forbidden, match="only Pods of node poolhouse"):
        await controllers.delete(PODS, place.namespace, "elsewhere")
    status = {"status": {"phase": "Failed"}}
    with pytest.raises(Forbidden, match="only Pods of node poolhouse"):
        await controllers.patch(PODS, place.namespace, "elsewhere", status, subresource="status")
