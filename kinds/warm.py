"""The states of a warm machine, and which may follow which.

A warm VM's state is a label on the VM (for an EC2 instance a tag), in the words of the warm pool document. The label
is the only truth: whoever restarts, or takes over, reads it and goes on. So every write of it goes through `follows`.
"""

from __future__ import annotations

from enum import StrEnum


class Warm(StrEnum):
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


FOLLOWS: dict[Warm | None, frozenset[Warm]] = {
    # A machine made for a claim that found no other is that claim's from its first moment.
    None: frozenset({Warm.PROVISIONING, Warm.ALLOCATING}),
    Warm.PROVISIONING: frozenset({Warm.STANDING_BY, Warm.READY, Warm.UNHEALTHY, Warm.TERMINATING}),
    Warm.STANDING_BY: frozenset({Warm.READY, Warm.UNHEALTHY, Warm.UNKNOWN, Warm.TERMINATING}),
    Warm.READY: frozenset({Warm.ALLOCATING, Warm.STANDING_BY, Warm.UNHEALTHY, Warm.UNKNOWN, Warm.TERMINATING}),
    # Back to Ready only by `returned`: a claimant has never seen or touched it.
    Warm.ALLOCATING: frozenset({Warm.IN_USE, Warm.TERMINATING}),
    # A failing machine that somebody uses is theirs to judge: it says so in the claim, and stays InUse.
    Warm.IN_USE: frozenset({Warm.TERMINATING}),
    Warm.UNHEALTHY: frozenset({Warm.PROVISIONING, Warm.UNKNOWN, Warm.TERMINATING}),
    Warm.UNKNOWN: frozenset({Warm.READY, Warm.STANDING_BY, Warm.UNHEALTHY, Warm.TERMINATING}),
    Warm.TERMINATING: frozenset(),
}

UNCLAIMED = frozenset({Warm.PROVISIONING, Warm.STANDING_BY, Warm.READY, Warm.UNHEALTHY, Warm.UNKNOWN})
"""States in which a machine is its pool's; in all others it is a claim's, or nobody's."""

DEPTH = frozenset({Warm.PROVISIONING, Warm.STANDING_BY, Warm.READY, Warm.UNKNOWN})
"""States that count towards `replicas`. A machine whose check could not run may be well: it is not replaced."""


def follows(before: Warm | None, after: Warm) -> bool:
    """May a machine go from one state to the other? None is before it is made; the same state again is no change."""
    return before is after or after in FOLLOWS[before]


def returned(before: Warm | None, *, activated: bool) -> bool:
    """May a machine be Ready again? Only one that lost the race for its claim, before it was activated for it."""
    return before is Warm.ALLOCATING and not activated


def state(label: str | None) -> Warm | None:
    """The state that a label names; None for no label and for a word that is no state."""
    try:
        return Warm(label) if label is not None else None
    except ValueError:
        return None
