"""Decides when a pool or a warm pool creates, changes or deletes the PodDisruptionBudget that it owns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from controllers.shared.evictions import ALL_VMIS, EvictionBudget, VMIChoice, pod_labels, selector
from controllers.shared.vmi import VMI, ObjectView
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.api.apimachinery.unstructured import Json, at

R = TypeVar("R", bound=Reason)
S_co = TypeVar("S_co", covariant=True)
D = TypeVar("D")

_UNLIMITED = "a drain may stop all VMs of a node at once"
UNREADABLE = f"the controller cannot list PodDisruptionBudgets: {_UNLIMITED}"

DELETED = "the pool is being deleted"
"""With `kubectl delete --cascade=orphan` the budget would stay with the VMs, and no controller would lower its
`minAvailable`."""


@dataclass(frozen=True)
class DesiredBudget(Generic[R]):
    """The budget that a set needs."""

    min_available: int | None = 0
    """0 for no budget, None for the one that the set has or has not"""
    reason: str = ""
    failure: R | None = None
    """why the set may have no budget although it needs one"""
    vmis: VMIChoice = ALL_VMIS
    """the VMIs whose Pods it selects"""


@dataclass(frozen=True)
class Refusal:
    """The error of the last write of a set's budget."""

    message: str
    wait_seconds: float = 0.0
    """Seconds until the next attempt, before which the plan has no such write."""


class MakeSet(Protocol[S_co]):
    """Makes the action that creates or changes the budget. `uid` is empty if there is none yet."""

    def __call__(self, name: str, uid: str, min_available: int, reason: str, vmis: VMIChoice, /) -> S_co: ...


def own_budget(owner: ObjectView, budgets: Iterable[EvictionBudget]) -> EvictionBudget | None:
    """The budget that the set has made, or an earlier set of its name, whose budget has no owner any more."""
    named = (each for each in budgets if each.name == owner.name)
    return next((each for each in named if each.abandoned or each.owner_uid == owner.uid), None)


def foreign_budget(owner: ObjectView, budgets: Iterable[EvictionBudget], vmis: Iterable[VMI]) -> EvictionBudget | None:
    """The first budget that is not the set's own and selects a launcher Pod of these VMIs."""
    budgets = list(budgets)
    own = own_budget(owner, budgets)
    others = sorted((each for each in budgets if each is not own), key=lambda each: each.name)
    labels = [pod_labels(vmi) for vmi in vmis] if others else []
    return next((each for each in others if any(map(each.selects, labels))), None)


def endless(owner: ObjectView, budgets: Sequence[EvictionBudget] | None, vmis: Iterable[VMI]) -> str:
    """Why a drain of these VMIs, whose guests an eviction stops, never ends, or an empty string."""
    found = foreign_budget(owner, (each for each in budgets or () if each.min_available is None), vmis)
    if found is None:
        return ""
    why = "Kubernetes computes maxUnavailable or a percentage from the replicas of a Pod's owner, and a VMI has none"
    remedy = "delete it, or give it a number as minAvailable"
    return (
        f"PodDisruptionBudget {found.name} selects Pods of the pool and allows no eviction, so that a drain never ends:"
        f" {why}; {remedy}"
    )


def conflict(owner: ObjectView, budgets: Sequence[EvictionBudget], vmis: Iterable[VMI], remedy: str) -> str:
    """Why another budget stands in the way of the set's own, or an empty string. `remedy` is the field that disables
    the set's own."""
    advice = f"delete it, or set {remedy}: Disabled"
    if own_budget(owner, budgets) is None and any(each.name == owner.name for each in budgets):
        return f"PodDisruptionBudget {owner.name} is not the pool's, and has its name; {advice}"
    found = foreign_budget(owner, budgets, vmis)
    if found is None:
        return ""
    return f"PodDisruptionBudget {found.name} selects Pods of the pool, and no Pod may have two; {advice}"


def unknown_strategy(owner: ObjectView, budgets: Sequence[EvictionBudget] | None, failure: R) -> DesiredBudget[R]:
    """The desired budget of a set whose VMs have the cluster's eviction strategy, if the controller cannot read it."""
    has_own = own_budget(owner, budgets or ()) is not None
    left = f"its PodDisruptionBudget {owner.name} stays as it is" if has_own else _UNLIMITED
    why = "the controller finds no KubeVirt object that it may read, which has the evictionStrategy of VMs without one"
    return DesiredBudget(None, f"{why}: {left}", failure)


def describe_refusal(
    owner: ObjectView, budgets: Iterable[EvictionBudget], wanted: DesiredBudget[R], refusal: Refusal
) -> str:
    """Says which write of the desired budget was refused, and what follows."""
    if own_budget(owner, budgets) is None:
        return f"cannot create PodDisruptionBudget {owner.name}, so that {_UNLIMITED}: {refusal.message}"
    if wanted.min_available:
        return f"cannot change PodDisruptionBudget {owner.name}, which stays as it is: {refusal.message}"
    return f"cannot delete PodDisruptionBudget {owner.name}, although {wanted.reason}: {refusal.message}"


def keep_in_step(
    owner: ObjectView,
    labels: Mapping[str, str],
    budgets: Iterable[EvictionBudget],
    wanted: DesiredBudget[R],
    set_budget: MakeSet[S_co],
    delete_budget: Callable[[str, str, str], D],
) -> Iterator[S_co | D]:
    """Yields the action, if there is one, that makes the budget as it is wanted. `labels` are those of the set's Pods.

    The labels in a selector cannot be replaced by a merge patch, so that a budget with others is made again."""
    name, own, pods = owner.name, own_budget(owner, budgets), selector(labels, wanted.vmis)
    if wanted.min_available is None:
        return
    if own is not None and not wanted.min_available:
        yield delete_budget(name, own.uid, wanted.reason)
    elif own is not None and own.abandoned:
        yield delete_budget(name, own.uid, "it has no owner, and is made again")
    elif own is not None and at(own.selector, "matchLabels") != pods["matchLabels"]:
        yield delete_budget(name, own.uid, "somebody has changed which Pods it selects")
    elif wanted.min_available and (own is None or not _is_as(own, wanted.min_available, pods)):
        yield set_budget(name, own.uid if own is not None else "", wanted.min_available, wanted.reason, wanted.vmis)


def _is_as(own: EvictionBudget, min_available: int, pods: Json) -> bool:
    return own.releases_unready and (own.min_available, own.selector) == (min_available, pods)
