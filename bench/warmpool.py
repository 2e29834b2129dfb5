"""What filling a warm pool costs against the bare API server, and how soon a restart serves claims again.

    python -m bench.warmpool [--dir DIR] [--vms 1000] [--rounds 3] [--planning 10 1000 10000]

Nothing runs the VMs here: they are what the API server stores. So the floor of filling is the same VMs made by a client
that does nothing else. For the restart, as many machines are there and Ready, and one claim waits: the clock runs from
the start of the process until that claim has its machine. `--dir` is a stack that is up, with neither controllers nor
engine; without it one is started.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.pool import all_of, controllers, resident
from controllers.main import CONNECTIONS
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
from kinds.claim import CLAIM
from kinds.warm_states import WarmState
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import VMIS, VMS, Resource

Json = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLAIMS = Resource(CLAIM.group, CLAIM.versions[0], CLAIM.plural, CLAIM.kind)
POLL_SECONDS = 0.02
DEADLINE_SECONDS = 300
INSTANCE: Json = {"domain": {"memory": {"guest": "128Mi"}, "devices": {}}}
BRISK = {"maxConcurrent": 100_000, "ratePerSecond": 100_000}


def manifest(namespace: str, replicas: int) -> Json:
    spec = {"replicas": replicas, "refill": BRISK, "template": {"spec": {"template": {"spec": INSTANCE}}}}
    metadata = {"namespace": namespace, "name": "warm"}
    return {"apiVersion": WARM_POOLS.api_version, "kind": WARM_POOLS.kind, "metadata": metadata, "spec": spec}


def order(of: WarmPool, number: int) -> CreateRequest:
    place, placement = next(iter(of.placements.items()))
    return CreateRequest(
        namespace=of.namespace,
        name=f"warm-m{number:06d}",
        pool=of.name,
        pool_uid=of.uid,
        owner=of.owner,
        template=of.template,
        template_hash=of.hashes[place],
        placement=placement,
        state=WarmState.READY,
    )


def running(document: Json) -> Json:
    """The run of a VM, as a healthy one says it."""
    metadata = document["metadata"]
    owner = {"apiVersion": VMS.api_version, "kind": VMS.kind, "name": metadata["name"]}
    return {
        "apiVersion": VMIS.api_version,
        "kind": VMIS.kind,
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": document["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{**owner, "uid": metadata["uid"], "controller": True}],
        },
        "spec": INSTANCE,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


# The cluster


@contextmanager
def cluster(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="bench-warmpool-") as place:
        without = [word for name in ("webhook", "defaulter", "controllers", "engine") for word in ("--without", name)]
        poolhouse = [sys.executable, "-m", "cli.main"]
        subprocess.run([*poolhouse, "up", "--dir", place, "--detach", *without], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run([*poolhouse, "down", "--dir", place], check=True)


async def emptied(api: Api, namespace: str) -> None:
    for resource in (CLAIMS, WARM_POOLS):
        for each in (await api.list(resource, namespace))[0]:
            with suppress(NotFound):
                await api.delete(resource, namespace, each["metadata"]["name"])
    for resource in (VMS, VMIS):
        path = resource.path(namespace)
        await api.request("DELETE", path, timeout_seconds=60)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await count(api, namespace):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)


async def count(api: Api, namespace: str) -> int:
    answer = await api.request("GET", VMS.path(namespace), query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


# What is compared


async def bare(admin: Api, api: Api, namespace: str, vms: int) -> float:
    """Seconds to make so many."""
    view = parse_warm_pool(
        {**manifest(namespace, vms), "metadata": {"namespace": namespace, "name": "warm", "uid": "none"}}
    )
    assert isinstance(view, WarmPool)
    documents = [build_vm(replace(order(view, number), state=WarmState.PROVISIONING)) for number in range(vms)]
    for document in documents:  # an owner that is not there would have them collected
        del document["metadata"]["ownerReferences"]

    async def create(document: Json) -> None:
        await api.create(VMS, document)

    seconds = await all_of(create, documents)
    await emptied(admin, namespace)
    return seconds


async def filled(api: Api, namespace: str, vms: int) -> float:
    """Seconds that a pool takes for it."""
    begun = time.perf_counter()
    await api.create(WARM_POOLS, manifest(namespace, vms))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (found := await count(api, namespace)) != vms:
            assert found <= vms, f"{found} VMs, {vms} are wanted"
            await asyncio.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - begun
    await emptied(api, namespace)
    return seconds


async def stored(admin: Api, api: Api, namespace: str, vms: int) -> None:
    """A full pool, as controllers left it when they ended."""
    view = parse_warm_pool(await admin.create(WARM_POOLS, manifest(namespace, vms)))
    assert isinstance(view, WarmPool)

    async def create(document: Json) -> None:
        await api.create(VMIS, running(await api.create(VMS, document)))

    await all_of(create, [build_vm(order(view, number)) for number in range(vms)])


async def served(api: Api, namespace: str) -> None:
    """Until the claim has its machine."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            claim = await api.get(CLAIMS, namespace, "in_standby")
            if (claim.get("status") or {}).get("phase") in ("Bound", "Ready"):
                return
            await asyncio.sleep(POLL_SECONDS)


