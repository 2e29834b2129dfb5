"""Machines that are to be replaced by others: of an old template, too old, or on a node that is being emptied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.warmpool.actions import Action, DeleteVM, OrphanVM
from controllers.warmpool.snapshot import WarmPoolSnapshot, max_age, on_leaving_node, scaled_value
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from kinds.warm_states import WarmState


@dataclass(frozen=True)
class DisruptionBudget:
    """How far a rollout may go below and above the target."""

    down: int
    surge: int


def disruption_budget(state: WarmPoolSnapshot) -> DisruptionBudget:
    """Both nothing would be no rollout at all: then one may be missing."""
    rolling, replicas = state.pool.spec.update_strategy.rolling_update, state.pool.spec.replicas
    surge = scaled_value(rolling.max_surge, replicas, up=True)
    down = scaled_value(rolling.max_unavailable, replicas)
    return DisruptionBudget(down if down or surge else 1, surge)


def why_replaced(state: WarmPoolSnapshot, m: WarmVM, now: datetime) -> str:
    """Why another is to take its place, in one word, or nothing."""
    if state.outdated(m) and state.pool.spec.update_strategy.type != "OnReplenish":
        return "Outdated"
    return "Expired" if state.expired(m, now) else ""


def replace_outdated(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Who can't be given away serves nobody and goes at once; of the others so many that the rest is enough."""
    old = [m for m in state.depth if m.state is not WarmState.UNKNOWN and why_replaced(state, m, now)]
    all_at_once = state.pool.spec.update_strategy.type == "Recreate"
    serving = [m for m in old if m.state is WarmState.READY and not (all_at_once and state.outdated(m))]
    for m in old:
        if m not in serving:
            yield _retire(state, m, now)
    if why_stalled(state, now):
        return
    may_go = len(state.available) - (state.target - disruption_budget(state).down)
    for m in sorted(serving, key=lambda m: (not why_unavailable(m), m.created_at, m.uid)):
        if not why_unavailable(m):
            may_go -= 1
            if may_go < 0:
                return
        yield _retire(state, m, now)


def replace_on_leaving_nodes(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """They can't be given away any more, but are deleted only when others are there: the node may come back sooner."""
    enough = len(state.available) >= state.target
    for m in state.members:
        if on_leaving_node(m) and (enough or m.state is not WarmState.READY):
            yield DeleteVM(m, "NodeLeaving", f"node {m.node.name if m.node else ''} is being emptied")


def count_outdated(state: WarmPoolSnapshot) -> int:
    """Of those that the strategy replaces."""
    if state.pool.spec.update_strategy.type == "OnReplenish":
        return 0
    return sum(state.outdated(m) for m in state.members)


def deadline(state: WarmPoolSnapshot) -> datetime | None:
    """When a rollout that does not get on is stopped."""
    status, strategy = state.pool.status, state.pool.spec.update_strategy
    known = status.template_hash == state.pool.template_hash
    if not known or status.last_progress_time is None or not strategy.progress_deadline_seconds:
        return None
    return datetime.fromisoformat(status.last_progress_time) + timedelta(seconds=strategy.progress_deadline_seconds)


def why_stalled(state: WarmPoolSnapshot, now: datetime) -> str:
    """Why no more machines that serve are replaced, or nothing."""
    end = deadline(state)
    if end is None or now < end or not count_outdated(state):
        return ""
    late = [m for m in state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY) if not state.outdated(m)]
    if not late and not state.failures.consecutive:
        return ""
    seconds = state.pool.spec.update_strategy.progress_deadline_seconds
    why = state.failures.message or ", ".join(f"{m.name} ({m.printable_status or 'no state'})" for m in late[:5])
    return f"no progress for {seconds} s: {why}; {count_outdated(state)} machines of the old template go on serving"


def seconds_until_due(state: WarmPoolSnapshot, now: datetime) -> float | None:
    end = deadline(state)
    times = [(end - now).total_seconds()] if end is not None and count_outdated(state) else []
    for m in state.members:
        if (most := max_age(state.pool, m)) is not None and m.created_at:
            times.append(most - (now - datetime.fromisoformat(m.created_at)).total_seconds())
    return min((seconds for seconds in times if seconds > 0), default=None)


def _retire(state: WarmPoolSnapshot, m: WarmVM, now: datetime) -> Action:
    cause = why_replaced(state, m, now)
    reason = "the template has changed" if cause == "Outdated" else "it is as old as a machine may get"
    if cause == "Outdated" and state.pool.spec.incompatible_policy == "Orphan":
        return OrphanVM(m, "TemplateChanged", reason)
    return DeleteVM(m, cause, reason)
