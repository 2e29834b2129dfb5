"""What a claim takes: against the bare writes it is made of, in a burst, and against a cold start of a real guest.

    python -m bench.claim [--dir DIR] [--rate 50] [--seconds 60] [--turns 2] [--burst 1000] [--no-guests]

Sustained: so many claims a second for so long, on machines that are Ready; the time of each runs from before its
creation is sent until its watcher hears that it is Bound. The floor is a client that makes the same writes at the same
rate, one after the other: the claim, the machine and the claim's status, and the machine once more, which nobody waits
for. The two take turns, so that what else happens on the machine meets both. Burst: so many claims at once on 100
machines, of which exactly 100 may be served. Nothing runs these VMs: they are what the API server stores.

Guests: on a stack of its own with real ones, from the claim until it is Ready, for a pool that is empty and for
machines that wait running, paused and stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.pool import CONNECTIONS, controllers
from bench.warmpool import CLAIMS, NAMESPACES, POOLS, cluster, emptied, stored
from kinds import meta
from kinds.warm_states import WarmState
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import VMS

Json = dict[str, Any]

BURST_READY = 100
DEADLINE_SECONDS = 300
BOUND_LIMIT_SECONDS = 0.25
OVER = ("Released", "Expired", "Failed")


def claim(namespace: str, name: str, **spec: Any) -> Json:
    metadata = {"namespace": namespace, "name": name}
    body = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata}
    return {**body, "spec": {"poolName": "warm", **spec}}


@dataclass
class Watcher:
    """Hears of every claim."""

    bound: dict[str, float] = field(default_factory=dict)
    decided: dict[str, Json] = field(default_factory=dict)
    """statuses of those that are Ready or over"""

    def saw(self, document: Json) -> None:
        name, status = document["metadata"]["name"], document.get("status") or {}
        if status.get("boundAt"):
            self.bound.setdefault(name, time.perf_counter())
        if status.get("phase") in ("Ready", *OVER):
            self.decided.setdefault(name, status)


@asynccontextmanager
async def watching(api: Api, namespace: str) -> AsyncIterator[Watcher]:
    _, version = await api.list(CLAIMS, namespace)
    watcher = Watcher()

    async def listen() -> None:
        nonlocal version
        while True:
            events = api.watch(CLAIMS, namespace, resource_version=version, timeout_seconds=DEADLINE_SECONDS)
            try:
                async with aclosing(events):
                    async for kind, document in events:
                        version = document["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            watcher.saw(document)
            except ApiError as error:
                print(f"the watch was cut: {error}", file=sys.stderr)

    task = asyncio.create_task(listen())
    try:
        yield watcher
    finally:
        task.cancel()


@dataclass
class Load:
    """What the processors did while something was measured."""

    _ticks: int = 0
    _idle: int = 0
    own_seconds: float = 0.0
    """of one process"""

    @contextmanager
    def measured(self, pid: int | None = None) -> Iterator[None]:
        (ticks, idle), own = processors(), process_seconds(pid)
        yield
        after = processors()
        self._ticks += after[0] - ticks
        self._idle += after[1] - idle
        self.own_seconds += process_seconds(pid) - own

    @property
    def idle(self) -> float:
        return self._idle / max(1, self._ticks)


def processors() -> tuple[int, int]:
    """Ticks of all processors, and how many of them were idle."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(ticks[:8]), ticks[3] + ticks[4]


def process_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def at_rate(call: Callable[[int], Awaitable[None]], rate: float, seconds: float) -> None:
    """Calls at fixed times, whether or not those before have come back: who waits for answers measures less."""
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            group.create_task(call(number))  # type: ignore[arg-type]


async def sustained(
    admin: Api, api: Api, namespace: str, ours: Path, rate: float, seconds: float, load: Load
) -> tuple[list[float], list[Json]]:
    """Seconds until each claim was Bound, and the timings in their statuses."""
    total = round(rate * seconds)
    await stored(admin, api, namespace, total)
    # Filling up at the same time is another measurement.
    await admin.patch(POOLS, namespace, "warm", {"spec": {"paused": True}})
    sent: dict[str, float] = {}

    async def ask(number: int) -> None:
        name = f"c{number}"
        sent[name] = time.perf_counter()
        await admin.create(CLAIMS, claim(namespace, name, onEmpty="Queue"))

    async with controllers(ours) as at, watching(admin, namespace) as watcher:
        await admin.create(CLAIMS, claim(namespace, "first", onEmpty="Queue", bindTimeoutSeconds=600))
        await until(lambda: "first" in watcher.bound)
        with load.measured(at.pid):
            await at_rate(ask, rate, seconds - 1)
            await until(lambda: sent.keys() <= watcher.decided.keys())
        machines = Counter(status["vmRef"]["uid"] for status in watcher.decided.values() if "vmRef" in status)
    assert max(machines.values()) == 1, "a machine was given to two"
    timings = [status["timings"] for name, status in watcher.decided.items() if name in sent and "timings" in status]
    return [watcher.bound[name] - at for name, at in sent.items()], timings


