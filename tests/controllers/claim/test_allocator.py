"""Which pool and which VM a claim gets, and how many a requester may have."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from controllers.claim.allocator import Allocator, QuotaTracker, Stores, select_pool
from controllers.claim.memory import ClaimRecord
from controllers.claim.snapshot import Failure
from controllers.warmpool import warm_pool
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import a_claim, bound_status, snapshot
from tests.controllers.warmpool.builders import CORDONED, OTHER_TEMPLATE, a_cache, a_pool, a_vm, ago

KEY = ("ns", "web")
UNBOUND = {"type": "Bound", "status": "False"}
POOL = a_pool()
OLD = a_pool(template=OTHER_TEMPLATE)
IMAGE: dict[str, Any] = {"overrides": {"image": "base:2"}}
TYPE: dict[str, Any] = {"overrides": {"instancetype": "large"}}
EAST: dict[str, Any] = {"overrides": {"placement": "east"}}
PLACES = a_pool(placements=[{"name": "east"}, {"name": "west"}])
RECREATE = a_pool(updateStrategy={"type": "Recreate"})


@pytest.mark.parametrize(
    ("policy", "held", "over"),
    [
        pytest.param({}, ["", "", "ann"], False, id="no limits by default"),
        pytest.param({"maxPerUser": 2}, ["", "ann", "ann"], False, id="VMs of other requesters do not count"),
        pytest.param({"maxPerUser": 2}, ["", ""], True, id="maxPerUser is reached"),
        pytest.param({"maxPerNamespace": 3}, ["", "ann", "bob"], True, id="maxPerNamespace is reached"),
        pytest.param({"maxPerNamespace": 3}, ["", "ann"], False, id="one below maxPerNamespace"),
    ],
)
def test_quotas(policy: dict[str, int], held: list[str], over: bool) -> None:
    quotas = QuotaTracker()
    for number, requester in enumerate(held):
        for _ in range(2):  # charged twice counts once
            quotas.charge(f"c{number}", KEY, requester)
    pool = a_pool(claimPolicy=policy)
    assert (quotas.exceeded(a_claim(), pool) is not None) is over
    for number, _ in enumerate(held):
        quotas.release(f"c{number}")
    assert quotas.exceeded(a_claim(), pool) is None


def test_a_charged_claim_is_within_its_quota() -> None:
    quotas, c = QuotaTracker(), a_claim()
    quotas.charge(c.uid, KEY, "")
    assert quotas.exceeded(c, a_pool(claimPolicy={"maxPerUser": 1})) is None


@pytest.mark.parametrize(
    ("name", "pools", "expected"),
    [
        pytest.param(
            "web",
            [a_pool(), a_pool(name="db", default=True)],
            "web",
            id="the pool that the claim names",
            marks=pytest.mark.sentence("5.4"),
        ),
        pytest.param(
            None,
            [a_pool(), a_pool(name="db", default=True)],
            "db",
            id="the default pool",
            marks=pytest.mark.sentence("5.46"),
        ),
        pytest.param(
            None,
            [
                a_pool(name="new", default=True, creationTimestamp=ago(5)),
                a_pool(name="old", default=True, creationTimestamp=ago(9)),
            ],
            "old",
            id="the older of two default pools",
        ),
        pytest.param(None, [a_pool()], "NoDefaultPool", id="no default pool"),
        pytest.param(None, [], "NoDefaultPool", id="no pool at all"),
        pytest.param("nowhere", [a_pool()], "PoolNotFound", id="no such pool"),
        pytest.param("web", [a_pool(deletionTimestamp=ago(1))], "PoolNotFound", id="a pool that is being deleted"),
    ],
)
def test_select_pool(name: str | None, pools: list[WarmPool], expected: str) -> None:
    found = select_pool(a_claim(poolName=name), pools)
    assert (found.reason if isinstance(found, Failure) else found.name) == expected


@pytest.mark.sentence("5.13")
def test_a_claim_whose_annotations_describe_an_instance_needs_a_pool() -> None:
    described = {f"compute.amazonaws.com/{name}": "x" for name in ("image-id", "instance-type", "subnet-id")}
    found = select_pool(a_claim(poolName=None, annotations=described), [a_pool()])
    assert isinstance(found, Failure)
    assert found.reason == "NoDefaultPool"


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([a_pool(), a_pool(name="db")], "namespace ns has no default pool: set spec.poolName to one of: db, web"),
        ([], "there is no warm pool in namespace ns"),
    ],
)
def test_a_claim_without_pool_name_learns_which_pools_exist(pools: list[WarmPool], said: str) -> None:
    found = select_pool(a_claim(poolName=None), pools)
    assert isinstance(found, Failure)
    assert found.message == f"the claim names no pool, and {said}"


def candidate(*vms: WarmVM, pool: WarmPool = POOL, waiting: int = 0, **wants: Any) -> str | None:
    """The VM that a new claim gets, after `waiting` others."""
    allocator = Allocator(Stores(Store(), warm_pool.SOURCE.store(), a_cache(*vms)))
    allocator.ready.reset(vms)
    for number in range(waiting):
        allocator.join_queue(a_claim(uid=f"other-{number}"), pool, ClaimRecord())
    given = allocator.candidate(a_claim(**wants), pool)
    return given.uid if given is not None else None


@pytest.mark.parametrize(
    ("vms", "waiting", "served"),
    [
        pytest.param(["a"], 0, True, id="one VM, and no claim waits"),
        pytest.param(["a"], 1, False, id="one VM, for the claim that waits"),
        pytest.param(["a", "b"], 1, True, id="a VM for each claim"),
    ],
)
def test_waiting_claims_come_first(vms: list[str], waiting: int, served: bool) -> None:
    assert (candidate(*map(a_vm, vms), waiting=waiting) is not None) == served


@pytest.mark.parametrize(
    "facts",
    [pytest.param({"orphaned": "Disowned"}, id="orphaned"), pytest.param({"node": CORDONED}, id="on a cordoned node")],
)
def test_unavailable_vms_are_not_counted(facts: dict[str, Any]) -> None:
    unfit = [replace(a_vm(f"x{number}"), **facts) for number in range(5)]
    assert candidate(a_vm("fit"), *unfit, waiting=2) is None
    assert candidate(a_vm("fit"), *unfit) == "fit"


@pytest.mark.parametrize(
    ("pool", "wants", "expected"),
    [
        pytest.param(POOL, {}, "old", id="the VM serves until it is replaced"),
        pytest.param(POOL, IMAGE, None, id="its image may differ from the claim's"),
        pytest.param(POOL, TYPE, None, id="its instance type may differ from the claim's"),
        pytest.param(RECREATE, {}, None, id="strategy Recreate only deletes it"),
    ],
)
def test_vm_of_an_older_template(pool: WarmPool, wants: dict[str, Any], expected: str | None) -> None:
    old, new = a_vm("old", of=OLD), a_vm("new", of=pool)
    assert candidate(old, pool=pool, **wants) == expected
    assert candidate(old, new, pool=pool, **wants) == "new"


def test_unusable_old_vms_are_not_counted() -> None:
    old = [a_vm(f"x{number}", of=OLD) for number in range(5)]
    assert candidate(a_vm("new"), *old, pool=RECREATE, waiting=1) is None


def test_placement_override() -> None:
    east, west = (a_vm(name, of=PLACES, placement=name) for name in ("east", "west"))
    assert candidate(east, west, pool=PLACES, **EAST) == "east"
    assert candidate(west, pool=PLACES, **EAST) is None


def test_a_claim_counts_once_for_the_demand_of_its_pool() -> None:
    found, record = Allocator(Stores(Store(), warm_pool.SOURCE.store(), a_cache())), ClaimRecord()
    found.count_arrival(snapshot(no_pool=Failure("PoolNotFound", "")), record)
    assert found.demand.take_events(POOL.uid).arrived == ()
    for _ in range(2):
        found.count_arrival(snapshot(), record)
    (created,) = found.demand.take_events(POOL.uid).arrived
    assert created == parse_time(a_claim().created_at).timestamp()
    assert found.demand.take_events(POOL.uid).arrived == ()
    found.count_arrival(snapshot(a_claim(status={"phase": "Failed"})), ClaimRecord())
    assert found.demand.take_events(POOL.uid).arrived == ()


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        pytest.param({}, {"readyAt": ago(0), "timings": {"totalMs": 1500}}, (1.5,), id="handed over"),
        pytest.param({}, {"readyAt": ago(0), "timings": {"totalMs": 0}}, (0.0,), id="handed over at once"),
        pytest.param({"readyAt": ago(9)}, {"readyAt": ago(9), "timings": {"totalMs": 9}}, (), id="was handed over"),
        pytest.param({}, {"phase": "Failed", "conditions": [UNBOUND | {"reason": "NoCapacity"}]}, (inf,), id="no VM"),
        pytest.param({}, {"phase": "Failed", "conditions": [UNBOUND | {"reason": "BindTimeout"}]}, (inf,), id="late"),
        pytest.param(
            {}, {"phase": "Failed", "conditions": [UNBOUND | {"reason": "OverrideNotAllowed"}]}, (), id="not allowed"
        ),
        pytest.param(
            {"phase": "Failed"},
            {"phase": "Failed", "conditions": [UNBOUND | {"reason": "NoCapacity"}]},
            (),
            id="had failed before",
        ),
        pytest.param({}, {"phase": "Queued"}, (), id="still waits"),
    ],
)
def test_the_wait_of_a_claim_counts_when_it_ends(before: Any, after: Any, waits: tuple[float, ...]) -> None:
    found = Allocator(Stores(Store(), warm_pool.SOURCE.store(), a_cache()))
    found.stores.pools.put(POOL.key, POOL)
    found.count_wait(snapshot(a_claim(status=before)), a_claim(status=after))
    assert found.demand.take_events(POOL.uid).wait_seconds == waits


def test_a_vm_that_a_claim_has_taken_is_reserved_until_the_store_shows_it() -> None:
    pool, vm, claim, record = a_pool(), a_vm("a"), a_claim(), ClaimRecord()
    allocator = Allocator(Stores(Store(), warm_pool.SOURCE.store(), a_cache(vm)))
    allocator.join_queue(claim, pool, record)
    seen = list[tuple[int, int]]()
    allocator.demand.subscribe(lambda uid: seen.append((allocator.demand.queued(uid), allocator.demand.reserved(uid))))
    allocator.reserve(claim, pool, vm, record)
    assert seen == [(0, 1)], "the pool never sees one claim less without one VM less"
    allocator.cancel_reservation(claim, vm, record)
    assert allocator.demand.reserved(pool.uid) == 0
    allocator.reserve(claim, pool, vm, record)
    allocator.vm_changed(vm, a_vm("a", WarmState.ALLOCATING, claim_uid=claim.uid))
    assert allocator.demand.reserved(pool.uid) == 0


@pytest.mark.parametrize(
    ("policy", "requester", "message"),
    [
        pytest.param(
            {"maxPerUser": 1}, "", "the claim's user has 1 VM of the pool, maxPerUser is 1", id="without a requester"
        ),
        pytest.param({"maxPerUser": 2}, "ann", "ann has 2 VMs of the pool, maxPerUser is 2", id="with a requester"),
        pytest.param({"maxPerNamespace": 3}, "bob", "claims have 3 VMs of the pool, maxPerNamespace is 3", id="all"),
        pytest.param(
            {"maxPerUser": 2, "maxPerNamespace": 1},
            "bob",
            "claims have 3 VMs of the pool, maxPerNamespace is 1",
            id="the user is within the quota",
        ),
    ],
)
def test_a_refused_claim_learns_the_quota(policy: dict[str, int], requester: str, message: str) -> None:
    quotas = QuotaTracker()
    for uid, owner in (("1", ""), ("2", "ann"), ("3", "ann")):
        quotas.charge(uid, KEY, owner)
    assert quotas.exceeded(a_claim(annotations=by(requester)), a_pool(claimPolicy=policy)) == Failure(
        "QuotaExceeded", message
    )


def by(requester: str) -> dict[str, str]:
    return {meta.REQUESTER: requester}


def test_another_charge_of_a_claim_replaces_the_first() -> None:
    quotas, one = QuotaTracker(), a_pool(claimPolicy={"maxPerNamespace": 1})
    quotas.charge("1", KEY, "ann")
    quotas.charge("1", ("ns", "db"), "ann")
    assert quotas.exceeded(a_claim(), one) is None
    quotas.charge("1", KEY, "bob")
    assert quotas.exceeded(a_claim(), one) is not None
    quotas.release("2")
    assert quotas.exceeded(a_claim(), one) is not None


def waiting(uid: str, position: int, **given: Any) -> Any:
    return a_claim(uid=uid, status={"phase": "Queued", "poolName": "web", "queuePosition": position}, **given)


def an_allocator(*vms: WarmVM, pool: WarmPool | None = POOL) -> Allocator:
    pools = warm_pool.SOURCE.store()
    if pool is not None:
        pools.put(pool.key, pool)
    return Allocator(Stores(Store(), pools, a_cache(*vms)))


def test_a_new_leader_knows_the_queue_and_the_quota() -> None:
    found = an_allocator(a_vm("a"))
    found.join_queue(a_claim(uid="of an earlier term"), POOL, ClaimRecord())
    claims = [
        waiting("after", 10, annotations=by("bob")),
        waiting("before", 9, annotations=by("ann")),
        a_claim(uid="bound", status=bound_status("b"), annotations=by("ann")),
        a_claim(uid="failed", status=bound_status("c", phase="Failed"), annotations=by("eve")),
        a_claim(uid="new"),
    ]
    found.reset(claims)
    assert found.queue(POOL.uid).first(9) == ["before", "after"]
    assert (found.pools_with_queue(), found.demand.queued(POOL.uid)) == ([POOL.uid], 2)
    assert found.next_claims(POOL.uid, 9) == ["before"], "one VM is ready"
    assert found.next_claims(POOL.uid, 0) == []
    assert found.quotas.exceeded(a_claim(annotations=by("ann")), a_pool(claimPolicy={"maxPerUser": 1})) is not None
    for requester in ("bob", "eve"):
        one = a_pool(claimPolicy={"maxPerUser": 1})
        assert found.quotas.exceeded(a_claim(annotations=by(requester)), one) is None, requester
    assert [found.record(each).vms_known for each in claims] == [False] * 5
    assert found.record(a_claim(uid="later")).vms_known
    found.demand.arrived("pool", 1.0)
    found.reset([])
    assert not found.demand.take_events("pool").arrived, "each claim is counted again"
    assert (found.pools_with_queue(), found.demand.queued(POOL.uid)) == ([], 0)


def test_a_vm_that_is_gone_is_offered_no_longer() -> None:
    vm = a_vm("a")
    found = an_allocator(vm)
    assert found.vm_changed(None, vm)
    found.vm_changed(vm, None)
    assert found.ready.count(POOL.uid) == 0


def test_a_new_leader_waits_for_a_pool_that_is_not_stored() -> None:
    found = an_allocator(pool=None)
    found.reset([waiting("first", 1)])
    assert found.pools_with_queue() == []


def test_a_claim_that_leaves_gives_back_what_it_had() -> None:
    vms = a_vm("a"), a_vm("b")
    found, claim = an_allocator(*vms), a_claim()
    found.ready.reset(vms)
    record = found.record(claim)
    assert record.vms_known
    found.reserve(claim, POOL, vms[0], record)
    found.reserve(claim, POOL, vms[1], record)
    found.reject(claim, vms[1], record)
    found.begin_creation(claim, POOL, "web-c", record)
    other = found.candidate(a_claim(uid="other"), POOL)
    assert (other, found.demand.creating(POOL.uid)) == (None, 1)
    found.forget(claim.uid)
    assert found.ready.count(POOL.uid) == 2
    assert found.demand.creating(POOL.uid) == 0
    assert found.quotas.exceeded(a_claim(uid="other"), a_pool(claimPolicy={"maxPerNamespace": 1})) is None
    assert not found.record(claim).vms_known, "its VMs must be listed again"
    found.claim_deleted("another claim, which this process does not know")
    found.claim_deleted(claim.uid)
    assert found.record(claim).vms_known, "nothing is left of a deleted claim"


@pytest.mark.parametrize(
    ("status", "known"),
    [({}, True), (bound_status("b"), False), ({"phase": "Failed"}, False)],
    ids=["new", "bound", "finished"],
)
def test_the_vms_of_a_new_claim_are_known(status: Any, known: bool) -> None:
    assert an_allocator().record(a_claim(status=status)).vms_known is known


def test_a_pool_is_full_with_the_vms_that_are_being_created() -> None:
    found, claim = an_allocator(a_vm("a")), a_claim()
    assert not found.is_full(a_pool())
    assert found.is_full(a_pool(maxTotal=1))
    three = a_pool(maxTotal=3)
    found.begin_creation(claim, three, "web-c", found.record(claim))
    assert not found.is_full(three)
    found.pool_creations.expect(three.uid, creates=["web-d"], now=0)
    assert found.is_full(three)
    found.cancel_creation(claim, three, "web-c", found.record(claim))
    assert not found.is_full(three)
    assert found.record(claim).creating == set()


def test_a_reservation_that_ends_after_its_vms_were_listed() -> None:
    """A list without the VM's new claim offers the VM to others, while its reservation is still on its way."""
    vm, claim = a_vm("a"), a_claim()
    for end in (Allocator.cancel_reservation, Allocator.reject):
        found = an_allocator(vm)
        found.ready.reset([vm])
        record = found.record(claim)
        found.reserve(claim, POOL, vm, record)
        found.vms_listed(claim, [], record, 0)
        end(found, claim, vm, record)
        assert found.ready.count(POOL.uid) == 1


def test_a_refused_vm_is_not_tried_again_at_once() -> None:
    vms = a_vm("a"), a_vm("b")
    found, claim = an_allocator(*vms), a_claim()
    found.ready.reset(vms)
    record = found.record(claim)
    first = found.candidate(claim, POOL)
    found.reserve(claim, POOL, first, record)
    found.reject(claim, first, record)
    second = found.candidate(claim, POOL)
    assert {first.uid, second.uid} == {"a", "b"}
    found.reserve(claim, POOL, second, record)
    assert found.candidate(a_claim(uid="other"), POOL) == first, "another claim may try it"
