"""Applies the plan of a warm pool. Only this module writes the pool's VMs and finalizers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from controllers.sets import budget_writes
from controllers.sets.budget_writes import without_refusal
from controllers.sets.write_batches import Failure, Outcome, WriteBatches, merge_outcomes
from controllers.warmpool.actions import (
    Action,
    BudgetAction,
    CountFailedCheck,
    CreateVM,
    DeleteVM,
    OrphanVM,
    SetEvictionBudget,
    SetFinalizer,
    SetStandby,
    SetState,
    VMAction,
)
from controllers.warmpool.backends import (
    Backend,
    Change,
    CreateRequest,
    InvalidTransition,
    OutcomeUnknown,
    WriteConflict,
)
from controllers.warmpool.events import WarmPoolEvents, is_passing
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.plan import Plan
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_pool import WARM_POOLS, WarmPool
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api
from poolhouse.runtime.batch_writer import MAX_BATCH_SIZE
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.expectations import Expectations

MAX_VM_WRITES_IN_FLIGHT = 16
"""Smaller than the client's connection limit, so that claims get connections too."""
FAILURE_CAUSES = frozenset({"ReadinessTimeout", "NoRoom"})
"""Deletion causes that count as failures of the pool, because a new VM is likely to fail too."""

A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class WarmPoolOutcome(Outcome):
    """`failure` is that of a creation: the pool counts it, and waits before it creates VMs again."""

    budget: Outcome = field(default_factory=Outcome)
    """The outcome of the PodDisruptionBudget, whose failure is no failure of the pool."""

    @property
    def created(self) -> int:
        return sum(isinstance(action, CreateVM) for action in self.done)

    @property
    def lost(self) -> tuple[Failure, ...]:
        """Deletions whose cause is in FAILURE_CAUSES."""
        deleted = [a for a in self.done if isinstance(a, DeleteVM) and a.cause in FAILURE_CAUSES]
        return tuple(Failure(a.cause, f"{a.vm.name} was deleted: {a.reason}") for a in deleted)

    @property
    def became_ready(self) -> int:
        return sum(isinstance(action, SetState) and action.state is WarmState.READY for action in self.done)


