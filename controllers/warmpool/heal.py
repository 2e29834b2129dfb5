"""Marks VMs that fail health checks, so that no claim gets them, and deletes VMs that do not recover.

Unhealthy: checks ran and failed. Unknown: the check could not run, so the VM's health is unknown. The controller keeps
an Unknown VM until a check runs again, or until NODE_SECONDS have passed. No claim gets an Unknown VM.
"""

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, CountFailedCheck, DeleteVM, SetState
from controllers.warmpool.snapshot import NOT_CHECKED, VMHealth, WarmPoolSnapshot, waits_for_scheduling
from controllers.warmpool.warm_vm import WarmVM, seconds_since
from poolhouse.api.kinds.warm_states import WarmState

NODE_SECONDS = 300.0
"""Time limit for a node that is not ready: the default toleration of a pod."""


def update_health_states(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.in_state(WarmState.READY, WarmState.STANDING_BY, WarmState.UNKNOWN):
        health = snapshot.health_of(vm)
        standing_by = vm.state is WarmState.STANDING_BY
        result = health.running if standing_by else health.in_standby
        if result == NOT_CHECKED:  # after a start of this process, the first check is due soon
            continue
        if result.verdict == "Unable":
            yield from _unknown(vm, result.message, now)
        elif standing_by:
            if seconds_since(vm.state_since, now) >= snapshot.pool.spec.readiness.timeout_seconds:
                reason = f"the VM did not become {vm.standby.lower()} in time: {health.in_standby.message}"
                yield SetState(vm, WarmState.UNHEALTHY, reason)
        elif result.verdict == "Healthy":
            if vm.state is WarmState.UNKNOWN:
                yield SetState(vm, WarmState.READY, "the VM can be checked again and is healthy")
        else:
            yield from _failed(vm, health, snapshot.pool.spec.health.failure_threshold)


def _unknown(vm: WarmVM, message: str, now: datetime) -> Iterator[Action]:
    if vm.state is not WarmState.UNKNOWN:
        yield SetState(vm, WarmState.UNKNOWN, message)
    elif seconds_since(vm.state_since, now) >= NODE_SECONDS:
        yield SetState(vm, WarmState.UNHEALTHY, f"the VM could not be checked for {NODE_SECONDS:.0f} s: {message}")


def _failed(vm: WarmVM, health: VMHealth, threshold: int) -> Iterator[Action]:
    if vm.standby != "Running" and health.running.verdict == "Healthy":
        yield SetState(
            vm, WarmState.STANDING_BY, f"the VM is healthy but not {vm.standby}: {health.in_standby.message}"
        )
    elif health.failed_periods >= threshold:
        reason = f"{health.failed_periods} checks in a row failed: {health.in_standby.message}"
        yield SetState(vm, WarmState.UNHEALTHY, reason)


def delete_unhealthy(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    threshold = snapshot.pool.spec.health.terminate_threshold
    for vm in snapshot.in_state(WarmState.UNHEALTHY):
        health = snapshot.health_of(vm)
        if _recovered(health):
            yield SetState(vm, WarmState.PROVISIONING, "a check of the VM succeeded again")
        elif health.period_over and vm.check_failures < threshold:
            yield CountFailedCheck(vm, vm.check_failures + 1, health.in_standby.message)
    if not mass_failure(snapshot) and not snapshot.pool.spec.paused:
        for vm in failed_for_long(snapshot):
            message = snapshot.health_of(vm).in_standby.message
            yield DeleteVM(vm, "Unhealthy", f"{threshold} more checks failed since the VM is unhealthy: {message}")


def delete_not_ready(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs that exceeded the readiness timeout. While the circuit breaker is open, deletes only one VM at a
    time: a new VM is likely to fail too."""
    late = sorted(past_readiness_timeout(snapshot, now), key=lambda vm: (vm.state_since, vm.uid))
    if snapshot.pool.spec.paused or (
        snapshot.breaker_open and not snapshot.failures.due(now, snapshot.pool.spec.refill)
    ):
        return
    for vm in late[:1] if snapshot.breaker_open else late:
        seconds, message = snapshot.pool.spec.readiness.timeout_seconds, snapshot.health_of(vm).running.message
        yield DeleteVM(vm, "ReadinessTimeout", f"the VM was not healthy within {seconds} s: {message}")


def mass_failure(snapshot: WarmPoolSnapshot) -> bool:
    """Whether fewer VMs are available than desired, and more VMs are unhealthy than available. The cause is then likely
    outside the VMs, and users need the VMs for inspection."""
    available = len(snapshot.available)
    return available < snapshot.target and len(snapshot.in_state(WarmState.UNHEALTHY)) > available


def failed_for_long(snapshot: WarmPoolSnapshot) -> list[WarmVM]:
    threshold = snapshot.pool.spec.health.terminate_threshold
    unhealthy = snapshot.in_state(WarmState.UNHEALTHY)
    return [vm for vm in unhealthy if vm.check_failures >= threshold and not _recovered(snapshot.health_of(vm))]


def past_readiness_timeout(snapshot: WarmPoolSnapshot, now: datetime) -> list[WarmVM]:
    """VMs past the readiness timeout, except VMs that wait for scheduling. The timeout of a VM starts when the VM is
    scheduled."""
    provisioning = snapshot.in_state(WarmState.PROVISIONING)
    unready = [vm for vm in provisioning if snapshot.health_of(vm).running.verdict != "Healthy"]
    return [vm for vm in unready if not waits_for_scheduling(vm) and _seconds_left(snapshot, vm, now) <= 0]


def seconds_until_timeout(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    """Seconds until the first VM exceeds a timeout of this module. None without such a VM."""
    ends = [_seconds_left(snapshot, vm, now) for vm in snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)]
    ends += [NODE_SECONDS - seconds_since(vm.state_since, now) for vm in snapshot.in_state(WarmState.UNKNOWN)]
    return min((left for left in ends if left > 0), default=None)


def _seconds_left(snapshot: WarmPoolSnapshot, vm: WarmVM, now: datetime) -> float:
    waited = min(seconds_since(vm.state_since, now), snapshot.health_of(vm).unscheduled_ago)
    return snapshot.pool.spec.readiness.timeout_seconds - waited


def _recovered(health: VMHealth) -> bool:
    return "Healthy" in (health.in_standby.verdict, health.running.verdict)
