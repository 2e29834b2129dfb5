"""The attacks: what a tenant prepares, and what it does while the victim is measured."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from controllers.claim.snapshot import CLAIMS
from controllers.pool.pools import POOLS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import VMS
from tests.bench import harness
from tests.bench.claim import claim
from tests.bench.warmpool import manifest as warm_pool
from tests.builders import vm_spec, vmi_spec
from tests.fair.accounts import CONNECTIONS
from tests.fair.slow_prometheus import ANALYSIS


@dataclass(frozen=True)
class Tenant:
    """Who attacks."""

    api: Api
    namespace: str
    controllers: str
    """URL of the controllers"""
    seed: int

    async def create_pools(self, pools: Iterable[Json]) -> None:
        await harness.create_all(self.api, POOLS, pools)

    async def until_vms(self, wanted: int) -> None:
        await harness.until_count(self.api, wanted, VMS, self.namespace)

    async def patch(self, name: str, change: Json) -> None:
        with suppress(ApiError):  # an attack goes on, whatever the API server answers
            await self.api.patch(POOLS, self.namespace, name, change)

    def pool(self, name: str, replicas: int) -> Json:
        return pool_of_halted_vms(self.namespace, name, replicas)


def pool_of_halted_vms(namespace: str, name: str, replicas: int) -> Json:
    """A pool whose VMs exist only in the API server."""
    template: Json = {"spec": vm_spec(vmi_spec({}), runStrategy="Halted")}
    return harness.document(POOLS, name, {"replicas": replicas, "template": template}, namespace)


async def nothing(tenant: Tenant) -> None: ...


async def at_once(clients: int, act: Callable[[], Awaitable[None]]) -> None:
    """So many clients that act again and again, until they are cancelled."""

    acts, begun = count(), time.perf_counter()

    async def client() -> None:
        while True:
            await act()
            next(acts)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
    finally:
        print(f"{next(acts) / (time.perf_counter() - begun):.0f} times a second", flush=True)


def memory(mebibytes: int) -> Json:
    return {"template": {"spec": {"template": {"spec": {"domain": {"memory": {"guest": f"{mebibytes}Mi"}}}}}}}


VMS_OF_LARGE_POOL = 2000


async def large_pool(tenant: Tenant) -> None:
    await tenant.create_pools([tenant.pool("large", VMS_OF_LARGE_POOL)])
    await tenant.until_vms(VMS_OF_LARGE_POOL)


def selectors(policies: int = 32, expressions: int = 63) -> Json:
    """Policies that no VM meets, each of which is read to its last expression."""
    filler = [
        {"key": f"key-{number}-{'x' * 40}", "operator": "NotIn", "values": ["a", "b", "c"]}
        for number in range(expressions - 1)
    ]
    last = {"key": "missing", "operator": "Exists"}
    return {"orderedPolicies": [{"labelSelector": {"matchExpressions": [*filler, last]}} for _ in range(policies)]}


async def change_selectors(tenant: Tenant) -> None:
    """A partition keeps the VMs outdated, so that each plan sorts all of them."""
    for number in count():
        strategy = {"proactive": {"partition": VMS_OF_LARGE_POOL, "selectionPolicy": selectors()}}
        await tenant.patch("large", {"spec": {**memory(64 + number % 64), "updateStrategy": strategy}})
        await asyncio.sleep(5)


EMPTY_POOLS = 1500


async def empty_pools(tenant: Tenant) -> None:
    await tenant.create_pools(tenant.pool(f"empty-{number}", 0) for number in range(EMPTY_POOLS))


async def patch_empty_pools(tenant: Tenant) -> None:
    random = Random(tenant.seed)

    async def act() -> None:
        name = f"empty-{random.randrange(EMPTY_POOLS)}"
        await tenant.patch(name, {"spec": {"nameGeneration": {}, **memory(random.randrange(64, 4096))}})

    await at_once(40, act)


async def pools_with_one_disk(tenant: Tenant) -> None:
    disk = {"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": {}}}
    pools = [tenant.pool(f"empty-{number}", 0) for number in range(EMPTY_POOLS)]
    for each in pools:
        each["spec"]["template"]["spec"]["dataVolumeTemplates"] = [disk]
    await tenant.create_pools(pools)


async def scale_large_pools(tenant: Tenant) -> None:
    for name in (f"growing-{number}" for number in range(6)):
        await tenant.create_pools([tenant.pool(name, 3000)])


async def read_metrics(tenant: Tenant) -> None:
    async with aiohttp.ClientSession() as session:

        async def act() -> None:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{tenant.controllers}/metrics", timeout=aiohttp.ClientTimeout(30)) as answer:
                    await answer.read()

        await at_once(24, act)


async def label_vms(tenant: Tenant) -> None:
    random = Random(tenant.seed)

    async def act() -> None:
        name = f"large-{random.randrange(1, VMS_OF_LARGE_POOL + 1)}"
        change = {"metadata": {"labels": {"seen": str(random.random())}}}
        with suppress(ApiError):
            await tenant.api.patch(VMS, tenant.namespace, name, change)

    await at_once(40, act)


async def empty_warm_pool(tenant: Tenant) -> None:
    await tenant.api.create(WARM_POOLS, warm_pool(tenant.namespace, 0))


async def claim_and_give_up(tenant: Tenant) -> None:
    numbers, random = count(), Random(tenant.seed)

    async def act() -> None:
        name = f"c{next(numbers)}"
        with suppress(ApiError):
            await tenant.api.create(CLAIMS, claim(tenant.namespace, name, onEmpty="Queue"))
            if random.random() < 0.5:
                await tenant.api.delete(CLAIMS, tenant.namespace, name)

    await at_once(40, act)


HELD_VMS = 500


async def pool_with_hooks(tenant: Tenant) -> None:
    held = tenant.pool("held", HELD_VMS)
    held["spec"]["lifecycleHooks"] = [
        {"name": f"drain-{number}", "transition": "Terminating", "timeoutSeconds": 172_800, "defaultResult": "Continue"}
        for number in range(16)
    ]
    await tenant.create_pools([held])
    await tenant.until_vms(HELD_VMS)


async def leave_hooks_open(tenant: Tenant) -> None:
    """The pool holds all its VMs, and lets them go when it is to keep them."""
    for number in count():
        await tenant.patch("held", {"spec": {"replicas": HELD_VMS * (number % 2)}})
        await asyncio.sleep(2)


SCALED_VMS = 300


async def pool_to_scale(tenant: Tenant) -> None:
    await tenant.create_pools([tenant.pool("scaled", 0)])


async def fight_over_replicas(tenant: Tenant) -> None:
    """Two autoscalers, each of which takes back what the other has set."""
    numbers = count()

    async def act() -> None:
        change = {"spec": {"replicas": SCALED_VMS * (next(numbers) % 2)}}
        with suppress(ApiError):
            await tenant.api.patch(POOLS, tenant.namespace, "scaled", change, subresource="scale")
        await asyncio.sleep(0.2)

    await at_once(2, act)


WAITING_CLAIMS = 20_000


async def waiting_claims(tenant: Tenant) -> None:
    """Their pool has its only VM already, which never becomes ready."""
    full = warm_pool(tenant.namespace, 0)
    full["spec"]["maxTotal"] = 1
    await tenant.api.create(WARM_POOLS, full)
    # On a busy machine, the last one is created minutes after the first.
    waits: Json = {"onEmpty": "Queue", "bindTimeoutSeconds": 3600}
    claims = (claim(tenant.namespace, f"c{number}", **waits) for number in range(WAITING_CLAIMS))
    await harness.create_all(tenant.api, CLAIMS, claims)

    async def queued() -> bool:
        pool = await tenant.api.get(WARM_POOLS, tenant.namespace, "warm")
        return bool(pool.get("status", {}).get("queuedClaims") == WAITING_CLAIMS)

    await harness.poll(queued, every_seconds=1)


async def change_pool_of_queue(tenant: Tenant) -> None:
    """Each change concerns the whole queue."""
    for number in count():
        change = {"spec": {"claimPolicy": {"maxPerUser": WAITING_CLAIMS + number % 2}}}
        with suppress(ApiError):
            await tenant.api.patch(WARM_POOLS, tenant.namespace, "warm", change)
        await asyncio.sleep(1)


async def delete_pool_of_queue(tenant: Tenant) -> None:
    """All claims lose their pool, and then all are deleted."""
    await tenant.api.delete(WARM_POOLS, tenant.namespace, "warm")
    await asyncio.sleep(5)
    await tenant.api.request("DELETE", CLAIMS.path(tenant.namespace), timeout_seconds=300)
    await asyncio.Event().wait()


ANALYZED_POOLS = 20


async def pools_with_analyses(tenant: Tenant) -> None:
    pools = [tenant.pool(f"analyzed-{number}", 2) for number in range(ANALYZED_POOLS)]
    for each in pools:
        each["spec"]["updateStrategy"] = {"proactive": ANALYSIS}
    await tenant.create_pools(pools)
    await tenant.until_vms(2 * ANALYZED_POOLS)


async def update_analyzed_pools(tenant: Tenant) -> None:
    """No query of the tenant has an answer in time, so that the controllers ask again and again."""
    for number in range(ANALYZED_POOLS):
        await tenant.patch(f"analyzed-{number}", {"spec": memory(256)})
    await asyncio.Event().wait()


async def create_events(tenant: Tenant) -> None:
    numbers = count()
    now = format_micro_time(datetime.now(UTC))

    async def act() -> None:
        name = f"storm-{next(numbers)}"
        regarding = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "namespace": tenant.namespace, "name": "web"}
        event = {"regarding": regarding, "eventTime": now, "type": "Warning", "reason": "Storm", "action": "Storm"}
        reporter = {"reportingController": "example.com/storm", "reportingInstance": "storm", "note": "x" * 1000}
        metadata = {"namespace": tenant.namespace, "name": name}
        with suppress(ApiError):
            await tenant.api.create(EVENTS, {"metadata": metadata, **event, **reporter})

    await at_once(40, act)


async def list_pools(tenant: Tenant) -> None:
    async def act() -> None:
        with suppress(ApiError):
            await tenant.api.list(POOLS, tenant.namespace)

    await at_once(40, act)


@dataclass(frozen=True)
class Attack:
    what: str
    prepare: Callable[[Tenant], Awaitable[None]]
    """before the victim is measured"""
    press: Callable[[Tenant], Coroutine[Any, Any, None]]
    """while the victim is measured; may end earlier"""


ATTACKS = {
    "selectors": Attack(
        f"a new template every 5 s for {VMS_OF_LARGE_POOL} VMs, sorted by 32 policies of 63 expressions",
        large_pool,
        change_selectors,
    ),
    "patches": Attack(f"40 clients patch {EMPTY_POOLS} pools without VMs", empty_pools, patch_empty_pools),
    "disks": Attack(
        f"40 clients patch {EMPTY_POOLS} pools without VMs, all with a disk of the same name",
        pools_with_one_disk,
        patch_empty_pools,
    ),
    "growth": Attack("six pools of 3,000 VMs are created", nothing, scale_large_pools),
    "labels": Attack(f"40 clients label the {VMS_OF_LARGE_POOL} VMs of a pool", large_pool, label_vms),
    "claims": Attack("40 clients claim VMs of an empty warm pool", empty_warm_pool, claim_and_give_up),
    "hooks": Attack(
        f"{HELD_VMS} VMs are held for 16 hooks that nobody ends, and let go again, every 2 s",
        pool_with_hooks,
        leave_hooks_open,
    ),
    "scaling": Attack(f"two autoscalers want 0 and {SCALED_VMS} VMs of one pool", pool_to_scale, fight_over_replicas),
    "queue": Attack(
        f"{WAITING_CLAIMS:,} claims wait for VMs of a warm pool that changes every second",
        waiting_claims,
        change_pool_of_queue,
    ),
    "deletion": Attack(
        f"{WAITING_CLAIMS:,} waiting claims lose their warm pool, and are deleted 5 s later",
        waiting_claims,
        delete_pool_of_queue,
    ),
    "queries": Attack(
        f"updates of {ANALYZED_POOLS} pools wait for a Prometheus that gives them no answer in time",
        pools_with_analyses,
        update_analyzed_pools,
    ),
    "events": Attack("40 clients create Events", nothing, create_events),
    "lists": Attack(f"40 clients list {EMPTY_POOLS} pools", empty_pools, list_pools),
    "metrics": Attack(f"24 clients read /metrics with {EMPTY_POOLS} pools", empty_pools, read_metrics),
}


async def main(name: str, kubeconfig: str, namespace: str, controllers: str, seed: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with await harness.connect(Path(kubeconfig), CONNECTIONS) as api:
        print("begins", flush=True)
        await ATTACKS[name].press(Tenant(api, namespace, controllers, int(seed)))


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
