"""Whether a repair is due. Somebody who undoes each of ours at once would otherwise be answered at once, for ever."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.backoff import Backoff

PAUSES = Backoff(base_seconds=2, cap_seconds=300)
OVER_SECONDS = 600.0
"""after the last repair, its contest is over"""


@dataclass(frozen=True)
class Repaired:
    generation: int
    times: int
    last: float


class Contest:
    def __init__(self) -> None:
        self._repaired: dict[str, Repaired] = {}

    def pause(self, policy: str, generation: int, now: float) -> float:
        """0 when the policy may be repaired now, which is then counted; else how long until it may. A policy that its
        author has changed since is no contest."""
        known = self._repaired.get(policy)
        if known is None or known.generation != generation or now - known.last > OVER_SECONDS:
            known = Repaired(generation, 0, now)
        left = known.last + PAUSES.delay(known.times, policy) - now
        if left > 0:
            return left
        self._repaired[policy] = Repaired(generation, known.times + 1, now)
        return 0.0

    def forget(self, policy: str) -> None:
        self._repaired.pop(policy, None)
