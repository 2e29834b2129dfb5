"""Measures what a tenant notices of the attacks of another; see `make fair`."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from controllers.claim.snapshot import CLAIMS
from controllers.main import LEASE
from controllers.pool.pools import POOLS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import LEASES, VMIS, VMS, Resource
from poolhouse.service.settings import DEFAULT_NAMESPACE
from tests.bench import harness
from tests.bench.claim import claim
from tests.bench.warmpool import store_ready_vms
from tests.fair.accounts import new_account
from tests.fair.attacks import ATTACKS, Tenant, memory, pool_of_halted_vms
from tests.fair.slow_prometheus import ANALYSIS, slow_prometheus

VMS_OF_POOL = 3
SETTLE_SECONDS = 10.0
LEAD_SECONDS = 2.0
LONGEST_SECONDS = 20.0
"""A victim that waits longer is not served; its time counts as this."""


@dataclass
class Noticed:
    """What the victim and the operator notice in one run."""

    pools: list[float] = field(default_factory=list)
    """seconds from the creation of a pool until its VMs exist"""
    claims: list[float] = field(default_factory=list)
    """seconds from a claim until it is Bound"""
    bare: list[float] = field(default_factory=list)
    """seconds of three creations of VMs by the victim itself: what API server, webhook and defaulter take"""
    updates: list[float] = field(default_factory=list)
    """seconds of an update that waits for an analysis"""
    probes: list[float] = field(default_factory=list)
    """seconds of /healthz"""


class Victim:
    """A tenant who watches its objects, as a list of them may take 100 ms in an API server that has nothing to do."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace, self.number = api, namespace, 0
        self._seen: dict[Resource, dict[str, Json]] = {VMS: {}, POOLS: {}, CLAIMS: {}}
        """objects by resource and name"""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as watches:
            for resource, seen in self._seen.items():
                await watches.enter_async_context(
                    harness.listening(self.api, resource, self.namespace, partial(_remember, seen))
                )
            yield

    async def measure(self, rounds: int, found: Noticed) -> None:
        for _ in range(rounds):
            self.number += 1
            name = f"v{self.number}"
            pool = pool_of_halted_vms(self.namespace, name, VMS_OF_POOL)
            found.pools.append(await self._seconds(self.api.create(POOLS, pool), partial(self._has_vms, name)))
            asked = self.api.create(CLAIMS, claim(self.namespace, name, onEmpty="Queue"))
            found.claims.append(await self._seconds(asked, partial(self._is_bound, name)))
            found.bare.append(await self._seconds(self._create_vms(name), bool))
            change = {"spec": memory(128 + self.number)}
            patch = self.api.patch(POOLS, self.namespace, "analyzed", change)
            found.updates.append(await self._seconds(patch, self._is_updated))

    async def create_analyzed_pool(self) -> None:
        pool = pool_of_halted_vms(self.namespace, "analyzed", 2)
        pool["spec"]["updateStrategy"] = {"proactive": ANALYSIS}
        await self._seconds(self.api.create(POOLS, pool), self._is_updated)

    async def _seconds(self, request: Awaitable[Any], holds: Callable[[Json], bool]) -> float:
        """From the request until what is asked for with its response holds, or `LONGEST_SECONDS`."""
        begun = time.perf_counter()
        response = await request
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SECONDS):
                while not holds(response):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        return min(LONGEST_SECONDS, time.perf_counter() - begun)

    async def _create_vms(self, name: str) -> Json:
        template = pool_of_halted_vms(self.namespace, name, 1)["spec"]["template"]["spec"]
        for number in range(VMS_OF_POOL):
            made = await self.api.create(VMS, harness.document(VMS, f"bare-{name}-{number}", template, self.namespace))
        return made

    def _has_vms(self, name: str, created: Json) -> bool:
        labels = (each["metadata"].get("labels") or {} for each in self._seen[VMS].values())
        return [each.get(meta.POOL) for each in labels].count(name) == VMS_OF_POOL

    def _is_bound(self, name: str, created: Json) -> bool:
        return bool(at(self._seen[CLAIMS].get(name), "status", "boundAt"))

    def _is_updated(self, written: Json) -> bool:
        pool = self._seen[POOLS].get("analyzed")
        observed = at(pool, "status", "observedGeneration") == at(written, "metadata", "generation")
        return observed and bool(at(pool, "status", "updatedReplicas") == 2)


def _remember(seen: dict[str, Json], document: Json) -> None:
    seen[document["metadata"]["name"]] = document


@asynccontextmanager
async def probing(url: str, found: Noticed) -> AsyncIterator[None]:
    async def probe() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LONGEST_SECONDS)) as session:
            while True:
                begun = time.perf_counter()
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{url}/healthz") as answer:
                        await answer.read()
                found.probes.append(time.perf_counter() - begun)
                await asyncio.sleep(0.2)

    task = asyncio.create_task(probe())
    try:
        yield
    finally:
        task.cancel()


