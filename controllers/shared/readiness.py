"""The conditions Ready, Reconciling and Stalled, which every kind has.

kstatus reads them for Flux, the health scripts for Argo CD, and `kubectl wait --for=condition=Ready` the first of them.
Each kind has one function that decides its readiness from the other conditions of the same status. The conditions
therefore change only with those, and need no write of their own.

Rules of kstatus: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from controllers.shared.conditions import condition
from poolhouse.api.kinds.metav1 import Condition

State = Literal["Ready", "Reconciling", "Waiting", "Stalled"]
"""Ready: the object is as its spec requires. Reconciling: the controller is working on it. Waiting: a user, a time or
another object must act first, as the spec asks. Stalled: the object will not become ready without a change.

kstatus calls them Current, InProgress, InProgress and Failed; Argo CD Healthy, Progressing, Suspended and Degraded."""


@dataclass(frozen=True)
class Readiness:
    state: State
    reason: str
    message: str

    @property
    def conditions(self) -> Iterator[Condition]:
        """Ready is always there. Reconciling and Stalled are there while they are True, at most one of them."""
        yield condition("Ready", self.state == "Ready", self.reason, self.message)
        if self.state in ("Reconciling", "Stalled"):
            yield condition(self.state, True, self.reason, self.message)


@dataclass(frozen=True)
class Rule:
    """The state of an object with a condition of this status and, unless None, of one of these reasons."""

    state: State
    type: str
    status: Literal["True", "False"]
    reasons: Container[str] | None = None


def exceeds_quota(message: str) -> bool:
    """Whether the API server refused an object because of a ResourceQuota, which may have room again later."""
    return "exceeded quota" in message


def decide(conditions: Iterable[Condition], rules: Iterable[Rule]) -> Readiness | None:
    """The readiness by the first rule that applies, with the reason and the message of its condition."""
    found = {each.type: each for each in conditions}
    for rule in rules:
        each = found.get(rule.type)
        if each is not None and each.status == rule.status and (rule.reasons is None or each.reason in rule.reasons):
            return Readiness(rule.state, each.reason, each.message)
    return None
