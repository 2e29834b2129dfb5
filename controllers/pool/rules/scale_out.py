"""The rule that creates the VMs that are missing."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from controllers.pool.actions import Action, Create, SaveRevision
from controllers.pool.healing_status import was_healed
from controllers.pool.machine_types import machine_type
from controllers.pool.progress import deadline_exceeded
from controllers.pool.replacement import disks_of_new_vm
from controllers.pool.rules.rule import Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.surge import extra_vms
from controllers.pool.update_limit import update_limit, with_template
from controllers.shared.names import MAX_NAME, free_ordinals, name_of
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_of
from poolhouse.api.apimachinery.timestamps import parse_time

DELETION_TIMEOUT = timedelta(minutes=5)
"""Time limit for a VM that is being deleted. Then the pool creates a VM with another ordinal."""


def scale_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Uses the lowest free ordinals.

    The pool waits for the deletion of a VM to reuse its name. The new VM gets the disks that were retained for the
    name, and the names of the pool stay the same."""
    extra = 0 if deadline_exceeded(snapshot, now) else extra_vms(snapshot, now)
    wanted = snapshot.pool.spec.replicas + extra
    missing = wanted - len(snapshot.counted) - len(_awaited(snapshot, now))
    if snapshot.disk_conflict:
        return
    reason = count_of(len(snapshot.counted), wanted, "VM", "exists", "exist")
    if extra:
        reason += f", {extra} more than replicas during the update"
    returning = {disk.retained_for for disk in snapshot.retained_disks if not disk.replaced}
    found = []
    stable, left = snapshot.stable_revision, update_limit(snapshot, now).allowed - with_template(snapshot)
    for ordinal in free_ordinals(snapshot.taken_ordinals, min(missing, snapshot.burst), snapshot.pool.first_ordinal):
        name = name_of(snapshot.pool.name, ordinal)
        if len(name) > MAX_NAME:
            break  # admission does not know the numbers of detached VMs; `why_not_started` tells
        deleted = was_healed(snapshot, name) or name in snapshot.recently_deleted
        # The stores may not show yet that a disk of this name was replaced, or who has it.
        unsure = snapshot.pool.replaces_disks or snapshot.unlisted_disks
        after_deletion = unsure or (deleted and name not in returning)
        # While steps or a partition hold the new template back, a new VM gets the one that it would have had before.
        # One that replaces another VM takes nobody's place in a step.
        revision = snapshot.revision if extra or left > 0 or stable is None else stable
        left -= 1
        disks = disks_of_new_vm(snapshot, ordinal, revision, now)
        create = Create(
            name,
            ordinal,
            revision.name,
            reason,
            after_deletion,
            disks.retained,
            disks.names,
            machine_type(snapshot, revision),
        )
        found.append((after_deletion, deleted, create))
    # VMs that may find old disks come last, because the first refusal stops all later creations.
    yield from (create for _, _, create in sorted(found, key=lambda each: each[:2]))


def save_new_revision(snapshot: PoolSnapshot, found: Iterable[Action]) -> Iterator[SaveRevision]:
    """Saves the revision before VMs get it."""
    if not snapshot.revision_saved and any(found):
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, "the template is new")


def seconds_until_deletion_timeout(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until a VM has been terminating for `DELETION_TIMEOUT`. The pool then creates its successor, and its
    status names the VM."""
    ends = [parse_time(vm.deleted_at) + DELETION_TIMEOUT - now for vm in _awaited(snapshot, now)]
    return min(ends).total_seconds() if ends else None


def _awaited(snapshot: PoolSnapshot, now: datetime) -> list[VM]:
    # A deletionTimestamp far in the future was written before the API server's clock was set back.
    return [vm for vm in snapshot.deleting if abs(now - parse_time(vm.deleted_at)) < DELETION_TIMEOUT]


SCALE_OUT = Rule(scale_out, before=save_new_revision, again=(seconds_until_deletion_timeout,))