@dataclass
class WarmPoolWriter:
    api: Api
    events: WarmPoolEvents
    expectations: Expectations[str]
    """The key is the pool's UID."""
    clock: Callable[[], float]
    created: dict[str, set[str]] = field(default_factory=dict)
    """UIDs of the VMs that this process has created and that still exist, by UID of the pool."""
    unanswered: dict[str, set[str]] = field(default_factory=dict)
    """Names of VMs whose creation got no answer, by UID of the pool."""
    batches: WriteBatches[WarmPool] = field(init=False)

    def __post_init__(self) -> None:
        # A backend raises Unreachable itself only for requests that create nothing.
        self.batches = WriteBatches(self.events, self.expectations, self.clock, is_passing, (OutcomeUnknown,))

    async def __call__(self, snapshot: WarmPoolSnapshot, plan: Plan, backend: Backend) -> WarmPoolOutcome:
        pool = snapshot.pool
        creations = [a for a in plan.actions if isinstance(a, CreateVM)]
        # The creations are expected before the first await: claims that create VMs count them towards `maxTotal`.
        self.batches.expect(pool, creations)
        async with asyncio.TaskGroup() as group:
            # The budget begins before the writes of many VMs: a drain of any node may begin at once. They do not wait
            # for it, because an admission webhook may delay it.
            budgets = [a for a in plan.actions if isinstance(a, BudgetAction)]
            of_budget = group.create_task(self._send(pool, budgets, partial(self._keep_budget, pool), careful=False))
            found = await self._write_vms(pool, plan, creations, backend)
        budget = of_budget.result()
        found = merge_outcomes((found, replace(without_refusal(budget), failure=None)))
        return WarmPoolOutcome(found.failure, found.retry, found.done, found.not_done, found.error, budget)

    async def _write_vms(self, pool: WarmPool, plan: Plan, creations: Sequence[CreateVM], backend: Backend) -> Outcome:
        changed = await self._change(pool, [a for a in plan.actions if isinstance(a, VMAction)], backend)
        deletions = [a for a in plan.actions if isinstance(a, DeleteVM)]
        deleted = await self._send(pool, deletions, partial(_terminate, backend), careful=False)
        created = await self._send(pool, creations, partial(self._create, pool, backend))
        finalizers = [a for a in plan.actions if isinstance(a, SetFinalizer)]
        finalizer = await self._send(pool, finalizers, partial(self._set_finalizer, pool))
        if created.failure:
            created = replace(created, retry=False, error=None)
        others = (replace(each, failure=None) for each in (changed, deleted, finalizer))
        return merge_outcomes((created, *others))

    async def _create(self, pool: WarmPool, backend: Backend, action: CreateVM) -> None:
        try:
            found = await backend.create(create_request(pool, action))
        except OutcomeUnknown:
            self.unanswered.setdefault(pool.uid, set()).add(action.name)
            raise
        self.created.setdefault(pool.uid, set()).add(found.uid)

    def created_of(self, pool: WarmPool, vms: Sequence[WarmVM], *, all_shown: bool) -> frozenset[str]:
        """UIDs of the pool's VMs that this process has created. With `all_shown`, `vms` has all that exist."""
        created = self.created.setdefault(pool.uid, set())
        if (unanswered := self.unanswered.get(pool.uid)) is not None:
            for vm in vms:
                if vm.name in unanswered:  # only once: somebody may delete the VM and use its name
                    unanswered.discard(vm.name)
                    created.add(vm.uid)
        if all_shown:
            created &= {vm.uid for vm in vms}
        return frozenset(created)

    def vm_gone(self, vm: WarmVM) -> None:
        """Without this, the status would show a VM that another process has deleted until all writes are observed."""
        self.created.get(vm.pool_uid, set()).discard(vm.uid)

    def forget(self, pool_uid: str) -> None:
        self.created.pop(pool_uid, None)
        self.unanswered.pop(pool_uid, None)

    async def orphan(self, orphans: Sequence[OrphanVM], backend: Backend) -> bool:
        """Orphans VMs without a pool. Returns whether all writes succeeded."""
        return not (await self._change(None, orphans, backend)).retry

    async def _change(self, pool: WarmPool | None, actions: Sequence[VMAction], backend: Backend) -> Outcome:
        """Makes changes that do not depend on each other, so a failure does not stop the others."""
        in_flight = asyncio.Semaphore(MAX_VM_WRITES_IN_FLIGHT)

        async def one(action: VMAction) -> None:
            async with in_flight:
                if isinstance(action, SetStandby):
                    await backend.stand_by(action.vm, action.mode)
                else:
                    await backend.change(action.vm, vm_change(action))

        return await self._send(pool, actions, one, max_in_flight=len(actions), careful=False)

    async def _send(
        self,
        pool: WarmPool | None,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[object]],
        *,
        max_in_flight: int = MAX_BATCH_SIZE,
        careful: bool = True,
    ) -> Outcome:
        async def reported(action: A) -> None:
            try:
                await call(action)
            except InvalidTransition as error:  # a bug, which a retry would repeat
                assert isinstance(action, VMAction)
                self.events.invariant_violated(pool, "states", action.vm, str(error))
                return
            except Exception as error:
                self.events.not_done(pool, action, error)
                raise
            self.events.done(pool, action)

        return await self.batches.send(
            pool, actions, reported, max_in_flight=max_in_flight, quiet=True, careful=careful
        )

    async def _keep_budget(self, pool: WarmPool, action: BudgetAction) -> None:
        if isinstance(action, SetEvictionBudget):
            labels, owner = {meta.WARM_POOL: pool.name}, pool.owner.json()
            await budget_writes.set_budget(self.api, pool.namespace, labels, owner, action)
        else:
            await budget_writes.delete_budget(self.api, pool.namespace, action.name, action.uid)

    async def _set_finalizer(self, pool: WarmPool, action: SetFinalizer) -> None:
        """The patch replaces the whole list, so it has the resourceVersion: finalizers of other clients must stay."""
        others = [each for each in pool.finalizers if each != FINALIZER]
        finalizers = [*others, FINALIZER] if action.wanted else others
        change = {"uid": pool.uid, "resourceVersion": pool.resource_version, "finalizers": finalizers}
        with suppress(NotFound):  # the pool no longer exists
            await self.api.patch(WARM_POOLS, pool.namespace, pool.name, {"metadata": change})


async def _terminate(backend: Backend, action: DeleteVM) -> None:
    if not await backend.terminate(action.vm, action.reason):
        raise WriteConflict(f"{action.vm.name} has changed")


def create_request(pool: WarmPool, action: CreateVM) -> CreateRequest:
    return CreateRequest(
        namespace=pool.namespace,
        name=action.name,
        pool=pool.name,
        pool_uid=pool.uid,
        owner=pool.owner,
        template=pool.pinned(pool.template),
        template_hash=pool.hashes[action.placement],
        placement=pool.placements[action.placement],
        standby=action.standby,
    )


def vm_change(action: SetState | CountFailedCheck | OrphanVM) -> Change:
    match action:
        case SetState():
            annotations: dict[str, str | None] = {meta.STATE_REASON: action.reason}
            if action.vm.check_failures:
                annotations[meta.CHECK_FAILURES] = None
            labels: dict[str, str | None] = {meta.STANDBY: action.standby} if action.standby else {}
            return Change(action.state, labels=labels, annotations=annotations)
        case CountFailedCheck():
            return Change(annotations={meta.CHECK_FAILURES: str(action.failures)})
        case OrphanVM():
            return Change(owner=NO_OWNER, labels={meta.ORPHANED: action.cause})
