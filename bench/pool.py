"""What a pool costs, as ratios against the bare API server in the same run.

    python -m bench.pool [--kubeconfig FILE] [--vms 1000] [--rounds 3] [--planning 10 1000 10000]

The floor is the API server making the same VMs for a client that does nothing else, with as many calls at once as the
controllers have. Rounds of floor and pool alternate, so that both see the same weather. Without `--kubeconfig` a stack
of its own is started, without webhook and defaulter: what those cost is another benchmark's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from controllers.main import CONNECTIONS
from controllers.pool import template
from controllers.pool.observe import observe
from controllers.pool.plan import plan
from controllers.pool.revisions import content, current_revision
from controllers.pool.snapshot import Pool, PoolSnapshot, parse_pool
from controllers.pool.stores import POOLS, Stores
from controllers.shared.vm import parse_vm
from controllers.shared.vmi import VMI
from kinds import kubevirt, meta
from manifests.crd import crds
from runtime.api import Api
from runtime.errors import AlreadyExists, NotFound
from runtime.resource import VMS, Resource

Json = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
NAMESPACE = "bench-pool"
POLL_SECONDS = 0.02
DEADLINE_SECONDS = 600
MEGABYTE = 1e6


def manifest(name: str, replicas: int) -> Json:
    """One disk and one NIC, as in the document's own examples, and running."""
    domain = {
        "memory": {"guest": "128Mi"},
        "devices": {
            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}}],
        },
    }
    instance = {
        "domain": domain,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "dataVolume": {"name": f"{name}-root"}}],
    }
    disk = {
        "metadata": {"name": f"{name}-root"},
        "spec": {
            "pvc": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
            "source": {"blank": {}},
        },
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachinePool",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "bench"}},
                "spec": {"running": True, "dataVolumeTemplates": [disk], "template": {"spec": instance}},
            },
        },
    }


# The cluster


@contextmanager
def cluster(kubeconfig: Path | None) -> Iterator[Path]:
    if kubeconfig is not None:
        yield kubeconfig
        return
    with tempfile.TemporaryDirectory(prefix="bench-pool-") as place:
        without = [word for name in ("webhook", "defaulter", "controllers", "engine") for word in ("--without", name)]
        poolhouse = [sys.executable, "-m", "cli.main"]
        subprocess.run([*poolhouse, "up", "--dir", place, "--detach", *without], check=True)
        try:
            yield Path(place) / "kubeconfig"
        finally:
            subprocess.run([*poolhouse, "down", "--dir", place], check=True)


async def prepare(api: Api) -> None:
    for crd in [*crds(), *kubevirt.crds()]:
        with suppress(AlreadyExists):
            await api.create(CRDS, crd)
    with suppress(AlreadyExists):
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for resource in (VMS, POOLS):
        async with asyncio.timeout(30):
            await served(api, resource)


async def served(api: Api, resource: Resource) -> None:
    while True:
        with suppress(NotFound):
            await api.list(resource, NAMESPACE)
            return
        await asyncio.sleep(0.1)


