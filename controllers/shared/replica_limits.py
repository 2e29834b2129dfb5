"""The replica limits of namespaces, and an object that asks for more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from controllers.shared.conditions import condition, find_condition
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.replica_limits import UNLIMITED, annotated_limit, effective_replicas
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import NAMESPACES, Key
from poolhouse.runtime.store import Store

SCALING_LIMITED = "ScalingLimited"
"""The type of the condition. A HorizontalPodAutoscaler has a condition of this type for the same reason."""


@dataclass(frozen=True)
class Excess:
    """The replicas of a spec above the limit."""

    wanted: int
    """`spec.replicas`, or the decision of an autoscaler"""
    replicas: int
    """the number that the controller works towards"""
    limit: int

    def __str__(self) -> str:
        kept = "" if self.replicas <= self.limit else f", and keeps the {self.replicas} that it had before"
        return (
            f"{self.wanted} replicas are more than the limit of the namespace: the controller creates no more than"
            f" {self.limit}{kept}. Lower replicas, or raise the annotation {meta.MAX_REPLICAS} of the namespace"
        )


class LimitedStatus(Protocol):
    @property
    def desired_replicas(self) -> int | None: ...
    @property
    def replicas(self) -> int: ...
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


def excess(wanted: int, limit: int | None, status: LimitedStatus) -> Excess | None:
    """The replicas above the limit; None if there are none. What the status of the object shows as desired stays
    allowed. If the limit is unknown (None), the condition in the status tells it."""
    reached = status.replicas if status.desired_replicas is None else status.desired_replicas
    if limit is None:
        limited = find_condition(status.conditions, SCALING_LIMITED, "True")
        limit = UNLIMITED if limited is None else reached
    replicas = effective_replicas(wanted, limit, reached)
    return Excess(wanted, replicas, limit) if replicas < wanted else None


def scaling_limited(found: Excess | None, limited: str, not_limited: str) -> Condition:
    """The condition, with one of the two reasons."""
    if found is None:
        return condition(SCALING_LIMITED, False, not_limited)
    return condition(SCALING_LIMITED, True, limited, str(found))


@dataclass(frozen=True, slots=True)
class NamespaceLimit:
    name: str
    limit: int | None
    """None if the annotation is missing or invalid. Admission tells whoever raises replicas that it is invalid."""


def parse_namespace_limit(document: Json) -> NamespaceLimit:
    metadata = document["metadata"]
    try:
        return NamespaceLimit(metadata["name"], annotated_limit(metadata.get("annotations") or {}))
    except ValueError:
        return NamespaceLimit(metadata["name"], None)


class ReplicaLimits:
    """The limits of all namespaces."""

    def __init__(self, api: Api, default: int) -> None:
        """`default` is the limit of namespaces without the annotation."""
        self.informer: Informer[NamespaceLimit] = Informer(api, NAMESPACES, parse_namespace_limit)
        self._default = default

    def of(self, namespace: str) -> int:
        found = self.informer.store.get(("", namespace))
        return self._default if found is None or found.limit is None else found.limit

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the name of a namespace whose limit may have changed."""

        def handle(old: NamespaceLimit | None, new: NamespaceLimit | None) -> None:
            if new is not None and new.limit != (old.limit if old is not None else None):
                changed(new.name)

        self.informer.subscribe(handle)


def unknown_limit(namespace: str) -> int | None:
    return None


def enqueue_after_changes(
    limits: ReplicaLimits | None, store: Store[Any], enqueue: Callable[[Key, float], None]
) -> None:
    """Enqueues the objects of a namespace when its limit changes. The store has an index `namespace`."""

    def changed(namespace: str) -> None:
        for each in store.by("namespace", namespace):
            enqueue(each.key, 0.0)

    if limits is not None:
        limits.subscribe(changed)
