"""What a pool can do. `base.Action` says what an action knows; `controllers.pool.writes` has its requests."""

from controllers.pool.actions.base import Action
from controllers.pool.actions.budgets import DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.actions.disks import DateDisk, DeleteDisks, ReleaseDisks, RemoveFinalizer, RetainDisks, ReturnDisk
from controllers.pool.actions.hooks import EndHold, Hold, SetInService
from controllers.pool.actions.jobs import RunJob
from controllers.pool.actions.revisions import AdoptRevision, LabelVMI, PinMachineType, PruneRevision, SaveRevision
from controllers.pool.actions.snapshots import (
    ForgetRestore,
    LabelState,
    PruneRestore,
    PruneSnapshot,
    Restore,
    TakeSnapshot,
)
from controllers.pool.actions.vms import Adopt, Create, Delete, DiskReplacement, Heal, Restart, Update

__all__ = [
    "Action",
    "Adopt",
    "AdoptRevision",
    "Create",
    "DateDisk",
    "Delete",
    "DeleteDisks",
    "DeleteEvictionBudget",
    "DiskReplacement",
    "EndHold",
    "ForgetRestore",
    "Heal",
    "Hold",
    "LabelState",
    "LabelVMI",
    "PinMachineType",
    "PruneRestore",
    "PruneRevision",
    "PruneSnapshot",
    "ReleaseDisks",
    "RemoveFinalizer",
    "Restart",
    "Restore",
    "RetainDisks",
    "ReturnDisk",
    "RunJob",
    "SaveRevision",
    "SetEvictionBudget",
    "SetInService",
    "TakeSnapshot",
    "Update",
]
