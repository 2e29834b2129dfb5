"""Measures filling a warm pool, as a ratio to the bare API server, and the time from a restart to the next claim.

    python -m tests.bench.warmpool [--dir DIR] [--vms 1000] [--rounds 3] [--planning 10 1000 10000]

The VMs exist only in the API server. The bare client creates the same VMs. The time of a restart is that from the start
of the controllers, with the same number of Ready VMs, until a queued claim has its VM. `--dir` is a stack without
controllers and engine.
"""

import statistics
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from controllers.claim.snapshot import CLAIMS
from controllers.shared.vmi import parse_vmi
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.plan import plan
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import status
from controllers.warmpool.vm_manifest import build_vm
from controllers.warmpool.warm_pool import WARM_POOLS, WarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import parse_warm_vm
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS, VMS
from tests.bench import harness
from tests.builders import vmi_spec

UNLIMITED_REFILL = {"maxConcurrent": 100_000, "ratePerSecond": 100_000}


def manifest(namespace: str, replicas: int, **metadata: str) -> Json:
    template = {"spec": {"template": {"spec": vmi_spec({})}}}
    spec = {"replicas": replicas, "refill": UNLIMITED_REFILL, "template": template}
    return harness.document(WARM_POOLS, "warm", spec, namespace, **metadata)


def parsed(document: Json) -> WarmPool:
    view = parse_warm_pool(document)
    assert isinstance(view, WarmPool)
    return view


def create_request(pool: WarmPool, number: int) -> CreateRequest:
    name, placement = next(iter(pool.placements.items()))
    return CreateRequest(
        namespace=pool.namespace,
        name=f"warm-m{number:06d}",
        pool=pool.name,
        pool_uid=pool.uid,
        owner=pool.owner,
        template=pool.template,
        template_hash=pool.hashes[name],
        placement=placement,
        state=WarmState.READY,
    )


def running_vmi(vm: Json) -> Json:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**harness.vmi_of(vm), "status": status}


# On the stack


async def delete_everything(api: Api, namespace: str) -> None:
    for resource in (CLAIMS, WARM_POOLS):
        for each in (await api.list(resource, namespace))[0]:
            with suppress(NotFound):
                await api.delete(resource, namespace, each["metadata"]["name"])
    for resource in (VMS, VMIS):
        await api.request("DELETE", resource.path(namespace), timeout_seconds=60)
    await harness.until_count(api, 0, VMS, namespace)


async def bare(admin: Api, api: Api, namespace: str, vms: int) -> float:
    """Returns the seconds to create the VMs."""
    pool = parsed(manifest(namespace, vms, uid="none"))
    provisioning = WarmState.PROVISIONING
    documents = [build_vm(replace(create_request(pool, number), state=provisioning)) for number in range(vms)]
    for document in documents:  # the garbage collector deletes objects whose owner does not exist
        del document["metadata"]["ownerReferences"]
    seconds = await harness.create_all(api, VMS, documents)
    await delete_everything(admin, namespace)
    return seconds


async def filled(api: Api, namespace: str, vms: int) -> float:
    """Creates a warm pool, and returns the seconds until the pool has its VMs."""
    begun = time.perf_counter()
    await api.create(WARM_POOLS, manifest(namespace, vms))
    await harness.until_count(api, vms, VMS, namespace)
    seconds = time.perf_counter() - begun
    await delete_everything(api, namespace)
    return seconds


async def store_ready_vms(admin: Api, api: Api, namespace: str, vms: int) -> None:
    """Creates a full pool with Ready VMs, as the controllers would."""
    pool = parsed(await admin.create(WARM_POOLS, manifest(namespace, vms)))

    async def create(document: Json) -> None:
        await api.create(VMIS, running_vmi(await api.create(VMS, document)))

    await harness.call_all(create, [build_vm(create_request(pool, number)) for number in range(vms)])


async def restarted(api: Api, namespace: str, kubeconfig: Path) -> tuple[float, float]:
    """Returns the seconds from the start of the process until the claim has a VM, and the memory at that time."""
    spec = {"poolName": "warm", "onEmpty": "Queue"}
    await api.create(CLAIMS, harness.document(CLAIMS, "first", spec, namespace))

    async def bound() -> bool:
        claim = await api.get(CLAIMS, namespace, "first")
        return (claim.get("status") or {}).get("phase") in ("Bound", "Ready")

    begun = time.perf_counter()
    async with harness.controllers(kubeconfig) as process:
        await harness.poll(bound)
        seconds, megabytes = time.perf_counter() - begun, process.resident_mb()[0]
    await api.delete(CLAIMS, namespace, "first")
    return seconds, megabytes


async def measure(directory: Path, vms: int, rounds: int) -> None:
    # Only the controllers' ServiceAccount may write the labels of warm VMs.
    kubeconfig = directory / "kubeconfigs" / "controllers"
    async with (
        await harness.connect(directory / "kubeconfig") as admin,
        await harness.connect(kubeconfig) as api,
        harness.new_namespace(admin) as namespace,
    ):
        await bare(admin, api, namespace, vms)  # warms up the API server
        floor, cost, restarts = [], [], []
        for _ in range(rounds):
            floor.append(await bare(admin, api, namespace, vms))
            async with harness.controllers(kubeconfig):
                cost.append(await filled(admin, namespace, vms))
        for _ in range(rounds):
            await store_ready_vms(admin, api, namespace, vms)
            restarts.append(await restarted(admin, namespace, kubeconfig))
            await delete_everything(admin, namespace)
    harness.section(f"warm pool of {vms} VMs, median of {rounds}")
    harness.report_ratio(f"0 -> {vms}", statistics.median(floor), statistics.median(cost))
    seconds, megabytes = (statistics.median(each) for each in zip(*restarts, strict=True))
    what, measured = f"from a restart among {vms} Ready VMs to a bound claim", f"{seconds:.2f} s, {megabytes:.0f} MB"
    harness.report(what, f"{measured} resident", bound_s=seconds, resident_mb=megabytes)


# Planning


def planning(size: int) -> None:
    """Measures a reconcile of a warm pool without changes."""
    pool, vms = parsed(manifest("bench", size, uid="u")), _cache(size)
    health = HealthTracker(time.monotonic)

    def reconcile() -> None:
        found = tuple(vms.of_pool(pool))
        snapshot = WarmPoolSnapshot(pool, found, health.observe(pool, found), seed="s", default_pool=pool)
        assert not plan(snapshot, datetime.now(UTC)).actions
        assert status(snapshot, datetime.now(UTC)).available_replicas == size

    cpu = harness.cpu_ms(reconcile)
    harness.report(f"observe, plan and status of {size} VMs", f"{cpu:.2f} ms", cpu_ms=cpu)


def _cache(size: int) -> WarmVMCache:
    found = WarmVMCache()
    pool = parsed(manifest("bench", size, uid="u"))
    for number in range(size):
        document = build_vm(create_request(pool, number))
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        vm, vmi = parse_warm_vm(document), parse_vmi(running_vmi(document))
        found.vms.put(vm.key, vm)
        found.vmis.put(vmi.key, vmi)
    return found


if __name__ == "__main__":
    harness.run(__doc__, planning, measure)
