"""Measures migration policies: the decisions alone, and the writes to a real API server.

    python -m tests.bench.policy [--dir DIR] [--vmis 10000] [--policies 200] [--rounds 5]
                           [--stored-vmis 500] [--stored-policies 20] [--rest 10.0]

The baselines of the decisions are a match of each policy with each VMI, a new decision for all VMIs, and parsing the
VMIs. On the stack, the controllers label VMIs and count the VMIs in the status of policies. The results there are the
time, the writes per VMI, the writes at rest (none), memory, and the time of a policy that wins all VMIs and is deleted
again, as a ratio to the same patches by a bare client, in turns. The documented limit is
`--stored-vmis 10000 --stored-policies 200 --rest 30`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controllers.migrationpolicy.observe import POLICIES, VMILabels, parse_vmi
from controllers.migrationpolicy.winners import Winners
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import MIGRATION_POLICY
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, Selectors, candidates, superseded
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists
from poolhouse.runtime.resource import NAMESPACES, UPSTREAM_POLICIES, VMIS, Resource
from tests.bench import harness

NAMESPACE_COUNT = 50
QUIET_SECONDS = 3.0
STAMP_TURNS = 2
"""A policy is created and deleted this many times. Both change the label of each VMI."""
PADDING = "x" * 2500
"""text that makes a stored VMI as large as a running VMI"""
OF_VMIS = {
    "os": ["fedora", "debian", "windows", "rhel"],
    "size": ["small", "medium", "large"],
    "gpu": ["", "nvidia", "intel"],
    "workload": ["db", "web", "batch", "ci", "desktop"],
    "app": [f"app-{n}" for n in range(80)],
    "team": [f"team-{n}" for n in range(25)],
}
OF_NAMESPACES = {
    "tier": ["gold", "silver", "lead"],
    "stage": ["prod", "test", "dev"],
    "site": [f"site-{n}" for n in range(8)],
}


OF_ALL = {f"of-all-{n}": "x" for n in range(5)}
"""labels of all stored VMIs, more than any random policy selects"""
PATCHED_VMIS = ("patch", VMIS.plural)


def chosen(chance: random.Random, among: dict[str, list[str]], count: int, any_value: float = 0.0) -> dict[str, str]:
    keys = chance.sample(sorted(among), count)
    return {key: "" if chance.random() < any_value else chance.choice(among[key]) for key in keys}


def policies(count: int, chance: random.Random) -> list[RankedPolicy]:
    found: dict[Selectors, RankedPolicy] = {}
    while len(found) < count:
        own, around = chance.choice([(1, 0), (2, 0), (1, 1), (2, 1), (3, 0), (0, 1), (0, 2), (2, 2)])
        made = Selectors.of(chosen(chance, OF_VMIS, own, 0.2), chosen(chance, OF_NAMESPACES, around, 0.2))
        found.setdefault(made, RankedPolicy(f"policy-{len(found)}", made, "2026-01-01T00:00:00Z"))
    return list(found.values())


def document(number: int, chance: random.Random) -> Json:
    """Returns a VMI of about 4 KB, the size of a running VMI."""
    name = f"pool-{number // 100}-{number}"
    own = {"kubevirt.io/domain": name, "vm.kubevirt.io/name": name, "poolhouse.dev/pool": f"pool-{number // 100}"}
    return {
        "metadata": {
            "namespace": f"namespace-{number % NAMESPACE_COUNT}",
            "name": name,
            "uid": f"{number:08d}-0000-4000-8000-000000000000",
            "labels": own | chosen(chance, OF_VMIS, 5),
        },
        "spec": {"domain": {"devices": {"disks": [{"name": f"disk-{n}", "text": "x" * 90} for n in range(25)]}}},
        "status": {"phase": "Running"},
    }


@dataclass(frozen=True)
class Cluster:
    """The policies, the labels of namespaces, and the VMIs."""

    policies: list[RankedPolicy]
    namespaces: dict[str, dict[str, str]]
    vmis: list[Json]

    @classmethod
    def random(cls, vmis: int, count: int) -> Cluster:
        chance = random.Random(0)
        found = policies(count, chance)
        namespaces = {f"namespace-{n}": chosen(chance, OF_NAMESPACES, 3) for n in range(NAMESPACE_COUNT)}
        return cls(found, namespaces, [document(n, chance) for n in range(vmis)])

    def winners(self, views: Iterable[VMILabels] | None = None) -> Winners:
        """Returns the winning policy of each VMI."""
        winners = Winners()
        found = map(parse_vmi, self.vmis) if views is None else views
        winners.load(self.policies, self.namespaces, ((each.key, each.labels) for each in found))
        return winners


def decisions(vmis: int, count: int, rounds: int) -> None:
    cluster = Cluster.random(vmis, count)
    texts = [json.dumps(each) for each in cluster.vmis]
    views = [parse_vmi(each) for each in cluster.vmis]
    winners = cluster.winners(views)
    parsing = harness.cpu_ms(lambda: [json.loads(each) for each in texts], rounds)
    everything = harness.cpu_ms(lambda: cluster.winners(views), rounds)
    matching = harness.cpu_ms(lambda: match_each(cluster, views), 1)
    matched = sum(winners.wins(each.name) for each in cluster.policies)
    harness.section(f"{vmis} VMIs, {count} policies, {NAMESPACE_COUNT} namespaces; {matched} VMIs obey a policy")
    ratio = everything / parsing
    harness.report("decide all", f"{everything:.1f} ms, {ratio:.2f} x parsing of the documents", ratio=ratio)
    ratio = matching / everything
    harness.report("match each policy for each VMI", f"{matching:.1f} ms, {ratio:.1f} x deciding all", ratio=ratio)

    # Successive changes must differ, because an unchanged object causes no decision.
    target, site = views[0], cluster.namespaces["namespace-0"]
    by_app = [RankedPolicy("policy-0", Selectors.of({"app": f"app-{n}", "os": "fedora"})) for n in range(8)]
    changes: dict[str, tuple[Callable[[int], object], int]] = {
        "a VMI": (
            lambda n: winners.vmi(
                target.key, {**target.labels, "os": OF_VMIS["os"][n % 4], "gpu": OF_VMIS["gpu"][n % 3]}
            ),
            100,
        ),
        "a namespace": (lambda n: winners.namespace("namespace-0", {**site, "site": f"site-{n % 8}"}), 8),
        "a policy's selectors": (lambda n: winners.policy("policy-0", by_app[n]), 8),
    }
    for what, (work, times) in changes.items():
        took = harness.cpu_ms(lambda: [work(n) for n in range(times)], rounds) / times  # noqa: B023
        ratio = took / everything
        harness.report(f"a change of {what}", f"{took:.3f} ms, 1/{1 / ratio:.0f} of deciding all", ratio=ratio)
    decided = memory_mb(lambda: cluster.winners(views))
    seen = memory_mb(lambda: [parse_vmi(json.loads(each)) for each in texts])
    parsed = memory_mb(lambda: [json.loads(each) for each in texts])
    measured = f"decisions {decided:.1f} MB, views {seen:.1f} MB, documents {parsed:.1f} MB"
    harness.report("memory", measured, decisions_mb=decided, views_mb=seen)


def match_each(cluster: Cluster, views: list[VMILabels]) -> None:
    lost = superseded(cluster.policies)
    active = [each for each in cluster.policies if each.name not in lost]
    for each in views:
        candidates(active, each.labels, cluster.namespaces[each.namespace])


def memory_mb(make: Callable[[], object]) -> float:
    """Returns the memory of the object that `make` returns, in MB."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return taken / 1e6


