"""Measures scaling of a pool and a replica set, as ratios to the bare API server.

    python -m tests.bench.pool [--dir DIR] [--vms 1000] [--rounds 3] [--planning 10 1000 10000]

The bare client creates and deletes the same objects, with the same number of calls in flight. Without `--dir`, the
benchmark starts a stack without webhook and defaulter. A separate part measures the CPU time of planning, while a
second pool has the same number of objects.
"""

import asyncio
import statistics
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controllers.pool import plan as pool_plan
from controllers.pool import template
from controllers.pool.observe import observe as observe_pool
from controllers.pool.pools import POOLS, Pool, parse_pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import current_revision
from controllers.pool.stores import Stores
from controllers.replicaset import observe as set_observe
from controllers.replicaset import plan as set_plan
from controllers.replicaset.actions import Create, build_vmi
from controllers.replicaset.observe import REPLICA_SETS, ReplicaSet, parse_replica_set
from controllers.shared.names import free_names
from controllers.shared.vm import parse_vm
from controllers.shared.vmi import VMI, parse_vmi
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS, VMS, Resource
from tests.bench import harness
from tests.builders import vmi_spec


def pool(name: str, replicas: int) -> Json:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    disk = {"metadata": {"name": f"{name}-root"}, "spec": {"pvc": storage, "source": {"blank": {}}}}
    vmi = {"spec": vmi_spec({"root": {"dataVolume": {"name": f"{name}-root"}}}, ["default"])}
    spec = {"running": True, "dataVolumeTemplates": [disk], "template": vmi}
    vm = {"metadata": {"labels": {"app": "bench"}}, "spec": spec}
    return harness.document(POOLS, name, {"replicas": replicas, "template": vm})


def vms(name: str, size: int) -> tuple[Pool, Any, list[Json]]:
    """Returns a pool, its revision, and the VMs that its controller creates."""
    document = pool(name, size)
    view = parse_pool({**document, "metadata": {**document["metadata"], "uid": name, "generation": 1}})
    assert isinstance(view, Pool)
    revision, _ = current_revision(name, name, content(view.spec), (), namespace=view.namespace)
    return view, revision, [template.build_vm(view, ordinal, revision) for ordinal in range(1, size + 1)]


def replica_set(name: str, replicas: int) -> Json:
    labels, volumes = {"set": name}, {"root": {"containerDisk": {"image": "tiny"}}}
    vmi = {"metadata": {"labels": labels}, "spec": vmi_spec(volumes, ["default"])}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": vmi}
    return harness.document(REPLICA_SETS, name, spec)


def vmis(name: str, size: int) -> tuple[ReplicaSet, list[Json]]:
    """Returns a replica set and the VMIs that its controller creates."""
    document = replica_set(name, size)
    view = parse_replica_set({**document, "metadata": {**document["metadata"], "uid": name, "generation": 1}})
    assert isinstance(view, ReplicaSet)
    return view, [build_vmi(view, Create(each, "")) for each in free_names(view.uid, view.base_name, (), size)]


@dataclass(frozen=True)
class Workload:
    """A scalable kind, and the kind that its controller creates."""

    resource: Resource
    created: Resource
    manifest: Callable[[str, int], Json]
    documents: Callable[[int], list[Json]]


WORKLOADS = (
    Workload(POOLS, VMS, pool, lambda size: vms("bare", size)[-1]),
    Workload(REPLICA_SETS, VMIS, replica_set, lambda size: vmis("bare", size)[-1]),
)


async def bare(api: Api, workload: Workload, size: int) -> tuple[float, float]:
    """Returns the seconds to create and to delete the objects."""
    documents = workload.documents(size)
    for document in documents:  # the garbage collector deletes objects whose owner does not exist
        del document["metadata"]["ownerReferences"]
    return await harness.create_all(api, workload.created, documents), await harness.delete_all(
        api, workload.created, documents
    )


