"""What a replica set costs, as ratios against the bare API server in the same run.

    python -m bench.replicaset [--kubeconfig FILE] [--vmis 1000] [--rounds 3] [--planning 10 1000 10000]

The floor is the API server making the same VMIs for a client that does nothing else, with as many calls at once as the
controllers have; rounds of both alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.pool import NAMESPACE, all_of, cluster, controllers, prepare, resident, served, until
from controllers.main import CONNECTIONS
from controllers.replicaset.actions import Create
from controllers.replicaset.apply import build_vmi
from controllers.replicaset.naming import free_names
from controllers.replicaset.observe import REPLICA_SETS, Stores, observe
from controllers.replicaset.plan import plan
from controllers.replicaset.snapshot import ReplicaSet, ReplicaSetSnapshot, parse_replica_set
from controllers.shared.vmi import parse_vmi
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import VMIS

Json = dict[str, Any]


def manifest(name: str, replicas: int) -> Json:
    """One disk and one NIC."""
    domain = {
        "memory": {"guest": "128Mi"},
        "devices": {
            "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}}],
        },
    }
    spec = {
        "domain": domain,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "tiny"}}],
    }
    labels = {"set": name}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": REPLICA_SETS.kind,
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def members(name: str, size: int) -> tuple[ReplicaSet, list[Json]]:
    """A set and the VMIs that it makes."""
    document = manifest(name, size)
    view = parse_replica_set({**document, "metadata": {**document["metadata"], "uid": name, "generation": 1}})
    assert isinstance(view, ReplicaSet)
    return view, [build_vmi(view, Create(each, "")) for each in free_names(view.uid, view.base_name, (), size)]


# Scaling


async def bare(api: Api, vmis: int) -> tuple[float, float]:
    """Seconds to make so many VMIs and to delete them."""
    _, documents = members("bare", vmis)
    for document in documents:  # an owner that is not there would have them collected
        del document["metadata"]["ownerReferences"]

    async def create(document: Json) -> None:
        await api.create(VMIS, document)

    async def delete(document: Json) -> None:
        await api.delete(VMIS, NAMESPACE, document["metadata"]["name"])

    return await all_of(create, documents), await all_of(delete, documents)


async def replicated(api: Api, vmis: int) -> tuple[float, float]:
    """Seconds that a set takes from 0 to so many VMIs, and back."""
    with suppress(NotFound):
        await api.delete(REPLICA_SETS, NAMESPACE, "bench")
    await api.create(REPLICA_SETS, manifest("bench", 0))
    await asyncio.sleep(1)
    await api.patch(REPLICA_SETS, NAMESPACE, "bench", {"spec": {"replicas": vmis}})
    grown = await until(api, vmis, VMIS)
    # At rest before it shrinks: its status has been said.
    await asyncio.sleep(2)
    await api.patch(REPLICA_SETS, NAMESPACE, "bench", {"spec": {"replicas": 0}})
    shrunk = await until(api, 0, VMIS)
    await api.delete(REPLICA_SETS, NAMESPACE, "bench")
    return grown, shrunk


async def scaling(kubeconfig: Path, vmis: int, rounds: int) -> None:
    async with await Api.connect(kubeconfig, user_agent="bench", max_connections=CONNECTIONS + 1) as api:
        await prepare(api)
        for resource in (VMIS, REPLICA_SETS):
            await served(api, resource)
        async with controllers(kubeconfig) as pid:
            found: dict[str, list[float]] = {"bare up": [], "bare down": [], "set up": [], "set down": []}
            for _ in range(rounds):
                for name, measured in (("bare", bare), ("set", replicated)):
                    up, down = await measured(api, vmis)
                    found[f"{name} up"].append(up)
                    found[f"{name} down"].append(down)
            _, most = resident(pid)
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    print(f"\n{vmis} VMIs, {CONNECTIONS} calls at once, median of {rounds}   bare s    set s   ratio")
    for direction, text in (("up", f"0 -> {vmis}"), ("down", f"{vmis} -> 0")):
        floor, cost = middle[f"bare {direction}"], middle[f"set {direction}"]
        print(f"  {text:44} {floor:8.2f} {cost:8.2f} {cost / floor:7.2f}")
    print(f"  controllers, resident MB: {most:.0f} at most")


# Planning alone


def planning(sizes: list[int]) -> None:
    print("\none look at a set at rest: observe and plan, among as many VMIs of another set    own VMIs  CPU ms")
    for size in sizes:
        stores = _stores(size)
        times = []
        for _ in range(7):
            begun = time.process_time()
            state = observe(stores, (NAMESPACE, "bench"), synced=True, failure=None, burst=250)
            assert isinstance(state, ReplicaSetSnapshot)
            decided = plan(state, datetime.now(UTC))
            times.append(time.process_time() - begun)
            assert len(state.live) == size
            assert not decided.actions
        print(f"  {'':78} {size:8d} {statistics.median(times) * 1000:8.2f}")


def _stores(size: int) -> Stores:
    stores = Stores()
    for name in ("bench", "other"):
        view, documents = members(name, size)
        stores.sets.put(view.key, view)
        for document in documents:
            document["metadata"].update(uid=document["metadata"]["name"], resourceVersion="1")
            document["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            found = parse_vmi(document)
            stores.vmis.put(found.key, found)
    return stores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--vmis", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--planning", type=int, nargs="*", default=[10, 1000, 10000])
    options = parser.parse_args()
    if options.planning:
        planning(options.planning)
    if options.rounds:
        with cluster(options.kubeconfig) as kubeconfig:
            asyncio.run(scaling(kubeconfig, options.vmis, options.rounds))


if __name__ == "__main__":
    main()
