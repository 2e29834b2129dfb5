"""Which claims are gone on with, while others wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from controllers.claim.apply import ClaimWriter
from controllers.claim.controller import ClaimController
from controllers.claim.observe import ClaimObserver, Floor, Stores
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import Claim, ClaimSnapshot, by_uid
from controllers.claim.steps import CheckHealth, JoinWaitQueue, Step
from controllers.claim.wait_queue import WaitQueue
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from kinds.warmpool import WarmPoolStatus
from runtime.api import Api
from runtime.store import Store
from tests.controllers.claim.builders import a_claim, bound, state, taken
from tests.controllers.claim.test_apply import Desk, Holder
from tests.controllers.warmpool.builders import CORDONED, NODE, NOW, a_pool, a_vm
from tests.controllers.warmpool.test_cache import queues

SILENT = a_claim(name="silent", uid="silent", status=bound("m"))
OTHER = a_claim(name="other", uid="other")
QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
PROBED = a_pool(readiness={"http": {"port": 80}})


class Steps:
    """Takes steps; a machine that is asked never answers."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def __call__(self, s: ClaimSnapshot, step: Step, memory: ClaimRecord) -> None:
        self.taken.append(f"{type(step).__name__} {s.claim.name}")
        if isinstance(step, CheckHealth):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("pool", "goes_on"),
    [
        pytest.param(PROBED, True, id="one that is asked over the network"),
        pytest.param(a_pool(), False, id="what is only read is read in one's turn"),
    ],
)
async def test_machines_that_do_not_answer_hold_up_only_their_own_claims(pool: WarmPool, goes_on: bool) -> None:
    claims: Store[Claim] = Store({"uid": by_uid})
    for c in (SILENT, OTHER):
        claims.put(c.key, c)
    steps = Steps()

    def observe(c: Claim, memory: ClaimRecord) -> ClaimSnapshot:
        if c.uid == SILENT.uid:
            return state(c, taken("m", WarmState.ALLOCATING, activated=True), pool=pool)
        return state(c, candidate=a_vm("n"))

    controller = ClaimController(
        cast(Api, None),
        Stores(claims, Store(), WarmVMCache(Store(), Store(), Store())),
        Floor(),
        cast(ClaimObserver, observe),
        cast(ClaimWriter, steps),
        lambda: NOW,
        lambda key, seconds: None,
        turns=asyncio.Semaphore(1),
    )
    waiting = asyncio.create_task(controller.reconcile(SILENT.key))
    await asyncio.sleep(0)
    other = asyncio.create_task(controller.reconcile(OTHER.key))
    for _ in range(5):
        await asyncio.sleep(0)
    assert steps.taken[0] == "CheckHealth silent"
    assert ("ReserveVM other" in steps.taken) == goes_on
    for task in (waiting, other):
        task.cancel()
    await asyncio.gather(waiting, other, return_exceptions=True)


class Slow(Holder):
    """It is never heard of what it was asked to make."""

    async def create(self, order: CreateRequest) -> WarmVM:
        await asyncio.Event().wait()
        raise AssertionError


class Empty:
    """An API server without claims."""

    async def list(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        return [], "1"


async def test_who_leads_again_wants_nothing_for_claims_that_were_served_meanwhile() -> None:
    """Or the pool would keep a machine more than it should for as long as this process leads."""
    pool = a_pool()
    desk = Desk([], Slow())
    claims = desk.apply.stores.claims
    claims.put(OTHER.key, OTHER)
    controller = ClaimController(
        cast(Api, Empty()),
        desk.apply.stores,
        desk.floor,
        cast(ClaimObserver, lambda c, memory: state(c, pool=pool)),
        desk.apply,
        lambda: NOW,
        lambda key, seconds: None,
    )
    await desk(state(SILENT, pool=pool), JoinWaitQueue())
    making = asyncio.create_task(controller.reconcile(OTHER.key))
    await asyncio.sleep(0)
    assert (desk.floor.demand.queued(pool.uid), desk.floor.demand.making(pool.uid)) == (1, 1)
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    claims.drop(OTHER.key)
    await controller.begin()
    assert (desk.floor.demand.queued(pool.uid), desk.floor.demand.making(pool.uid)) == (0, 0)


@pytest.mark.parametrize(
    ("new", "looked_at"),
    [
        pytest.param(
            replace(QUEUE, status=WarmPoolStatus(replicas=1)), [], id="what it says of itself concerns nobody"
        ),
        pytest.param(replace(QUEUE, generation=2), ["silent", "other"], id="its terms have changed"),
        pytest.param(replace(QUEUE, deleting=True), ["silent", "other"], id="it goes"),
        pytest.param(None, ["silent", "other"], id="it is gone"),
    ],
)
def test_all_in_line_hear_of_what_concerns_them(new: WarmPool | None, looked_at: list[str]) -> None:
    claims: Store[Claim] = Store({"uid": by_uid})
    floor, heard = Floor(), dict[str, float]()
    line = floor.lines.setdefault(QUEUE.uid, WaitQueue())
    for place, c in enumerate((SILENT, OTHER)):
        claims.put(c.key, c)
        line.join("somebody", str(place), c.uid)
    controller = ClaimController(
        cast(Api, None),
        Stores(claims, Store(), WarmVMCache(Store(), Store(), Store())),
        floor,
        cast(ClaimObserver, None),
        cast(ClaimWriter, None),
        lambda: NOW,
        lambda key, seconds: heard.update({key[1]: seconds}),
    )
    controller.pool_changed(QUEUE, new)
    assert list(heard) == looked_at
    assert list(heard.values()) == sorted(heard.values()), "in turn, and not all at once"


def test_a_machine_that_can_be_given_away_again_is_told_to_who_is_next() -> None:
    """Its labels say Ready all the time: only its run, or its node, is otherwise for a while."""
    pool, heard = a_pool(), list[str]()
    found, claims, floor = queues(a_vm("m"), nodes=(CORDONED,)), Store[Claim]({"uid": by_uid}), Floor()
    claims.put(OTHER.key, OTHER)
    floor.lines.setdefault(pool.uid, WaitQueue()).join("somebody", "", OTHER.uid)
    controller = ClaimController(
        cast(Api, None),
        Stores(claims, Store(), found),
        floor,
        cast(ClaimObserver, None),
        cast(ClaimWriter, None),
        lambda: NOW,
        lambda key, seconds: heard.append(key[1]),
    )
    m = found.vms.all()[0]
    controller.vm_changed(None, m)
    assert (len(floor.shelves.of(pool.uid)), heard) == (0, [])
    found.nodes.put(NODE.key, NODE)
    controller.node_changed(CORDONED, NODE)
    assert (len(floor.shelves.of(pool.uid)), heard) == (1, ["other"])
    run = found.vmis.drop(m.key)
    controller.vmi_changed(run, None)
    assert (len(floor.shelves.of(pool.uid)), heard) == (0, ["other"])
    assert run is not None
    found.vmis.put(m.key, run)
    controller.vmi_changed(None, run)
    assert (len(floor.shelves.of(pool.uid)), heard) == (1, ["other", "other"])
