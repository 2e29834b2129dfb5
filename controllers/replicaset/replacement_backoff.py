"""Pauses before a replacement for VMIs that end soon after their start.

The first VMI that ends is replaced at once, and so is a VMI that ran for a while. If the replacement ends early too, it
stays for users to inspect, and its own replacement waits, longer each time. An annotation of the VMI counts the
attempts, so a restart of the controller forgets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apimachinery.timestamps import parse_time
from controllers.shared.vmi import VMI
from runtime.backoff import Backoff

EARLY = timedelta(minutes=1)
"""A VMI that ran for less ended early."""
PAUSES = Backoff(base_seconds=10, cap_seconds=300)
"""The same pauses as KubeVirt's between the starts of a crashing VM."""


@dataclass(frozen=True)
class BackOff:
    """An ended VMI, and when it is replaced."""

    vmi: VMI
    until: datetime

    @property
    def why(self) -> str:
        return (
            f"ended ({describe_end(self.vmi)}) early, and so did {self.vmi.attempt} before it: it is replaced at "
            f"{self.until.astimezone(UTC):%H:%M:%S} UTC"
        )

    def __str__(self) -> str:
        return f"{self.vmi.name} {self.why}"


def ended_early(vmi: VMI) -> bool:
    if not vmi.final or not vmi.started_at or not vmi.ended_at:
        return vmi.final
    return parse_time(vmi.ended_at) - parse_time(vmi.started_at) < EARLY


def next_attempt(vmi: VMI) -> int:
    """The attempt of the VMI that replaces this one."""
    return vmi.attempt + 1 if ended_early(vmi) else 0


def back_off(vmi: VMI, now: datetime) -> BackOff | None:
    """None once the replacement is due."""
    ended = vmi.ended_at or vmi.created_at
    if vmi.attempt == 0 or not ended_early(vmi) or not ended:
        return None
    until = parse_time(ended) + timedelta(seconds=PAUSES.delay(vmi.attempt, vmi.uid))
    return BackOff(vmi, until) if until > now else None


def describe_end(vmi: VMI) -> str:
    return f"{vmi.phase}: {vmi.reason}" if vmi.reason else vmi.phase