async def count(api: Api, resource: Resource) -> int:
    """How many there are, for the price of one of them."""
    path = resource.path(NAMESPACE)
    answer = await api.request("GET", path, query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


async def until(api: Api, wanted: int, resource: Resource = VMS) -> float:
    """Seconds until there are so many, and never one more."""
    begun = time.perf_counter()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (found := await count(api, resource)) != wanted:
            await asyncio.sleep(POLL_SECONDS)
            if wanted:
                assert found <= wanted, f"{found} VMs, {wanted} are wanted"
    return time.perf_counter() - begun


# What is compared


async def bare(api: Api, vms: int) -> tuple[float, float]:
    """Seconds to make so many VMs and to delete them."""
    view = parse_pool({**manifest("bare", vms), "metadata": {"namespace": NAMESPACE, "name": "bare", "uid": "none"}})
    assert isinstance(view, Pool)
    revision, _ = current_revision("bare", "none", content(view.spec), ())
    documents = [template.build_vm(view, ordinal, revision) for ordinal in range(1, vms + 1)]
    for document in documents:  # an owner that is not there would have them collected
        del document["metadata"]["ownerReferences"]

    async def create(document: Json) -> None:
        await api.create(VMS, document)

    async def delete(document: Json) -> None:
        await api.delete(VMS, NAMESPACE, document["metadata"]["name"])

    return await all_of(create, documents), await all_of(delete, documents)


async def all_of(call: Callable[[Json], Awaitable[None]], documents: list[Json]) -> float:
    waiting = iter(documents)

    async def one_after_another() -> None:
        for document in waiting:
            await call(document)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(one_after_another())
    return time.perf_counter() - begun


async def pooled(api: Api, vms: int) -> tuple[float, float]:
    """Seconds that a pool takes from 0 to so many VMs, and back."""
    name = "bench"
    with suppress(NotFound):
        await api.delete(POOLS, NAMESPACE, name)
    await api.create(POOLS, manifest(name, 0))
    await asyncio.sleep(1)
    scale = {"spec": {"replicas": vms}}
    await api.patch(POOLS, NAMESPACE, name, scale)
    grown = await until(api, vms)
    # At rest before it shrinks: its status has been said.
    await asyncio.sleep(2)
    await api.patch(POOLS, NAMESPACE, name, {"spec": {"replicas": 0}})
    shrunk = await until(api, 0)
    await api.delete(POOLS, NAMESPACE, name)
    return grown, shrunk


@dataclass(frozen=True)
class At:
    """Where the controllers are."""

    pid: int
    url: str


@asynccontextmanager
async def controllers(kubeconfig: Path) -> AsyncIterator[At]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "POOLHOUSE_LISTEN": f"127.0.0.1:{port}",
        "POOLHOUSE_LEADER_ELECTION": "false",
        "POOLHOUSE_LOG_LEVEL": "WARNING",
    }
    environment.pop("POOLHOUSE_DEFAULTER_URL", None)
    process = subprocess.Popen([sys.executable, "-m", "controllers.main"], env=environment)  # noqa: ASYNC220
    try:
        await _ready(f"http://127.0.0.1:{port}/readyz")
        yield At(process.pid, f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def _ready(url: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


def resident(pid: int) -> tuple[float, float]:
    """MB now, and at most so far."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) * 1024 / MEGABYTE for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


async def scaling(kubeconfig: Path, vms: int, rounds: int) -> None:
    async with await Api.connect(kubeconfig, user_agent="bench", max_connections=CONNECTIONS + 1) as api:
        await prepare(api)
        async with controllers(kubeconfig) as at:
            idle = resident(at.pid)[0]
            found: dict[str, list[float]] = {"bare up": [], "bare down": [], "pool up": [], "pool down": []}
            for _ in range(rounds):
                up, down = await bare(api, vms)
                found["bare up"].append(up)
                found["bare down"].append(down)
                up, down = await pooled(api, vms)
                found["pool up"].append(up)
                found["pool down"].append(down)
            now, most = resident(at.pid)
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    print(f"\n{vms} VMs, {CONNECTIONS} calls at once, median of {rounds}    bare s   pool s   ratio")
    for direction, text in (("up", f"0 -> {vms}"), ("down", f"{vms} -> 0")):
        floor, cost = middle[f"bare {direction}"], middle[f"pool {direction}"]
        print(f"  {text:44} {floor:8.2f} {cost:8.2f} {cost / floor:7.2f}")
    print(f"  controllers, resident MB: {idle:.0f} idle, {now:.0f} at the end, {most:.0f} at most")


# Planning alone


def planning(sizes: list[int]) -> None:
    print("\none look at a pool at rest: observe and plan, among as many VMs of other pools    own VMs  CPU ms")
    for size in sizes:
        stores = _stores(size)
        key = (NAMESPACE, "bench")
        times = []
        for _ in range(7):
            begun = time.process_time()
            state = observe(stores, key, synced=True, failure=None, burst=250)
            assert isinstance(state, PoolSnapshot)
            decided = plan(state, datetime.now(UTC))
            times.append(time.process_time() - begun)
            assert len(state.vms) == size
            assert not decided.actions
        print(f"  {'':78} {size:7d} {statistics.median(times) * 1000:8.2f}")


def _stores(size: int) -> Stores:
    found = Stores()
    for name in ("bench", "other"):
        metadata = {"namespace": NAMESPACE, "name": name, "uid": name, "generation": 1}
        view = parse_pool({**manifest(name, size), "metadata": metadata})
        assert isinstance(view, Pool)
        found.pools.put(view.key, view)
        revision, _ = current_revision(name, name, content(view.spec), ())
        found.revisions.put((NAMESPACE, revision.name), revision)
        for ordinal in range(1, size + 1):
            document = template.build_vm(view, ordinal, revision)
            document["metadata"].update(uid=f"{name}-{ordinal}", resourceVersion="1")
            document["status"] = {"ready": True, "created": True}
            m = parse_vm(document)
            found.vms.put(m.key, m)
            labels = {meta.REVISION: m.revision}
            found.vmis.put(m.key, VMI(NAMESPACE, m.name, f"run-{m.uid}", owner_uid=m.uid, labels=labels))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--planning", type=int, nargs="*", default=[10, 1000, 10000])
    options = parser.parse_args()
    if options.planning:
        planning(options.planning)
    if options.rounds:
        with cluster(options.kubeconfig) as kubeconfig:
            asyncio.run(scaling(kubeconfig, options.vms, options.rounds))


if __name__ == "__main__":
    main()
