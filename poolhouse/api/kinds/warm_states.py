"""The states of a warm VM and the allowed transitions.

The state is a label of the VM, or a tag of the EC2 instance. There is no other record, so a restarted controller
continues from the label or tag. Before every write of the state, `may_follow` checks the transition.
"""

from enum import StrEnum


class WarmState(StrEnum):
    """Values of the label `poolhouse.dev/warm-state`."""

    PROVISIONING = "PENDING_WARMPOOL_PROVISIONING"
    """created, no successful health check yet"""
    STANDING_BY = "PENDING_STANDBY"
    """healthy, and being paused or stopped"""
    READY = "Ready"
    """healthy and waiting for a claim"""
    ALLOCATING = "PENDING_POD_PROVISIONING"
    """reserved for the claim in the claim label, but not handed over yet"""
    IN_USE = "InUse"
    """handed over to its claim"""
    TERMINATING = "PENDING_TERMINATION"
    """being deleted, because its claim ended or its activation failed"""
    UNHEALTHY = "Unhealthy"
    """the health check failed"""
    UNKNOWN = "Unknown"
    """the health check could not be performed, so the controller does nothing to the VM"""


TRANSITIONS: dict[WarmState | None, frozenset[WarmState]] = {
    # A VM that is created for a claim (ColdStart) is reserved from its creation.
    None: frozenset({WarmState.PROVISIONING, WarmState.ALLOCATING}),
    WarmState.PROVISIONING: frozenset(
        {WarmState.STANDING_BY, WarmState.READY, WarmState.UNHEALTHY, WarmState.TERMINATING}
    ),
    WarmState.STANDING_BY: frozenset({WarmState.READY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}),
    WarmState.READY: frozenset(
        {WarmState.ALLOCATING, WarmState.STANDING_BY, WarmState.UNHEALTHY, WarmState.UNKNOWN, WarmState.TERMINATING}
    ),
    # A reserved VM may also return to Ready if `may_return` allows this.
    WarmState.ALLOCATING: frozenset({WarmState.IN_USE, WarmState.TERMINATING}),
    # A failing VM in use stays InUse. The claim reports the failure, and the user may release the VM.
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
"""States that count towards `replicas`. A VM in state Unknown is not replaced, because it may be healthy."""


def may_follow(before: WarmState | None, after: WarmState) -> bool:
    """Whether the transition is allowed. None is the state before the creation. A state may follow itself."""
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
