"""Instances that end soon after they were made: a template that cannot run must not be tried ten times a second.

The first that ends is replaced at once, and so is one that ran for a while. If the one in its place ends early too, it
stays, for people to look at, and its replacement waits; longer each time. How many went before is written on the
instance, so that a restart of ours forgets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controllers.replicaset.instance import VMI
from runtime.backoff import Backoff

STEADY = timedelta(minutes=1)
"""One that ran for so long was worth its place."""
PAUSES = Backoff(base_seconds=10, cap_seconds=300)
"""As long as KubeVirt's own between the starts of a VM that crashes."""


@dataclass(frozen=True)
class BackOff:
    """An ended instance, and when it is replaced."""

    instance: VMI
    until: datetime

    @property
    def why(self) -> str:
        return (
            f"ended ({describe_end(self.instance)}) soon after it was made, and so did {self.instance.attempt} before "
            f"it: it is replaced at {self.until.astimezone(UTC):%H:%M:%S} UTC"
        )

    def __str__(self) -> str:
        return f"{self.instance.name} {self.why}"


def ended_early(i: VMI) -> bool:
    if not i.final or not i.ran_at or not i.ended_at:
        return i.final
    return _time(i.ended_at) - _time(i.ran_at) < STEADY


def next_attempt(i: VMI) -> int:
    """Of the instance that replaces this one."""
    return i.attempt + 1 if ended_early(i) else 0


def back_off(i: VMI, now: datetime) -> BackOff | None:
    """What its replacement waits for, or None when it is due."""
    ended = i.ended_at or i.born
    if i.attempt == 0 or not ended_early(i) or not ended:
        return None
    until = _time(ended) + timedelta(seconds=PAUSES.delay(i.attempt, i.uid))
    return BackOff(i, until) if until > now else None


def describe_end(i: VMI) -> str:
    return f"{i.phase}: {i.why}" if i.why else i.phase


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
