"""A pool controller in the test's own process, and what tests ask of the API server about it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from controllers.claim.snapshot import CLAIMS
from controllers.pool.component import build
from controllers.pool.pools import POOLS
from controllers.replicaset.observe import REPLICA_SETS
from controllers.shared.component import ControllerContext
from controllers.shared.planner import Planner
from controllers.shared.replica_limits import ReplicaLimits
from controllers.shared.sources import DATA_VOLUMES
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import POOL, kubevirt
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.replica_limits import UNLIMITED
from poolhouse.manifests.crd import crd
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, Invalid, NotFound, Throttled
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.instancetypes import RESOURCES as INSTANCETYPES
from poolhouse.runtime.metrics import PREFIX, Metrics
from poolhouse.runtime.resource import CRDS, KUBEVIRTS, NAMESPACES, PODS, PVCS, VMIS, VMS, Resource
from tests.builders import manifest, owned_by
from tests.waiting import PATIENCE_SECONDS, eventually, until

Json = dict[str, Any]
Work = Coroutine[Any, Any, None]

__all__ = ["PATIENCE_SECONDS", "until"]

ROOT = Path(__file__).resolve().parent.parent.parent


_SERVED: dict[str, set[str]] = {}
"""CRDs that tests of this process have applied, by API server"""


async def install(api: Api) -> None:
    """The kinds that a pool controller works with."""
    await serve_once(api, POOL, *kubevirt.KUBEVIRT_KINDS)


async def instancetype(api: Api, name: str, cpus: int, memory: str, namespace: str | None = None) -> None:
    """An instance type of the namespace, or of the cluster, which has these sizes from now on."""
    resource = INSTANCETYPES["instancetype"][namespace is None]
    body = manifest(resource, name, {"cpu": {"guest": cpus}, "memory": {"guest": memory}}, namespace)
    await api.patch(resource, namespace, name, body, kind="apply", field_manager="tests")


async def serve_once(api: Api, *kinds: Kind) -> None:
    """Serves the kinds that no earlier test has served, because it costs the API server a second. A test that deletes
    or changes a CRD restores it with `serve`."""
    done = _SERVED.setdefault(api.host, set())
    await serve(api, *(kind for kind in kinds if kind.crd_name not in done))
    done |= {kind.crd_name for kind in kinds}


async def serve(api: Api, *kinds: Kind) -> None:
    for kind in kinds:
        await api.patch(CRDS, None, kind.crd_name, crd(kind), kind="apply", field_manager="tests", force=True)
    for kind in kinds:
        for version in kind.versions:
            resource = Resource(kind.group, version, kind.plural, kind.kind, namespaced=kind.namespaced)
            await served(api, resource)


async def garbage_collector_knows(api: Api, resource: Resource, namespace: str, name: str) -> None:
    """Waits until the garbage collector knows this object, because it orphans only what it knows. It reads the events
    of a kind in their order, so it knows the object when it has deleted a later one whose owner does not exist."""
    known, later = await api.get(resource, namespace, name), f"{name}-of-nobody"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}
    metadata = {"namespace": namespace, "name": later, "ownerReferences": [owner]}
    await api.create(resource, {key: known[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata})
    await until(lambda: exists(api, resource, namespace, later), False)


async def exists(api: Api, resource: Resource, namespace: str, name: str) -> bool:
    found, _ = await api.list(resource, namespace)
    return any(each["metadata"]["name"] == name for each in found)


async def served(api: Api, resource: Resource) -> None:
    """A CRD that has just been made or changed answers 404 or 429 for a while."""

    async def listed() -> bool:
        try:
            await api.list(resource)
        except (NotFound, Throttled):
            return False
        return True

    await eventually(listed)


@dataclass
class Running:
    """A controller that is at work."""

    registry: CollectorRegistry

    def writes(self) -> float:
        """Requests that changed something, or tried to."""
        return sum(
            sample.value
            for sample in self._requests()
            if sample.labels["verb"] not in ("get", "list", "watch") and sample.labels["resource"] != "events"
        )

    def requests(self, verb: str, resource: str) -> float:
        wanted = {"verb": verb, "resource": resource}
        return sum(sample.value for sample in self._requests() if wanted.items() <= sample.labels.items())

    def _requests(self) -> Iterator[Sample]:
        for metric in self.registry.collect():
            yield from (sample for sample in metric.samples if sample.name == f"{PREFIX}api_requests_total")


@asynccontextmanager
async def background(*work: Work) -> AsyncIterator[Callable[[Work], None]]:
    """Runs the work until the end of the block, and work that the block starts later.

    At the end all work is cancelled at once, as by a kill. The block fails if work has ended by itself.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield lambda later: tasks.append(asyncio.create_task(later))
        assert not (ended := [task for task in tasks if task.done()]), ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def synced(informers: Iterable[Informer[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        for informer in informers:
            await informer.synced()


@asynccontextmanager
async def controller(
    kubeconfig: Path,
    *,
    burst: int = 250,
    defaulter: Any = None,
    prometheus: Any = None,
    planner: Planner | None = None,
    max_replicas: int = UNLIMITED,
) -> AsyncIterator[Running]:
    """On leaving, it is cut off wherever it is, as when it is killed: calls on their way may or may not be done."""
    registry = CollectorRegistry()
    async with await Api.connect(
        kubeconfig, user_agent="test-pool", max_connections=32, metrics=Metrics(registry)
    ) as api:
        events = EventRecorder(api, "poolhouse.dev/controllers")
        limits = ReplicaLimits(api, max_replicas)
        context = ControllerContext(
            api=api,
            events=events,
            registry=registry,
            planner=planner or Planner(),
            defaulter=defaulter,
            burst=burst,
            limits=limits,
        )
        part = build(context, prometheus)
        informers = (limits.informer, *part.informers)
        async with background(events.run(), *(each.run() for each in informers)) as start:
            await synced(informers)
            start(part.work())
            yield Running(registry)


@dataclass(frozen=True)
class Place:
    """A namespace, and short words for what tests do in it."""

    api: Api
    namespace: str

    def document(self, replicas: int, name: str = "web", **spec: Any) -> Json:
        return manifest(POOLS, name, {"replicas": replicas, "template": template(), **spec}, self.namespace)

    async def pool(self, replicas: int, name: str = "web", **spec: Any) -> Json:
        return await self.api.create(POOLS, self.document(replicas, name, **spec))

    async def change(self, name: str = "web", **spec: Any) -> Json:
        return await self.api.patch(POOLS, self.namespace, name, {"spec": spec})

    async def seen(self, name: str = "web") -> Json:
        return await self.api.get(POOLS, self.namespace, name)

    async def condition(self, kind: str, name: str = "web") -> Json:
        conditions = (await self.seen(name)).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    async def vms(self) -> dict[str, Json]:
        items, _ = await self.api.list(VMS, self.namespace)
        return {each["metadata"]["name"]: each for each in items}

    async def names(self) -> list[str]:
        return sorted(await self.vms())

    async def vm(self, name: str, **metadata: Any) -> Json:
        return await self.api.create(VMS, manifest(VMS, name, template()["spec"], self.namespace, **metadata))

    async def meta(self, name: str, **change: Any) -> Json:
        return await self.api.patch(VMS, self.namespace, name, {"metadata": change})

    async def is_ready(self, *names: str) -> None:
        """Runs them, as KubeVirt would."""
        machines = await self.vms()
        for name in names:
            vm = machines[name]
            inside = vm["spec"]["template"]
            metadata = {"labels": inside["metadata"]["labels"]}
            metadata["ownerReferences"] = owned_by(VMS, name, vm["metadata"]["uid"])
            status = {"phase": "Running"}
            run = manifest(VMIS, name, inside["spec"], self.namespace, status=status, **metadata)
            await self.api.create(VMIS, run)
            await self.api.patch(
                VMS, self.namespace, name, {"status": {"created": True, "ready": True}}, subresource="status"
            )

    async def disk(self, name: str, vm: Json, labels: Json | None = None) -> None:
        """A DataVolume of the VM, and its claim, as CDI makes them."""
        owners = owned_by(VMS, vm["metadata"]["name"], vm["metadata"]["uid"])
        document = manifest(DATA_VOLUMES, name, {}, self.namespace, labels=labels, ownerReferences=owners)
        volume = await self.api.create(DATA_VOLUMES, document)
        (owner,) = owned_by(DATA_VOLUMES, name, volume["metadata"]["uid"])
        await self.claim(name, owner)

    async def claim(self, name: str, *owners: Json, labels: Json | None = None) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = manifest(PVCS, name, spec, self.namespace, ownerReferences=[*owners], labels=labels)
        await self.api.create(PVCS, claim)

    async def disks(self) -> dict[str, Json]:
        """Claims, by name, that are not being deleted."""
        items, _ = await self.api.list(PVCS, self.namespace)
        return {e["metadata"]["name"]: e for e in items if "deletionTimestamp" not in e["metadata"]}


@asynccontextmanager
async def namespace(kubeconfig: Path, prefix: str = "pool") -> AsyncIterator[Place]:
    """One of its own, until the block ends."""
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        await install(api)
        made = await api.create(NAMESPACES, {"metadata": {"generateName": f"{prefix}-"}})
        found = Place(api, made["metadata"]["name"])
        yield found
        await clear(api, found.namespace)


async def clear(api: Api, namespace: str) -> None:
    """Deletes what controllers, engines and other tests would see. The namespace stays until the control plane ends:
    its deletion would cost the API server and the controller manager a sixth of a second."""

    async def deleted(resource: Resource) -> bool:
        try:
            await api.request("DELETE", resource.path(namespace))
        except NotFound:  # not every test has all kinds
            return True
        except (Forbidden, Invalid, Throttled):  # for a moment, after the test has deleted a policy or changed a CRD
            return False
        return True

    for resource in (POOLS, REPLICA_SETS, WARM_POOLS, CLAIMS, VMS, VMIS, DATA_VOLUMES, PVCS, PODS):
        await eventually(partial(deleted, resource))


def template(**spec: Any) -> Json:
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    inner = {"domain": {"devices": devices}, "volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    disk = {"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "pvc": claim}}
    return {"spec": {"running": True, "dataVolumeTemplates": [disk], "template": {"spec": inner}, **spec}}


@asynccontextmanager
async def engine(kubeconfig: Path, directory: Path) -> AsyncIterator[None]:
    """What stands in for KubeVirt and CDI, with simulated guests, as a process of its own."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "POOLHOUSE_DIR": str(directory),
        "POOLHOUSE_ENGINE": "simulated",
        "POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS": "0",
    }
    with open(directory / "engine.log", "w") as log:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "poolhouse.stack.engine.main", cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        try:
            yield
            assert process.returncode is None, f"the engine ended: {(directory / 'engine.log').read_text()[-2000:]}"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await _unregister(kubeconfig)


async def _unregister(kubeconfig: Path) -> None:
    """Deletes the KubeVirt object of an engine, which would configure the tests that use this API server later."""
    async with await Api.connect(kubeconfig, user_agent="tests") as api:
        for each in (await api.list(KUBEVIRTS))[0]:
            await api.delete(KUBEVIRTS, each["metadata"]["namespace"], each["metadata"]["name"])
