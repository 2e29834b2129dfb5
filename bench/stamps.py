"""What policies cost a cluster: bare VMIs and policies on a real API server, and the controllers as they are run.

    python -m bench.stamps [--kubeconfig FILE --controllers FILE] [--vmis 500] [--policies 20] [--rest 10]

Measured are the seconds until every VMI carries the stamp of the policy that it obeys and every policy its counts, as
they are known beforehand; the writes of ours for each VMI until then; the writes while nothing changes, which are to be
none; and the memory of the controllers. Nobody else may write a stamp: --controllers is a kubeconfig of theirs.
`--vmis 10000 --policies 200 --rest 30` is the size that is promised.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.policy import NAMESPACES, OF_NAMESPACES, chosen, document, policies
from bench.pool import NAMESPACES as NAMESPACE_KIND
from bench.pool import all_of, cluster, controllers, prepare, resident
from bench.scale import say, written
from controllers.main import CONNECTIONS
from controllers.migrationpolicy.observe import POLICIES, UPSTREAM
from controllers.migrationpolicy.winners import Winners
from kinds.meta import MIGRATION_POLICY
from local.paths import StackPaths
from migrationpolicies.precedence import RankedPolicy
from runtime.api import Api
from runtime.errors import AlreadyExists
from runtime.resource import VMIS

Json = dict[str, Any]

DEADLINE_SECONDS = 900
QUIET_SECONDS = 3.0
LEASES = "leases"
PADDING = "x" * 2500
"""for a VMI to be as large as one that runs"""


async def run(kubeconfig: Path, theirs: Path, vmis: int, count: int, rest: float) -> None:
    chance = random.Random(0)
    contenders = policies(count, chance)
    around = {f"namespace-{n}": chosen(chance, OF_NAMESPACES, 3) for n in range(NAMESPACES)}
    documents = [document(n, chance) for n in range(vmis)]
    winners = Winners()
    keys = ((each["metadata"]["namespace"], each["metadata"]["name"]) for each in documents)
    winners.load(contenders, around, zip(keys, (each["metadata"]["labels"] for each in documents), strict=True))
    async with await Api.connect(kubeconfig, user_agent="bench", max_connections=CONNECTIONS + 1) as api:
        await prepare(api)
        await all_of(lambda each: made(api, NAMESPACE_KIND, each), [named(*each) for each in around.items()])
        await all_of(lambda each: made(api, POLICIES, each), [policy(each) for each in contenders])
        await all_of(lambda each: made(api, VMIS, each), [running(each) for each in documents])
        begun = time.perf_counter()
        async with controllers(theirs) as at:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await counted(api, winners, contenders)
                await stamped(api, winners)
            took = time.perf_counter() - begun
            before = await still(at.url)
            print(f"\n{vmis} VMIs and {count} policies in one controller")
            say("seconds from its start until all is as decided", f"{took:8.1f}")
            for (verb, resource), times in before.most_common():
                say(f"{verb} {resource}, for each VMI", f"{times / vmis:8.2f}")
            await asyncio.sleep(rest)
            at_rest = await writes(at.url) - before
            say(f"writes in {rest:g} s at rest", f"{at_rest.total():8d}   {dict(at_rest) or 'none'}")
            now, most = resident(at.pid)
            say("resident MB: now, at most", f"{now:8.0f} {most:8.0f}")
            assert len((await api.list(UPSTREAM))[0]) == count


async def made(api: Api, resource: Any, each: Json) -> None:
    with suppress(AlreadyExists):
        await api.create(resource, each)


def named(name: str, labels: dict[str, str]) -> Json:
    return {"metadata": {"name": name, "labels": labels}}


def policy(each: RankedPolicy) -> Json:
    selectors = {
        which: {"matchLabels": dict(labels)}
        for which, labels in (
            ("virtualMachineInstanceSelector", each.selectors.instance),
            ("namespaceSelector", each.selectors.namespace),
        )
        if labels
    }
    kind = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    return {**kind, "metadata": {"name": each.name}, "spec": {"allowAutoConverge": True, "selectors": selectors}}


def running(each: Json) -> Json:
    metadata = {key: value for key, value in each["metadata"].items() if key != "uid"}
    kind = {"apiVersion": VMIS.api_version, "kind": VMIS.kind, "status": each["status"]}
    return {**kind, "metadata": {**metadata, "annotations": {"padding": PADDING}}, "spec": {"domain": {"devices": {}}}}


async def counted(api: Api, winners: Winners, contenders: list[RankedPolicy]) -> None:
    """Returns when each policy says whom it wins and loses, and is enforced."""
    wanted = {each.name: (winners.wins(each.name), winners.losses(each.name), "True") for each in contenders}
    while await said(api) != wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def stamped(api: Api, winners: Winners) -> None:
    """Returns when each VMI says whom it obeys."""
    while (left := await unstamped(api, winners)) > 0:  # noqa: ASYNC110
        await asyncio.sleep(min(5.0, 0.5 + left / 1000))


async def unstamped(api: Api, winners: Winners) -> int:
    left = 0
    async for page, _ in api.pages(VMIS):
        for each in page:
            metadata = each["metadata"]
            stamp = (metadata.get("labels") or {}).get(MIGRATION_POLICY)
            left += stamp != winners.winner((metadata["namespace"], metadata["name"]))
    return left


async def said(api: Api) -> dict[str, tuple[int, int, str]]:
    found = {}
    for each in (await api.list(POLICIES))[0]:
        status = each.get("status") or {}
        enforced = [c["status"] for c in status.get("conditions") or () if c["type"] == "Enforced"]
        found[each["metadata"]["name"]] = status.get("wins", 0), status.get("losses", 0), "".join(enforced)
    return found


async def still(url: str) -> Counter[tuple[str, str]]:
    """All writes, when a while has passed without one."""
    found = await writes(url)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        if (now := await writes(url)) == found:
            return found
        found = now


async def writes(url: str) -> Counter[tuple[str, str]]:
    return Counter({each: times for each, times in (await written(url)).items() if each[1] != LEASES})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--controllers", type=Path)
    parser.add_argument("--vmis", type=int, default=500)
    parser.add_argument("--policies", type=int, default=20)
    parser.add_argument("--rest", type=float, default=10, help="seconds to count writes in")
    options = parser.parse_args()
    with cluster(options.kubeconfig) as kubeconfig:
        theirs = options.controllers or StackPaths(kubeconfig.parent).kubeconfig_of("controllers")
        asyncio.run(run(kubeconfig, theirs, options.vmis, options.policies, options.rest))


if __name__ == "__main__":
    main()
