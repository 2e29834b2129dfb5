"""Writes of the PodDisruptionBudget of a set."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from controllers.sets.eviction_budgets import Refusal
from controllers.sets.write_batches import Outcome, error_message
from controllers.shared.evictions import BUDGETS, RELEASES_UNREADY, VMIChoice, build_budget, selector
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import AlreadyExists, ApiError, NotFound

PAUSES = Backoff(base_seconds=1, cap_seconds=300)
"""Pauses after refused writes of a budget. Whoever refuses one, such as an admission policy, usually does it again."""


class SetBudget(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str:
        """Empty if there is none yet."""

    @property
    def min_available(self) -> int: ...
    @property
    def vmis(self) -> VMIChoice: ...


async def set_budget(api: Api, namespace: str, labels: Mapping[str, str], owner: Json, wanted: SetBudget) -> None:
    pods = selector(labels, wanted.vmis)
    if wanted.uid:
        chosen = {"matchExpressions": pods.get("matchExpressions")}
        spec = {
            "minAvailable": wanted.min_available,
            "maxUnavailable": None,
            "selector": chosen,
            "unhealthyPodEvictionPolicy": RELEASES_UNREADY,
        }
        await api.patch(BUDGETS, namespace, wanted.name, {"metadata": {"uid": wanted.uid}, "spec": spec})
        return
    with suppress(AlreadyExists):  # the store does not show it yet: the next plan compares it
        await api.create(BUDGETS, build_budget(namespace, wanted.name, labels, wanted.min_available, owner, pods))


async def delete_budget(api: Api, namespace: str, name: str, uid: str) -> None:
    with suppress(NotFound):
        await api.delete(BUDGETS, namespace, name, uid=uid)


@dataclass
class RefusedWrites:
    """The refusals in a row of a set's budget. They stop nothing else of the set."""

    times: int = 0
    message: str = ""
    retry_at: float = 0.0

    def seen(self, clock: float) -> Refusal | None:
        return Refusal(self.message, max(0.0, self.retry_at - clock)) if self.times else None

    def follow(self, uid: str, before: Refusal | None, outcome: Outcome, clock: float) -> None:
        """Remembers how the writes of a plan ended. `before` is the refusal that the plan knew."""
        error = outcome.error
        if error is not None:
            asked = (error.retry_after_seconds if isinstance(error, ApiError) else None) or 0.0
            self.times, self.message = self.times + 1, error_message(error)
            self.retry_at = clock + max(asked, PAUSES.delay(self.times, uid))
        elif before is not None and not before.wait_seconds:
            self.times = 0


def without_refusal(outcome: Outcome) -> Outcome:
    """The outcome of a budget's writes for the rest of the set, which does not repeat them at once."""
    return replace(outcome, failure=None, retry=False, error=None) if outcome.error is not None else outcome