# On the stack


async def writes(directory: Path, vmis: int, count: int, rest: float) -> None:
    cluster = Cluster.random(vmis, count)
    winners = cluster.winners()
    async with await harness.connect(directory / "kubeconfig") as api:
        await harness.prepare(api, VMIS, POLICIES)
        namespaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in cluster.namespaces.items()]
        await harness.call_all(lambda each: create(api, NAMESPACES, each), namespaces)
        await harness.call_all(lambda each: create(api, POLICIES, manifest(each)), cluster.policies)
        await harness.call_all(lambda each: create(api, VMIS, running(each)), cluster.vmis)
        wanted = {each.name: (winners.wins(each.name), winners.losses(each.name), "True") for each in cluster.policies}

        async def counted() -> bool:
            return await statuses(api) == wanted

        async def labelled() -> bool:
            return not await without_label(api, winners)

        # Only the controllers' ServiceAccount may write the label.
        async with harness.controllers(directory / "kubeconfigs" / "controllers") as process:
            seconds = await harness.poll(counted, every_seconds=0.5) + await harness.poll(labelled, every_seconds=1)
            before: Counter[tuple[str, str]] = Counter()
            while (now := await process.writes()) != before:
                before = now
                await asyncio.sleep(QUIET_SECONDS)
            harness.section(f"{vmis} VMIs and {count} policies in one controller")
            harness.report("until all labels and counts are written", f"{seconds:.1f} s", seconds_s=seconds)
            for (verb, resource), times in before.most_common():
                harness.report(f"{verb} {resource}, for each VMI", f"{times / vmis:.2f}", writes=times / vmis)
            await asyncio.sleep(rest)
            at_rest = await process.writes() - before
            harness.report(
                f"writes in {rest:g} s at rest", f"{at_rest.total()} {dict(at_rest) or ''}", writes=at_rest.total()
            )
            now, peak = process.resident_mb()
            measured = f"{now:.0f} MB, {peak:.0f} MB"
            harness.report("resident memory, and its peak", measured, now_mb=now, peak_mb=peak)
            assert len((await api.list(UPSTREAM_POLICIES))[0]) == count
            await stamped(api, process, cluster)


