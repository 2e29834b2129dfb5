"""What people are told of a pool, as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controllers.pool.actions import Action, Delete
from controllers.pool.machine import VM
from controllers.pool.snapshot import InvalidSpec, Pool
from controllers.pool.stores import POOLS
from kinds import meta
from runtime.events import EventRecorder, view_reference


@dataclass
class PoolEvents:
    events: EventRecorder

    def done(self, pool: Pool, action: Action) -> None:
        kept = ", its disks are kept" if isinstance(action, Delete) and action.keep_disks else ""
        note = f"{action.past} {action.name}{kept}: {action.reason}"
        self._say(pool, "Normal", f"Successful{action.verb}", note, action.verb)

    def refused(self, pool: Pool, action: Action, error: Exception) -> tuple[str, str]:
        """Returns the reason and the message."""
        reason, message = f"Failed{action.verb}", f"{action.verb} {action.name}: {error}"
        self._say(pool, "Warning", reason, message, action.verb)
        return reason, message

    def misread(self, pool: Pool, m: VM) -> None:
        note = f"VM {m.name}: {meta.SCALE_IN} is {m.scale_in[:63]!r}, give Protect or First; until then it is protected"
        self._say(pool, "Warning", "InvalidScaleIn", note, "Read")

    def moved(self, pool: Pool, vm: str, *, here: bool) -> None:
        if here:
            self._say(pool, "Normal", "Attached", f"VM {vm} is the pool's again, by its owner reference", "Attach")
        else:
            note = f"VM {vm} is not the pool's any more: its owner reference is gone. Its name is given to no other VM"
            self._say(pool, "Normal", "Detached", note, "Detach")

    def misfit(self, pool: InvalidSpec) -> None:
        self._say(pool, "Warning", "InvalidSpec", pool.problem, "Read")

    def _say(
        self, pool: Pool | InvalidSpec, kind: Literal["Normal", "Warning"], reason: str, note: str, action: str
    ) -> None:
        self.events.emit(view_reference(POOLS, pool), kind, reason, note, action=action)
