"""Writes of the PodDisruptionBudget of a pool."""

from controllers.pool.actions import DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.template import owner_reference
from controllers.pool.writes.context import Writing
from controllers.sets import budget_writes
from poolhouse.api.kinds import meta


async def set_budget(to: Writing, a: SetEvictionBudget) -> None:
    labels, owner = {meta.POOL: to.owner.name}, owner_reference(to.owner)
    await budget_writes.set_budget(to.api, to.namespace, labels, owner, a)


async def delete_budget(to: Writing, a: DeleteEvictionBudget) -> None:
    await budget_writes.delete_budget(to.api, to.namespace, a.name, a.uid)
