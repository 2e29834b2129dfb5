"""The writes of a pool, in the order in which a plan's actions are carried out."""

from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.writes import (
    budgets,
    creations,
    disks,
    hooks,
    jobs,
    retained_disks,
    revisions,
    snapshots,
    updates,
    vms,
)
from controllers.pool.writes.context import Writing, in_namespace
from controllers.sets.writes import Send, each


async def _delete_disks(to: Writing, a: actions.DeleteDisks) -> None:
    await retained_disks.delete_disks(to.api, to.namespace, to.claim_users, a)


WRITES: dict[type[Action], Send[Writing]] = {
    # Disks come first: a deleted VM waits for their release, and a new VM must find those that return to it.
    actions.ReleaseDisks: each(in_namespace(disks.release_disks), quiet=True),
    actions.ReturnDisk: each(in_namespace(retained_disks.return_disk)),
    actions.DateDisk: each(in_namespace(retained_disks.date_disk), quiet=True),
    actions.DeleteDisks: each(_delete_disks),
    # Replaced disks must have no owner before their VM is deleted.
    actions.RetainDisks: each(in_namespace(disks.retain_replaced_disks)),
    actions.RemoveFinalizer: each(in_namespace(disks.remove_finalizer)),
    actions.Adopt: each(vms.adopt),
    actions.AdoptRevision: each(revisions.adopt, quiet=True),
    actions.PinMachineType: each(revisions.pin_machine_type, quiet=True),
    # No VM gets a revision that is not stored: see NEEDS.
    actions.SaveRevision: each(revisions.save, quiet=True),
    actions.Create: creations.create,
    actions.Delete: each(vms.delete, in_bursts=True),
    actions.Heal: each(vms.heal, in_bursts=True),
    actions.TakeSnapshot: each(snapshots.take_snapshot, in_bursts=True, quiet=True),
    actions.Restore: each(snapshots.restore, in_bursts=True),
    actions.LabelState: each(in_namespace(retained_disks.label_state)),
    actions.ForgetRestore: each(snapshots.forget_restore, quiet=True),
    actions.Update: each(updates.update, in_bursts=True),
    actions.LabelVMI: each(revisions.label_vmi, in_bursts=True, quiet=True),
    # A hold that ends frees the annotations of its hooks before another one begins.
    actions.EndHold: each(in_namespace(hooks.end_hold), in_bursts=True),
    actions.Hold: each(in_namespace(hooks.hold), in_bursts=True),
    actions.SetInService: each(hooks.set_in_service, in_bursts=True, quiet=True),
    actions.Restart: each(vms.restart, in_bursts=True),
    actions.RunJob: each(jobs.run),
    actions.SetEvictionBudget: each(budgets.set_budget, quiet=True),
    actions.DeleteEvictionBudget: each(budgets.delete_budget, quiet=True),
    # Nothing needs these deletions, so they come last.
    actions.PruneRevision: each(revisions.prune, quiet=True),
    actions.PruneSnapshot: each(snapshots.prune_snapshot, quiet=True),
    actions.PruneRestore: each(snapshots.prune_restore, quiet=True),
}
NEEDS: dict[type[Action], type[Action]] = dict.fromkeys((actions.Create, actions.Update), actions.SaveRevision)
"""Not done if the revision could not be saved: an update compares a VM with the revision that the VM's label names."""
OF_BUDGET = actions.SetEvictionBudget, actions.DeleteEvictionBudget
"""Writes whose failure is no failure of the pool."""
