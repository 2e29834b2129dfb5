"""The rule that keeps the PodDisruptionBudget of a pool: a drain stops no more VMs at once than the
pool itself would."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from controllers.pool.actions import Action, DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.causes import why_not_started
from controllers.pool.outages import lost_vms
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.eviction_budget import desired_budget, least
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets.eviction_budgets import describe_refusal, keep_in_step
from controllers.shared.conditions import condition, names_and_verb
from poolhouse.api.apimachinery.timestamps import known_time, seconds_until_next
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition


def keep_budget(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Brings the budget in step with the pool. A paused pool is drained too."""
    if snapshot.budget_refusal is None or not snapshot.budget_refusal.wait_seconds:
        yield from _needed(snapshot)


def _needed(snapshot: PoolSnapshot) -> Iterator[Action]:
    pool, labels = snapshot.pool, {meta.POOL: snapshot.pool.name}
    if snapshot.budgets is not None:
        yield from keep_in_step(
            pool, labels, snapshot.budgets, desired_budget(snapshot), SetEvictionBudget, DeleteEvictionBudget
        )


def _why_unavailable(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why VMs do not become available by themselves. The Pod of a paused VM is not ready. Empty if nothing is known."""
    paused = [vm.name for vm in snapshot.active if vm.should_run and vm.vmi is not None and vm.vmi.paused]
    unready = [name for name, late_at in _late_when_unready(snapshot) if late_at <= now]
    seconds = snapshot.pool.spec.progress_deadline_seconds
    said = (
        why_not_started(snapshot),
        f"{names_and_verb(paused, 'is', 'are')} paused" if paused else "",
        f"{names_and_verb(unready, 'runs and is', 'run and are')} not ready for {seconds} s: see the readiness probe"
        if unready
        else "",
    )
    return "; ".join(filter(None, said))


def _late_when_unready(snapshot: PoolSnapshot) -> Iterator[tuple[str, datetime]]:
    """The VMs that run and are not ready, and the time from which on they do not count as ones that start.
    Those of lost nodes are named with their node."""
    lost = lost_vms(snapshot)
    for vm in snapshot.active:
        if vm.should_run and vm.uid not in lost and vm.vmi is not None and vm.vmi.running and not vm.vmi.paused:
            since = known_time(vm.vmi.unready_since)
            if since is not None:
                yield vm.name, since + timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds)


def _seconds_until_blocked(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until another VM does not count as one that starts."""
    return seconds_until_next((late_at for _, late_at in _late_when_unready(snapshot)), now)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    kind, wanted, refusal = "EvictionBudgetFailure", desired_budget(snapshot), snapshot.budget_refusal
    available = sum(vm.should_run and vm.available for vm in snapshot.active)
    if refusal is not None and any(_needed(snapshot)):
        message = describe_refusal(snapshot.pool, snapshot.budgets or (), wanted, refusal)
        yield condition(kind, True, PoolReason.EVICTION_BUDGET_REFUSED, message)
    elif wanted.failure is not None:
        yield condition(kind, True, wanted.failure, wanted.reason)
    elif wanted.min_available and available <= least(snapshot) and (why := _why_unavailable(snapshot, now)):
        message = f"a drain must wait, because {wanted.reason}, and only {available} are available: {why}"
        yield condition(kind, True, PoolReason.EVICTIONS_BLOCKED, message)
    else:
        yield condition(kind, False, PoolReason.NO_EVICTION_BUDGET_FAILURE)


EVICTIONS = Rule(always=(keep_budget,), again=(_seconds_until_blocked,), conditions=_conditions)
