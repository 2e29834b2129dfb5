"""Writes of the PodDisruptionBudget of a pool."""

from contextlib import suppress

from controllers.pool.actions import DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.template import owner_reference
from controllers.pool.writes.context import Writing
from controllers.shared.evictions import BUDGETS, build_budget
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import AlreadyExists, NotFound


async def set_budget(to: Writing, a: SetEvictionBudget) -> None:
    if a.uid:
        change = {"metadata": {"uid": a.uid}, "spec": {"minAvailable": a.min_available, "maxUnavailable": None}}
        await to.api.patch(BUDGETS, to.namespace, a.name, change)
        return
    labels, owner = {meta.POOL: to.owner.name}, owner_reference(to.owner)
    with suppress(AlreadyExists):  # the store does not show it yet: the next plan compares it
        await to.api.create(BUDGETS, build_budget(to.namespace, a.name, labels, a.min_available, owner))


async def delete_budget(to: Writing, a: DeleteEvictionBudget) -> None:
    with suppress(NotFound):
        await to.api.delete(BUDGETS, to.namespace, a.name, uid=a.uid)
