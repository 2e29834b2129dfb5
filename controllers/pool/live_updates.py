"""Changes of the template that KubeVirt applies to running VMs, so that the pool need not restart them.

The pool writes such a change into the VM, and follows the VMI until it shows the change. KubeVirt decides:
its condition RestartRequired, or a change that is not applied within `progressDeadlineSeconds`, ends the wait. What
comes then is the choice of the pool's author, `updateStrategy.proactive.liveUpdate`.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum

from controllers.pool.disk_templates import uses_replaced_disk
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.kubevirt import live_updates
from poolhouse.api.kubevirt.live_devices import may_follow
from poolhouse.api.kubevirt.live_updates import LiveField

NEVER = "updateStrategy.proactive.liveUpdate is Never"
UNREADABLE = "KubeVirt may be changing the running VM, and the KubeVirt object, which says so, cannot be read now"
REMEDY = "halt the VM, set liveUpdate to Prefer, or take the update back by `rollout undo`"
DEADLINES_FOR_OTHERS = 12
"""How many times `progressDeadlineSeconds` a VM waits, at most, while KubeVirt migrates VMs of other pools. A tenant
can have one VM migrated again and again."""
MORE = "KubeVirt applies other changes of the template only at a start"


def needs_restart(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the VMI does not have the pool's template. `is_live` says whether KubeVirt changes that without a
    restart."""
    return vm.uid in _behind(snapshot)


def live_fields(snapshot: PoolSnapshot, vm: VM) -> tuple[LiveField, ...]:
    """The fields that KubeVirt could change in the running VMI, so that it has the pool's template. Empty if the VMI
    has it, or if more than these fields must change."""
    return _live_fields(snapshot).get(vm.uid, ())


@once
def _behind(snapshot: PoolSnapshot) -> frozenset[str]:
    """UIDs of the VMs whose VMI does not have the pool's template."""
    return frozenset(vm.uid for vm in snapshot.vms if _is_behind(snapshot, vm))


def _is_behind(snapshot: PoolSnapshot, vm: VM) -> bool:
    if vm.vmi is None or vm.vmi.deleting or vm.vmi.succeeded:
        return False
    started_from, fields = snapshot.revisions_by_label.get(vm.vmi.revision), live_fields(snapshot, vm)
    if started_from is not None and started_from.vmi_hash == snapshot.revision.vmi_hash:
        has_template = not fields
    else:
        applied = bool(fields) and not snapshot.outdated(vm)
        has_template = applied and live_updates.shows(fields, vm.live, vm.vmi.guest)
    return not has_template or uses_replaced_disk(vm)


@once
def _live_fields(snapshot: PoolSnapshot) -> Mapping[str, tuple[LiveField, ...]]:
    """By UID of the VM. Computed once, because the plan, the status and the timer ask about each VM several times."""
    if snapshot.pool.live_update == "Never" or snapshot.cluster is None:
        return {}
    return {vm.uid: fields for vm in snapshot.vms if (fields := _fields_behind(snapshot, vm))}


def _fields_behind(snapshot: PoolSnapshot, vm: VM) -> tuple[LiveField, ...]:
    vmi, wanted = vm.vmi, snapshot.revision
    if vmi is None or not vmi.running or (vm.revision == vmi.revision == wanted.label and vmi.guest.has(vm.live)):
        return ()
    started_from = snapshot.revisions_by_label.get(vmi.revision)
    if started_from is None or not started_from.restart_hash:
        return ()
    if started_from.vmi_hash != wanted.vmi_hash:
        same = started_from.restart_hash == wanted.restart_hash and may_follow(started_from.devices, wanted.devices)
        return live_updates.changed(started_from.live, wanted.live) if same else ()
    # KubeVirt may be in the middle of a change that has been taken back. A VMI that is younger than the pool's last
    # change has started with it: another component then chose what differs, and a restart changes nothing.
    if snapshot.outdated(vm) or not vm.live_update_since or vmi.created_at > vm.live_update_since:
        return ()
    return live_updates.behind(vm.live, wanted.live, vmi.guest)


