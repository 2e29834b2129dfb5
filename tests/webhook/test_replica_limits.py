"""Replicas above the limit, in objects and in scale subresources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from defaulter.nodes import read_node
from poolhouse.api.kinds.meta import MAX_REPLICAS
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound, Unreachable
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.resource import NAMESPACES, Resource
from tests.kinds.documents import pool
from tests.kinds.warm import warm_pool
from tests.webhook.builders import request
from webhook.node_capacity import NodeCapacity
from webhook.replica_limits import QUOTAS, ReplicaLimit
from webhook.review import AdmissionRequest, AdmissionResponse

Json = dict[str, Any]


class Cluster:
    """The namespace, its quotas, and an object that is scaled."""

    def __init__(
        self, limit: str | None = None, *quotas: Json, scaled: Json | None = None, fails: ApiError | None = None
    ) -> None:
        annotations = {} if limit is None else {MAX_REPLICAS: limit}
        self._namespace: Json = {"metadata": {"name": "shop", "annotations": annotations}}
        self._quotas, self._scaled, self._fails = list(quotas), scaled, fails
        self.asked = list[str]()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        self.asked.append(resource.plural)
        if self._fails is not None:
            raise self._fails
        if name == INSTANCETYPE["metadata"]["name"]:
            return INSTANCETYPE
        if resource == NAMESPACES:
            return self._namespace
        if self._scaled is None:
            raise NotFound("gone", status=404)
        assert (resource.kind, namespace, name) == (self._scaled["kind"], "shop", "web")
        return self._scaled

    async def list(self, resource: Resource, namespace: str, from_cache: bool) -> tuple[list[Json], str]:
        self.asked.append(resource.plural)
        assert (resource, namespace) == (QUOTAS, "shop")
        assert from_cache, "nobody waits until the API server's cache has all changes"
        return self._quotas, ""


async def reviewed(
    asked: AdmissionRequest, cluster: Cluster | None = None, nodes: Iterable[Json] = ()
) -> AdmissionResponse:
    capacity = NodeCapacity()
    for each in nodes:
        capacity.node_changed(None, read_node(each))
    api = cast(Api, cluster or Cluster())
    instancetypes = InstancetypeReader(api, lambda: 0.0)
    limit = ReplicaLimit(api, 100, capacity, ClusterSettings, instancetypes, budget_seconds=9)
    return await limit.handle(asked)


INSTANCETYPE: Json = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "metadata": {"name": "large"},
    "spec": {"cpu": {"guest": 4}, "memory": {"guest": "2Gi"}},
}


def of(replicas: int, **spec: Any) -> Json:
    made = pool(**spec)
    made["spec"]["replicas"] = replicas
    made["metadata"] = {"name": "web", "namespace": "shop"}
    return made


def scale(replicas: int, before: int, resource: str = "virtualmachinepools.kubevirt.io") -> AdmissionRequest:
    document: Json = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "shop"}}
    return request(
        {**document, "spec": {"replicas": replicas}},
        {**document, "spec": {"replicas": before}},
        subresource="scale",
        resource=resource,
    )


def quota(name: str, *, scopes: list[str] | None = None, **hard: str) -> Json:
    limits = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    return {"metadata": {"name": name}, "spec": {"hard": limits, **({"scopes": scopes} if scopes else {})}}


def autoscaled(most: int) -> Json:
    found = warm_pool(replicas=1, autoscaling={"maxReplicas": most, "target": {"waitSeconds": 9}})
    found["metadata"]["namespace"] = "shop"
    return found


DEFAULT = "the limit of this installation (POOLHOUSE_MAX_REPLICAS)"


@pytest.mark.parametrize(
    ("asked", "limit", "expected"),
    [
        pytest.param(request(of(100)), None, {}, id="the limit itself"),
        pytest.param(request(of(101)), None, {"spec.replicas": f"at most 100, not 101: {DEFAULT}"}, id="a new pool"),
        pytest.param(
            request(of(10**9)), None, {"spec.replicas": f"at most 100, not 1000000000: {DEFAULT}"}, id="a typing error"
        ),
        pytest.param(request(of(500)), "500", {}, id="the namespace allows more"),
        pytest.param(
            request(of(6)),
            "5",
            {"spec.replicas": f"at most 5, not 6: the annotation {MAX_REPLICAS} of the namespace"},
            id="the namespace allows less",
        ),
        pytest.param(request(of(0)), "0", {}, id="a namespace without VMs"),
        pytest.param(request(of(1)), "0", {"spec.replicas": "at most 0, not 1"}, id="one VM where none may be"),
        pytest.param(
            request(of(101)), "many", {"spec.replicas": "and is invalid there"}, id="an invalid annotation is told"
        ),
        pytest.param(request(of(101), of(5)), None, {"spec.replicas": "at most 100, not 101"}, id="raised"),
        pytest.param(request(of(500, paused=True), of(500)), None, {}, id="a stored pool above the limit is changed"),
        pytest.param(request(of(400), of(500)), None, {}, id="a stored pool above the limit is lowered"),
        pytest.param(request(of(501), of(500)), None, {"spec.replicas": "at most 100, not 501"}, id="and raised"),
        pytest.param(scale(101, 3), None, {"spec.replicas": "at most 100, not 101"}, id="scale"),
        pytest.param(scale(400, 500), None, {}, id="scale that lowers"),
        pytest.param(
            scale(101, 3, "virtualmachinewarmpools.poolhouse.dev"),
            None,
            {"spec.replicas": "at most 100, not 101"},
            id="scale of a warm pool",
        ),
        pytest.param(scale(101, 3, "deployments.apps"), None, {}, id="scale of another kind"),
        pytest.param(
            request(autoscaled(101)),
            None,
            {"spec.autoscaling.maxReplicas": "at most 100, not 101"},
            id="an autoscaled warm pool",
        ),
    ],
)
async def test_the_limit(asked: AdmissionRequest, limit: str | None, expected: dict[str, str]) -> None:
    found = {each.path: each.message for each in (await reviewed(asked, Cluster(limit))).problems}
    assert found.keys() == expected.keys()
    assert all(words in found[path] for path, words in expected.items()), found


async def test_without_the_namespace_the_limit_of_the_installation_applies() -> None:
    down = Cluster("500", fails=Unreachable("refused"))
    assert not (await reviewed(request(of(100)), down)).problems
    (problem,) = (await reviewed(request(of(101)), down)).problems
    assert "cannot be read now: refused" in problem.message
    assert not (await reviewed(request(of(3)), Cluster(fails=NotFound("gone", status=404)))).problems


async def test_nothing_is_asked_if_no_number_is_raised() -> None:
    cluster = Cluster()
    for asked in (request(of(5), of(5)), request(of(4), of(5)), scale(4, 5), request(of(0))):
        await reviewed(asked, cluster)
    assert cluster.asked == []


RUNNING = {"running": True, "template": {"spec": {"domain": {"resources": {"requests": {"memory": "2Gi"}}}}}}


@pytest.mark.parametrize(
    ("asked", "hard", "warning"),
    [
        pytest.param(request(of(5)), quota("q", count__virtualmachines_kubevirt_io="5"), "", id="enough"),
        pytest.param(
            request(of(6)),
            quota("q", count__virtualmachines_kubevirt_io="5"),
            "spec.replicas: ResourceQuota q allows 5 count/virtualmachines.kubevirt.io, which is enough for 5 of 6 VMs",
            id="too few VMs",
        ),
        pytest.param(
            request(of(6, template={"spec": RUNNING})), quota("q", pods="5"), "enough for 5 of 6 VMs", id="pods"
        ),
        pytest.param(
            request(of(6, template={"spec": {**RUNNING, "running": False}})), quota("q", pods="5"), "", id="halted"
        ),
        pytest.param(
            request(of(6, template={"spec": RUNNING})),
            quota("q", requests_memory="5Gi"),
            "allows 5Gi requests.memory, which is enough for 2 of 6 VMs",
            id="memory",
        ),
        pytest.param(
            request(of(6, template={"spec": {**RUNNING, "instancetype": {"name": "large"}, "template": {}}})),
            quota("q", requests_memory="5Gi"),
            "allows 5Gi requests.memory, which is enough for 2 of 6 VMs",
            id="memory of an instance type",
        ),
        pytest.param(
            request(of(6, template={"spec": {**RUNNING, "instancetype": {"name": "gone"}, "template": {}}})),
            quota("q", requests_memory="5Gi"),
            "",
            id="an instance type that does not exist",
        ),
        pytest.param(
            request(of(6, template={"spec": RUNNING})), quota("q", scopes=["BestEffort"], pods="5"), "", id="scopes"
        ),
    ],
)
async def test_a_quota_that_is_too_small(asked: AdmissionRequest, hard: Json, warning: str) -> None:
    found = await reviewed(asked, Cluster(None, hard))
    assert not found.problems
    assert (len(found.warnings) == 1 and warning in found.warnings[0]) if warning else not found.warnings


def node(**allocatable: str) -> Json:
    return {"metadata": {"name": "node"}, "status": {"allocatable": allocatable}}


TWO_NODES = [node(cpu="8", memory="16Gi", pods="110"), node(cpu="7900m", memory="15Gi", pods="110")]
WITH_CPUS: Json = {
    "running": True,
    "template": {"spec": {"domain": {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}}},
}


@pytest.mark.parametrize(
    ("asked", "nodes", "warnings"),
    [
        pytest.param(request(of(15, template={"spec": RUNNING})), TWO_NODES, [], id="enough"),
        pytest.param(
            request(of(16, template={"spec": RUNNING})),
            TWO_NODES,
            ["spec.replicas: all nodes that run VMs have 31Gi memory together, enough for 15 of 16 VMs"],
            id="too little memory",
        ),
        pytest.param(
            request(of(4, template={"spec": WITH_CPUS})),
            TWO_NODES,
            ["spec.replicas: all nodes that run VMs have 15.9 CPUs together, enough for 3 of 4 VMs"],
            id="too few CPUs",
        ),
        pytest.param(
            request(of(9, template={"spec": RUNNING})),
            [node(pods="8")],
            ["spec.replicas: all nodes that run VMs have room for 8 Pods together, enough for 8 of 9 VMs"],
            id="too few Pods, and a node that does not say its memory",
        ),
        pytest.param(request(of(99, template={"spec": {**RUNNING, "running": False}})), TWO_NODES, [], id="halted"),
        pytest.param(request(of(99, template={"spec": RUNNING})), [], [], id="no node runs VMs yet"),
        pytest.param(
            request(of(99, template={"spec": RUNNING})), [node(pods="0")], [], id="a node that runs VMs without Pods"
        ),
    ],
)
async def test_nodes_that_are_too_small(asked: AdmissionRequest, nodes: list[Json], warnings: list[str]) -> None:
    found = await reviewed(asked, nodes=nodes)
    assert not found.problems
    assert list(found.warnings) == warnings


@pytest.mark.parametrize(
    ("resource", "scaled", "warnings"),
    [
        pytest.param(
            "virtualmachinepools.kubevirt.io",
            of(1, template={"spec": RUNNING}),
            [
                "spec.replicas: ResourceQuota q allows 5 pods, which is enough for 5 of 16 VMs",
                "spec.replicas: all nodes that run VMs have 31Gi memory together, enough for 15 of 16 VMs",
            ],
            id="a pool",
        ),
        pytest.param(
            "virtualmachinepools.kubevirt.io", of(1, template={"spec": {**RUNNING, "running": False}}), [], id="halted"
        ),
        pytest.param(
            "virtualmachineinstancereplicasets.kubevirt.io",
            {"kind": REPLICA_SET.kind, "spec": {"template": {"spec": {"domain": {}}}}},
            ["spec.replicas: ResourceQuota q allows 5 pods, which is enough for 5 of 16 VMs"],
            id="a replica set",
        ),
        pytest.param(
            "virtualmachinewarmpools.poolhouse.dev",
            warm_pool(replicas=1),
            ["spec.replicas: ResourceQuota q allows 5 pods, which is enough for 5 of 16 VMs"],
            id="a warm pool",
        ),
        pytest.param("virtualmachinepools.kubevirt.io", None, [], id="an object that cannot be read"),
    ],
)
async def test_a_scale_warns_as_its_object_does(resource: str, scaled: Json | None, warnings: list[str]) -> None:
    cluster = Cluster(None, quota("q", pods="5"), scaled=scaled)
    found = await reviewed(scale(16, 1, resource), cluster, TWO_NODES)
    assert not found.problems
    assert list(found.warnings) == warnings


def test_a_node_that_changes_or_goes_is_counted_as_it_is() -> None:
    capacity = NodeCapacity()
    small, large, silent = (read_node(each) for each in (node(pods="10"), node(pods="20"), node()))
    assert capacity.total == {}
    capacity.node_changed(None, small)
    capacity.node_changed(None, large)
    assert capacity.total == {"pods": 30}
    capacity.node_changed(small, large)
    assert capacity.total == {"pods": 40}
    capacity.node_changed(large, silent)
    assert capacity.total == {}, "one of two nodes does not say it"
    capacity.node_changed(silent, None)
    assert capacity.total == {"pods": 20}
    capacity.node_changed(large, None)
    assert capacity.total == {}
