"""Measures many pools in one controller: every VM is made, changed, left alone, healed, updated and deleted.

    python -m tests.bench.scale [--dir DIR] [--pools 10] [--vms 50] [--rest 10] [--only make change ...]

The documented size is `--pools 100 --vms 100 --rest 60`. Ten minutes at rest are a run of their own, `--rest 600 --only
make rest`. A fake KubeVirt in this process starts the VMs. Each phase is a word of `--only`; a later phase on the same
`--dir` continues with the VMs of an earlier run:

    make      creates the pools. The bare client creates a tenth as many VMs, in turns with the pools. Both times end
              when KubeVirt has written all VMIs and statuses, two writes for each VM, because these go on after the
              last creation
    change    the controllers' CPU time for a change of one VM, among one pool and among all pools
    rest      the controllers' writes at rest (none), and their CPU time
    start     the time from the start of the controllers until they have scaled a pool
    failover  the time from the kill of the leader until another replica has scaled a pool
    heal      1 % of the VMs crash, and are replaced
    update    a new template in three steps
    zero      all pools to 0
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, VMS
from tests.bench import harness
from tests.bench.fake_kubevirt import FakeKubeVirt, fake_kubevirt
from tests.bench.pool import pool
from tests.bench.pool import vms as vms_of_pool

PHASES = ["make", "change", "rest", "start", "failover", "heal", "update", "zero"]
MEMORY_GOAL_MB = 300
CHANGES = 300
SETTLE_SECONDS = 5.0
QUIET_SECONDS = 4.0
"""after this time without a write, the controllers are at rest"""
BARE_SHARE = 10
"""The bare client creates and deletes one VM for this number of VMs, because its VMs would fill the API server."""
FAILING = 0.01
STEPS: tuple[Json, ...] = ({"setReplicas": "1%"}, {"setReplicas": "10%"}, {"setReplicas": "50%"})
"""as in tests.bench.rollout"""


def in_turns(pools: int) -> Iterator[range]:
    """Yields the numbers of the first pool, and then of the others in about ten turns."""
    yield range(1)
    size = max(1, (pools - 1) // 10)
    yield from (range(first, min(first + size, pools)) for first in range(1, pools, size))


def scaled_pool(number: int, replicas: int) -> Json:
    document = pool(f"p{number}", replicas)
    spec = document["spec"] | {"autohealing": {}, "updateStrategy": {"proactive": {"steps": list(STEPS)}}}
    return document | {"spec": spec}


@dataclass
class Scale:
    """The cluster of a run, and its size."""

    api: Api
    kubeconfig: Path
    """of the controllers"""
    kubevirt: FakeKubeVirt
    pools: int
    vms: int
    rest_seconds: float
    process: harness.Process | None = None
    """the controllers, while they run"""
    cost_of_few: float = 0.0
    """CPU milliseconds per change of a VM among one pool"""
    _controllers: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def total(self) -> int:
        return self.pools * self.vms

    @property
    def names(self) -> list[str]:
        return [f"p{number}" for number in range(self.pools)]

    async def running(self) -> harness.Process:
        """The controllers. They are started if they do not run."""
        if self.process is None:
            process: harness.Process = await self._controllers.enter_async_context(harness.controllers(self.kubeconfig))
            self.process = process
        return self.process

    async def stop(self) -> None:
        await self._controllers.aclose()
        self.process = None

    # Phases

    async def make(self) -> None:
        process = await self.running()
        idle, _ = process.resident_mb()
        harness.report("resident memory without VMs", f"{idle:.0f} MB", idle_mb=idle)
        bare = ours = cpu = 0.0
        for numbers in in_turns(self.pools):
            count = len(numbers) * self.vms
            bare += await self._bare_seconds(max(1, count // BARE_SHARE)) * BARE_SHARE
            begun = process.cpu_seconds()
            ours += await self._seconds_until_running(numbers)
            await self._ready(range(numbers[-1] + 1), self.vms)
            cpu += process.cpu_seconds() - begun
            if numbers[0] == 0:
                self.cost_of_few = await self._cpu_ms_per_change(process)
        harness.report_ratio(f"until all {self.total} VMs run", bare, ours)
        each = cpu / self.total * 1000
        harness.report("CPU time of the controllers until a VM runs", f"{each:.2f} ms", each_ms=each)
        await self._quiet(process)
        for (verb, resource), writes in (await process.writes()).most_common():
            harness.report(f"{verb} {resource}, for each VM", f"{writes / self.total:.2f}", writes=writes / self.total)
        now, peak = process.resident_mb()
        said = f"now {now:.0f} MB, peak {peak:.0f} MB, goal {MEMORY_GOAL_MB} MB"
        harness.report("resident memory with VMs and VMIs", said, now_mb=now, peak_mb=peak)
        each = (now - idle) * 1000 / self.total
        harness.report("memory of one VM with its VMI", f"{each:.1f} kB", each_kb=each)

    async def change(self) -> None:
        process = await self.running()
        cost = await self._cpu_ms_per_change(process)
        harness.report(f"CPU time for a change of one of {self.total} VMs", f"{cost:.2f} ms", change_ms=cost)
        if self.cost_of_few:
            ratio = cost / self.cost_of_few
            harness.report(
                f"the same among {self.vms} VMs", f"{self.cost_of_few:.2f} ms, ratio {ratio:.2f}", ratio=ratio
            )

    async def rest(self) -> None:
        process = await self.running()
        await self._quiet(process)
        before, cpu = await process.writes(), process.cpu_seconds()
        await asyncio.sleep(self.rest_seconds)
        writes = await process.writes() - before
        cpu = (process.cpu_seconds() - cpu) / self.rest_seconds
        said = f"{writes.total()} {dict(writes) or ''}"
        harness.report(f"writes in {self.rest_seconds:g} s at rest", said, writes=writes.total())
        harness.report("CPU at rest", f"{cpu:.2%} of a core, {process.resident_mb()[0]:.0f} MB", share=cpu)

    async def start(self) -> None:
        await self.stop()
        await self._scale_first(self.vms + 1)
        begun = time.perf_counter()
        process = await self.running()
        ready = time.perf_counter() - begun
        await self._ready([0], self.vms + 1)
        seconds = time.perf_counter() - begun
        cpu = process.cpu_seconds()
        harness.report(
            f"from the start among {self.total} VMs",
            f"ready after {ready:.1f} s, a pool is scaled after {seconds:.1f} s; {cpu:.1f} s of CPU time",
            ready_s=ready,
            scaled_s=seconds,
            cpu_s=cpu,
        )
        now, peak = process.resident_mb()
        said = f"now {now:.0f} MB, peak {peak:.0f} MB"
        harness.report("resident memory after the start", said, now_mb=now, peak_mb=peak)
        await self._scale_first(self.vms)
        await self._ready([0], self.vms)

    async def failover(self) -> None:
        await self.stop()
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "POOLHOUSE_LOG_LEVEL": "ERROR",
            "POOLHOUSE_DEFAULTER_URL": "",
        }
        async with AsyncExitStack() as stack:
            leader, _ = [
                await stack.enter_async_context(harness.service("controllers.main", **environment)) for _ in range(2)
            ]
            await self._scale_first(self.vms + 1)
            await self._ready([0], self.vms + 1)
            os.kill(leader.pid, signal.SIGKILL)
            begun = time.perf_counter()
            await self._scale_first(self.vms)
            await harness.poll(lambda: self._counted(self.total), every_seconds=0.1)
            seconds = time.perf_counter() - begun
            harness.report("from the kill of the leader until a pool is scaled", f"{seconds:.1f} s", takeover_s=seconds)

    async def heal(self) -> None:
        process = await self.running()
        await self._quiet(process)
        vms = sorted(self.kubevirt.vms.store.all(), key=lambda vm: vm.key)
        crashed = vms[:: round(1 / FAILING)]
        before, cpu, begun = await process.writes(), process.cpu_seconds(), time.perf_counter()
        self.kubevirt.crash(crashed)
        uids = {vm.uid for vm in crashed}

        async def replaced() -> bool:
            known = self.kubevirt.vms.store.all()
            running = sum(vm.status == "Running" and vm.uid not in uids for vm in known)
            return running == self.total == len(known)

        await harness.poll(replaced, every_seconds=0.2)
        await self._report_work(f"until {len(crashed)} crashed VMs are replaced", len(crashed), before, cpu, begun)

    async def update(self) -> None:
        process = await self.running()
        await self._quiet(process)
        before, cpu, begun = await process.writes(), process.cpu_seconds(), time.perf_counter()
        memory = {
            "spec": {"template": {"spec": {"domain": {"memory": {"guest": f"{round(time.time()) % 997 + 64}Mi"}}}}}
        }
        await self._patch_pools({"spec": {"template": memory}})
        await self._ready(range(self.pools), self.vms)
        await self._report_work(f"until {self.total} VMs are updated in steps", self.total, before, cpu, begun)

    async def zero(self) -> None:
        process = await self.running()
        await self._quiet(process)
        before, cpu, begun = await process.writes(), process.cpu_seconds(), time.perf_counter()
        await self._patch_pools({"spec": {"replicas": 0}})
        await harness.poll(lambda: self._counted(0), every_seconds=0.2)
        await self._report_work(f"until {self.total} VMs are deleted", self.total, before, cpu, begun)
        now, peak = process.resident_mb()
        said = f"now {now:.0f} MB, peak {peak:.0f} MB"
        harness.report("resident memory after all", said, now_mb=now, peak_mb=peak)

    # Parts of phases

    async def _bare_seconds(self, count: int) -> float:
        """Creates and deletes VMs. Returns the seconds from the first creation until all run."""
        documents = vms_of_pool("bare", count)[-1]
        for document in documents:  # the garbage collector deletes objects whose owner does not exist
            del document["metadata"]["ownerReferences"]
        seconds = await harness.create_all(self.api, VMS, documents)
        seconds += await self._poll_running("bare-", count)
        await harness.delete_all(self.api, VMS, documents)

        async def gone() -> bool:
            return not any(vmi.key[1].startswith("bare-") for vmi in self.kubevirt.vmis.store.all())

        await harness.poll(gone, every_seconds=0.2)
        return seconds

    async def _seconds_until_running(self, numbers: Iterable[int]) -> float:
        """Creates the pools with these numbers. Returns the seconds until all their VMs run."""
        wanted = (max(numbers) + 1) * self.vms
        seconds = await harness.create_all(self.api, POOLS, [scaled_pool(each, self.vms) for each in numbers])
        return seconds + await self._poll_running("p", wanted)

    async def _poll_running(self, prefix: str, count: int) -> float:
        """Returns the seconds until so many VMs run whose names begin with the prefix."""

        async def run() -> bool:
            vms = self.kubevirt.vms.store.all()
            return sum(vm.status == "Running" and vm.key[1].startswith(prefix) for vm in vms) == count

        return await harness.poll(run, every_seconds=0.1)

    async def _counted(self, wanted: int) -> bool:
        return await harness.count(self.api) == wanted

    async def _ready(self, numbers: Iterable[int], vms: int) -> None:
        """Waits until the statuses of the pools with these numbers have as many VMs, ready and updated."""
        wanted = {f"p{number}" for number in numbers}

        async def all_ready() -> bool:
            found = [each for each in (await self.api.list(POOLS, harness.NAMESPACE))[0] if is_ready(each, vms)]
            return wanted <= {each["metadata"]["name"] for each in found}

        await harness.poll(all_ready, every_seconds=0.5)

    async def _cpu_ms_per_change(self, process: harness.Process) -> float:
        """Returns the CPU time of the controllers per change of a VM of the first pool, without their CPU at rest."""
        await self._quiet(process)
        quiet, begun = process.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(SETTLE_SECONDS)
        at_rest = (process.cpu_seconds() - quiet) / (time.perf_counter() - begun)
        names = [vm.key[1] for vm in self.kubevirt.vms.store.all() if vm.key[1].startswith("p0-")]
        before, begun = process.cpu_seconds(), time.perf_counter()
        for number in range(CHANGES):
            change = {"metadata": {"labels": {"seen": f"{time.time_ns()}"}}}
            await self.api.patch(VMS, harness.NAMESPACE, names[number % len(names)], change)
            await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        spent = process.cpu_seconds() - before - at_rest * (time.perf_counter() - begun)
        return max(0.0, spent) / CHANGES * 1000

    async def _quiet(self, process: harness.Process) -> None:
        """Waits until neither the controllers nor the fake KubeVirt write."""
        before: tuple[Counter[tuple[str, str]], int] | None = None
        while (now := (await process.writes(), self.kubevirt.writes)) != before:
            before = now
            await asyncio.sleep(QUIET_SECONDS)

    async def _scale_first(self, replicas: int) -> None:
        await self.api.patch(POOLS, harness.NAMESPACE, "p0", {"spec": {"replicas": replicas}})

    async def _patch_pools(self, change: Json) -> None:
        await harness.call_all(lambda name: self.api.patch(POOLS, harness.NAMESPACE, name, change), self.names)

    async def _report_work(
        self, what: str, vms: int, before: Counter[tuple[str, str]], cpu: float, begun: float
    ) -> None:
        process, seconds = await self.running(), time.perf_counter() - begun
        await self._quiet(process)
        writes = await process.writes() - before
        each = ", ".join(f"{count / vms:.2f} {verb} {resource}" for (verb, resource), count in writes.most_common())
        milliseconds = (process.cpu_seconds() - cpu) / vms * 1000
        said = f"{seconds:.1f} s; for each VM: {milliseconds:.1f} ms of CPU time; {each}"
        harness.report(what, said, took_s=seconds, each_ms=milliseconds, writes=writes.total() / vms)


def is_ready(document: Json, vms: int) -> bool:
    status = document.get("status") or {}
    counts = {status.get(name) for name in ("replicas", "readyReplicas", "updatedReplicas")}
    return status.get("observedGeneration") == document["metadata"]["generation"] and counts == {vms}


@asynccontextmanager
async def cluster(directory: Path, pools: int, vms: int, rest: float) -> AsyncIterator[Scale]:
    kubeconfig = directory / "kubeconfig"
    async with await harness.connect(kubeconfig) as api, await harness.connect(kubeconfig) as of_kubevirt:
        await harness.prepare(api, VMS, VMIS, POOLS)
        async with fake_kubevirt(of_kubevirt) as kubevirt:
            found = Scale(api, directory / "kubeconfigs" / "controllers", kubevirt, pools, vms, rest)
            try:
                yield found
            finally:
                await found.stop()


async def run(directory: Path, pools: int, vms: int, rest: float, only: Iterable[str]) -> None:
    async with cluster(directory, pools, vms, rest) as scale:
        harness.section(f"{pools} pools of {vms} VMs in one controller")
        for name in only:
            phase: Callable[[], Awaitable[None]] = getattr(scale, name)
            begun = time.perf_counter()
            await phase()
            seconds = time.perf_counter() - begun
            harness.report(f"duration of `{name}`", f"{seconds:.0f} s", phase_s=seconds)


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, pools=10, vms=50, rest=10.0, only=PHASES)
    if unknown := set(options.only) - set(PHASES):
        harness.refuse_options(f"--only: {', '.join(sorted(unknown))}: must be of {', '.join(PHASES)}")
    if not (options.pools and options.vms):
        harness.refuse_options("--pools and --vms must be at least 1")
    if options.dir is None and options.only[:1] != ["make"]:
        harness.refuse_options("--only must begin with make on a new stack, because the other phases need its VMs")
    with harness.stack(options.dir) as directory:
        asyncio.run(run(directory, options.pools, options.vms, options.rest, options.only))


if __name__ == "__main__":
    main()
