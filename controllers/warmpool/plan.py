"""Plans the next actions of a warm pool. A step is a function `(snapshot, now) -> actions`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.warmpool import evictions, heal, orphaning, rollout, scale, standby
from controllers.warmpool.actions import Action, DeleteVM, SetState, VMAction
from controllers.warmpool.snapshot import WarmPoolSnapshot
from poolhouse.api.kinds.warm_states import WarmState

Step = Callable[[WarmPoolSnapshot, datetime], Iterator[Action]]

VM_STEPS: tuple[Step, ...] = (
    orphaning.delete_contradictory,
    orphaning.orphan_disowned,
    orphaning.delete_marked,
    orphaning.delete_unrecorded,
    heal.update_health_states,
    heal.delete_unhealthy,
    heal.delete_not_ready,
    standby.finish_provisioning,
    standby.enter_standby,
)
"""Steps that decide for one VM at a time. The plan keeps only the first action for a VM."""
TIMERS: tuple[Callable[[WarmPoolSnapshot, datetime], float | None], ...] = (
    standby.seconds_until_ready,
    heal.seconds_until_timeout,
    orphaning.seconds_until_deleted,
    scale.seconds_until_allowed,
    rollout.seconds_until_due,
    evictions.seconds_until_allowed,
)


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    """The actions. `WarmPoolWriter` sends them in the order of their types."""
    requeue_seconds: float | None = None
    """Seconds until the passage of time changes the plan. None if it never does."""
    budget: evictions.WarmPoolBudget | None = None
    """The PodDisruptionBudget that the pool needs."""


def plan(snapshot: WarmPoolSnapshot, now: datetime) -> Plan:
    if snapshot.pool.deleting:
        unneeded = evictions.keep_budget(snapshot, evictions.desired_budget(snapshot, now))
        return Plan((*orphaning.orphan_members(snapshot, now), *unneeded))
    found = (action for step in VM_STEPS for action in step(snapshot, now))
    of_vms = _first_of_each_vm(action for action in found if not _offers_unrecorded(snapshot, action))
    of_pool = () if snapshot.pool.spec.paused else tuple(_pool_actions(snapshot, now, of_vms))
    # If the steps of the pool delete or update a VM, the plan has no other write for it.
    planned = {_uid(action) for action in of_pool}
    of_vms = tuple(action for action in of_vms if _uid(action) not in planned)
    times = (seconds for timer in TIMERS if (seconds := timer(snapshot, now)) is not None)
    budget = evictions.desired_budget(snapshot, now)
    others = *orphaning.update_finalizer(snapshot, now), *evictions.keep_budget(snapshot, budget)
    return Plan((*others, *of_vms, *of_pool), min(times, default=None), budget)


def _pool_actions(snapshot: WarmPoolSnapshot, now: datetime, of_vms: tuple[Action, ...]) -> Iterator[Action]:
    """Plans deletions for one reason at a time, because two reasons together could delete one VM too many. Plans none
    while the cache does not show all earlier writes."""
    busy = {_uid(action) for action in of_vms}
    if snapshot.expectations_met and not any(isinstance(action, DeleteVM) for action in of_vms):
        excess = tuple(scale.scale_in(snapshot, now))
        replaced = excess or rollout.replace_outdated(snapshot, now)
        leaving = _first_of_each_vm((*replaced, *rollout.replace_on_leaving_nodes(snapshot, now)))
        for_room = () if leaving else tuple(scale.make_room(snapshot, now))
        busy |= {_uid(action) for action in (*leaving, *for_room)}
        yield from (*leaving, *for_room)
        if not excess and not for_room:  # VMs that are being deleted still occupy their capacity
            yield from scale.scale_out(snapshot, now)
    yield from (action for action in standby.change_standby(snapshot, now) if _uid(action) not in busy)


def _offers_unrecorded(snapshot: WarmPoolSnapshot, action: Action) -> bool:
    """Whether claims would get a VM before the stored status has it. The event of the status enqueues the pool."""
    return isinstance(action, SetState) and action.state is WarmState.READY and not snapshot.pool.recorded(action.vm)


def _first_of_each_vm(actions: Iterable[Action]) -> tuple[Action, ...]:
    found: dict[str, Action] = {}
    for action in actions:
        found.setdefault(_uid(action), action)
    return tuple(found.values())


def _uid(action: Action) -> str:
    return action.vm.uid if isinstance(action, DeleteVM | VMAction) else f"{action}"
