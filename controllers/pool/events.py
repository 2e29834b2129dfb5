"""Events of pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controllers.pool.actions import Action, Delete
from controllers.pool.observe import POOLS
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import InvalidPool, Pool
from controllers.shared.vm import VM
from controllers.shared.write_batches import Failure, failure
from kinds import meta
from runtime.events import EventRecorder, view_reference


@dataclass
class PoolEvents:
    events: EventRecorder

    def succeeded(self, pool: Pool, action: Action) -> None:
        retained = ", its disks are retained" if isinstance(action, Delete) and action.retain_disks else ""
        note = f"{action.past} {action.name}{retained}: {action.reason}"
        self._emit(pool, "Normal", action.succeeded, note, action.verb)

    def failed(self, pool: Pool, action: Action, error: Exception) -> Failure:
        message = f"{action.verb} {action.name}: {error}"
        self._emit(pool, "Warning", action.failed, message, action.verb)
        return failure(action.failed, message)

    def invalid_scale_in(self, pool: Pool, vm: VM) -> None:
        note = (
            f"VM {vm.name}: {meta.SCALE_IN}: Invalid value: {vm.scale_in[:63]!r}: must be Protect or First; "
            "until then the VM is protected"
        )
        self._emit(pool, "Warning", PoolReason.INVALID_SCALE_IN, note, "Read")

    def membership_changed(self, pool: Pool, vm: str, *, attached: bool) -> None:
        if attached:
            self._emit(pool, "Normal", PoolReason.ATTACHED, f"VM {vm} has the pool's owner reference again", "Attach")
        else:
            note = f"VM {vm} left the pool: its owner reference is gone. No other VM gets its name"
            self._emit(pool, "Normal", PoolReason.DETACHED, note, "Detach")

    def invalid_spec(self, pool: InvalidPool) -> None:
        self._emit(pool, "Warning", PoolReason.INVALID_SPEC, pool.problem, "Read")

    def _emit(
        self, pool: Pool | InvalidPool, kind: Literal["Normal", "Warning"], reason: PoolReason, note: str, action: str
    ) -> None:
        self.events.emit(view_reference(POOLS, pool), kind, reason, note, action=action)