async def scaled(api: Api, workload: Workload, size: int, name: str) -> tuple[float, float]:
    """Returns the seconds to scale a new object of this name from 0 to `size`, and back to 0. The controller looks for
    the disks of a VM before it uses the name of one that was deleted shortly before."""
    with suppress(NotFound):
        await api.delete(workload.resource, harness.NAMESPACE, name)
    await api.create(workload.resource, workload.manifest(name, 0))
    await asyncio.sleep(1)
    await api.patch(workload.resource, harness.NAMESPACE, name, {"spec": {"replicas": size}})
    out = await harness.until_count(api, size, workload.created)
    await asyncio.sleep(2)  # the controller writes the status in this time
    await api.patch(workload.resource, harness.NAMESPACE, name, {"spec": {"replicas": 0}})
    back = await harness.until_count(api, 0, workload.created)
    await api.delete(workload.resource, harness.NAMESPACE, name)
    return out, back


async def scaling(directory: Path, size: int, rounds: int) -> None:
    async with await harness.connect(directory / "kubeconfig") as api:
        await harness.prepare(api, VMS, VMIS, POOLS, REPLICA_SETS)
        for workload in WORKLOADS:
            async with harness.controllers(directory / "kubeconfigs" / "controllers") as process:
                idle, _ = process.resident_mb()
                names = [f"bench-{number}" for number in range(rounds)]
                pairs = [(await bare(api, workload, size), await scaled(api, workload, size, each)) for each in names]
                now, peak = process.resident_mb()
            harness.section(f"{workload.resource.kind} of {size}, median of {rounds}")
            for direction, text in enumerate((f"0 -> {size}", f"{size} -> 0")):
                floor, cost = (statistics.median(pair[side][direction] for pair in pairs) for side in (0, 1))
                harness.report_ratio(text, floor, cost)
            measured = f"idle {idle:.0f} MB, now {now:.0f} MB, peak {peak:.0f} MB"
            figures = {"idle_mb": idle, "now_mb": now, "peak_mb": peak}
            harness.report("resident memory of the controllers", measured, **figures)


def planning(size: int) -> None:
    """Measures a reconcile of a pool and of a replica set without changes."""
    pools, sets = _pool_stores(size), _set_stores(size)
    key = (harness.NAMESPACE, "bench")

    def plan_pool() -> None:
        state: Any = observe_pool(pools, key, synced=True, failure=None, burst=250)
        assert not pool_plan.plan(state, datetime.now(UTC)).actions

    def plan_set() -> None:
        state: Any = set_observe.observe(sets, key, synced=True, failure=None, burst=250)
        assert not set_plan.plan(state, datetime.now(UTC)).actions

    of_pool, of_set = harness.cpu_ms(plan_pool), harness.cpu_ms(plan_set)
    measured = f"pool {of_pool:.2f} ms, set {of_set:.2f} ms"
    harness.report(f"observe and plan {size} objects", measured, pool_ms=of_pool, set_ms=of_set)


def _pool_stores(size: int) -> Stores:
    stores = Stores()
    for name in ("bench", "other"):
        view, revision, documents = vms(name, size)
        stores.pools.put(view.key, view)
        stores.revisions.stored.put((harness.NAMESPACE, revision.name), revision)
        for number, document in enumerate(documents):
            document["metadata"].update(uid=f"{name}-{number}", resourceVersion="1")
            document["status"] = {"ready": True, "created": True}
            vm = parse_vm(document)
            stores.vms.put(vm.key, vm)
            labels = {meta.REVISION: vm.revision}
            stores.vmis.put(vm.key, VMI(harness.NAMESPACE, vm.name, f"run-{vm.uid}", owner_uid=vm.uid, labels=labels))
    return stores


def _set_stores(size: int) -> set_observe.Stores:
    stores = set_observe.Stores()
    for name in ("bench", "other"):
        view, documents = vmis(name, size)
        stores.sets.put(view.key, view)
        for document in documents:
            document["metadata"].update(uid=document["metadata"]["name"], resourceVersion="1")
            document["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            vmi = parse_vmi(document)
            stores.vmis.put(vmi.key, vmi)
    return stores


if __name__ == "__main__":
    harness.run(__doc__, planning, scaling)
