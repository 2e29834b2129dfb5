"""What deciding costs: every VMI against every policy, and what one change decides again.

Ratios are to looking at each policy for each VMI, to deciding everything again, and to parsing the VMIs' documents,
which has to be done anyway before anything can be decided.

    python -m bench.policy [--vmis 10000] [--policies 200] [--rounds 5]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from controllers.migrationpolicy.snapshot import VMILabels, parse_vmi
from controllers.migrationpolicy.winners import Winners
from migrationpolicies.precedence import RankedPolicy, Selectors, candidates, superseded

Json = dict[str, Any]

NAMESPACES = 50
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
    """About 4 KB, as a running VMI's is."""
    name = f"pool-{number // 100}-{number}"
    own = {"kubevirt.io/domain": name, "vm.kubevirt.io/name": name, "poolhouse.dev/pool": f"pool-{number // 100}"}
    return {
        "metadata": {
            "namespace": f"namespace-{number % NAMESPACES}",
            "name": name,
            "uid": f"{number:08d}-0000-4000-8000-000000000000",
            "labels": own | chosen(chance, OF_VMIS, 5),
        },
        "spec": {"domain": {"devices": {"disks": [{"name": f"disk-{n}", "text": "x" * 90} for n in range(25)]}}},
        "status": {"phase": "Running"},
    }


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median."""
    took = []
    for _ in range(rounds):
        gc.collect()
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def measure(vmis: int, count: int, rounds: int) -> None:
    chance = random.Random(0)
    contenders = policies(count, chance)
    around = {f"namespace-{n}": chosen(chance, OF_NAMESPACES, 3) for n in range(NAMESPACES)}
    written = [json.dumps(document(n, chance)) for n in range(vmis)]
    views = [parse_vmi(json.loads(each)) for each in written]

    def loaded() -> Winners:
        winners = Winners()
        winners.load(contenders, around, ((each.key, each.labels) for each in views))
        return winners

    winners = loaded()
    parsing = milliseconds(lambda: [json.loads(each) for each in written], rounds)
    everything = milliseconds(loaded, rounds)
    by_looking = milliseconds(lambda: each_by_looking(contenders, views, around), 1)
    matched = sum(winners.wins(each.name) for each in contenders)
    print(f"{vmis} VMIs, {count} policies, {NAMESPACES} namespaces; {matched} VMIs obey one")
    print(f"decide all                {everything:9.1f} ms   {everything / parsing:6.2f} x parsing their documents")
    print(f"  the same, one by one    {by_looking:9.1f} ms   {by_looking / everything:6.1f} x that")

    def changed(work: Callable[[int], object], times: int) -> float:
        return milliseconds(lambda: [work(n) for n in range(times)], rounds) / times

    # Each change differs from the one before it, or nothing would be decided.
    target = views[0]
    some = dict(OF_VMIS)
    label = changed(
        lambda n: winners.vmi(target.key, {**target.labels, "os": some["os"][n % 4], "gpu": some["gpu"][n % 3]}), 100
    )
    site = changed(lambda n: winners.namespace("namespace-0", {**around["namespace-0"], "site": f"site-{n % 8}"}), 8)
    policy = changed(
        lambda n: winners.policy(
            "policy-0", RankedPolicy("policy-0", Selectors.of({"app": f"app-{n}", "os": "fedora"}))
        ),
        8,
    )
    for what, took in (("a VMI", label), ("a namespace", site), ("a policy's selectors", policy)):
        print(f"a change of {what:<21}{took:9.3f} ms   1/{everything / took:.0f} of deciding all")
    parsed = memory(lambda: [json.loads(each) for each in written])
    print(f"memory of what is decided {memory(loaded):8.1f} MB   of the views {memory(lambda: seen(written)):.1f} MB")
    print(f"                                        of the documents {parsed:.1f} MB")


def each_by_looking(contenders: list[RankedPolicy], views: list[VMILabels], around: dict[str, dict[str, str]]) -> None:
    lost = superseded(contenders)
    active = [each for each in contenders if each.name not in lost]
    for each in views:
        candidates(active, each.labels, around[each.namespace])


def seen(written: list[str]) -> list[VMILabels]:
    return [parse_vmi(json.loads(each)) for each in written]


def memory(make: Callable[[], object]) -> float:
    """Megabytes that what is made holds, beyond what was there before."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return taken / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmis", type=int, default=10_000)
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measure(options.vmis, options.policies, options.rounds)


if __name__ == "__main__":
    main()
