"""Counts VMIs that failed after they had run, and finds VMs that stay in a failing state.

KubeVirt counts the starts that failed in `status.startFailure` of the VM, and clears the count when a VMI runs. A guest
that boots and then crashes, or fails its liveness probe, therefore never has a count there. The pool's status keeps
these counts, so that a restart of the controllers does not lose them.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from controllers.pool.evicted_vms import may_be_evicted
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time, known_time, parse_time
from poolhouse.api.kinds.pool import MAX_FAILING_VMS, Autohealing, FailingVM, Healing

STABLE_AFTER = timedelta(minutes=10)
"""A VMI that has run for this long clears the count, like the kubelet's for containers."""


@once
def failing_vms(snapshot: PoolSnapshot, now: datetime) -> dict[str, FailingVM]:
    """What is known of each VM that fails, by name, with the failures that the snapshot shows for the first time."""
    healing = snapshot.pool.spec.autohealing
    if healing is None:
        return {}
    known = {each.name: each for each in (snapshot.pool.status.healing or Healing()).failures}
    found = (
        _observed(vm, known.get(vm.name, FailingVM(name=vm.name)), _failed_runs(snapshot, vm), healing, now)
        for vm in snapshot.active
        if vm.should_run
    )
    worst_first = sorted(
        (each for each in found if each.failed_runs or each.since), key=lambda each: (-each.failed_runs, each.name)
    )
    return {each.name: each for each in worst_first[:MAX_FAILING_VMS]}


def reason_to_replace(snapshot: PoolSnapshot, vm: VM, known: FailingVM | None, now: datetime) -> str:
    """Why healing replaces this VM, or ""."""
    healing, status = snapshot.pool.spec.autohealing, vm.printable_status or "no status"
    if healing is None or not vm.should_run:
        return ""
    crashed = known is not None and known.failed_runs >= healing.startup_failure_threshold
    if vm.ready and not (crashed and has_failed_since_hold(vm)):
        return ""
    if vm.start_failures >= healing.startup_failure_threshold and not vm.ready:
        return f"{count_noun(vm.start_failures, 'start')} in a row failed ({status})"
    if known is not None and crashed:
        return f"its VMI failed {count_noun(known.failed_runs, 'time')} after it had run ({status})"
    if known is not None and known.since and now >= _limit(known.since, healing):
        return f"its status has been {known.status} for {healing.failing_status_seconds} s"
    return ""


def has_failed_since_hold(vm: VM) -> bool:
    """Whether the VM is held before its deletion, and its VMI has begun to run after the hold began.

    A VM whose guest crashes again and again is ready between two crashes. If this ended the hold, the pool would hold
    the VM again after the next crash, and never replace it."""
    if not vm.terminating or vm.hold is None or vm.vmi is None or not vm.vmi.started_at:
        return False
    since = known_time(vm.hold.since)
    return since is not None and parse_time(vm.vmi.started_at) >= since


def status_deadlines(snapshot: PoolSnapshot, now: datetime) -> Iterator[datetime]:
    """The times at which VMs will have been in a failing state for long enough."""
    healing = snapshot.pool.spec.autohealing
    if healing is not None:
        for each in failing_vms(snapshot, now).values():
            if each.since:
                yield _limit(each.since, healing)


def _failed_runs(snapshot: PoolSnapshot, vm: VM) -> tuple[VMI, ...]:
    """The VMIs of the VM that failed after they had run, in order, each once."""
    seen = (*(each for each in snapshot.ended_vmis if each.owner_uid == vm.uid), *((vm.vmi,) if vm.vmi else ()))
    return tuple({each.uid: each for each in seen if _failed_run(snapshot, each)}.values())


def _observed(vm: VM, before: FailingVM, failed: tuple[VMI, ...], healing: Autohealing, now: datetime) -> FailingVM:
    runs, last = before.failed_runs, before.last_vmi
    # Those before the last one were counted with it.
    counted = next((place for place, each in enumerate(failed, 1) if each.uid == last), 0)
    if new := failed[counted:]:
        for each in new:
            runs, last = (1 if _was_stable(each, now) else runs + 1), each.uid
    elif vm.vmi is not None and vm.vmi.phase == "Running" and _was_stable(vm.vmi, now):
        runs, last = 0, ""
    status, since = "", None
    if vm.printable_status in healing.failing_statuses and not vm.ready:
        status = vm.printable_status
        since = before.since if before.status == status else format_time(now)
    return FailingVM(name=vm.name, failed_runs=runs, last_vmi=last, status=status, since=since)


def _failed_run(snapshot: PoolSnapshot, vmi: VMI) -> bool:
    """Whether the VMI has failed after it had run. KubeVirt counts the others. An eviction is no fault of the VM."""
    return vmi.phase == "Failed" and bool(vmi.started_at) and not may_be_evicted(snapshot, vmi)


def _was_stable(vmi: VMI, now: datetime) -> bool:
    end = parse_time(vmi.ended_at) if vmi.ended_at else now
    return bool(vmi.started_at) and end - parse_time(vmi.started_at) >= STABLE_AFTER


def _limit(since: str, healing: Autohealing) -> datetime:
    return parse_time(since) + timedelta(seconds=healing.failing_status_seconds)
