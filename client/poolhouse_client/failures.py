"""Errors of waiting. `poolhouse.errors` has the errors of the API server.

NotReady
├── Stalled            the object does not become ready without a change
│   └── ClaimFailed    the claim got no VM, or lost it
└── DeadlineExceeded   the time is over
"""

from __future__ import annotations

from typing import TypeVar

from .objects import KubernetesObject


class NotReady(Exception):
    """An object is not ready. `found` is the object as it was seen last."""

    def __init__(self, message: str, found: KubernetesObject | None = None) -> None:
        super().__init__(message)
        self.found = found

    @property
    def reason(self) -> str:
        """The reason of the condition Ready, in CamelCase."""
        condition = self.found.condition("Ready") if self.found else None
        return condition.reason if condition else ""


class Stalled(NotReady): ...


class ClaimFailed(Stalled): ...


class DeadlineExceeded(NotReady): ...


def describe(found: KubernetesObject) -> str:
    """Kind, name, and why the object is not ready."""
    where = f"{found.TYPE.kind} {found.metadata.namespace}/{found.name}".replace(" /", " ")
    condition = found.condition("Ready")
    if found.ended:
        return f"{where}: it has ended"
    if not found.observed or condition is None:
        return f"{where}: the controllers have not observed the last change yet"
    return f"{where}: {condition.reason}: {condition.message}"


C = TypeVar("C", bound=KubernetesObject)


def same_claim(claim: C, found: C) -> C:
    """Returns `found`, which was read by the name of the claim. Raises ClaimFailed if it is a later claim of this name,
    because its VM belongs to somebody else."""
    if found.metadata.uid != claim.metadata.uid:
        name = f"{claim.metadata.namespace}/{claim.name}"
        raise ClaimFailed(f"the claim {name} was deleted, and there is another one of its name now", claim)
    return found
