"""The compare-and-swaps of a claim, whatever the API server answers to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.claim.apply import ClaimWriter
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.observe import Floor, Stores
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import ClaimSnapshot
from controllers.claim.steps import CreateVM, HandOverVM, ReserveVM, Step
from controllers.warmpool.backends import Change, CreateRequest, OutcomeUnknown, WriteConflict
from controllers.warmpool.cache import VM_INDEXES, WarmVMCache
from controllers.warmpool.warm_vm import NO_OWNER, Owner, WarmVM
from runtime.api import Api
from runtime.errors import ApiError, Forbidden, Invalid, Throttled
from runtime.events import EventRecorder
from runtime.store import Store
from tests.controllers.claim.builders import a_claim, bound, state, taken
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm

POOL = a_pool()
REFUSED = Forbidden("the office does not like it")


@dataclass
class Holder:
    """Machines that can't be written, each for its reason."""

    refuses: dict[str, ApiError] = field(default_factory=dict)
    owners: dict[str, Owner | None] = field(default_factory=dict)
    """as they were written"""
    answers: list[Exception] = field(default_factory=list)
    """to what is to be made"""
    drawn: list[str] = field(default_factory=list)
    """where it was to be made"""
    live: dict[str, WarmVM | None] = field(default_factory=dict)
    """as they have become since they were looked at"""

    async def create(self, order: CreateRequest) -> WarmVM:
        self.drawn.append(str(order.placement["name"]))
        raise self.answers.pop(0)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return []

    async def read(self, m: WarmVM) -> WarmVM | None:
        return self.live.get(m.uid, m)

    async def change(self, m: WarmVM, change: Change) -> WarmVM:
        if m.uid in self.refuses:
            raise self.refuses[m.uid]
        if m.uid in self.live and m is not self.live[m.uid]:
            raise WriteConflict("it has changed")
        self.owners[m.uid] = change.owner
        return m


class Quiet:
    def emit(self, *_: Any, **__: Any) -> None: ...


@dataclass
class Desk:
    """One claim before a pool with machines."""

    machines: list[WarmVM]
    holder: Holder
    memory: ClaimRecord = field(default_factory=lambda: ClaimRecord(certain=True))
    seconds: float = 0.0

    def __post_init__(self) -> None:
        store: Store[WarmVM] = Store(VM_INDEXES)
        for m in self.machines:
            store.put(m.key, m)
        self.floor = Floor()
        self.floor.shelves.reset(self.machines)
        self.apply = ClaimWriter(
            cast(Api, None),
            cast(EventRecorder, Quiet()),
            lambda pool: cast(Any, self.holder),
            Stores(Store(), Store(), WarmVMCache(store, Store(), Store())),
            self.floor,
            ClaimMetrics(CollectorRegistry()),
            lambda: self.seconds,
            self.now,
        )

    def now(self) -> datetime:
        return NOW

    async def __call__(self, found: ClaimSnapshot, step: Step) -> None:
        await self.apply(found, step, self.memory)

    @property
    def offered(self) -> set[str]:
        shelf = self.floor.shelves.of(POOL.uid)
        return {name for _, name in shelf.candidates(lambda kin: True)}


async def test_a_machine_that_is_refused_is_told_about_and_another_one_is_tried() -> None:
    first, second = a_vm("a"), a_vm("b")
    desk = Desk([first, second], Holder({"a": REFUSED, "b": REFUSED}))
    await desk(state(), ReserveVM(first))
    assert desk.memory.trouble is not None
    assert desk.memory.trouble.reason == "TakeRefused"
    assert "web-a" in desk.memory.trouble.message
    assert "the office does not like it" in desk.memory.trouble.message
    assert desk.memory.trouble_until > 0
    assert desk.offered == {"web-b"}, "the next try is another machine"
    await desk(state(), ReserveVM(second))
    assert desk.offered == {"web-a"}, "and nobody is kept from the first one any more"
    desk.apply.forget(a_claim().uid, desk.memory)
    assert desk.offered == {"web-a", "web-b"}
    assert desk.floor.holders.over(a_claim(uid="other"), a_pool(claimPolicy={"maxPerNamespace": 1})) is None


