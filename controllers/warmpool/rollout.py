"""Replaces VMs of an old template, VMs past their maximum age, and VMs on nodes that are drained."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from controllers.shared.conditions import join_names
from controllers.warmpool.actions import Action, DeleteVM, OrphanVM
from controllers.warmpool.snapshot import WarmPoolSnapshot, max_age, on_leaving_node
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.int_or_percent import scaled_value
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


def why_replaced(snapshot: WarmPoolSnapshot, vm: WarmVM, now: datetime) -> Literal["Outdated", "Expired"] | None:
    if snapshot.outdated(vm) and snapshot.pool.spec.update_strategy.type != "OnReplenish":
        return "Outdated"
    return "Expired" if snapshot.expired(vm, now) else None


def replaced_vms(snapshot: WarmPoolSnapshot, now: datetime) -> list[WarmVM]:
    """The VMs of the pool's depth that are outdated or have expired."""
    return [] if snapshot.replaces_none else [vm for vm in snapshot.depth if why_replaced(snapshot, vm, now)]


def replace_outdated(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Replaces VMs that are not available at once, and available VMs within the disruption budget."""
    old = [vm for vm in replaced_vms(snapshot, now) if vm.state is not WarmState.UNKNOWN]
    recreate = snapshot.pool.spec.update_strategy.type == "Recreate"
    ready = [vm for vm in old if vm.state is WarmState.READY and not (recreate and snapshot.outdated(vm))]
    for vm in old:
        if vm not in ready:
            yield _replace(snapshot, vm, now)
    if why_stalled(snapshot, now):
        return
    budget = len(snapshot.available) - (snapshot.target - disruption_budget(snapshot).unavailable)
    for vm in sorted(ready, key=lambda vm: (not why_unavailable(vm), vm.created_at, vm.uid)):
        if not why_unavailable(vm):
            budget -= 1
            if budget < 0:
                return
        yield _replace(snapshot, vm, now)


def replace_on_leaving_nodes(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs on cordoned or drained nodes. Ready VMs are deleted only if enough other VMs are available, because
    the node may be uncordoned before."""
    enough = len(snapshot.available) >= snapshot.target
    for vm in snapshot.members:
        if on_leaving_node(vm) and (enough or vm.state is not WarmState.READY):
            yield DeleteVM(vm, "NodeLeaving", f"node {vm.node.name if vm.node else ''} is cordoned or drained")


def count_outdated(snapshot: WarmPoolSnapshot) -> int:
    """The number of outdated VMs that the update strategy replaces."""
    on_replenish = snapshot.pool.spec.update_strategy.type == "OnReplenish"
    return 0 if on_replenish else sum(snapshot.outdated(vm) for vm in snapshot.members)


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
    late = [vm for vm in snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY) if not snapshot.outdated(vm)]
    if not late and not snapshot.failures.consecutive:
        return ""
    seconds = snapshot.pool.spec.update_strategy.progress_deadline_seconds
    why = snapshot.failures.message or join_names(f"{vm.name} ({vm.printable_status or 'no status'})" for vm in late)
    kept = count_noun(count_outdated(snapshot), "VM")
    return f"no progress for {seconds} s: {why}; the pool keeps {kept} of the old template"


def seconds_until_due(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    deadline = progress_deadline(snapshot)
    times = [(deadline - now).total_seconds()] if deadline is not None and count_outdated(snapshot) else []
    for vm in snapshot.members:
        if (seconds := max_age(snapshot.pool, vm)) is not None and vm.created_at:
            times.append(seconds - (now - parse_time(vm.created_at)).total_seconds())
    return min((seconds for seconds in times if seconds > 0), default=None)


def _replace(snapshot: WarmPoolSnapshot, vm: WarmVM, now: datetime) -> Action:
    if why_replaced(snapshot, vm, now) != "Outdated":
        return DeleteVM(vm, "Expired", "the VM reached its maximum age")
    what = "the template, or an image that it tracks," if snapshot.pool.images else "the template"
    why = f"{what} has changed"
    if snapshot.pool.spec.incompatible_policy == "Orphan":
        return OrphanVM(vm, "TemplateChanged", why)
    return DeleteVM(vm, "Outdated", why)
