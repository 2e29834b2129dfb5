"""Changes of the template that KubeVirt applies to running VMs, so that the pool need not restart them.

The pool writes such a change into the VM, and follows the VMI until it shows the change. KubeVirt decides:
its condition RestartRequired, or a change that is not applied within `progressDeadlineSeconds`, ends the wait. What
comes then is the choice of the pool's author, `updateStrategy.proactive.liveUpdate`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.kubevirt import live_updates
from poolhouse.api.kubevirt.live_updates import LiveField

NEVER = "updateStrategy.proactive.liveUpdate is Never"
UNREADABLE = "KubeVirt may be changing the running VM, and the KubeVirt object, which says so, cannot be read now"
MORE = "KubeVirt applies other changes of the template only at a start"


def refusal(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why the VM, whose guest does not have the template, needs a restart for it; "" if KubeVirt changes the guest."""
    if snapshot.live_update == "Never":
        return NEVER
    fields = snapshot.live_fields(vm)
    if not fields or vm.vmi is None or snapshot.disks_to_replace(vm) or snapshot.uses_replaced_disk(vm):
        return MORE
    if vm.restart_required:
        return f"KubeVirt says RestartRequired: {vm.restart_required}"
    return live_updates.refusal(fields, snapshot.revision.live, vm.vmi.guest, snapshot.cluster)


def is_live(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt changes the guest of this VM, or will when the VM has the template."""
    return snapshot.needs_restart(vm) and not refusal(snapshot, vm)


def moves(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt migrates the VM to change it."""
    return any(each.moves for each in snapshot.live_fields(vm))


def describe(snapshot: PoolSnapshot, vm: VM) -> str:
    """What KubeVirt changes in the guest."""
    assert vm.vmi is not None
    fields = snapshot.live_fields(vm)
    by = "by a live migration" if any(each.moves for each in fields) else "without a migration"
    return f"KubeVirt changes the running VM {by}: {', '.join(_change(each, snapshot, vm) for each in fields)}"


def _change(each: LiveField, snapshot: PoolSnapshot, vm: VM) -> str:
    assert vm.vmi is not None
    return each.describe(vm.vmi.guest.spec, snapshot.revision.live)


def why_restart(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why a VM restarts although its change is one that KubeVirt applies to other running VMs; "" for other changes."""
    if not snapshot.live_fields(vm) or snapshot.live_update == "Never":
        return ""
    return refusal(snapshot, vm) or f"{_late(snapshot)}: {_progress(snapshot, vm)}"


def waits_for(snapshot: PoolSnapshot, vm: VM, now: datetime) -> str:
    """What a VM that has the template, and whose guest does not, waits for instead of a restart. "" if it restarts."""
    if _is_unknown(snapshot, vm) and not _is_late(snapshot, vm, now):
        return UNREADABLE
    if not is_live(snapshot, vm):
        return waits_forever(snapshot, refusal(snapshot, vm))
    if not _is_late(snapshot, vm, now):
        return _progress(snapshot, vm)
    return waits_forever(snapshot, f"{_late(snapshot)}: {_progress(snapshot, vm)}")


def waits_forever(snapshot: PoolSnapshot, why: str) -> str:
    """Why a VM that would have to restart waits, if no update may restart VMs."""
    return f"liveUpdate is Require, so that it does not restart: {why}" if snapshot.live_update == "Require" else ""


def required(snapshot: PoolSnapshot) -> dict[str, str]:
    """With `liveUpdate: Require`, what the VMs wait for whose guest does not have the template, by their names."""
    if snapshot.live_update != "Require":
        return {}
    running = (vm for vm in snapshot.active if vm.vmi is not None and vm.vmi.running and snapshot.needs_restart(vm))
    return {vm.name: refusal(snapshot, vm) or _progress(snapshot, vm) for vm in running}


def seconds_until_late(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until KubeVirt has not changed a guest in time."""
    return min(_times_left(snapshot, now), default=None)


def _times_left(snapshot: PoolSnapshot, now: datetime) -> Iterator[float]:
    for vm in snapshot.active if snapshot.live_update != "Never" else ():
        if not snapshot.outdated(vm) and (is_live(snapshot, vm) or _is_unknown(snapshot, vm)):
            end = _end(snapshot, vm)
            if end is not None and end > now:
                yield (end - now).total_seconds()


def _is_unknown(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the change may be under way, but the settings of KubeVirt are unknown, for example after a restart of the
    controllers. A restart would disrupt the guest that KubeVirt was about to change."""
    follows = snapshot.live_update != "Never" and bool(vm.live_update_since)
    return follows and snapshot.cluster is None and snapshot.needs_restart(vm)


def _is_late(snapshot: PoolSnapshot, vm: VM, now: datetime) -> bool:
    end = _end(snapshot, vm)
    return end is not None and now >= end


def _end(snapshot: PoolSnapshot, vm: VM) -> datetime | None:
    """When KubeVirt has had enough time. Without the annotation, the time counts from the pool's last progress."""
    since = known_time(vm.live_update_since) or known_time(snapshot.pool.status.last_progress_time or "")
    return since + timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds) if since is not None else None


def _late(snapshot: PoolSnapshot) -> str:
    return f"KubeVirt has not changed the running VM within {snapshot.pool.spec.progress_deadline_seconds} s"


def _progress(snapshot: PoolSnapshot, vm: VM) -> str:
    """What KubeVirt has not done yet. The text stays while nothing changes, because each text is a write."""
    fields, vmi = snapshot.live_fields(vm), vm.vmi
    assert vmi is not None
    if snapshot.outdated(vm):
        return "it does not have the template yet"
    if vmi.migrating:
        return "KubeVirt moves it to another node, where it gets the change"
    if not live_updates.is_accepted(fields, vm.live, vmi.guest):
        return "KubeVirt has not accepted the change of the running VM yet"
    if not snapshot.movable:
        return "it must move for the change, and no second node can take VMs"
    if vmi.guest.failure and vmi.guest.failed_at >= vm.live_update_since:
        return f"its migration failed, and KubeVirt tries again: {vmi.guest.failure}"
    return "KubeVirt has not begun the migration: see its VirtualMachineInstanceMigrations"