@pytest.mark.parametrize(
    ("live", "given"),
    [
        pytest.param(a_vm("a", resource_version="2"), True, id="its status was written: nothing is lost"),
        pytest.param(a_vm("a", resource_version="2", orphaned="Disowned"), False, id="it was orphaned"),
        pytest.param(a_vm("a", resource_version="2", owner=NO_OWNER), False, id="it was taken from its pool"),
        pytest.param(a_vm("a", resource_version="2", claim_uid="other"), False, id="another claim was first"),
        pytest.param(a_vm("a", resource_version="2", deleting=True), False, id="it goes"),
        pytest.param(None, False, id="it is gone"),
    ],
)
async def test_a_machine_that_has_changed_is_given_away_if_it_is_still_the_pools(
    live: WarmVM | None, given: bool
) -> None:
    m = a_vm("a")
    desk = Desk([m], Holder(live={"a": live}))
    await desk(state(), ReserveVM(m))
    assert ("a" in desk.holder.owners) == ("a" in desk.memory.machines) == given
    assert desk.offered == set(), "its event says what became of it"


async def test_a_machine_that_could_not_be_taken_because_the_server_is_busy_is_offered_to_others() -> None:
    only = a_vm("a")
    desk = Desk([only], Holder({"a": Throttled("later")}))
    with pytest.raises(Throttled):
        await desk(state(), ReserveVM(only))
    assert desk.offered == {"web-a"}
    assert not desk.memory.taking


async def test_a_hand_over_that_is_refused_is_as_one_that_fails() -> None:
    m = taken()
    desk = Desk([m], Holder({"m": Invalid("labels: no")}))
    await desk(state(a_claim(status=bound("m")), m), HandOverVM(m))
    assert desk.memory.health is not None
    assert (desk.memory.health.verdict, desk.memory.health.message) == ("Failed", "labels: no")


async def test_the_label_of_a_machine_that_somebody_uses_can_wait() -> None:
    m = taken()
    desk = Desk([m], Holder({"m": Invalid("labels: no")}))
    with pytest.raises(Invalid):
        await desk(state(a_claim(status=bound("m", phase="Ready", readyAt="2026-11-21T12:00:00Z")), m), HandOverVM(m))


async def test_a_machine_that_is_handed_over_is_its_claims_also_where_somebody_wrote_its_owners() -> None:
    lost, kept = taken("lost", owner=a_pool().owner), taken("kept")
    desk = Desk([lost, kept], Holder())
    for m in (lost, kept):
        await desk(state(a_claim(status=bound(m.uid)), m), HandOverVM(m))
    assert desk.holder.owners == {"lost": a_claim().owner, "kept": None}


PLACES = a_pool(placements=[{"name": f"p{number}"} for number in range(50)])


@pytest.mark.parametrize(
    ("answers", "places"),
    [
        pytest.param([REFUSED] * 4, 4, id="each try draws anew, as a refusal has made nothing"),
        pytest.param([OutcomeUnknown()] * 4, 1, id="what was perhaps made is asked for again as it was"),
        pytest.param([OutcomeUnknown(), REFUSED, REFUSED], 1, id="whatever is said to that"),
        pytest.param([REFUSED, OutcomeUnknown(), REFUSED], 2, id="from then on"),
    ],
)
async def test_where_a_machine_is_tried_to_be_made(answers: list[Exception], places: int) -> None:
    desk = Desk([], Holder(answers=[*answers]))
    for _ in answers:
        await desk(state(pool=PLACES), CreateVM(PLACES, "mine-1", "PoolEmpty", "none is ready"))
    assert len(set(desk.holder.drawn)) == places


async def test_another_machine_is_drawn_for_itself() -> None:
    desk = Desk([], Holder(answers=[OutcomeUnknown(), REFUSED, REFUSED]))
    for name in ("mine-1", "mine-2", "mine-2"):
        await desk(state(pool=PLACES), CreateVM(PLACES, name, "PoolEmpty", "none is ready"))
    assert len(set(desk.holder.drawn)) == 3


async def test_the_placement_that_is_wanted_is_not_drawn() -> None:
    desk = Desk([], Holder(answers=[REFUSED, REFUSED]))
    for _ in range(2):
        wish = a_claim(overrides={"placement": "p7"})
        await desk(state(wish, pool=PLACES), CreateVM(PLACES, "mine-1", "OverrideMismatch", "none is there"))
    assert desk.holder.drawn == ["p7", "p7"]
