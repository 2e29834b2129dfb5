"""Moves VMs from Provisioning to Ready, and changes the standby mode of VMs that wait for a claim.

`hotReplicas` VMs wait running. All other VMs wait in the mode `standby.mode`.
"""

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, SetStandby, SetState
from controllers.warmpool.rollout import disruption_budget
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import STANDBY_MODES, StandbyMode, WarmVM
from poolhouse.api.kinds.warm_states import WarmState

_ACTIVE = (WarmState.READY, WarmState.STANDING_BY, WarmState.PROVISIONING)


def finish_provisioning(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.in_state(WarmState.PROVISIONING):
        if _paused_or_stopped(vm):
            # The VM became Unhealthy in standby and recovered. Only a running VM can be checked completely.
            yield SetStandby(vm, "Running", "the VM has to be checked while it runs")
        elif snapshot.health_of(vm).running.verdict == "Healthy" and _seconds_to_stay_healthy(snapshot, vm) <= 0:
            if vm.standby == "Running":
                yield SetState(vm, WarmState.READY, "the VM is healthy")
            else:
                yield SetState(
                    vm, WarmState.STANDING_BY, f"the VM is healthy and waits {vm.standby.lower()} for a claim"
                )


def enter_standby(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.in_state(WarmState.STANDING_BY):
        health = snapshot.health_of(vm)
        if health.in_standby.verdict == "Healthy":
            yield SetState(vm, WarmState.READY, f"the VM is {vm.standby.lower()}")
        elif vm.standby != "Paused" or health.running.verdict == "Healthy":
            yield SetStandby(vm, vm.standby, f"the VM waits {vm.standby.lower()} for a claim")
        elif vm.run_strategy == "Halted":
            yield SetStandby(vm, "Running", "only a running VM can be paused")


def seconds_until_ready(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    provisioning = snapshot.in_state(WarmState.PROVISIONING)
    healthy = (vm for vm in provisioning if snapshot.health_of(vm).running.verdict == "Healthy")
    return min((left for vm in healthy if (left := _seconds_to_stay_healthy(snapshot, vm)) > 0), default=None)


def change_standby(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Changes the standby modes of VMs, first of Ready VMs: they resume faster than a new VM boots. Changes to
    `standby.mode` stay within the disruption budget, because no claim can get a VM during the change."""
    active = [vm for vm in snapshot.in_state(*_ACTIVE) if not snapshot.outdated(vm)]
    hot = {vm.uid for vm in sorted(active, key=_hot_order)[: _hot_replicas(snapshot)]}
    changing = any(vm.state is WarmState.STANDING_BY for vm in active)
    spare = len(snapshot.available) - snapshot.replicas
    budget = max(spare + disruption_budget(snapshot).unavailable, not changing)
    for vm in active:
        wanted: StandbyMode = "Running" if vm.uid in hot else snapshot.pool.spec.standby.mode
        if wanted == vm.standby:
            continue
        reason = f"the VM is to wait {wanted.lower()} for a claim"
        if vm.state is WarmState.PROVISIONING:  # the VM enters the mode once it is healthy
            yield SetState(vm, vm.state, reason, wanted)
        elif wanted == "Running" != snapshot.pool.spec.standby.mode or vm.state is WarmState.STANDING_BY:
            yield SetState(vm, WarmState.STANDING_BY, reason, wanted)
        elif budget > 0:
            budget -= 1
            yield SetState(vm, WarmState.STANDING_BY, reason, wanted)


def standby_of_new_vm(snapshot: WarmPoolSnapshot, created: int) -> StandbyMode:
    """The mode of the next new VM, after `created` others. Existing VMs become hot first, because they start sooner."""
    active = sum(not snapshot.outdated(vm) for vm in snapshot.in_state(*_ACTIVE)) + created
    return "Running" if active < _hot_replicas(snapshot) else snapshot.pool.spec.standby.mode


def _paused_or_stopped(vm: WarmVM) -> bool:
    return vm.run_strategy == "Halted" or (vm.vmi is not None and vm.vmi.running and bool(vm.vmi.paused))


def _seconds_to_stay_healthy(snapshot: WarmPoolSnapshot, vm: WarmVM) -> float:
    """Seconds that the VM must still be healthy. Warm-up lets a guest finish its boot before a pause or stop."""
    spec = snapshot.pool.spec
    warm_up = spec.standby.warmup_seconds if vm.standby != "Running" else 0
    return max(spec.readiness.min_ready_seconds, warm_up) - snapshot.health_of(vm).healthy_seconds


def _hot_replicas(snapshot: WarmPoolSnapshot) -> int:
    standby = snapshot.pool.spec.standby
    return snapshot.target if standby.mode == "Running" else standby.hot_replicas


def _hot_order(vm: WarmVM) -> tuple[bool, int, str, str]:
    return vm.state is WarmState.PROVISIONING, STANDBY_MODES.index(vm.standby), vm.created_at, vm.uid
