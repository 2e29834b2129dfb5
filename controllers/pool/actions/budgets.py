"""Actions on the PodDisruptionBudget of a pool."""

from dataclasses import dataclass

from controllers.pool.actions.base import Action, SnapshotEditor
from controllers.shared.evictions import ALL_VMIS, EvictionBudget, VMIChoice, selector
from poolhouse.api.kinds import meta


@dataclass(frozen=True)
class SetEvictionBudget(Action, past="limited the evictions by PodDisruptionBudget"):
    concerns_vm = False
    name: str
    uid: str
    """empty if there is none yet"""
    min_available: int
    reason: str
    vmis: VMIChoice = ALL_VMIS
    """the VMIs whose Pods it selects"""

    def change(self, editor: SnapshotEditor) -> None:
        snapshot = editor.snapshot
        pool, others = snapshot.pool, (each for each in snapshot.budgets or () if each.name != self.name)
        uid, selected = self.uid or f"{self.name} (simulated)", selector({meta.POOL: pool.name}, self.vmis)
        own = EvictionBudget(
            pool.namespace, self.name, uid, pool.uid, min_available=self.min_available, selector=selected
        )
        editor.change(budgets=(*others, own))


@dataclass(frozen=True)
class DeleteEvictionBudget(Action, past="deleted PodDisruptionBudget"):
    concerns_vm = False
    name: str
    uid: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change(budgets=tuple(each for each in editor.snapshot.budgets or () if each.uid != self.uid))
