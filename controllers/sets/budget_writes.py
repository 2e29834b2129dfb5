"""Writes of the PodDisruptionBudget of a set."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from controllers.shared.evictions import BUDGETS, build_budget, selector
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, NotFound


class SetBudget(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str:
        """Empty if there is none yet."""

    @property
    def min_available(self) -> int: ...
    @property
    def vmi_uids(self) -> tuple[str, ...]: ...


async def set_budget(api: Api, namespace: str, labels: Mapping[str, str], owner: Json, wanted: SetBudget) -> None:
    pods = selector(labels, wanted.vmi_uids)
    if wanted.uid:
        chosen = {"matchExpressions": pods.get("matchExpressions")}
        spec = {"minAvailable": wanted.min_available, "maxUnavailable": None, "selector": chosen}
        await api.patch(BUDGETS, namespace, wanted.name, {"metadata": {"uid": wanted.uid}, "spec": spec})
        return
    with suppress(AlreadyExists):  # the store does not show it yet: the next plan compares it
        await api.create(BUDGETS, build_budget(namespace, wanted.name, labels, wanted.min_available, owner, pods))


async def delete_budget(api: Api, namespace: str, name: str, uid: str) -> None:
    with suppress(NotFound):
        await api.delete(BUDGETS, namespace, name, uid=uid)