async def floor(admin: Api, api: Api, namespace: str, rate: float, seconds: float, load: Load) -> list[float]:
    """The same writes without anybody who decides."""
    await stored(admin, api, namespace, round(rate * seconds))
    machines, _ = await admin.list(VMS, namespace)
    names = [each["metadata"]["name"] for each in machines]
    took: list[float] = []

    async def write(number: int) -> None:
        begun = time.perf_counter()
        made = await admin.create(CLAIMS, claim(namespace, f"c{number}"))
        uid = made["metadata"]["uid"]
        labels = {meta.WARM_STATE: "PENDING_POD_PROVISIONING", meta.CLAIM_UID: uid}
        owner = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "name": f"c{number}", "uid": uid}
        change = {"metadata": {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}}
        vm = await api.patch(VMS, namespace, names[number], change)
        ref = {"name": vm["metadata"]["name"], "uid": vm["metadata"]["uid"]}
        status = {"phase": "Bound", "vmRef": ref, "conditions": [{"type": "Bound", "status": "True"}]}
        await api.patch(CLAIMS, namespace, f"c{number}", {"status": status}, subresource="status")
        took.append(time.perf_counter() - begun)
        labels = {meta.WARM_STATE: "InUse"}
        await api.patch(VMS, namespace, names[number], {"metadata": {"labels": labels}})

    with load.measured():
        await at_rate(write, rate, seconds)
    return took


