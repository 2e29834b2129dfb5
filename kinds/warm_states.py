"""The states of a warm machine, and which may follow which.

A warm VM's state is a label on the VM (for an EC2 instance a tag), in the words of the warm pool document. The label
is the only truth: whoever restarts, or takes over, reads it and goes on. So every write of it goes through `follows`.
"""

from __future__ import annotations

from enum import StrEnum


class WarmState(StrEnum):
    """What the label `poolhouse.dev/warm-state` says."""

    PROVISIONING = "PENDING_WARMPOOL_PROVISIONING"
    """made, and not found healthy yet"""
    STANDING_BY = "PENDING_STANDBY"
    """healthy, and on its way to the standby its pool wants: being paused or stopped"""
    READY = "Ready"
    """healthy, and waiting for a claim"""
    ALLOCATING = "PENDING_POD_PROVISIONING"
    """given to a claim, which is named by a label, and not handed over yet"""
    IN_USE = "InUse"
    """handed over"""
    TERMINATING = "PENDING_TERMINATION"
    """to be deleted, whatever else happens: its claim ended, or its activation failed"""
    UNHEALTHY = "Unhealthy"
    """the check ran and failed"""
    UNKNOWN = "Unknown"
    """the check could not be carried out: that says nothing about the machine, so nothing is done to it"""


TRANSITIONS: dict[WarmState | None, frozenset[WarmState]] = {
    # A machine made for a claim that found no other is that claim's from its first moment.
    None: frozenset({WarmState.PROVISIONING, WarmState.ALLOCATING}),
    WarmState.PROVISIONING: frozenset(
        {WarmState.STANDING_BY, WarmState.READY, WarmState.UNHEALTHY, WarmState.TERMINATING}
    ),
    WarmState.STANDING_BY: frozenset({WarmState.READY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}),
    WarmState.READY: frozenset(
        {WarmState.ALLOCATING, WarmState.STANDING_BY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}
    ),
    # Back to Ready only by `returned`: a claimant has never seen or touched it.
    WarmState.ALLOCATING: frozenset({WarmState.IN_USE, WarmState.TERMINATING}),
    # A failing machine that somebody uses is theirs to judge: it says so in the claim, and stays InUse.
    WarmState.IN_USE: frozenset({WarmState.TERMINATING}),
    WarmState.UNHEALTHY: frozenset({WarmState.PROVISIONING, WarmState.UNKNOWN, WarmState.TERMINATING}),
    WarmState.UNKNOWN: frozenset({WarmState.READY, WarmState.STANDING_BY, WarmState.UNHEALTHY, WarmState.TERMINATING}),
    WarmState.TERMINATING: frozenset(),
}

UNCLAIMED = frozenset(
    {WarmState.PROVISIONING, WarmState.STANDING_BY, WarmState.READY, WarmState.UNHEALTHY, WarmState.UNKNOWN}
)
"""States in which a machine is its pool's; in all others it is a claim's, or nobody's."""

COUNTED = frozenset({WarmState.PROVISIONING, WarmState.STANDING_BY, WarmState.READY, WarmState.UNKNOWN})
"""States that count towards `replicas`. A machine whose check could not run may be well: it is not replaced."""


def may_follow(before: WarmState | None, after: WarmState) -> bool:
    """May a machine go from one state to the other? None is before it is made; the same state again is no change."""
    return before is after or after in TRANSITIONS[before]


def may_return(before: WarmState | None, *, activated: bool) -> bool:
    """May a machine be Ready again? Only one that lost the race for its claim, before it was activated for it."""
    return before is WarmState.ALLOCATING and not activated


def parse_state(label: str | None) -> WarmState | None:
    """The state that a label names; None for no label and for a word that is no state."""
    try:
        return WarmState(label) if label is not None else None
    except ValueError:
        return None