async def restarted(api: Api, namespace: str, kubeconfig: Path, vms: int) -> tuple[float, float]:
    """Seconds from the start of the process to the first claim served, and MB resident then."""
    metadata = {"namespace": namespace, "name": "in_standby"}
    spec = {"poolName": "warm", "onEmpty": "Queue"}
    await api.create(
        CLAIMS, {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata, "spec": spec}
    )
    begun = time.perf_counter()
    async with controllers(kubeconfig) as at:
        await served(api, namespace)
        seconds, megabytes = time.perf_counter() - begun, resident(at.pid)[0]
    await api.delete(CLAIMS, namespace, "in_standby")
    return seconds, megabytes


async def measure(directory: Path, vms: int, rounds: int) -> None:
    # With the controllers' own rights: nobody else may write a warm machine's labels.
    ours = directory / "kubeconfigs" / "controllers"
    async with (
        await Api.connect(directory / "kubeconfig", user_agent="bench", max_connections=CONNECTIONS) as admin,
        await Api.connect(ours, user_agent="bench", max_connections=CONNECTIONS) as api,
    ):
        namespace = (await admin.create(NAMESPACES, {"metadata": {"generateName": "bench-warm-"}}))["metadata"]["name"]
        floor, cost, serving = [], [], []
        for _ in range(rounds):
            floor.append(await bare(admin, api, namespace, vms))
        for _ in range(rounds):
            async with controllers(ours):
                cost.append(await filled(admin, namespace, vms))
        for _ in range(rounds):
            await stored(admin, api, namespace, vms)
            serving.append(await restarted(admin, namespace, ours, vms))
            await emptied(admin, namespace)
        await admin.delete(NAMESPACES, None, namespace)
    least, most = statistics.median(floor), statistics.median(cost)
    print(f"\n{vms} machines, {CONNECTIONS} calls at once, median of {rounds}       bare s   pool s   ratio")
    print(f"  {'0 -> ' + str(vms):44} {least:8.2f} {most:8.2f} {most / least:7.2f}")
    seconds, megabytes = (statistics.median(each) for each in zip(*serving, strict=True))
    print(
        f"  a restart among {vms} that are Ready: {seconds:.2f} s until the first claim is served ({megabytes:.0f} MB)"
    )


# Looking alone


def looking(sizes: list[int]) -> None:
    print("\none look at a warm pool at rest: observe, plan, status       machines  CPU ms")
    for size in sizes:
        found = _cache(size)
        view = parse_warm_pool(
            {**manifest("bench", size), "metadata": {"namespace": "bench", "name": "warm", "uid": "u"}}
        )
        assert isinstance(view, WarmPool)
        checks, times = HealthTracker(time.monotonic), []
        for _ in range(7):
            begun = time.process_time()
            machines = tuple(found.of_pool("u"))
            state = WarmPoolSnapshot(view, machines, checks.observe(view, machines), seed="s", default_pool=view)
            decided = plan(state, datetime.now(UTC))
            said = status(state, datetime.now(UTC))
            times.append(time.process_time() - begun)
            assert not decided.actions
            assert said.available_replicas == size
        print(f"  {'':60} {size:7d} {statistics.median(times) * 1000:8.2f}")


def _cache(size: int) -> WarmVMCache:
    found = WarmVMCache()
    view = parse_warm_pool({**manifest("bench", size), "metadata": {"namespace": "bench", "name": "warm", "uid": "u"}})
    assert isinstance(view, WarmPool)
    for number in range(size):
        document = build_vm(order(view, number))
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        m, g = parse_warm_vm(document), parse_vmi(running(document))
        found.vms.put(m.key, m)
        found.vmis.put(g.key, g)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--planning", type=int, nargs="*", default=[10, 1000, 10000])
    options = parser.parse_args()
    if options.planning:
        looking(options.planning)
    if options.rounds:
        with cluster(options.dir) as directory:
            asyncio.run(measure(directory, options.vms, options.rounds))


if __name__ == "__main__":
    main()
