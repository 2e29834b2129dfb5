"""The actions of a plan. An action holds the VM as the controller observed it: a stale write is refused."""

from dataclasses import dataclass
from typing import Literal

from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from kinds.warm_states import WarmState

DeletionCause = Literal[
    "Excess", "Outdated", "Expired", "NodeLeaving", "Marked", "ReadinessTimeout", "Unhealthy", "NoRoom", "Contradiction"
]
"""The `reason` label of the metric of deletions."""


@dataclass(frozen=True)
class CreateVM:
    name: str
    placement: str
    standby: StandbyMode
    reason: str


@dataclass(frozen=True)
class DeleteVM:
    vm: WarmVM
    cause: DeletionCause
    reason: str


@dataclass(frozen=True)
class OrphanVM:
    """Releases the VM from the pool. The VM keeps running."""

    vm: WarmVM
    cause: str
    """The value of the VM's label `orphaned`."""
    reason: str


@dataclass(frozen=True)
class SetState:
    """Writes the VM's state, its standby mode, or both."""

    vm: WarmVM
    state: WarmState
    reason: str
    standby: StandbyMode | None = None


@dataclass(frozen=True)
class SetStandby:
    """Starts, pauses or stops the VM."""

    vm: WarmVM
    mode: StandbyMode
    reason: str


@dataclass(frozen=True)
class CountFailedCheck:
    """Writes the number of checks that failed since the VM became unhealthy."""

    vm: WarmVM
    failures: int
    reason: str


@dataclass(frozen=True)
class SetFinalizer:
    """Adds or removes the finalizer that delays the pool's deletion until its VMs are orphaned."""

    wanted: bool
    reason: str


VMAction = SetState | SetStandby | CountFailedCheck | OrphanVM
Action = CreateVM | DeleteVM | VMAction | SetFinalizer
