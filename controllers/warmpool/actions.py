"""What a plan may want done. Each action has the machine as it was seen: if it has changed since, nothing is done."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from kinds.warm_states import WarmState


@dataclass(frozen=True)
class CreateVM:
    name: str
    placement: str
    standby: StandbyMode
    reason: str


@dataclass(frozen=True)
class DeleteVM:
    machine: WarmVM
    cause: str
    """in one word, for metrics: Excess, Outdated, Expired, NodeLeaving, ReadinessTimeout, Unhealthy, NoRoom, ..."""
    reason: str


@dataclass(frozen=True)
class OrphanVM:
    """Left to itself: it runs on, and no pool takes care of it any more."""

    machine: WarmVM
    cause: str
    reason: str


@dataclass(frozen=True)
class SetState:
    """A new state, or the same one with another standby."""

    machine: WarmVM
    state: WarmState
    reason: str
    standby: StandbyMode | None = None


@dataclass(frozen=True)
class SetStandby:
    """It is asked to be as it should: awake (Running), paused or stopped."""

    machine: WarmVM
    mode: StandbyMode
    reason: str


@dataclass(frozen=True)
class CountFailedCheck:
    """Another check failed since it is Unhealthy."""

    machine: WarmVM
    failures: int
    reason: str


@dataclass(frozen=True)
class SetFinalizer:
    """The pool's finalizer, which keeps it until its machines are orphaned."""

    wanted: bool
    reason: str


Action = CreateVM | DeleteVM | OrphanVM | SetState | SetStandby | CountFailedCheck | SetFinalizer
