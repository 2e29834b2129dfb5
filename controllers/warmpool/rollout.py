"""Replaces VMs of an old template, VMs past their maximum age, and VMs on nodes that are drained."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from controllers.warmpool.actions import Action, DeleteVM, OrphanVM
from controllers.warmpool.snapshot import WarmPoolSnapshot, max_age, on_leaving_node, scaled_value
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.warm_states import WarmState


@dataclass(frozen=True)
class DisruptionBudget:
    unavailable: int
    surge: int


def disruption_budget(snapshot: WarmPoolSnapshot) -> DisruptionBudget:
    """The budget of the update strategy. If both values are 0, one VM may be unavailable, as in a Deployment."""
    rolling, replicas = snapshot.pool.spec.update_strategy.rolling_update, snapshot.replicas
    surge = scaled_value(rolling.max_surge, replicas, round_up=True)
    unavailable = scaled_value(rolling.max_unavailable, replicas)
    return DisruptionBudget(unavailable if unavailable or surge else 1, surge)


def why_replaced(snapshot: WarmPoolSnapshot, m: WarmVM, now: datetime) -> Literal["Outdated", "Expired"] | None:
    if snapshot.outdated(m) and snapshot.pool.spec.update_strategy.type != "OnReplenish":
        return "Outdated"
    return "Expired" if snapshot.expired(m, now) else None


def replaced_vms(snapshot: WarmPoolSnapshot, now: datetime) -> list[WarmVM]:
    """The VMs of the pool's depth that are outdated or have expired."""
    return [] if snapshot.replaces_none else [m for m in snapshot.depth if why_replaced(snapshot, m, now)]


def replace_outdated(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Replaces VMs that are not available at once, and available VMs within the disruption budget."""
    old = [m for m in replaced_vms(snapshot, now) if m.state is not WarmState.UNKNOWN]
    recreate = snapshot.pool.spec.update_strategy.type == "Recreate"
    ready = [m for m in old if m.state is WarmState.READY and not (recreate and snapshot.outdated(m))]
    for m in old:
        if m not in ready:
            yield _replace(snapshot, m, now)
    if why_stalled(snapshot, now):
        return
    budget = len(snapshot.available) - (snapshot.target - disruption_budget(snapshot).unavailable)
    for m in sorted(ready, key=lambda m: (not why_unavailable(m), m.created_at, m.uid)):
        if not why_unavailable(m):
            budget -= 1
            if budget < 0:
                return
        yield _replace(snapshot, m, now)


def replace_on_leaving_nodes(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs on cordoned or drained nodes. Ready VMs are deleted only if enough other VMs are available, because
    the node may be uncordoned before."""
    enough = len(snapshot.available) >= snapshot.target
    for m in snapshot.members:
        if on_leaving_node(m) and (enough or m.state is not WarmState.READY):
            yield DeleteVM(m, "NodeLeaving", f"node {m.node.name if m.node else ''} is cordoned or drained")


def count_outdated(snapshot: WarmPoolSnapshot) -> int:
    """The number of outdated VMs that the update strategy replaces."""
    on_replenish = snapshot.pool.spec.update_strategy.type == "OnReplenish"
    return 0 if on_replenish else sum(snapshot.outdated(m) for m in snapshot.members)


def progress_deadline(snapshot: WarmPoolSnapshot) -> datetime | None:
    status, strategy = snapshot.pool.status, snapshot.pool.spec.update_strategy
    same_template = status.template_hash == snapshot.pool.template_hash
    if not same_template or status.last_progress_time is None or not strategy.progress_deadline_seconds:
        return None
    return parse_time(status.last_progress_time) + timedelta(seconds=strategy.progress_deadline_seconds)


def why_stalled(snapshot: WarmPoolSnapshot, now: datetime) -> str:
    """Why the rollout is past its progress deadline, or an empty string."""
    deadline = progress_deadline(snapshot)
    if deadline is None or now < deadline or not count_outdated(snapshot):
        return ""
    late = [m for m in snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY) if not snapshot.outdated(m)]
    if not late and not snapshot.failures.consecutive:
        return ""
    seconds = snapshot.pool.spec.update_strategy.progress_deadline_seconds
    why = snapshot.failures.message or ", ".join(f"{m.name} ({m.printable_status or 'no status'})" for m in late[:5])
    kept = count_noun(count_outdated(snapshot), "VM")
    return f"no progress for {seconds} s: {why}; the pool keeps {kept} of the old template"


def seconds_until_due(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    deadline = progress_deadline(snapshot)
    times = [(deadline - now).total_seconds()] if deadline is not None and count_outdated(snapshot) else []
    for m in snapshot.members:
        if (seconds := max_age(snapshot.pool, m)) is not None and m.created_at:
            times.append(seconds - (now - parse_time(m.created_at)).total_seconds())
    return min((seconds for seconds in times if seconds > 0), default=None)


def _replace(snapshot: WarmPoolSnapshot, m: WarmVM, now: datetime) -> Action:
    if why_replaced(snapshot, m, now) != "Outdated":
        return DeleteVM(m, "Expired", "the VM reached its maximum age")
    what = "the template, or an image that it tracks," if snapshot.pool.images else "the template"
    why = f"{what} has changed"
    if snapshot.pool.spec.incompatible_policy == "Orphan":
        return OrphanVM(m, "TemplateChanged", why)
    return DeleteVM(m, "Outdated", why)
