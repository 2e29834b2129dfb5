"""Real HorizontalPodAutoscalers scale a pool and a replica set, by a metric that the test serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controllers.replicaset.observe import REPLICA_SETS
from poolhouse.nodegroups.cluster import AUTOSCALERS
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, Resource
from poolhouse.service.certificates import new_ca, new_server_certificate
from poolhouse.service.server import serve
from tests.cluster import replicating
from tests.cluster.pooling import Place, controller, engine, until
from tests.resources import SERVICES
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Json = dict[str, Any]

API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
GROUP = "external.metrics.k8s.io"
METRIC = "waiting-jobs"
HOUR = timedelta(hours=1)


@dataclass
class Gauge:
    """The metrics API, with one metric."""

    value: int = 0
    asked: int = 0

    async def looks(self, often: int) -> None:
        """Returns when the autoscaler has asked so often more."""
        wanted = self.asked + often
        await eventually(lambda: self.asked >= wanted)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        api_version = f"{GROUP}/v1beta1"
        if scope["path"].endswith(METRIC):
            self.asked += 1
            item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(self.value)}
            answer: Json = {
                "kind": "ExternalMetricValueList",
                "apiVersion": api_version,
                "metadata": {},
                "items": [item],
            }
        else:
            answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": []}
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(api: Api, place: Place, gauge: Gauge, directory: Path) -> AsyncIterator[None]:
    """As the metrics API of the cluster, until the block ends."""
    now = datetime.now(UTC)
    pair = new_server_certificate(new_ca("tests", now, HOUR), "metrics", ["localhost"], now, HOUR)
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(gauge, "127.0.0.1", 0, directory, started=port.set_result, drain_seconds=1))
    either: list[asyncio.Future[Any]] = [port, serving]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    assert port.done(), serving.exception()
    number = port.result()
    name = f"v1beta1.{GROUP}"
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": number}]}
    await api.create(SERVICES, {"metadata": {"namespace": place.namespace, "name": "metrics"}, "spec": spec})
    service = {"namespace": place.namespace, "name": "metrics", "port": number}
    terms = {"group": GROUP, "version": "v1beta1", "insecureSkipTLSVerify": True, "service": service}
    terms |= {"groupPriorityMinimum": 100, "versionPriority": 100}
    await api.create(API_SERVICES, {"metadata": {"name": name}, "spec": terms})
    try:
        yield
    finally:
        await api.delete(API_SERVICES, None, name)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.sentence("1.3")
async def test_autoscalers_grow_and_shrink_a_pool_and_a_replica_set_and_nothing_flaps(
    control_plane: Any, place: Place, tmp_path: Path
) -> None:
    gauge = Gauge(10)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(place.api, place, gauge, tmp_path))
        await stack.enter_async_context(engine(control_plane.kubeconfig, tmp_path))
        await stack.enter_async_context(controller(control_plane.kubeconfig))
        await stack.enter_async_context(replicating.controller(control_plane.kubeconfig))
        replicas = await stack.enter_async_context(replicating.namespace(control_plane.kubeconfig))
        await place.pool(1)
        await replicas.make(1)
        await place.api.create(AUTOSCALERS, autoscaler(place.namespace))
        await place.api.create(AUTOSCALERS, autoscaler(replicas.namespace, REPLICA_SETS.kind))

        async def sizes() -> tuple[int, int]:
            return await ready(place), await running(replicas)

        await until(sizes, (1, 1))
        gauge.value = 60
        await until(sizes, (6, 6), seconds=240)
        grown = uids(await place.vms()), uids(await replicas.instances())
        # One that goes is replaced at once, and the autoscaler, which looks again meanwhile, has nothing to add.
        await place.api.delete(VMIS, replicas.namespace, min(await replicas.names()))
        await gauge.looks(4)
        assert uids(await place.vms()) == grown[0]

        async def replaced() -> tuple[int, int]:
            return await running(replicas), len(uids(await replicas.instances()) & grown[1])

        # While the VMI that goes is still there, the set may count it.
        await until(replaced, (6, 5))

        gauge.value = 20
        await until(sizes, (2, 2), seconds=240)
        for each in (place.namespace, replicas.namespace):
            await place.api.delete(AUTOSCALERS, each, "web")


def uids(found: dict[str, Json]) -> set[str]:
    return {each["metadata"]["uid"] for each in found.values()}


async def running(place: replicating.Place) -> int:
    """How many VMIs of the set there are, once as many are ready."""
    replicas, ready = await place.numbers()
    return ready if await place.count() == replicas == ready else -1


def autoscaler(namespace: str, kind: str = "VirtualMachinePool") -> Json:
    target = {"type": "AverageValue", "averageValue": "10"}
    at_once = {"stabilizationWindowSeconds": 0}
    return {
        "metadata": {"namespace": namespace, "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "External", "external": {"metric": {"name": METRIC}, "target": target}}],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
        },
    }


async def ready(place: Place) -> int:
    found = ((await place.seen()).get("status") or {}).get("readyReplicas", 0)
    return int(found) if len(await place.vms()) == found else -1


POOL = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": "web"}
EXTERNAL = autoscaler("")["spec"]["metrics"]
CPU = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]


@pytest.mark.parametrize(
    ("version", "spec", "warned"),
    [
        pytest.param("v2", {"scaleTargetRef": POOL, "metrics": CPU}, True, id="CPU"),
        pytest.param("v2", {"scaleTargetRef": POOL, "metrics": [*EXTERNAL, *CPU]}, True, id="also CPU"),
        pytest.param("v2", {"scaleTargetRef": POOL}, True, id="no metric, which means CPU"),
        pytest.param("v1", {"scaleTargetRef": POOL, "targetCPUUtilizationPercentage": 60}, True, id="version 1"),
        pytest.param("v2", {"scaleTargetRef": POOL, "metrics": EXTERNAL}, False, id="an external metric"),
        pytest.param(
            "v2",
            {"scaleTargetRef": {**POOL, "apiVersion": "pool.kubevirt.io/v1beta1"}, "metrics": CPU},
            False,
            id="KubeVirt's pool",
        ),
        pytest.param(
            "v2",
            {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "metrics": CPU},
            False,
            id="another kind",
        ),
    ],
)
async def test_an_autoscaler_by_the_resources_of_pods_gets_a_warning(
    place: Place, version: str, spec: Json, warned: bool
) -> None:
    warnings: list[str] = []
    path = f"/apis/autoscaling/{version}/namespaces/{place.namespace}/horizontalpodautoscalers"
    body = {"metadata": {"name": "web"}, "spec": {"maxReplicas": 10, **spec}}
    await place.api.request("POST", path, body=body, query={"dryRun": "All"}, warnings=warnings)
    assert [each for each in warnings if "use an External or Object metric" in each] == warnings
    assert bool(warnings) == warned
