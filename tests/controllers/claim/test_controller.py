"""Which claims are reconciled when, and which of them wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controllers.claim.allocator import Allocator, Stores
from controllers.claim.controller import ClaimController, Enqueue
from controllers.claim.memory import ClaimRecord
from controllers.claim.observe import ClaimObserver
from controllers.claim.snapshot import SOURCE, Claim, ClaimSnapshot
from controllers.claim.steps import CheckHealth, JoinWaitQueue, Step
from controllers.warmpool import warm_pool
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.health import vmi_health
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.claim.test_apply import FakeBackend, Setup
from tests.controllers.warmpool.builders import CORDONED, NODE, NOW, a_cache, a_pool, a_vm, a_vmi

SILENT = a_claim(name="silent", uid="silent", status=bound_status("m"))
FOREIGN = a_claim(namespace="foreign", name="silent", uid="silent", status=bound_status("m"))
OTHER = a_claim(name="other", uid="other")
QUEUED = {"phase": "Queued", "poolName": "web", "queuePosition": 1}
QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
PROBED = a_pool(readiness={"http": {"port": 80}})


def controller(
    allocator: Allocator, api: Any = None, observe: Any = None, apply: Any = None, enqueue: Enqueue = lambda *_: None
) -> ClaimController:
    writer, observer = apply, observe
    slots: FairSlots[str] = FairSlots(2, per_key=1)
    return ClaimController(api, allocator, observer, writer, lambda: NOW, enqueue, slots)


def an_allocator(*claims: Claim, vms: Any = None) -> Allocator:
    store = SOURCE.store()
    for claim in claims:
        store.put(claim.key, claim)
    return Allocator(Stores(store, warm_pool.SOURCE.store(), vms or a_cache()))


class RecordingWriter:
    """A VM whose health is checked never answers."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def __call__(self, s: ClaimSnapshot, step: Step, record: ClaimRecord) -> None:
        self.steps.append(f"{type(step).__name__} {s.claim.name}")
        if isinstance(step, CheckHealth):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("claim", "pool", "goes_on"),
    [
        pytest.param(SILENT, PROBED, True, id="a check over the network needs no slot"),
        pytest.param(SILENT, a_pool(), False, id="a check of the status keeps its slot"),
        pytest.param(FOREIGN, a_pool(), True, id="another namespace has slots of its own"),
    ],
)
async def test_silent_vms_hold_up_only_their_own_claims(claim: Claim, pool: WarmPool, goes_on: bool) -> None:
    writer = RecordingWriter()

    def observe(claim: Claim, record: ClaimRecord) -> ClaimSnapshot:
        if claim.uid == SILENT.uid:
            return snapshot(claim, claimed_vm("m", WarmState.ALLOCATING, activated=True), pool=pool)
        return snapshot(claim, candidate=a_vm("n"))

    found = controller(an_allocator(claim, OTHER), observe=observe, apply=writer)
    waiting = asyncio.create_task(found.reconcile(claim.key))
    await asyncio.sleep(0)
    other = asyncio.create_task(found.reconcile(OTHER.key))
    for _ in range(5):
        await asyncio.sleep(0)
    assert writer.steps[0] == "CheckHealth silent"
    assert ("ReserveVM other" in writer.steps) == goes_on
    for task in (waiting, other):
        task.cancel()
    await asyncio.gather(waiting, other, return_exceptions=True)


class HangingBackend(FakeBackend):
    async def create(self, request: CreateRequest) -> WarmVM:
        await asyncio.Event().wait()
        raise AssertionError


