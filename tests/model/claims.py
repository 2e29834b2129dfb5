"""The model of claims, their warm pool and its VMs: each step of a claim and each plan of the pool is a move."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from controllers.claim import steps
from controllers.claim.allocator import Allocator, Stores
from controllers.claim.observe import ClaimObserver
from controllers.claim.plan import plan
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import SOURCE, Claim, ClaimSnapshot, Failure
from controllers.warmpool import actions
from controllers.warmpool.health import standby_health, vmi_health
from controllers.warmpool.plan import Plan as PoolPlan
from controllers.warmpool.plan import plan as plan_pool
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_pool import SOURCE as POOL_SOURCE
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import PAUSED_BY_USER, WarmVM, with_resumed_guest
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import a_claim
from tests.controllers.warmpool.builders import NODE, NOW, a_cache, a_pool, a_vm, a_vmi
from tests.model.canonical import Canonical
from tests.model.kubevirt import CRASHING, unused
from tests.model.search import Move

RETRY = timedelta(seconds=1)
TIMED = (WarmState.PROVISIONING, WarmState.STANDING_BY, WarmState.UNKNOWN)
"""states that end after a time"""


@dataclass(frozen=True)
class ClaimBounds:
    spec: Mapping[str, Any] = field(default_factory=dict)
    """of the pool, apart from replicas and template"""
    vms: int = 2
    claims: int = 2
    faults: int = 1
    changes: int = 1
    replicas: Sequence[int] = (0, 1)


@dataclass(frozen=True)
class Memory:
    """What the controller remembers of claims, by UID."""

    queue: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    """claims whose VMs are all in the stores"""
    refused: tuple[tuple[str, Failure, str], ...] = ()
    """with the time of the next attempt"""


@dataclass(frozen=True)
class World:
    pool: WarmPool
    claims: tuple[Claim, ...]
    vms: tuple[WarmVM, ...]
    memory: Memory
    now: datetime
    faults: int
    changes: int

    def __str__(self) -> str:
        vms = ", ".join(f"{vm.name} {vm.state and vm.state.value}" for vm in self.vms)
        return f"{self.pool.spec.replicas} replicas; {len(self.claims)} claims; {vms or 'no VM'}"


@dataclass(frozen=True)
class Decided:
    """What the controller does for a claim: a write, or a wait."""

    snapshot: ClaimSnapshot
    step: steps.Step
    memory: Memory


Planner = Callable[[ClaimSnapshot, datetime], steps.Step]
Write = Callable[["World", ClaimSnapshot, steps.Step], "World | None"]


@dataclass
class ClaimModel:
    bounds: ClaimBounds = ClaimBounds()
    plan: Planner = plan
    plan_pool: Callable[[WarmPoolSnapshot, datetime], PoolPlan] = plan_pool
    write: Write | None = None
    _canonical: Canonical = field(default_factory=lambda: Canonical(frozenset({"created_at", "resource_version"})))
    _pools: dict[int, WarmPool] = field(default_factory=dict)

    def initial(self) -> Iterator[World]:
        for replicas, kinds in product(self.bounds.replicas, product(KINDS, repeat=self.bounds.vms)):
            vms = tuple(KINDS[kind](f"vm-{number}") for number, kind in enumerate(kinds) if kind != "missing")
            claims = tuple(_claim(number) for number in range(self.bounds.claims))
            faults, changes = self.bounds.faults, self.bounds.changes
            yield World(self._pool(replicas), claims, vms, Memory(), NOW, faults, changes)

    def _pool(self, replicas: int) -> WarmPool:
        return self._pools.setdefault(replicas, a_pool(replicas, **self.bounds.spec))

    def key(self, world: World) -> Hashable:
        claims = tuple(_claim_key(claim, world.now) for claim in world.claims)
        vms = tuple(sorted((self._canonical(vm, world.now) for vm in world.vms), key=str))
        refused = tuple((uid, _age(at, world.now)) for uid, _, at in world.memory.refused)
        memory = world.memory.queue, world.memory.known, refused
        return world.pool.spec.replicas, claims, vms, memory, world.faults, world.changes

    # Moves

    def moves(self, world: World) -> Iterator[Move[World]]:
        active, seconds = list[tuple[str, World]](), list[float]()
        decided = [self._decide(world, claim) for claim in world.claims]
        for each in decided:
            if isinstance(each.step, steps.Requeue):
                if each.step.after_seconds is not None:
                    seconds.append(each.step.after_seconds)
            else:
                active.append((_label(each), self._written(world, each)))
        of_pool = self.plan_pool(self._pool_snapshot(world), world.now)
        if of_pool.actions:
            active.append((_pool_label(of_pool.actions), _pool_written(world, of_pool.actions)))
        if of_pool.requeue_seconds is not None:
            seconds.append(of_pool.requeue_seconds)
        active += list(_progress(world))
        for label, after in active:
            yield Move(label, after)
        if not active and seconds:
            yield Move(f"{min(seconds):.1f} s pass", self._later(world, min(seconds)), passive=True)
        for label, after in self._by_users(world) if world.changes else ():
            yield Move(label, replace(after, changes=world.changes - 1), fair=False)
        if world.faults:
            for label, after in self._by_faults(world, decided, active, of_pool.actions):
                yield Move(label, replace(after, faults=world.faults - 1), fair=False)

    def _later(self, world: World, seconds: float) -> World:
        now = world.now + timedelta(seconds=max(seconds, 1.0))
        due = tuple(each for each in world.memory.refused if now < parse_time(each[2]))
        return replace(world, now=now, memory=replace(world.memory, refused=due))

    def _decide(self, world: World, claim: Claim) -> Decided:
        """The step of the claim that writes or waits. Reads and the queue come before it."""
        memory, health = world.memory, None
        while True:
            snapshot = replace(self._snapshot(world, claim, memory), health=health)
            step = self.plan(snapshot, world.now)
            match step:
                case steps.FindVMs():
                    memory = replace(memory, known=memory.known | {claim.uid})
                case steps.JoinWaitQueue():
                    memory = replace(memory, queue=(*memory.queue, claim.uid))
                case steps.CheckHealth(vm):
                    health = vmi_health(vm, world.pool.spec.readiness)
                case _:
                    return Decided(snapshot, step, memory)

    def _allocator(self, world: World, memory: Memory) -> Allocator:
        claims, pools = SOURCE.store(), POOL_SOURCE.store()
        pools.put(world.pool.key, world.pool)
        for claim in world.claims:
            claims.put(claim.key, claim)
        found = Allocator(Stores(claims, pools, a_cache(*world.vms)))
        found.reset(world.claims)
        for uid in memory.queue:
            claim = next(each for each in world.claims if each.uid == uid)
            found.join_queue(claim, world.pool, found.record(claim))
        return found

    def _snapshot(self, world: World, claim: Claim, memory: Memory) -> ClaimSnapshot:
        allocator = self._allocator(world, memory)
        record = allocator.record(claim)
        record.vms_known = claim.uid in memory.known
        found = ClaimObserver(allocator, lambda: 0.0)(claim, record)
        failure = next((failure for uid, failure, _ in memory.refused if uid == claim.uid), None)
        return replace(found, failure=failure)

    def _written(self, world: World, decided: Decided) -> World:
        uid, memory = decided.snapshot.claim.uid, decided.memory
        after = (self.write or written)(replace(world, memory=memory), decided.snapshot, decided.step)
        if after is None:  # another write came first
            after = replace(world, memory=replace(memory, known=memory.known - {uid}))
        waiting = {claim.uid for claim in after.claims if claim.status.phase in ("", "Pending", "Queued")}
        queue = tuple(each for each in after.memory.queue if each in waiting)
        if isinstance(decided.step, steps.ReserveVM | steps.CreateVM):
            queue = tuple(each for each in queue if each != uid)
        return replace(after, memory=replace(after.memory, queue=queue))

    def _pool_snapshot(self, world: World) -> WarmPoolSnapshot:
        pool, readiness = world.pool, world.pool.spec.readiness
        health = {}
        for vm in world.vms:
            awake = vmi_health(vm, readiness)
            standby = awake if vm.standby == "Running" else standby_health(vm)
            periods = pool.spec.health.failure_threshold if standby.verdict == "Failed" else 0
            health[vm.uid] = VMHealth(awake, standby, periods, bool(periods), healthy_seconds=1000.0)
        queued = len(self._allocator(world, world.memory).queue(pool.uid))
        return WarmPoolSnapshot(pool, world.vms, health, queued_claims=queued, seed="s", default_pool=pool)

    # Faults and users

    def _by_faults(
        self,
        world: World,
        decided: Sequence[Decided],
        active: Sequence[tuple[str, World]],
        of_pool: Sequence[actions.Action],
    ) -> Iterator[tuple[str, World]]:
        if world.memory != Memory():
            yield "another leader", replace(world, memory=Memory())
        for label, after in active:
            yield f"{label}, then a crash", replace(after, memory=Memory())
        for number in range(1, len(of_pool)):
            yield f"crash after {number} of {len(of_pool)} writes", _pool_written(world, of_pool[:number])
        for each in decided:
            claim, step = each.snapshot.claim, each.step
            if isinstance(step, steps.ReserveVM | steps.CreateVM):
                reason = ClaimReason.FAILED_CREATE if isinstance(step, steps.CreateVM) else ClaimReason.FAILED_RESERVE
                refused = _refused(replace(world, memory=each.memory), claim, Failure(reason, "refused"))
                yield f"{_label(each)} is refused", refused
            if not isinstance(step, steps.Requeue):
                for label, after in (*active, *self._by_users(world)):
                    stale = self._written(replace(after, memory=Memory()), replace(each, memory=Memory()))
                    yield f"{label}, and then from before: {_label(each)}", stale
        for vm in world.vms:
            if vm.vmi is not None and not vm.deleting:
                broken = replace(vm, vmi=None, node=None, start_failures=3, printable_status=CRASHING)
                yield f"{vm.name} fails for good", _with_vm(world, broken)

    def _by_users(self, world: World) -> Iterator[tuple[str, World]]:
        for replicas in self.bounds.replicas:
            if replicas != world.pool.spec.replicas:
                yield f"scaled to {replicas}", replace(world, pool=self._pool(replicas))
        for claim in world.claims:
            if not (claim.spec.release or claim.finished or claim.deleting):
                spec = claim.spec.model_copy(update={"release": True})
                yield f"{claim.name} is released", _with_claim(world, replace(claim, spec=spec, generation=2))
            if not claim.deleting:
                left = tuple(each for each in world.claims if each.uid != claim.uid)
                queue = tuple(each for each in world.memory.queue if each != claim.uid)
                gone = replace(world, claims=left, memory=replace(world.memory, queue=queue))
                yield f"{claim.name} is deleted", gone
        for vm in world.vms:
            if not vm.deleting:
                yield f"{vm.name} is deleted", _with_vm(world, replace(vm, deleting=True))

    # Rest

    def unrest(self, world: World) -> str:
        for claim in world.claims:
            own = [vm for vm in world.vms if vm.claim_uid == claim.uid]
            if claim.finished and own:
                return f"{claim.name} is {claim.status.phase} and has {own[0].name}"
            reason = next((each.reason for each in claim.status.conditions if each.type == "Bound"), "")
            if reason == ClaimReason.FAILED_CREATE:
                return f"{claim.name} has failed, and a VM can be created"
            in_use = [vm.state is WarmState.IN_USE and vm.uid == claim.vm_uid for vm in own]
            if not claim.finished and (claim.status.phase != "Ready" or in_use != [True]):
                return f"{claim.name} is {claim.status.phase or 'new'} and has {len(own)} VMs"
            bound = [each.message for each in claim.status.conditions if each.type == "Bound"]
            if not all(bound) or not bound:
                return f"{claim.name} does not say why it has no VM"
        snapshot = self._pool_snapshot(world)
        broken = any(vm.start_failures for vm in world.vms)
        if len(snapshot.members) != snapshot.replicas and snapshot.capacity_left and not broken:
            return f"the pool has {len(snapshot.members)} VMs, {snapshot.replicas} are wanted"
        left = [vm.name for vm in world.vms if vm.deleting or (vm.claim_uid and not _owner(world, vm))]
        return f"{left[0]} is left" if left else ""


def _refused(world: World, claim: Claim, why: Failure) -> World:
    others = tuple(each for each in world.memory.refused if each[0] != claim.uid)
    refused = (*others, (claim.uid, why, format_time(world.now + RETRY)))
    return replace(world, memory=replace(world.memory, refused=refused))


def _owner(world: World, vm: WarmVM) -> bool:
    return any(claim.uid == vm.claim_uid for claim in world.claims)


# Writes


def written(world: World, seen: ClaimSnapshot, step: steps.Step) -> World | None:
    """The world after the request of a step that was planned from `seen`. None if something has changed meanwhile."""
    claim = next((each for each in world.claims if each.uid == seen.claim.uid), None)
    if claim is None:
        return world
    match step:
        case steps.UpdateStatus(status):
            version = str(int(claim.resource_version) + 1)
            changed = replace(claim, status=status, resource_version=version)
            return _with_claim(world, changed) if claim == seen.claim else None
        case steps.CreateVM(pool, name):
            if any(vm.name == name for vm in world.vms):
                why = Failure(ClaimReason.FAILED_CREATE, f"{name} exists", final=True)
                return _refused(world, claim, why)
            made = a_vm(_uid(world, name), WarmState.ALLOCATING, of=pool)
            made = replace(made, name=name, claim_uid=claim.uid, owner=claim.owner, activated=True)
            return _with_vm(world, _lean(replace(made, vmi=None, node=None), world.now))
        case steps.DeleteClaim():
            return replace(world, claims=tuple(each for each in world.claims if each.uid != claim.uid))
    assert isinstance(step, steps._VMStep)
    vm = next((each for each in world.vms if each.uid == step.vm.uid), None)
    if vm is None or vm.deleting or replace(vm, vmi=None, node=None) != replace(step.vm, vmi=None, node=None):
        return None
    match step:
        case steps.ReserveVM():
            vm = replace(vm, state=WarmState.ALLOCATING, claim_uid=claim.uid, owner=claim.owner)
        case steps.MarkActivated():
            vm = replace(vm, activated=True)
        case steps.ActivateVM():
            vm = replace(with_resumed_guest(vm), run_strategy="Always")
        case steps.HandOverVM():
            vm = replace(vm, state=WarmState.IN_USE, owner=claim.owner)
        case steps.DeleteVM():
            vm = replace(vm, deleting=True)
        case _:
            raise AssertionError(step)
    return _with_vm(world, _lean(vm, world.now))


def _pool_written(world: World, planned: Sequence[actions.Action]) -> World:
    for action in planned:
        if isinstance(action, actions.CreateVM):
            uid = _uid(world, "new")
            made = a_vm(uid, WarmState.PROVISIONING, of=world.pool, placement=action.placement, standby=action.standby)
            world = _with_vm(world, _lean(replace(made, vmi=None, node=None, run_strategy="Always"), world.now))
            continue
        assert isinstance(action, actions.DeleteVM | actions.VMAction), action
        vm = next((each for each in world.vms if each.uid == action.vm.uid), None)
        if vm is None or vm != action.vm:
            continue
        match action:
            case actions.SetState(_, state, _, standby):
                vm = _lean(replace(vm, state=state, standby=standby or vm.standby, check_failures=0), world.now)
            case actions.SetStandby(_, mode):
                vm = _in_mode(vm, mode)
            case actions.CountFailedCheck(_, failures):
                vm = replace(vm, check_failures=failures)
            case actions.DeleteVM():
                vm = replace(vm, deleting=True)
            case _:
                raise AssertionError(action)
        world = _with_vm(world, vm)
    return world


def _in_mode(vm: WarmVM, mode: str) -> WarmVM:
    if mode == "Stopped":
        return replace(vm, run_strategy="Halted")
    if mode == "Paused":
        return replace(vm, vmi=replace(vm.vmi, paused=PAUSED_BY_USER)) if vm.vmi is not None else vm
    return replace(with_resumed_guest(vm), run_strategy="Always")


def _progress(world: World) -> Iterator[tuple[str, World]]:
    """What KubeVirt and the garbage collector do next."""
    for vm in world.vms:
        if vm.deleting:
            yield f"{vm.name} is gone", replace(world, vms=tuple(each for each in world.vms if each.uid != vm.uid))
        elif vm.claim_uid and not _owner(world, vm):
            yield f"{vm.name} is deleted with its claim", _with_vm(world, replace(vm, deleting=True))
        elif vm.run_strategy == "Halted" and vm.vmi is not None:
            yield f"{vm.name} has stopped", _with_vm(world, replace(vm, vmi=None, node=None))
        elif vm.run_strategy != "Halted" and vm.vmi is None and not vm.start_failures:
            vmi = a_vmi(name=vm.name, owner_uid=vm.uid)
            yield f"{vm.name} is ready", _with_vm(world, replace(vm, vmi=vmi, node=NODE))


# Parts


def _with_claim(world: World, claim: Claim) -> World:
    return replace(world, claims=tuple(claim if each.uid == claim.uid else each for each in world.claims))


def _with_vm(world: World, vm: WarmVM) -> World:
    """The world with the VM, in place of its last version."""
    if all(each.uid != vm.uid for each in world.vms):
        return replace(world, vms=(*world.vms, vm))
    return replace(world, vms=tuple(vm if each.uid == vm.uid else each for each in world.vms))


def _lean(vm: WarmVM, now: datetime) -> WarmVM:
    """The VM whose state has just changed, without a time that nothing reads."""
    return replace(vm, created_at="", state_since=format_time(now) if vm.state in TIMED else "")


def _uid(world: World, prefix: str) -> str:
    return unused(prefix, {vm.uid for vm in world.vms} | {claim.vm_uid for claim in world.claims})


def _age(text: str | None, now: datetime) -> float | None:
    return (now - parse_time(text)).total_seconds() if text else None


def _claim_key(claim: Claim, now: datetime) -> Hashable:
    status = claim.status
    conditions = tuple((each.type, each.status, each.reason) for each in status.conditions)
    bound = next((each.last_transition_time for each in status.conditions if each.type == "Bound"), None)
    begin = bound if status.attempts else claim.created_at
    waits = not (claim.finished or status.ready_at)
    ages = (_age(begin, now), _age(status.bound_at, now)) if waits else ()
    launch = status.launch_type, (status.launch_reason or "").partition(":")[0]
    facts = status.phase, claim.vm_uid, launch, status.attempts, status.queue_position, bool(status.ready_at)
    return claim.uid, claim.spec.release, claim.generation == status.observed_generation, facts, conditions, ages


def _label(decided: Decided) -> str:
    step = decided.step
    what: str = step.status.phase if isinstance(step, steps.UpdateStatus) else ""
    what = step.vm.name if isinstance(step, steps._VMStep) else what
    return f"{decided.snapshot.claim.name}: {type(step).__name__} {what}".rstrip()


def _pool_label(planned: Sequence[actions.Action]) -> str:
    return "; ".join(f"{type(each).__name__} {getattr(each, 'state', '')}".rstrip() for each in planned)


def _claim(number: int) -> Claim:
    return a_claim(uid=f"claim-{number}", name=f"mine-{number}", resourceVersion="1", bindTimeoutSeconds=30)


def _vm(uid: str, state: WarmState = WarmState.READY, **facts: Any) -> WarmVM:
    claim = _claim(0)
    claimed: dict[str, Any] = {"claim_uid": claim.uid, "owner": claim.owner} if state is WarmState.ALLOCATING else {}
    return _lean(a_vm(uid, state, **claimed, **facts), NOW)


KINDS: dict[str, Callable[[str], WarmVM]] = {
    "missing": _vm,
    "provisioning": lambda uid: _vm(uid, WarmState.PROVISIONING, vmi=None, node=None),
    "ready": _vm,
    "reserved": lambda uid: _vm(uid, WarmState.ALLOCATING),
    "unhealthy": lambda uid: _vm(uid, WarmState.UNHEALTHY),
    "deleting": lambda uid: _vm(uid, deleting=True),
}