async def stamped(api: Api, process: harness.Process, cluster: Cluster) -> None:
    """Measures policies that win all VMIs and are deleted again, in turns with the same patches by the bare client."""
    vmis, bare, ours, cpu = len(cluster.vmis), 0.0, 0.0, 0.0
    for number in range(STAMP_TURNS):
        everything = RankedPolicy(f"all-{number}", Selectors.of(OF_ALL))
        for change in (
            lambda policy=everything: api.create(POLICIES, manifest(policy)),
            lambda policy=everything: api.delete(POLICIES, None, policy.name),
        ):
            bare += await harness.call_all(partial(patch_label, api, time.time_ns()), cluster.vmis)
            await asyncio.sleep(QUIET_SECONDS)
            cpu_before, writes = process.cpu_seconds(), (await process.writes())[PATCHED_VMIS]

            async def all_stamped(wanted: int = writes + vmis) -> bool:
                return (await process.writes())[PATCHED_VMIS] >= wanted

            await change()
            ours += await harness.poll(all_stamped, every_seconds=0.1)
            cpu += process.cpu_seconds() - cpu_before
    stamps = 2 * STAMP_TURNS * vmis
    harness.report_ratio(f"{2 * STAMP_TURNS} times: until a changed policy is on all VMIs", bare, ours)
    each = cpu / stamps * 1000
    harness.report("CPU time of the controllers for each stamped VMI", f"{each:.2f} ms", each_ms=each)


async def patch_label(api: Api, value: int, vmi: Json) -> None:
    change = {"metadata": {"labels": {"bare": str(value)}}}
    await api.patch(VMIS, vmi["metadata"]["namespace"], vmi["metadata"]["name"], change)


async def create(api: Api, resource: Resource, each: Json) -> None:
    with suppress(AlreadyExists):
        await api.create(resource, each)


def manifest(each: RankedPolicy) -> Json:
    of = {"virtualMachineInstanceSelector": each.selectors.instance, "namespaceSelector": each.selectors.namespace}
    selectors = {which: {"matchLabels": dict(labels)} for which, labels in of.items() if labels}
    return harness.document(POLICIES, each.name, {"allowAutoConverge": True, "selectors": selectors}, namespace="")


def running(each: Json) -> Json:
    about = {"labels": each["metadata"]["labels"] | OF_ALL, "annotations": {"padding": PADDING}}
    name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
    vmi = harness.document(VMIS, name, {"domain": {"devices": {}}}, namespace, **about)
    return {**vmi, "status": each["status"]}


async def without_label(api: Api, winners: Winners) -> int:
    """Returns the number of VMIs whose label is not the name of their policy."""
    found = 0
    async for page, _ in api.pages(VMIS):
        for each in page:
            metadata = each["metadata"]
            label = (metadata.get("labels") or {}).get(MIGRATION_POLICY)
            found += label != winners.winner((metadata["namespace"], metadata["name"]))
    return found


async def statuses(api: Api) -> dict[str, tuple[int, int, str]]:
    found = {}
    for each in (await api.list(POLICIES))[0]:
        status = each.get("status") or {}
        enforced = [c["status"] for c in status.get("conditions") or () if c["type"] == "Enforced"]
        found[each["metadata"]["name"]] = status.get("wins", 0), status.get("losses", 0), "".join(enforced)
    return found


def main() -> None:
    options = harness.parse_options(
        __doc__, dir=None, vmis=10_000, policies=200, rounds=5, stored_vmis=500, stored_policies=20, rest=10.0
    )
    decisions(options.vmis, options.policies, options.rounds)
    if options.stored_vmis:
        with harness.stack(options.dir) as directory:
            asyncio.run(writes(directory, options.stored_vmis, options.stored_policies, options.rest))


if __name__ == "__main__":
    main()