def refusal(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why the VM, whose guest does not have the template, needs a restart for it; "" if KubeVirt changes the guest."""
    if snapshot.pool.live_update == "Never":
        return NEVER
    fields = live_fields(snapshot, vm)
    if not fields or vm.vmi is None or snapshot.disks_to_replace(vm) or uses_replaced_disk(vm):
        return _unread(snapshot, vm) or MORE
    if vm.restart_required:
        return f"KubeVirt says RestartRequired: {vm.restart_required}"
    return live_updates.refusal(fields, snapshot.revision.live, vm.vmi.guest, snapshot.cluster)


def _unread(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why it is unknown whether the template that the VMI was started from differs only in such fields, or ""."""
    labels = (vm.vmi.revision, snapshot.revision.label) if vm.vmi is not None else ()
    return next(filter(None, (snapshot.unread.get(each, "") for each in labels)), "")


def is_live(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt changes the guest of this VM, or will when the VM has the template."""
    return needs_restart(snapshot, vm) and not refusal(snapshot, vm)


def moves(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt migrates the VM to change it, or after it has changed it."""
    if vm.vmi is None:
        return False
    return live_updates.moves(_lacking(snapshot, vm), snapshot.revision.live, vm.vmi.guest, snapshot.cluster)


def _lacking(snapshot: PoolSnapshot, vm: VM) -> list[LiveField]:
    """The fields that the guest does not have yet. KubeVirt may have changed it for an update that is not over."""
    assert vm.vmi is not None
    fields, wanted = live_fields(snapshot, vm), snapshot.revision.live
    return [each for each in fields if live_updates.lacks(each, wanted, vm.vmi.guest)]


def _needs_migration(snapshot: PoolSnapshot, vm: VM) -> bool:
    assert vm.vmi is not None
    return live_updates.needs_migration(live_fields(snapshot, vm), snapshot.revision.live, vm.vmi.guest)


def describe(snapshot: PoolSnapshot, vm: VM) -> str:
    """What KubeVirt changes in the guest."""
    if not (lacking := _lacking(snapshot, vm)):
        return "KubeVirt has changed the running VM already"
    how = "without a migration"
    if moves(snapshot, vm):
        how = "by a live migration" if _needs_migration(snapshot, vm) else "and migrates it afterwards"
    changes = ", ".join(_change(each, snapshot, vm) for each in lacking)
    return f"KubeVirt changes the running VM {how}: {changes}"


def _change(each: LiveField, snapshot: PoolSnapshot, vm: VM) -> str:
    assert vm.vmi is not None
    # The names of claims differ between VMs and templates.
    started_from = snapshot.revisions_by_label.get(vm.vmi.revision)
    before = started_from.live if each.is_device and started_from is not None else vm.vmi.guest.shown
    return each.describe(before, snapshot.revision.live)


def why_restart(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why a VM restarts although its change is one that KubeVirt applies to other running VMs; "" for other changes."""
    if snapshot.pool.live_update == "Never":
        return ""
    if not live_fields(snapshot, vm):
        return _unread(snapshot, vm)
    return refusal(snapshot, vm) or f"{_late(snapshot)}: {_describe_progress(snapshot, vm)}"


def waits_for(snapshot: PoolSnapshot, vm: VM, now: datetime) -> str:
    """What a VM that has the template, and whose guest does not, waits for instead of a restart. "" if it restarts."""
    if _is_unknown(snapshot, vm) and not _is_late(snapshot, vm, now):
        return UNREADABLE
    if not is_live(snapshot, vm):
        return waits_forever(snapshot, refusal(snapshot, vm))
    if not _is_late(snapshot, vm, now):
        return _describe_progress(snapshot, vm)
    return waits_forever(snapshot, f"{_late(snapshot)}: {_describe_progress(snapshot, vm)}")


def waits_forever(snapshot: PoolSnapshot, why: str) -> str:
    """Why a VM that would have to restart waits, if no update may restart VMs."""
    if snapshot.pool.live_update != "Require":
        return ""
    return f"liveUpdate is Require, so that it does not restart for the template, and gets it when you halt it: {why}"


def required(snapshot: PoolSnapshot) -> dict[str, str]:
    """With `liveUpdate: Require`, what the VMs wait for whose guest does not have the template, and what a user can do,
    by their names."""
    if snapshot.pool.live_update != "Require":
        return {}
    running = (vm for vm in snapshot.active if vm.vmi is not None and vm.vmi.running and needs_restart(snapshot, vm))
    return {vm.name: f"{refusal(snapshot, vm) or _describe_progress(snapshot, vm)}; {REMEDY}" for vm in running}


def seconds_until_late(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until KubeVirt has not changed a guest in time."""
    return min(_times_left(snapshot, now), default=None)


def _times_left(snapshot: PoolSnapshot, now: datetime) -> Iterator[float]:
    deadline = snapshot.pool.spec.progress_deadline_seconds
    for vm in snapshot.active if snapshot.pool.live_update != "Never" else ():
        if not snapshot.outdated(vm) and (is_live(snapshot, vm) or _is_unknown(snapshot, vm)):
            end = _end(snapshot, vm)
            if end is None or end > now:
                # No event of the pool says that KubeVirt has migrated the VMs of another pool.
                yield min(deadline, (end - now).total_seconds()) if end is not None else deadline


def _is_unknown(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the change may be under way, but the settings of KubeVirt are unknown, for example after a restart of the
    controllers. A restart would disrupt the guest that KubeVirt was about to change."""
    follows = snapshot.pool.live_update != "Never" and bool(vm.live_update_since)
    return follows and snapshot.cluster is None and needs_restart(snapshot, vm)


def _is_late(snapshot: PoolSnapshot, vm: VM, now: datetime) -> bool:
    end = _end(snapshot, vm)
    return end is not None and now >= end


def _end(snapshot: PoolSnapshot, vm: VM) -> datetime | None:
    """When KubeVirt has had enough time. Without the annotation, the time counts from the pool's last progress.

    KubeVirt migrates a few VMs of a cluster at once. While it moves one VM after another, of this pool or for the live
    update of another pool, a VM whose migration has not begun is not late: it waits for its turn. Others can have VMs
    migrated again and again, so that the wait for theirs has a limit."""
    since = known_time(vm.live_update_since) or known_time(snapshot.pool.status.last_progress_time or "")
    if since is None:
        return None
    deadline, queue = timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds), snapshot.queue
    if _progress(snapshot, vm) is not _Progress.QUEUED:
        return since + deadline
    migrating, last_moved = _migrations(snapshot)
    if migrating:
        return None
    since = max(since, known_time(last_moved) or since)
    end = max(since, known_time(queue.moved_at) or since) + deadline
    limit = since + deadline * DEADLINES_FOR_OTHERS
    return limit if queue.moving else min(end, limit)


@once
def _migrations(snapshot: PoolSnapshot) -> tuple[bool, str]:
    """Whether a VM of the pool migrates, and when the last of them has succeeded; "" without one."""
    vmis = [vm.vmi for vm in snapshot.active if vm.vmi is not None]
    return any(vmi.migrating for vmi in vmis), max((vmi.guest.moved_at for vmi in vmis), default="")


def _late(snapshot: PoolSnapshot) -> str:
    return f"KubeVirt has not changed the running VM within {snapshot.pool.spec.progress_deadline_seconds} s"


class _Progress(Enum):
    """The step of a live update that a VM waits for. The texts stay while nothing changes, because each new text is a
    write."""

    NO_TEMPLATE = "it does not have the template yet"
    MIGRATING = "KubeVirt moves it to another node, where it gets the change"
    NOT_ACCEPTED = "KubeVirt has not accepted the change of the running VM yet"
    NOT_PLUGGED = (
        "KubeVirt and its guest have not plugged or unplugged all its NICs and disks: see the conditions of its VMI"
    )
    MEMORY_UNUSED = "its guest does not use the added memory yet, for which it needs the driver virtio_mem"
    NO_TARGET = "it must move for the change, and no second node can take VMs"
    MIGRATION_FAILED = "its migration failed, and KubeVirt tries again: {failure}"
    QUEUED = "KubeVirt has not begun the migration: see its VirtualMachineInstanceMigrations"


def _describe_progress(snapshot: PoolSnapshot, vm: VM) -> str:
    assert vm.vmi is not None
    return _progress(snapshot, vm).value.format(failure=vm.vmi.guest.failure)


def _progress(snapshot: PoolSnapshot, vm: VM) -> _Progress:
    fields, vmi = live_fields(snapshot, vm), vm.vmi
    assert vmi is not None
    if snapshot.outdated(vm):
        return _Progress.NO_TEMPLATE
    if vmi.migrating:
        return _Progress.MIGRATING
    if not live_updates.is_accepted(fields, vm.live, vmi.guest):
        return _Progress.NOT_ACCEPTED
    if not _needs_migration(snapshot, vm):
        return _Progress.NOT_PLUGGED
    if live_updates.is_given(fields, vm.live, vmi.guest):
        return _Progress.MEMORY_UNUSED
    if snapshot.targets is not None and not snapshot.targets - {vmi.node}:
        return _Progress.NO_TARGET
    if vmi.guest.failure and vmi.guest.failed_at >= vm.live_update_since:
        return _Progress.MIGRATION_FAILED
    return _Progress.QUEUED