class ApiWithoutClaims:
    async def list(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        return [], "1"


async def test_a_new_leader_has_no_demand_for_claims_that_were_served_meanwhile() -> None:
    """Else the pool keeps one VM too many for as long as this process leads."""
    pool = a_pool()
    setup = Setup([], HangingBackend())
    demand, claims = setup.allocator.demand, setup.allocator.stores.claims
    claims.put(OTHER.key, OTHER)

    def observe(claim: Claim, record: ClaimRecord) -> ClaimSnapshot:
        return snapshot(claim, pool=pool)

    found = controller(setup.allocator, ApiWithoutClaims(), observe, setup.apply)
    await setup.take(snapshot(SILENT, pool=pool), JoinWaitQueue())
    creating = asyncio.create_task(found.reconcile(OTHER.key))
    await asyncio.sleep(0)
    assert (demand.queued(pool.uid), demand.creating(pool.uid)) == (1, 1)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    claims.drop(OTHER.key)
    await found.begin()
    assert (demand.queued(pool.uid), demand.creating(pool.uid)) == (0, 0)


@pytest.mark.parametrize(
    ("vms", "kept"),
    [
        pytest.param((), False, id="its VM is gone, or it had none"),
        pytest.param((claimed_vm("m", deleting=True),), True, id="its VM is being deleted"),
    ],
)
async def test_a_deleted_claim_that_a_finalizer_keeps_takes_no_place(vms: tuple[WarmVM, ...], kept: bool) -> None:
    """Else the claims behind it in the queue wait for ever, and the quota counts a VM that is gone."""
    gone, only = replace(OTHER, deleting=True), a_pool(claimPolicy={"maxPerNamespace": 1})
    allocator = an_allocator(gone, vms=a_cache(*(replace(each, claim_uid=gone.uid) for each in vms)))
    allocator.stores.pools.put(only.key, only)
    if not vms:
        allocator.join_queue(gone, only, allocator.record(gone))
    allocator.quotas.charge(gone.uid, only.key, gone.requester)
    found = controller(allocator, observe=ClaimObserver(allocator, lambda: 0.0))
    assert await found.reconcile(gone.key) is None
    assert allocator.demand.queued(only.uid) == len(allocator.queue(only.uid)) == 0
    assert (allocator.quotas.exceeded(SILENT, only) is not None) is kept
    assert not allocator.demand.take_events(only.uid).arrived, "a deleted claim is no new demand"


@pytest.mark.parametrize(
    ("new", "enqueued"),
    [
        pytest.param(replace(QUEUE, status=WarmPoolStatus(replicas=1)), [], id="a status update concerns no claim"),
        pytest.param(replace(QUEUE, generation=2), ["silent", "other"], id="its spec has changed"),
        pytest.param(replace(QUEUE, deleting=True), ["silent", "other"], id="it is being deleted"),
        pytest.param(None, ["silent", "other"], id="it is gone"),
    ],
)
async def test_a_change_of_the_pool_enqueues_the_claims_of_its_queue(new: WarmPool | None, enqueued: list[str]) -> None:
    allocator, found = an_allocator(SILENT, OTHER), list[str]()
    for second, claim in enumerate((SILENT, OTHER)):
        allocator.join_queue(replace(claim, created_at=str(second)), QUEUE, ClaimRecord())
    tested = controller(allocator, enqueue=lambda key, seconds: found.append(key[1]))
    tested.pool_changed(QUEUE, new)
    await tested.queue_checks.reconcile((QUEUE.namespace, QUEUE.uid))
    assert found == enqueued


def test_a_vm_that_can_be_given_away_again_wakes_the_next_claim() -> None:
    """Its labels say Ready all the time: only its VMI, or its node, changes."""
    pool, enqueued = a_pool(), list[str]()
    vms = a_cache(a_vm("m"), nodes=(CORDONED,))
    allocator = an_allocator(OTHER, vms=vms)
    allocator.join_queue(OTHER, pool, ClaimRecord())
    found = controller(allocator, enqueue=lambda key, seconds: enqueued.append(key[1]))
    vm = vms.vms.all()[0]
    found.vm_changed(None, vm)
    assert (allocator.ready.count(pool.uid), enqueued) == (0, [])
    vms.nodes.put(NODE.key, NODE)
    found.node_changed(CORDONED, NODE)
    assert (allocator.ready.count(pool.uid), enqueued) == (1, ["other"])
    vmi = vms.vmis.drop(vm.key)
    found.vmi_changed(vmi, None)
    assert (allocator.ready.count(pool.uid), enqueued) == (0, ["other"])
    assert vmi is not None
    vms.vmis.put(vm.key, vmi)
    found.vmi_changed(None, vmi)
    assert (allocator.ready.count(pool.uid), enqueued) == (1, ["other", "other"])


@pytest.mark.parametrize(
    ("written", "seen", "enqueued"),
    [
        pytest.param("2", "2", False, id="the reconcile that wrote it has gone on"),
        pytest.param("2", "3", True, id="somebody has changed it since"),
        pytest.param(None, "2", True, id="the answer of the write has not arrived yet"),
    ],
)
def test_events_of_own_writes_cause_no_reconcile(written: str | None, seen: str, enqueued: bool) -> None:
    claim, vm = a_claim(resourceVersion=seen), claimed_vm(resource_version=seen)
    allocator = an_allocator(claim, vms=a_cache(vm))
    record = allocator.record(claim)
    if written is not None:
        record.claim = replace(claim, resource_version=written)
        record.remember(replace(vm, resource_version=written), 0.0)
    for_claim: list[Any] = []
    controller(allocator, enqueue=lambda *call: for_claim.append(call)).claim_changed(a_claim(), claim)
    for_vm: list[Any] = []
    controller(allocator, enqueue=lambda *call: for_vm.append(call)).vm_changed(replace(vm, resource_version="1"), vm)
    assert (bool(for_claim), bool(for_vm)) == (enqueued, enqueued)


@pytest.mark.parametrize(
    ("facts", "full"),
    [
        pytest.param({}, True, id="maxTotal is reached"),
        pytest.param({"deleting": True}, True, id="VMs that are being deleted count"),
        pytest.param({"orphaned": "TemplateChanged"}, False, id="orphaned VMs do not"),
    ],
)
def test_full_pool(facts: dict[str, Any], full: bool) -> None:
    pools = warm_pool.SOURCE.store()
    pools.put(("ns", "web"), a_pool(2, maxTotal=2))
    stores = Stores(Store(), pools, a_cache(*(a_vm(name, WarmState.UNHEALTHY, **facts) for name in "ab")))
    observe = ClaimObserver(Allocator(stores), lambda: 0.0)
    assert observe(a_claim(), ClaimRecord()).pool_full is full


@pytest.mark.parametrize(
    ("resumed", "vmi", "ready"),
    [
        pytest.param(None, {"paused": "PausedByUser"}, False, id="nobody has unpaused the VM"),
        pytest.param(("m", 100.0), {"paused": "PausedByUser"}, True, id="the store still shows the pause"),
        pytest.param(("m", 100.0), {}, True, id="the pod is not ready again yet"),
        pytest.param(("other", 100.0), {"paused": "PausedByUser"}, False, id="another VM was unpaused"),
        pytest.param(("m", 90.0), {"paused": "PausedByUser"}, False, id="KubeVirt shows a pause that is newer"),
        pytest.param(("m", 100.0), {"paused": "PausedIOError"}, False, id="an error has paused the VM"),
        pytest.param(("m", 100.0), {"phase": "Failed"}, False, id="the guest has crashed"),
    ],
)
def test_an_unpaused_vm_is_used_before_kubevirt_shows_it(
    resumed: tuple[str, float] | None, vmi: dict[str, Any], ready: bool
) -> None:
    shown = {"name": "web-m", "owner_uid": "m", "conditions": frozenset({"Paused"}), "ready": False, **vmi}
    vm = claimed_vm(vmi=a_vmi(**shown), standby="Paused")
    observe = ClaimObserver(Allocator(Stores(Store(), warm_pool.SOURCE.store(), a_cache(vm))), lambda: 100.0)
    found = observe(a_claim(status=bound_status("m")), ClaimRecord(resumed=resumed)).bound_vm
    assert (found.vmi.ready, vmi_health(found, Readiness()).verdict == "Healthy") == (ready, ready)


def test_a_claim_that_has_ended_has_its_pool_when_its_vm_is_gone() -> None:
    """The pool says when the claim is deleted."""
    pool, pools = a_pool(), warm_pool.SOURCE.store()
    pools.put(pool.key, pool)
    observe = ClaimObserver(Allocator(Stores(SOURCE.store(), pools, a_cache())), lambda: 100.0)
    released = {**bound_status("m"), "phase": "Released"}
    assert observe(a_claim(status=released), ClaimRecord()).pool == pool


@pytest.mark.parametrize(
    ("vms", "known"),
    [
        pytest.param([claimed_vm("m")], True, id="the store shows that the VM is the claim's"),
        pytest.param([a_vm("m")], False, id="the store of VMs is behind the store of claims"),
        pytest.param([], False, id="the store does not show the VM"),
    ],
)
async def test_a_vm_that_another_process_has_bound_is_not_lost(vms: list[WarmVM], known: bool) -> None:
    """Two processes lead for a moment, and events of claims and of VMs arrive in any order."""
    setup = Setup(vms, FakeBackend())
    found = controller(setup.allocator, ApiWithoutClaims())
    await found.begin()
    new = a_claim()
    found.claim_changed(None, new)
    assert setup.allocator.record(new).vms_known
    bound = a_claim(status=bound_status("m"))
    found.claim_changed(new, bound)
    assert setup.allocator.record(bound).vms_known == known


@pytest.mark.parametrize(
    ("before", "after", "queued"),
    [
        pytest.param(QUEUED, bound_status("m"), 0, id="the other process has bound a VM to the claim"),
        pytest.param(QUEUED, {"phase": "Failed"}, 0, id="the other process has failed the claim"),
        pytest.param(QUEUED, {"phase": "Pending"}, 0, id="the claim has an obstacle now"),
        pytest.param(QUEUED, {**QUEUED, "queuePosition": 2}, 1, id="the claim waits at another position"),
        pytest.param({}, QUEUED, 1, id="the status shows what the queue knows"),
        pytest.param({}, {}, 1, id="the status does not show yet that the claim waits"),
    ],
)
async def test_a_claim_that_another_process_serves_leaves_the_queue(before: Any, after: Any, queued: int) -> None:
    """Else two processes that both lead for a while write different numbers of queued claims, and one creates VMs for
    claims that were served."""
    pool, setup = a_pool(), Setup([], FakeBackend())
    found = controller(setup.allocator, ApiWithoutClaims())
    await found.begin()
    old, new = a_claim(status=before), a_claim(status=after)
    setup.allocator.join_queue(old, pool, ClaimRecord())
    found.claim_changed(old, new)
    assert setup.allocator.demand.queued(pool.uid) == queued


def recording(*uids: str, status: Any = None) -> WarmPool:
    return a_pool(2, status={"members": list(uids)} if status is None else status)


def observed(pool: WarmPool | None, vm: WarmVM, claim: Claim | None = None, own: str = "") -> frozenset[str]:
    """The VMs of a claim that no controller has given to it."""
    pools = warm_pool.SOURCE.store()
    if pool is not None:
        pools.put(("ns", "web"), pool)
    record = ClaimRecord(own={own} if own else set())
    return ClaimObserver(Allocator(Stores(Store(), pools, a_cache(vm))), lambda: 0.0)(
        claim or a_claim(), record
    ).unrecorded


@pytest.mark.parametrize(
    ("pool", "given", "unrecorded"),
    [
        pytest.param(recording(), {}, True, id="nobody knows the VM"),
        pytest.param(None, {}, True, id="a VM of no pool"),
        pytest.param(recording("m"), {}, False, id="the pool's status has it"),
        pytest.param(recording(status={}), {}, False, id="the pool has no record"),
        pytest.param(recording(), {"own": "m"}, False, id="this process has reserved or created it"),
        pytest.param(recording(), {"claim": a_claim(status=bound_status("m"))}, False, id="the claim's status has it"),
        pytest.param(recording(), {"claim": a_claim(status=bound_status("x"))}, True, id="it has another"),
    ],
)
def test_whether_a_controller_has_given_a_vm(pool: WarmPool | None, given: Any, unrecorded: bool) -> None:
    assert bool(observed(pool, claimed_vm("m"), **given)) is unrecorded


def test_a_forged_vm_enters_the_queue_of_ready_vms_only_with_a_record() -> None:
    forged = a_vm("forged")
    allocator = an_allocator(vms=a_cache(forged))
    before, after = recording(), recording("forged")
    allocator.stores.pools.put(("ns", "web"), before)
    tested = controller(allocator)
    tested.vm_changed(None, forged)
    assert allocator.candidate(a_claim(), before) is None
    allocator.stores.pools.put(("ns", "web"), after)
    tested.pool_changed(before, after)
    found = allocator.candidate(a_claim(), after)
    assert found.uid == "forged"
    assert allocator.candidate(a_claim(), before) is None, "the status is asked again when the VM is given away"