async def burst(admin: Api, api: Api, namespace: str, ours: Path, claims: int) -> tuple[float, list[float]]:
    """Seconds until all of so many claims at once were decided, and until each of the served ones was Bound."""
    await stored(admin, api, namespace, BURST_READY)
    await admin.patch(POOLS, namespace, "warm", {"spec": {"paused": True}})
    async with controllers(ours), watching(admin, namespace) as watcher:
        await admin.create(CLAIMS, claim(namespace, "first", onEmpty="Queue", overrides={"placement": "default"}))
        await until(lambda: "first" in watcher.decided)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(claims):
                group.create_task(admin.create(CLAIMS, claim(namespace, f"c{number}", onEmpty="Fail")))
        await until(lambda: len(watcher.decided) > claims)
        seconds = time.perf_counter() - begun
    served = [status["vmRef"]["uid"] for status in watcher.decided.values() if status["phase"] == "Ready"]
    assert len(served) == len(set(served)) == BURST_READY, f"{len(served)} served, {len(set(served))} machines"
    refused = [status for status in watcher.decided.values() if status["phase"] == "Failed"]
    assert len(refused) == claims + 1 - BURST_READY
    return seconds, [at - begun for name, at in watcher.bound.items() if name != "first"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def spread(seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    return f"{cuts[49] * 1000:8.1f} {cuts[98] * 1000:8.1f} {max(seconds) * 1000:8.1f}"


def verdict(floor: float, cost: float, idle: float) -> str:
    """Of a machine that has nothing left to give, no time says what a claim costs."""
    if cost < BOUND_LIMIT_SECONDS:
        return "yes"
    busy = floor > BOUND_LIMIT_SECONDS / 2 or idle < 0.1
    return "NO, on a machine that is too busy to say (see the bare writes, and CPU idle)" if busy else "NO"


async def stored_machines(directory: Path, rate: float, seconds: float, turns: int, claims: int) -> None:
    ours = directory / "kubeconfigs" / "controllers"
    async with (
        await Api.connect(directory / "kubeconfig", user_agent="bench", max_connections=4 * CONNECTIONS) as admin,
        await Api.connect(ours, user_agent="bench", max_connections=CONNECTIONS) as api,
    ):
        namespace = (await admin.create(NAMESPACES, {"metadata": {"generateName": "bench-claim-"}}))["metadata"]["name"]
        if seconds:
            least: list[float] = []
            took: list[float] = []
            timings: list[Json] = []
            bare, work = Load(), Load()
            for _ in range(turns):
                least += await floor(admin, api, namespace, rate, seconds / turns, bare)
                await emptied(admin, namespace)
                more, said = await sustained(admin, api, namespace, ours, rate, seconds / turns, work)
                took, timings = took + more, timings + said
                await emptied(admin, namespace)
            low, high = (statistics.quantiles(each, n=100)[98] for each in (least, took))
            title = f"{rate:g} claims a second, {turns} times {seconds / turns:g} s"
            print(f"\n{title:45} p50 ms   p99 ms   max ms   CPU idle")
            print(f"  the bare writes                             {spread(least)}   {bare.idle:6.0%}")
            print(f"  until Bound and Ready                       {spread(took)}   {work.idle:6.0%}")
            for field in ("queuedMs", "bindMs", "checkMs", "totalMs"):
                found = [each[field] / 1000 for each in timings if each.get(field) is not None]
                print(f"    in the statuses: {field:26} {spread(found)}")
            own = work.own_seconds / len(took) * 1000
            print(f"  p99 ratio {high / low:.2f}; CPU of the controllers: {own:.1f} ms a claim")
            print(f"  p99 below {BOUND_LIMIT_SECONDS * 1000:g} ms: {verdict(low, high, work.idle)}")
        if claims:
            whole, took = await burst(admin, api, namespace, ours, claims)
            await emptied(admin, namespace)
            print(
                f"\n{claims} claims at once on {BURST_READY} machines: {BURST_READY} served, no machine twice, ", end=""
            )
            print(f"the others refused; all decided after {whole:.2f} s")
            print(f"  until Bound, of those served: p50, p99, max ms {spread(took)}")
        await admin.delete(NAMESPACES, None, namespace)


# Real guests


@contextmanager
def guests() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-claim-") as place:
        poolhouse = [sys.executable, "-m", "cli.main"]
        without = ["--without", "webhook", "--without", "defaulter"]
        subprocess.run([*poolhouse, "up", "--dir", place, "--detach", *without], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run([*poolhouse, "down", "--dir", place], check=True)


GUEST: Json = {
    "domain": {
        "memory": {"guest": "128Mi"},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
    },
    "volumes": [{"name": "root", "containerDisk": {"image": "quay.io/containerdisks/alpine:latest"}}],
    "terminationGracePeriodSeconds": 0,
}


async def handed_over(directory: Path, rounds: int) -> None:
    async with await Api.connect(directory / "kubeconfig", user_agent="bench") as api:
        namespace = (await api.create(NAMESPACES, {"metadata": {"generateName": "bench-claim-"}}))["metadata"]["name"]
        found: dict[str, float] = {}
        for mode, replicas in (("Cold", 0), ("Running", 1), ("Paused", 1), ("Stopped", 1)):
            name = mode.lower()
            await pool_of(api, namespace, name, mode, replicas)
            found[mode] = statistics.median([await one(api, namespace, name, replicas, n) for n in range(rounds)])
            await api.delete(POOLS, namespace, name)
        await api.delete(NAMESPACES, None, namespace)
    print(f"\na real guest, from the claim until it is Ready, median of {rounds}        ms   faster than cold")
    for mode, seconds in found.items():
        print(f"  {mode:62} {seconds * 1000:8.0f} {found['Cold'] / seconds:10.1f}")


async def pool_of(api: Api, namespace: str, name: str, mode: str, replicas: int) -> None:
    spec: Json = {"replicas": replicas, "template": {"spec": {"template": {"spec": GUEST}}}}
    if mode != "Cold":
        spec["standby"] = {"mode": mode}
    body = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"namespace": namespace, "name": name}}
    await api.create(POOLS, {**body, "spec": spec})


async def one(api: Api, namespace: str, pool: str, replicas: int, number: int) -> float:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await waiting(api, namespace, pool) != replicas:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    name = f"{pool}-{number}"
    async with watching(api, namespace) as watcher:
        begun = time.perf_counter()
        await api.create(CLAIMS, {**claim(namespace, name), "spec": {"poolName": pool}})
        await until(lambda: name in watcher.decided)
        seconds = time.perf_counter() - begun
    found = watcher.decided[name]
    assert found["phase"] == "Ready", found
    assert (found["launchType"] == "Cold") == (not replicas), found
    await api.delete(CLAIMS, namespace, name)
    return seconds


async def waiting(api: Api, namespace: str, pool: str) -> int:
    """Machines that are Ready, by their own labels: the pool's status is written later than the next claim comes."""
    wanted = f"{meta.WARM_POOL}={pool},{meta.WARM_STATE}={WarmState.READY.value}"
    machines, _ = await api.list(VMS, namespace, label_selector=wanted)
    return len([each for each in machines if "deletionTimestamp" not in each["metadata"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-guests", action="store_true")
    options = parser.parse_args()
    if options.seconds or options.burst:
        with cluster(options.dir) as directory:
            asyncio.run(stored_machines(directory, options.rate, options.seconds, options.turns, options.burst))
    if not options.no_guests:
        with guests() as directory:
            asyncio.run(handed_over(directory, options.rounds))


if __name__ == "__main__":
    main()
