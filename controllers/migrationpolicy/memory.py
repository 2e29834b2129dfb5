"""The controller's memory of policies between reconciles. A restart of the process loses the memory."""

from collections import defaultdict
from dataclasses import dataclass, field

from controllers.shared.status_writer import LastWrite
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.resource import Key

PAUSES = Backoff(base_seconds=2, cap_seconds=300)
RESET_SECONDS = 600.0
"""Time without a repair after which the pauses start again with the shortest pause."""


@dataclass
class PolicyMemory:
    """The memory of one policy, dropped when the policy is deleted."""

    name: str
    status: LastWrite = field(default_factory=LastWrite)
    _wanted: object = None
    _repairs: int = 0
    _repaired_at: float = float("-inf")

    def repair_pause(self, wanted: object, now: float) -> float:
        """Returns 0 and counts a repair if the policy may be repaired now. Otherwise returns the seconds to wait.

        The pauses grow, because another client may undo each repair. They end when something else is `wanted`: a new
        generation of the policy, or other settings of the cluster."""
        if wanted != self._wanted or now - self._repaired_at > RESET_SECONDS:
            self._wanted, self._repairs, self._repaired_at = wanted, 0, now
            wait = 0.0
        else:
            wait = self._repaired_at + PAUSES.delay(self._repairs, self.name) - now
        if wait > 0:
            return wait
        self._repairs, self._repaired_at = self._repairs + 1, now
        return 0.0


class UnlabelledVMIs:
    """VMIs whose label the API server refused, by policy. Methods return policies whose status may change."""

    def __init__(self) -> None:
        self._policies: dict[Key, str] = {}
        self._messages: defaultdict[str, dict[Key, str]] = defaultdict(dict)

    def refused(self, vmi: Key, policy: str | None, message: str) -> tuple[str, ...]:
        """Records a refused label of this policy. The policy is None for the refused removal of a label."""
        if policy is None:
            return self.resolved(vmi)
        if self._messages[policy].get(vmi) == message:
            return ()
        left = self.resolved(vmi)
        self._policies[vmi] = policy
        self._messages[policy][vmi] = message
        return tuple({*left, policy})

    def resolved(self, vmi: Key) -> tuple[str, ...]:
        """Removes a VMI that is labelled, is deleted, or needs no label."""
        policy = self._policies.pop(vmi, None)
        if policy is None:
            return ()
        del self._messages[policy][vmi]
        if not self._messages[policy]:
            del self._messages[policy]
        return (policy,)

    def of(self, policy: str) -> tuple[int, str]:
        """The number of VMIs, and the message of the first VMI by name, so that the text is stable."""
        found = self._messages.get(policy)
        return (len(found), found[min(found)]) if found else (0, "")

    def clear(self) -> None:
        self._policies.clear()
        self._messages.clear()
