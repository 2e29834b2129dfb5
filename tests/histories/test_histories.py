"""A few histories of each kind. `make chaos` runs more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any

import pytest

from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS
from tests.cluster.chaos import sized
from tests.cluster.claiming import Counter as Desk
from tests.cluster.pooling import Place
from tests.histories.__main__ import KINDS, crash_at_each_write, run_history
from tests.histories.api_server import Change, Refused
from tests.histories.client import CUTS, FAULTS, FAULTS_OF_CHANGES, FAULTS_OF_READS, FAULTS_OF_WRITES, Network
from tests.histories.history import History
from tests.histories.pools import PatchingPlace, PoolHistory
from tests.histories.pools import build as build_pool
from tests.histories.warm_pools import build as build_warm
from tests.histories.world import HERE, Process, World, engine
from tests.virtual_loop import VirtualLoop

Json = dict[str, Any]

SEEDS = {"--first": 2, "--seeds": 1, "--acts": 6}
"""a short history of each kind, which together have every fault"""
TIMEOUT_SECONDS = 1800.0


@pytest.mark.slow
@pytest.mark.sentence("1.9", "3.2")
def test_invariants_hold_in_seeded_histories() -> None:
    # A process of its own, because a seed repeats its history only with the same hashes of strings.
    command = [sys.executable, "-m", "tests.histories", "--keep-going"]
    command += [str(part) for option in SEEDS.items() for part in option]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = done.stdout.partition("faults: ")[2].strip().split(", ")
    requests = {*FAULTS, *FAULTS_OF_READS, *FAULTS_OF_WRITES, *FAULTS_OF_CHANGES}
    assert {each.rpartition(" ")[0] for each in found} == requests | {f"watch {cut}" for cut in CUTS}


def test_the_same_seed_gives_the_same_history() -> None:
    first, second, other = (run_history(KINDS["pool-proactive"], seed, acts=4) for seed in ("3", "3", "4"))
    assert (first.log, first.changes) == (second.log, second.changes)
    assert first.log != other.log


def test_a_pool_that_exceeds_the_disruption_budget_is_found() -> None:
    def strict(world: World) -> History:
        return PoolHistory(world, "proactive", tolerated=0)

    found = (each for seed in range(2, 5) for each in run_history(strict, str(seed), acts=4).violations)
    assert any("must be" in each for each in found)


def test_another_meaning_is_no_respelling() -> None:
    class Changing(PoolHistory):
        async def respell(self) -> str:
            await self.place.change(template=sized("112Mi"))
            return "another size"

    found = run_history(lambda world: Changing(world, "proactive"), "1", acts=2).violations
    assert any("after a respelling" in each for each in found), found


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["pool-offline", "pool-snapshots", "replica-set", "warm-pool", "pod", "migration-policy"]
)
def test_a_crash_between_two_writes_does_no_harm(kind: str) -> None:
    """`python -m tests.histories --each-write` crashes at all writes, and not only at a few."""
    crashes, found = crash_at_each_write(kind, every=24)
    assert crashes > 0
    assert found == []


def test_two_leaders_agree_on_the_claims_that_wait() -> None:
    """Each process serves some of the claims, and sees in their statuses which ones the other has served."""

    async def writes_at_rest() -> Counter[str]:
        world = World(Random("two leaders"))
        async with engine(world):
            desk = Desk(world.api("users"), HERE)
            await desk.pool(4, maxTotal=4)
            both = [Process.start(world, build_warm, Network(world.random)) for _ in range(2)]
            await asyncio.sleep(60)
            for number in range(7):
                await desk.claim(f"c{number}", poolName="web", onEmpty="Queue", bindTimeoutSeconds=3600)
            await asyncio.sleep(60)
            assert [await desk.phase(f"c{number}") for number in range(7)].count("Queued") == 3
            await desk.api.patch(WARM_POOLS, HERE, "web", {"spec": {"maxTotal": 16}})
            await asyncio.sleep(120)
            written = Counter[str]()
            world.server.observers.append(lambda change: written.update([change.plural]))
            await asyncio.sleep(60)
            for each in both:
                await each.kill()
            return written

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        assert runner.run(writes_at_rest()) == Counter()


def test_two_leaders_agree_on_the_failures_of_a_pool() -> None:
    """Each process deletes some of the VMs that do not get ready in time, and reads the other's count in the status."""

    async def statuses_while_the_pool_waits() -> int:
        world = World(Random("two leaders"))
        async with engine(world):
            desk = Desk(world.api("users"), HERE)
            fails = {"metadata": {"annotations": {"sim.poolhouse.dev/fail": "ErrImagePull"}}}
            running = {"spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}}}
            await desk.pool(4, readiness={"timeoutSeconds": 5}, template={**fails, **running})
            both = [Process.start(world, build_warm, Network(world.random)) for _ in range(2)]
            await asyncio.sleep(600)
            written = list[str]()
            world.server.observers.append(lambda change: written.append(change.plural))
            await asyncio.sleep(60)
            for each in both:
                await each.kill()
            # Each of them may make one more attempt, with a VM and its VMI.
            return sum(plural.startswith("virtualmachinewarmpools") for plural in written)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        assert runner.run(statuses_while_the_pool_waits()) < 10


def test_two_leaders_agree_on_the_vms_that_fail() -> None:
    """The clocks of the processes differ, so that each would store another time at which the VMs began to fail."""

    async def stored_times() -> tuple[set[str], int]:
        world, times = World(Random("two leaders")), list[str]()

        def note(change: Change) -> None:
            status = (change.new or {}).get("status", {})
            times.extend(each["since"] for each in (status.get("healing") or {}).get("failures", ()))

        async with engine(world):
            place = Place(world.api("users"), HERE)
            template = {**sized("64Mi"), "metadata": {"annotations": {"sim.poolhouse.dev/fail": "ErrImagePull"}}}
            healing = {"failingStatuses": ["ErrImagePull"], "failingStatusSeconds": 3600}
            await place.pool(4, template=template, autohealing=healing)
            both = [Process.start(world, build_pool, Network(world.random), skew_seconds=s) for s in (0, 0.5)]
            await asyncio.sleep(300)
            world.server.observers.append(note)
            # Both report that the progress deadline has passed.
            await asyncio.sleep(400)
            for each in both:
                await each.kill()
            return set(times), len(times)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        times, writes = runner.run(stored_times())
    assert writes
    assert len(times) == 1


def test_no_vm_has_a_revision_that_is_not_stored() -> None:
    """Without the revision, the next template could not be merged into the VM."""

    def labels(world: World) -> set[str]:
        vms = world.server.objects("virtualmachines.kubevirt.io")
        return {vm["metadata"]["labels"][meta.REVISION] for vm in vms}

    async def scene() -> None:
        world, refuses = World(Random("revisions")), True

        def answer(actor: str, method: str, path: str, *rest: Any) -> Json:
            if refuses and method == "POST" and "controllerrevisions" in path:
                raise Refused(500, "InternalError", "etcd is full")
            return serve(actor, method, path, *rest)

        serve, world.server.answer = world.server.answer, answer
        async with engine(world):
            place = Place(world.api("users"), HERE)
            await place.pool(2, template=sized("64Mi"))
            process = Process.start(world, build_pool, Network(world.random))
            await asyncio.sleep(30)
            assert labels(world) == set()
            refuses = False
            await asyncio.sleep(60)
            assert len(first := labels(world)) == 1
            refuses = True
            await place.change(template=sized("96Mi"))
            await asyncio.sleep(30)
            assert labels(world) == first
            refuses = False
            await asyncio.sleep(60)
            assert len(second := labels(world)) == 1
            assert second != first
            await process.kill()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        runner.run(scene())


def test_revisions_that_have_lost_their_owners_get_them_again_and_updates_still_remove_fields() -> None:
    async def sizes_after_removal() -> set[str | None]:
        world = World(Random("owners"))
        async with engine(world):
            place = PatchingPlace(world.api("users"), HERE)
            await place.pool(2, template=sized("64Mi"))
            process = Process.start(world, build_pool, Network(world.random))
            await asyncio.sleep(60)
            for each in (await place.api.list(CONTROLLER_REVISIONS, HERE))[0]:
                await place.api.patch(
                    CONTROLLER_REVISIONS, HERE, each["metadata"]["name"], {"metadata": {"ownerReferences": None}}
                )
            await asyncio.sleep(10)
            assert all(
                each["metadata"].get("ownerReferences")
                for each in (await place.api.list(CONTROLLER_REVISIONS, HERE))[0]
            )
            await process.kill()
            process = Process.start(world, build_pool, Network(world.random))
            await asyncio.sleep(60)
            assert process.writes == 0
            template = sized("64Mi")
            template["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = None
            await place.change(template=template)
            await asyncio.sleep(300)
            await process.kill()
            domains = [vm["spec"]["template"]["spec"]["domain"] for vm in (await place.vms()).values()]
            return {(each.get("memory") or {}).get("guest") for each in domains}

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        assert runner.run(sizes_after_removal()) == {None}
