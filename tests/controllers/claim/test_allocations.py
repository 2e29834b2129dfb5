"""What the allocator knows after the results of API calls and the events of the stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.allocator import Allocator, Stores, select_pool
from controllers.claim.memory import ClaimRecord
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import SOURCE, Claim, Failure, Timeline, claim_of
from controllers.shared.decisions import decision
from controllers.warmpool import warm_pool
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, parse_warm_pool, pool_of
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_cache, a_pool, a_vm, ago

POOL = a_pool()
ONE_PER_NAMESPACE = a_pool(claimPolicy={"maxPerNamespace": 1})
ELSEWHERE = "; a pool serves claims of its own namespace only"
READY = bound_status("a", phase="Ready", readyAt=ago(0))
RECORDED, NOT_RECORDED = a_pool(status={"members": ["m"]}), a_pool(status={"members": []})


def invalid(name: str = "web") -> InvalidWarmPool:
    found = parse_warm_pool({"metadata": {"namespace": "ns", "name": name, "uid": f"u-{name}"}, "spec": {}})
    assert isinstance(found, InvalidWarmPool)
    return found


def an_allocator(*vms: WarmVM, pool: WarmPool | InvalidWarmPool | None = POOL) -> Allocator:
    pools = warm_pool.SOURCE.store()
    if pool is not None:
        pools.put((pool.namespace, pool.name), pool)
    found = Allocator(Stores(Store(), pools, a_cache(*vms)))
    found.ready.reset(vms)
    return found


def over_quota(found: Allocator) -> bool:
    """Whether one VM of the pool is charged."""
    return found.quotas.exceeded(a_claim(uid="other"), ONE_PER_NAMESPACE) is not None


@pytest.mark.parametrize(
    ("name", "pools", "reason", "message"),
    [
        pytest.param(
            "nowhere",
            [a_pool(), a_pool(name="db")],
            ClaimReason.POOL_NOT_FOUND,
            f"there is no warm pool nowhere in namespace ns, which has: db, web{ELSEWHERE}",
            id="another name",
        ),
        pytest.param(
            "web",
            [],
            ClaimReason.POOL_NOT_FOUND,
            f"there is no warm pool web in namespace ns, which has: none{ELSEWHERE}",
            id="no pool",
        ),
        pytest.param(
            "web",
            [invalid()],
            ClaimReason.POOL_INVALID,
            "warm pool web is not valid: spec: must have exactly one of template and ec2",
            id="an invalid pool",
        ),
        pytest.param(
            "web",
            [a_pool(deletionTimestamp=ago(1))],
            ClaimReason.POOL_NOT_FOUND,
            "warm pool web is being deleted",
            id="a pool that is being deleted",
        ),
        pytest.param(
            None,
            [invalid(), a_pool(name="db")],
            ClaimReason.NO_DEFAULT_POOL,
            "the claim names no pool, and namespace ns has no default pool: set spec.poolName to one of: db, web",
            id="no default pool",
        ),
        pytest.param(
            None,
            [],
            ClaimReason.NO_DEFAULT_POOL,
            "the claim names no pool, and there is no warm pool in namespace ns",
            id="neither a name nor a pool",
        ),
    ],
)
def test_a_claim_without_a_pool_learns_why(name: str | None, pools: list[Any], reason: str, message: str) -> None:
    assert select_pool(a_claim(poolName=name), pools) == Failure(reason, message)


def test_a_requester_has_as_many_vms_as_claims_were_not_released() -> None:
    found = an_allocator()
    for uid in ("1", "2", "3"):
        found.quotas.charge(uid, POOL.key, "ann")
    found.quotas.release("1")
    ann = a_claim(uid="other", annotations={meta.REQUESTER: "ann"})
    assert found.quotas.exceeded(ann, a_pool(claimPolicy={"maxPerUser": 2})) is not None
    assert found.quotas.exceeded(ann, a_pool(claimPolicy={"maxPerUser": 3})) is None
    assert found.quotas.exceeded(ann, a_pool(claimPolicy={"maxPerNamespace": 2})) is not None
    assert found.quotas.exceeded(ann, a_pool(claimPolicy={"maxPerNamespace": 3})) is None


@pytest.mark.parametrize("reserved", [True, False], ids=["reserved", "being created"])
def test_a_vm_that_a_claim_is_about_to_get_counts_for_its_requester(reserved: bool) -> None:
    found, by_ann, one = an_allocator(), {meta.REQUESTER: "ann"}, a_pool(claimPolicy={"maxPerUser": 1})
    claim = a_claim(annotations=by_ann)
    if reserved:
        found.reserve(claim, POOL, a_vm("a"), ClaimRecord())
    else:
        found.begin_creation(claim, POOL, "web-c", ClaimRecord())
    assert found.quotas.exceeded(a_claim(uid="other", annotations=by_ann), one) is not None
    assert found.quotas.exceeded(a_claim(uid="other"), one) is None


@pytest.mark.parametrize(
    ("served", "order"),
    [
        pytest.param(True, ["bob", "second"], id="a claim that got a ready VM: it is bob's turn"),
        pytest.param(False, ["second", "bob"], id="a claim that boots a VM of its own: ann has got no ready VM"),
    ],
)
def test_a_requester_that_got_a_ready_vm_comes_last(served: bool, order: list[str]) -> None:
    found = an_allocator(a_vm("a"))
    claims = [
        a_claim(uid=uid, creationTimestamp=ago(age), annotations={meta.REQUESTER: requester})
        for uid, requester, age in (("first", "ann", 9), ("second", "ann", 8), ("bob", "bob", 7))
    ]
    for each in claims:
        found.join_queue(each, POOL, ClaimRecord())
    if served:
        found.reserve(claims[0], POOL, a_vm("a"), ClaimRecord())
    else:
        found.begin_creation(claims[0], POOL, "web-c", ClaimRecord())
    assert found.queue(POOL.uid).first(9) == order
    found.leave_queues("second")
    assert found.queue(POOL.uid).first(9) == ["bob"]


def test_claim_of_one_second_are_served_as_they_were_observed() -> None:
    found = an_allocator()
    for number, uid in enumerate(("b", "a")):
        record = ClaimRecord(timeline=Timeline(observed=NOW + timedelta(milliseconds=number)))
        found.join_queue(a_claim(uid=uid), POOL, record)
    assert found.queue(POOL.uid).first(9) == ["b", "a"]


@pytest.mark.parametrize(
    ("claim", "record", "pool", "given"),
    [
        pytest.param(a_claim(), ClaimRecord(), NOT_RECORDED, False, id="only the label says so"),
        pytest.param(a_claim(status=bound_status("m")), ClaimRecord(), NOT_RECORDED, True, id="the claim's status"),
        pytest.param(a_claim(status=bound_status("other")), ClaimRecord(), NOT_RECORDED, False, id="another VM"),
        pytest.param(a_claim(), ClaimRecord(own={"m"}), NOT_RECORDED, True, id="this process has reserved it"),
        pytest.param(a_claim(), ClaimRecord(own={"other"}), NOT_RECORDED, False, id="this process has another one"),
        pytest.param(a_claim(), ClaimRecord(), RECORDED, True, id="the pool's status"),
        pytest.param(a_claim(), ClaimRecord(), POOL, True, id="a pool without a status has no record"),
        pytest.param(a_claim(), ClaimRecord(), None, False, id="its pool is gone"),
    ],
)
def test_which_vms_a_controller_has_given(
    claim: Claim, record: ClaimRecord, pool: WarmPool | None, given: bool
) -> None:
    assert an_allocator(pool=pool).given_by_controllers(claim, claimed_vm(), record) is given


@pytest.mark.parametrize(
    ("pool", "ready"),
    [
        pytest.param(POOL, 1, id="a pool without a record"),
        pytest.param(RECORDED, 1, id="the pool has recorded the VM"),
        pytest.param(NOT_RECORDED, 0, id="the pool has not recorded it"),
        pytest.param(None, 1, id="the pool is not stored yet"),
    ],
)
def test_only_vms_that_the_controllers_have_created_are_given_away(pool: WarmPool | None, ready: int) -> None:
    assert an_allocator(a_vm("m"), pool=pool).ready.count(POOL.uid) == ready


@pytest.mark.parametrize(("pool", "kept"), [(POOL, 1), (None, 0)], ids=["its pool exists", "its pool is deleted"])
def test_what_happens_to_claims_is_kept_for_pools_that_exist(pool: WarmPool | None, kept: int) -> None:
    """Nobody would ever read it for another pool: claims stay after the deletion of theirs."""
    found, failed = an_allocator(pool=pool), {"type": "Bound", "status": "False", "reason": ClaimReason.NO_CAPACITY}
    found.count_deletion(claimed_vm(), decision("2026-03-01T12:00:00Z", "SuccessfulDelete", "released", "web-m/m"))
    found.count_wait(snapshot(), a_claim(status={"phase": "Failed", "conditions": [failed]}))
    assert len(found.demand.take_deletions(POOL.uid)) == kept
    assert len(found.demand.take_events(POOL.uid).wait_seconds) == kept


@pytest.mark.parametrize("namespace", ["ns", "elsewhere"])
def test_a_pool_is_that_of_a_vm_of_its_own_namespace(namespace: str) -> None:
    """Without the admission policies, a user of another namespace can write any UID into the labels of a VM."""
    vm, found = a_vm("m", namespace=namespace), an_allocator(claimed_vm(namespace=namespace), pool=POOL)
    own = namespace == POOL.namespace
    assert an_allocator(vm, pool=POOL).ready.count(POOL.uid) == own
    assert pool_of(found.stores.pools, vm) == (POOL if own else None)
    assert found.given_by_controllers(a_claim(), claimed_vm(namespace=namespace), ClaimRecord()) is own
    claims = SOURCE.store()
    claims.put(a_claim().key, a_claim())
    assert claim_of(claims, claimed_vm(namespace=namespace)) == (a_claim() if own else None)


@pytest.mark.parametrize(
    ("status", "vms", "written", "known"),
    [
        pytest.param({}, (), (), True, id="a claim without a VM"),
        pytest.param(bound_status("m"), (claimed_vm(),), (), True, id="the store shows its VM"),
        pytest.param(bound_status("m"), (), ("m",), True, id="this process has written its VM"),
        pytest.param(bound_status("m"), (), (), False, id="another process has bound its VM"),
        pytest.param(bound_status("m"), (a_vm("m"),), (), False, id="the store shows the VM as the pool's"),
    ],
)
def test_whose_vms_are_listed_again(
    status: Any, vms: tuple[WarmVM, ...], written: tuple[str, ...], known: bool
) -> None:
    found = an_allocator(*vms)
    record = found.record(a_claim())
    record.vms.update({uid: (claimed_vm(uid), 0.0) for uid in written})
    found.status_observed(a_claim(status=status))
    assert record.vms_known is known


@pytest.mark.parametrize(
    ("facts", "ours"),
    [
        pytest.param({"claim": a_claim()}, True, id="the last write"),
        pytest.param({"claim": a_claim(resourceVersion="6")}, False, id="another version"),
        pytest.param({"claim": a_claim(), "stale": True}, False, id="a write without an answer"),
        pytest.param({}, False, id="no write"),
    ],
)
def test_which_version_of_a_claim_this_process_has_written(facts: dict[str, Any], ours: bool) -> None:
    found = an_allocator()
    assert not found.wrote_claim(a_claim()), "no record"
    record = found.record(a_claim())
    for name, value in facts.items():
        setattr(record, name, value)
    assert found.wrote_claim(a_claim()) is ours


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        pytest.param(claimed_vm(), True, id="the last write"),
        pytest.param(claimed_vm(resource_version="0"), False, id="another version"),
        pytest.param(claimed_vm(deleting=True), False, id="a deletion"),
        pytest.param(None, False, id="no write"),
    ],
)
def test_which_version_of_a_vm_this_process_has_written(written: WarmVM | None, ours: bool) -> None:
    found = an_allocator()
    assert not found.wrote_vm(claimed_vm()), "no record"
    record = found.record(a_claim())
    if written is not None:
        record.vms["m"] = written, 0.0
    assert found.wrote_vm(claimed_vm()) is ours


def test_a_reservation_that_the_api_does_not_show_is_over() -> None:
    vms = a_vm("a"), a_vm("b")
    found, claim = an_allocator(*vms), a_claim()
    record = found.record(claim)
    for each in vms:
        found.reserve(claim, POOL, each, record)
    taken = a_vm("a", WarmState.ALLOCATING, claim_uid=CLAIM_UID)
    found.vms_listed(claim, [taken], record, 7.0)
    assert record.vms_known
    assert record.vms == {"a": (taken, 7.0)}
    assert record.reserved == {"a": ("ns", "web-a")}
    assert found.candidate(a_claim(uid="other"), POOL) == vms[1]


@pytest.mark.parametrize(
    ("stored", "listed", "creating", "recorded"),
    [
        pytest.param((), (), 0, False, id="it was not created"),
        pytest.param((), ("c",), 1, True, id="the store does not show it yet"),
        pytest.param(("c",), ("c",), 0, True, id="the store shows it"),
    ],
)
def test_until_when_a_vm_counts_as_being_created(
    stored: tuple[str, ...], listed: tuple[str, ...], creating: int, recorded: bool
) -> None:
    found, claim = an_allocator(*map(claimed_vm, stored)), a_claim()
    record = found.record(claim)
    found.begin_creation(claim, POOL, "web-c", record)
    assert (found.demand.creating(POOL.uid), over_quota(found)) == (1, True)
    found.vms_listed(claim, map(claimed_vm, listed), record, 0.0)
    assert found.demand.creating(POOL.uid) == creating
    assert ((POOL.uid, "web-c") in record.creating) is recorded


def test_an_event_ends_the_creation_of_a_vm() -> None:
    found = an_allocator()
    found.begin_creation(a_claim(), POOL, "web-c", found.record(a_claim()))
    assert not found.vm_changed(None, claimed_vm("c"))
    assert found.demand.creating(POOL.uid) == 0


@pytest.mark.parametrize(
    ("before", "after", "offered", "charged", "waits"),
    [
        pytest.param({}, bound_status("a"), True, True, False, id="bound: it has its VM, and needs no other"),
        pytest.param(bound_status("a"), bound_status("a"), False, True, False, id="bound already: it may need VM b"),
        pytest.param(
            bound_status("a"), READY, True, True, False, id="Ready: its own VM has booted, and it needs no other"
        ),
        pytest.param(READY, READY, False, True, False, id="Ready already: nothing changes"),
        pytest.param({}, {"phase": "Queued"}, False, False, True, id="queued: it has no VM yet"),
        pytest.param({}, {"phase": "Pending"}, False, False, False, id="an obstacle must not delay other claims"),
        pytest.param(
            bound_status("a"), bound_status("a", phase="Failed"), False, False, False, id="Failed: its VM is deleted"
        ),
    ],
)
def test_what_a_claim_gives_back_after_a_write(
    before: Any, after: Any, offered: bool, charged: bool, waits: bool
) -> None:
    """The claim has reserved VM a, and VM b has refused it."""
    vms = a_vm("a"), a_vm("b")
    found, claim = an_allocator(*vms), a_claim(status=before)
    record = found.record(claim)
    found.reserve(claim, POOL, vms[1], record)
    found.reject(claim, vms[1], record)
    found.ready.reserve(vms[0])
    record.reserved["a"] = vms[0].key
    found.quotas.charge(claim.uid, POOL.key, "")
    found.join_queue(claim, POOL, record)
    found.status_written(claim, a_claim(status=after), record)
    assert ("b" not in record.rejected) is offered
    assert (found.ready.count(POOL.uid) == 1) is offered, "VM b is offered to other claims, and VM a is not"
    assert ("a" not in record.reserved) is offered
    assert over_quota(found) is charged
    assert (claim.uid in found.queue(POOL.uid)) is waits


def test_a_claim_may_be_bound_to_a_vm_that_an_earlier_leader_has_reserved() -> None:
    found, record = an_allocator(a_vm("b")), ClaimRecord(reserved={"b": a_vm("b").key})
    found.ready.reserve(a_vm("b"))
    found.status_written(a_claim(), a_claim(status=bound_status("a")), record)
    assert (record.reserved, found.ready.count(POOL.uid)) == ({}, 1), "it needs VM b no longer"


@pytest.mark.parametrize(
    ("old", "new", "more", "gone"),
    [
        pytest.param(None, a_vm("m"), True, False, id="a VM becomes ready"),
        pytest.param(None, claimed_vm(), False, False, id="a VM of a claim"),
        pytest.param(claimed_vm(), None, False, True, id="the claim's VM is gone"),
        pytest.param(claimed_vm(), replace(claimed_vm(), uid="new"), False, True, id="another VM has its name"),
        pytest.param(claimed_vm(), claimed_vm(resource_version="2"), False, False, id="the claim's VM has changed"),
        pytest.param(a_vm("m"), None, False, False, id="a VM without a claim is gone"),
    ],
)
def test_events_of_vms(old: WarmVM | None, new: WarmVM | None, more: bool, gone: bool) -> None:
    found = an_allocator()
    record = found.record(a_claim())
    if new is not None and new.vmi is not None:
        found.stores.vms.vmis.put(new.key, new.vmi)
    assert found.vm_changed(old, new) is more
    assert (record.gone == {"m"}) is gone
