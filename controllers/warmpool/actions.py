"""The actions of a plan. An action holds the VM as the controller observed it: a stale write is refused."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from controllers.sets import actions
from controllers.shared.evictions import VMIChoice
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from poolhouse.api.kinds.warm_states import WarmState

DeletionCause = Literal[
    "Excess",
    "Outdated",
    "Expired",
    "NodeLeaving",
    "Marked",
    "ReadinessTimeout",
    "Unhealthy",
    "NoRoom",
    "Contradiction",
    "NotRecorded",
]
"""The `reason` label of the metric of deletions."""


class _Action(actions.Action):
    recorded: ClassVar[Reason | None] = None
    """the reason with which the pool's status records the action; None if users do not ask about it later"""


@dataclass(frozen=True)
class CreateVM(_Action, creates="name"):
    recorded = Reason.SUCCESSFUL_CREATE
    name: str
    placement: str
    standby: StandbyMode
    reason: str


@dataclass(frozen=True)
class DeleteVM(_Action, deletes="vm.uid"):
    recorded = Reason.SUCCESSFUL_DELETE
    vm: WarmVM
    cause: DeletionCause
    reason: str


@dataclass(frozen=True)
class OrphanVM(_Action):
    """Releases the VM from the pool. The VM keeps running."""

    recorded = Reason.ORPHANED
    vm: WarmVM
    cause: str
    """The value of the VM's label `orphaned`."""
    reason: str


@dataclass(frozen=True)
class SetState(_Action):
    """Writes the VM's state, its standby mode, or both."""

    vm: WarmVM
    state: WarmState
    reason: str
    standby: StandbyMode | None = None


@dataclass(frozen=True)
class SetStandby(_Action):
    """Starts, pauses or stops the VM."""

    vm: WarmVM
    mode: StandbyMode
    reason: str


@dataclass(frozen=True)
class CountFailedCheck(_Action):
    """Writes the number of checks that failed since the VM became unhealthy."""

    vm: WarmVM
    failures: int
    reason: str


@dataclass(frozen=True)
class SetFinalizer(_Action):
    """Adds or removes the finalizer that delays the pool's deletion until its VMs are orphaned."""

    wanted: bool
    reason: str


@dataclass(frozen=True)
class SetEvictionBudget(_Action):
    """Creates or changes the PodDisruptionBudget of the pool."""

    name: str
    uid: str
    """Empty if there is none yet."""
    min_available: int
    reason: str
    vmis: VMIChoice
    """The VMIs whose Pods it selects."""


@dataclass(frozen=True)
class DeleteEvictionBudget(_Action):
    name: str
    uid: str
    reason: str


VMAction = SetState | SetStandby | CountFailedCheck | OrphanVM
BudgetAction = SetEvictionBudget | DeleteEvictionBudget
Action = CreateVM | DeleteVM | VMAction | SetFinalizer | BudgetAction