@contextmanager
def pressing(name: str, kubeconfig: Path, tenant: Tenant) -> Iterator[None]:
    """Runs the attack in a process of its own with a low priority, because clients of other tenants run on machines of
    their own."""
    command = [
        "nice",
        "-n",
        "10",
        sys.executable,
        "-m",
        "tests.fair.attacks",
        name,
        str(kubeconfig),
        tenant.namespace,
        tenant.controllers,
    ]
    process = subprocess.Popen([*command, str(tenant.seed)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), "the attack has ended before it began"
        time.sleep(LEAD_SECONDS)
        yield
    finally:
        process.terminate()
        if rate := process.stdout.read().strip():
            print(f"  the attacker acted {rate}", flush=True)
        process.wait()


async def transitions(api: Api) -> int:
    lease = await api.get(LEASES, DEFAULT_NAMESPACE, LEASE)
    return int(lease["spec"].get("leaseTransitions") or 0)


async def run(name: str, directory: Path, rounds: int, seed: int, replicas: int) -> None:
    attack, kubeconfig = ATTACKS[name], directory / "kubeconfigs" / "controllers"
    idle, attacked = Noticed(), Noticed()
    async with (
        await harness.connect(directory / "kubeconfig", 100) as admin,
        await harness.connect(kubeconfig) as api,
        new_account(admin, directory) as attacker,
        new_account(admin, directory) as other,
    ):
        await harness.prepare(admin, VMS, VMIS, POOLS, CLAIMS)
        await store_ready_vms(admin, api, other.namespace, 2 * rounds + 2)
        await admin.patch(WARM_POOLS, other.namespace, "warm", {"spec": {"paused": True}})
        async with AsyncExitStack() as services:
            prometheus = await services.enter_async_context(slow_prometheus(attacker.namespace))
            environment = {
                "POOLHOUSE_LOG_LEVEL": "ERROR",
                "POOLHOUSE_DEFAULTER_URL": "",
                "POOLHOUSE_PROMETHEUS_URL": prometheus,
            }
            start = partial(harness.service, "controllers.main", KUBECONFIG=str(kubeconfig), **environment)
            process = await services.enter_async_context(start())
            for _ in range(replicas - 1):  # these stand by
                await services.enter_async_context(start())
            victim = Victim(other.api, other.namespace)
            await services.enter_async_context(victim.watching())
            tenant = Tenant(attacker.api, attacker.namespace, process.url, seed)
            await victim.create_analyzed_pool()
            await victim.measure(1, Noticed())
            await attack.prepare(tenant)
            await asyncio.sleep(SETTLE_SECONDS)
            async with probing(process.url, idle):
                await victim.measure(rounds, idle)
            before = await transitions(admin)
            with pressing(name, attacker.kubeconfig, tenant):
                async with probing(process.url, attacked):
                    await victim.measure(rounds, attacked)
            lost = await transitions(admin) - before
            ended = has_ended(process.pid)
    harness.section(attack.what)
    report("three VMs of its own, with admission", idle.bare, attacked.bare)
    bare = statistics.median(attacked.bare) / statistics.median(idle.bare)
    report("a pool of three", idle.pools, attacked.pools, bare)
    report("a claim", idle.claims, attacked.claims, bare)
    report("an update with an analysis", idle.updates, attacked.updates)
    report("/healthz", idle.probes, attacked.probes)
    said = "the process has ended" if ended else f"the Lease was lost {lost} times" if lost else "no"
    harness.report("did the leader change", said, lost=lost + ended)


def has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def report(what: str, idle: list[float], attacked: list[float], bare: float | None = None) -> None:
    """Reports p50 and p99, and their ratios. `bare` is the ratio of medians of VMs that the victim creates itself
    meanwhile, which wait for the API server and admission, and not for the controllers."""
    before, after = ([harness.percentile(each, of) * 1000 for of in (50, 99)] for each in (idle, attacked))
    p50, p99 = (b / a for a, b in zip(before, after, strict=True))
    shown = f"{before[0]:.0f} / {before[1]:.0f} -> {after[0]:.0f} / {after[1]:.0f} ms, ratio {p50:.1f} / {p99:.1f}"
    figures = {"p50_ratio": p50, "p99_ratio": p99}
    if bare is not None:
        shown, figures["bare_ratio"] = f"{shown}, to the bare {p50 / bare:.2f}", p50 / bare
    harness.report(what, shown, **figures)


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, attack=list(ATTACKS), rounds=10, seed=1, replicas=1)
    if unknown := set(options.attack) - set(ATTACKS):
        harness.refuse_options(f"--attack: {', '.join(sorted(unknown))}: must be of {', '.join(ATTACKS)}")
    with harness.stack(options.dir, without=("controllers", "engine")) as directory:
        for name in options.attack:
            asyncio.run(run(name, directory, options.rounds, options.seed, options.replicas))


if __name__ == "__main__":
    main()
