"""The states of a warm VM and the allowed transitions.

The state is a label of the VM, or a tag of the EC2 instance. It is the only record: a restarted controller continues
from it. Every write of the state is checked with `may_follow`.
"""

from enum import StrEnum


class WarmState(StrEnum):
    """Values of the label `poolhouse.dev/warm-state`."""

    PROVISIONING = "PENDING_WARMPOOL_PROVISIONING"
    """created, no successful health check yet"""
    STANDING_BY = "PENDING_STANDBY"
    """healthy, and being paused or stopped"""
    READY = "Ready"
    """healthy, waits for a claim"""
    ALLOCATING = "PENDING_POD_PROVISIONING"
    """reserved for the claim that another label names, not handed over yet"""
    IN_USE = "InUse"
    """handed over to its claim"""
    TERMINATING = "PENDING_TERMINATION"
    """being deleted, because its claim ended or its activation failed"""
    UNHEALTHY = "Unhealthy"
    """the health check failed"""
    UNKNOWN = "Unknown"
    """the health check could not be performed, so the controller does nothing to the VM"""


TRANSITIONS: dict[WarmState | None, frozenset[WarmState]] = {
    # A VM that is created for a claim (ColdStart) is reserved from the start.
    None: frozenset({WarmState.PROVISIONING, WarmState.ALLOCATING}),
    WarmState.PROVISIONING: frozenset(
        {WarmState.STANDING_BY, WarmState.READY, WarmState.UNHEALTHY, WarmState.TERMINATING}
    ),
    WarmState.STANDING_BY: frozenset({WarmState.READY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}),
    WarmState.READY: frozenset(
        {WarmState.ALLOCATING, WarmState.STANDING_BY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}
    ),
    # It returns to Ready only by `may_return`, if it was not activated for its claim.
    WarmState.ALLOCATING: frozenset({WarmState.IN_USE, WarmState.TERMINATING}),
    # A failing VM in use is reported in its claim and stays InUse. Its user decides.
    WarmState.IN_USE: frozenset({WarmState.TERMINATING}),
    WarmState.UNHEALTHY: frozenset({WarmState.PROVISIONING, WarmState.UNKNOWN, WarmState.TERMINATING}),
    WarmState.UNKNOWN: frozenset({WarmState.READY, WarmState.STANDING_BY, WarmState.UNHEALTHY, WarmState.TERMINATING}),
    WarmState.TERMINATING: frozenset(),
}

UNCLAIMED = frozenset(
    {WarmState.PROVISIONING, WarmState.STANDING_BY, WarmState.READY, WarmState.UNHEALTHY, WarmState.UNKNOWN}
)
"""states in which the VM belongs to its pool"""

COUNTED = frozenset({WarmState.PROVISIONING, WarmState.STANDING_BY, WarmState.READY, WarmState.UNKNOWN})
"""States that count towards `replicas`. A VM in state Unknown may be healthy, so it is not replaced."""


def may_follow(before: WarmState | None, after: WarmState) -> bool:
    """Whether the transition is allowed. None is the state before the creation; the same state is always allowed."""
    return before is after or after in TRANSITIONS[before]


def may_return(before: WarmState | None, *, activated: bool) -> bool:
    """Whether a reserved VM may become Ready again: only if it was not activated for its claim."""
    return before is WarmState.ALLOCATING and not activated


def parse_state(label: str | None) -> WarmState | None:
    """The state that a label names; None for an absent or unknown value."""
    try:
        return WarmState(label) if label is not None else None
    except ValueError:
        return None
