"""The events of pools."""

from controllers.pool import actions, lost_base
from controllers.pool.actions import Action
from controllers.pool.pools import POOLS, Pool
from controllers.pool.reasons import PoolReason
from controllers.pool.vm_snapshots import VMSnapshot
from controllers.sets.events import SetEvents
from controllers.shared.vm import VM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.decisions import Decision
from poolhouse.api.kinds.pool import UpdateAbort


class PoolEvents(SetEvents[Pool]):
    resource = POOLS

    def succeeded(self, pool: Pool, action: Action) -> None:
        retained = ", its disks are retained" if isinstance(action, actions.Delete) and action.retain_disks else ""
        note = f"{action.past} {action.name}{retained}: {action.reason}"
        self.emit(pool, "Normal", action.succeeded, note, action.verb)

    def snapshot_taken(self, pool: Pool, taken: VMSnapshot) -> None:
        """Reports a snapshot when KubeVirt has completed it, which may be long after the request."""
        note = f"took snapshot {taken.name} of VM {taken.vm_name} before its update"
        self.emit(pool, "Normal", PoolReason.SUCCESSFUL_TAKE_SNAPSHOT, note, "TakeSnapshot")

    def base_lost(self, pool: Pool, action: actions.Update, fields: str) -> None:
        note = (
            f"VM {action.name}: the ControllerRevision {pool.name}-{action.before} of its former template is gone, so"
            f" that the update removes nothing. It may have left {fields}: {lost_base.REMEDY}"
        )
        self.emit(pool, "Warning", PoolReason.REVISION_LOST, note, "Update")

    def invalid_scale_in(self, pool: Pool, vm: VM) -> None:
        note = (
            f"VM {vm.name}: {meta.SCALE_IN}: Invalid value: {vm.scale_in[:63]!r}: must be Protect or First; "
            "until then the VM is protected"
        )
        self.emit(pool, "Warning", PoolReason.INVALID_SCALE_IN, note, "Read")

    def update_aborted(self, pool: Pool, aborted: str, stable: str, abort: UpdateAbort) -> None:
        note = f"the update to {aborted} is aborted, VMs get {stable} again: {abort.message}"
        self.emit(pool, "Warning", PoolReason.UPDATE_ABORTED, note, "Update")

    def evicted(self, pool: Pool, found: Decision) -> None:
        (vm,) = found.vms
        note = f"VM {vm.partition('/')[0]} {found.message}"
        self.emit(pool, "Warning", PoolReason.EVICTED, note, "Read")

    def membership_changed(self, pool: Pool, vm: str, *, attached: bool) -> None:
        if attached:
            self.emit(pool, "Normal", PoolReason.ATTACHED, f"VM {vm} has the pool's owner reference again", "Attach")
        else:
            note = f"VM {vm} left the pool: its owner reference is gone. No other VM gets its name"
            self.emit(pool, "Normal", PoolReason.DETACHED, note, "Detach")
