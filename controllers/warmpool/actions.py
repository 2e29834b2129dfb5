"""What a plan may want done. Each action has the machine as it was seen: if it has changed since, nothing is done."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.warmpool.warm_vm import Machine, Standby
from kinds.warm import Warm


@dataclass(frozen=True)
class Create:
    name: str
    placement: str
    standby: Standby
    reason: str


@dataclass(frozen=True)
class Terminate:
    machine: Machine
    cause: str
    """in one word, for metrics: Excess, Outdated, Expired, NodeLeaving, ReadinessTimeout, Unhealthy, NoRoom, ..."""
    reason: str


@dataclass(frozen=True)
class Orphan:
    """Left to itself: it runs on, and no pool takes care of it any more."""

    machine: Machine
    cause: str
    reason: str


@dataclass(frozen=True)
class Move:
    """A new state, or the same one with another standby."""

    machine: Machine
    state: Warm
    reason: str
    standby: Standby | None = None


@dataclass(frozen=True)
class Rest:
    """It is asked to be as it should: awake (Running), paused or stopped."""

    machine: Machine
    mode: Standby
    reason: str


@dataclass(frozen=True)
class Count:
    """Another check failed since it is Unhealthy."""

    machine: Machine
    failures: int
    reason: str


@dataclass(frozen=True)
class Hold:
    """The pool's finalizer, which keeps it until its machines are orphaned."""

    wanted: bool
    reason: str


Action = Create | Terminate | Orphan | Move | Rest | Count | Hold
