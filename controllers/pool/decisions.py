"""Returns the decisions about VMs for the log in the pool's status."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from controllers.pool.actions import Action, Create, Delete, Update
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.decisions import decision
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.decisions import Decision, vm_reference


def decisions(snapshot: PoolSnapshot, actions: Iterable[Action], now: datetime) -> Iterator[Decision]:
    uids, time = {vm.name: vm.uid for vm in snapshot.vms}, format_time(now)
    for each in actions:
        if each.recorded:
            uid = "" if isinstance(each, Create) else uids.get(each.name, "")
            message = f"{each.reason}{meta.DISKS_RETAINED}" if getattr(each, "retain_disks", False) else each.reason
            vm = vm_reference(each.name, uid)
            yield decision(time, each.succeeded, message, vm, set_by=_set_by(snapshot, each))


def _set_by(snapshot: PoolSnapshot, action: Action) -> str:
    pool, aborted = snapshot.pool, snapshot.aborted is not None
    match action:
        case Delete() if len(snapshot.active) > pool.spec.replicas and not snapshot.pool.surges:
            return pool.replicas_by
        case Update() if not aborted:
            return pool.template_by
    return ""


def membership_changed(name: str, uid: str, now: datetime, *, attached: bool) -> Decision:
    reason = PoolReason.ATTACHED if attached else PoolReason.DETACHED
    message = "a user gave it the pool's owner reference again" if attached else "a user removed its owner reference"
    return decision(format_time(now), reason, message, vm_reference(name, uid))
