"""Measures what a tenant notices of the attacks of another; see `make fair`."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from controllers.claim.snapshot import CLAIMS
from controllers.main import LEASE
from controllers.pool.observe import POOLS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import LEASES, VMIS, VMS
from poolhouse.service.settings import DEFAULT_NAMESPACE
from tests.bench import harness
from tests.bench.claim import claim, watching
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


@dataclass
class Victim:
    api: Api
    namespace: str
    number: int = 0

    async def measure(self, rounds: int, found: Noticed) -> None:
        async with watching(self.api, self.namespace) as watcher:
            for _ in range(rounds):
                self.number += 1
                name = f"v{self.number}"
                found.pools.append(await self._seconds_until_vms(name))
                begun = time.perf_counter()
                await self.api.create(CLAIMS, claim(self.namespace, name, onEmpty="Queue"))
                with suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_SECONDS):
                        await watcher.until(lambda name=name: name in watcher.bound)  # type: ignore[misc]
                found.claims.append(min(LONGEST_SECONDS, watcher.bound.get(name, float("inf")) - begun))
                found.bare.append(await self._seconds_of_writes(name))
                found.updates.append(await self._seconds_of_update())

    async def create_analyzed_pool(self) -> None:
        pool = pool_of_halted_vms(self.namespace, "analyzed", 2)
        pool["spec"]["updateStrategy"] = {"proactive": ANALYSIS}
        await self.api.create(POOLS, pool)
        await harness.poll(self._is_updated)

    async def _seconds_of_update(self) -> float:
        begun = time.perf_counter()
        await self.api.patch(POOLS, self.namespace, "analyzed", {"spec": memory(128 + self.number)})
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await harness.poll(self._is_updated)
        return min(LONGEST_SECONDS, time.perf_counter() - begun)

    async def _is_updated(self) -> bool:
        pool = await self.api.get(POOLS, self.namespace, "analyzed")
        status = pool.get("status") or {}
        observed = status.get("observedGeneration") == pool["metadata"]["generation"]
        return observed and status.get("updatedReplicas") == 2

    async def _seconds_until_vms(self, name: str) -> float:
        begun = time.perf_counter()
        await self.api.create(POOLS, pool_of_halted_vms(self.namespace, name, VMS_OF_POOL))
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await harness.poll(lambda: self._has_vms(name))
        return min(LONGEST_SECONDS, time.perf_counter() - begun)

    async def _seconds_of_writes(self, name: str) -> float:
        template = pool_of_halted_vms(self.namespace, name, 1)["spec"]["template"]["spec"]
        begun = time.perf_counter()
        for number in range(VMS_OF_POOL):
            await self.api.create(VMS, harness.document(VMS, f"bare-{name}-{number}", template, self.namespace))
        return time.perf_counter() - begun

    async def _has_vms(self, name: str) -> bool:
        found, _ = await self.api.list(VMS, self.namespace, label_selector=f"{meta.POOL}={name}")
        return len(found) == VMS_OF_POOL


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
    report("a pool of three", idle.pools, attacked.pools)
    report("a claim", idle.claims, attacked.claims)
    report("three VMs of its own, with admission", idle.bare, attacked.bare)
    report("an update with an analysis", idle.updates, attacked.updates)
    report("/healthz", idle.probes, attacked.probes)
    said = "the process has ended" if ended else f"the Lease was lost {lost} times" if lost else "no"
    harness.report("did the leader change", said, lost=lost + ended)


def has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def report(what: str, idle: list[float], attacked: list[float]) -> None:
    """Reports the median and the longest time, and their ratios."""
    p50, longest = (f(attacked) / f(idle) for f in (statistics.median, max))
    shown = " -> ".join(f"{statistics.median(each) * 1000:.0f} / {max(each) * 1000:.0f}" for each in (idle, attacked))
    harness.report(what, f"{shown} ms, ratio {p50:.1f} / {longest:.1f}", p50_ratio=p50, longest_ratio=longest)


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, attack=list(ATTACKS), rounds=10, seed=1, replicas=1)
    if unknown := set(options.attack) - set(ATTACKS):
        harness.refuse_options(f"--attack: {', '.join(sorted(unknown))}: must be of {', '.join(ATTACKS)}")
    with harness.stack(options.dir, without=("controllers", "engine")) as directory:
        for name in options.attack:
            asyncio.run(run(name, directory, options.rounds, options.seed, options.replicas))


if __name__ == "__main__":
    main()
