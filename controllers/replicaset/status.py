"""What a set's status says, from the same State that its plan is made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from apimachinery.label_selectors import to_string
from controllers.replicaset.plan import Plan
from controllers.replicaset.snapshot import InvalidSpec, ReplicaSet, ReplicaSetSnapshot
from kinds.metav1 import Condition
from kinds.replicaset import ReplicaSetStatus


def replica_set_status(state: ReplicaSetSnapshot, plan: Plan, now: datetime) -> ReplicaSetStatus:
    found = state.replica_set
    return ReplicaSetStatus(
        observed_generation=found.generation,
        replicas=len(state.live),
        ready_replicas=sum(i.ready for i in state.live),
        terminating_replicas=sum(i.deleting for i in state.members),
        label_selector=to_string(found.selector),
        conditions=tuple(_stamped(_conditions(state, plan), found, now)),
    )


def invalid_spec_status(found: InvalidSpec, now: datetime) -> ReplicaSetStatus:
    """What was known stays; that nothing is done any more is said where people look for it."""
    said = _holds("ReplicaFailure", "InvalidSpec", found.problem)
    left = (c for c in found.status.conditions if c.type != said.type)
    return found.status.model_copy(
        update={
            "observed_generation": found.generation,
            "conditions": (*left, *_stamped([said], found, now)),
        }
    )


def _conditions(state: ReplicaSetSnapshot, plan: Plan) -> Iterator[Condition]:
    """Each is there while it holds, and only then."""
    if state.failure is not None:
        yield _holds("ReplicaFailure", state.failure.reason, state.failure.message)
    elif plan.waits:
        yield _holds("ReplicaFailure", "FailureStart", str(plan.waits[0]))
    if state.replica_set.spec.paused:
        yield _holds("ReplicaPaused", "Paused", "nothing is created or deleted while spec.paused is true")


def _holds(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _stamped(conditions: Iterable[Condition], found: ReplicaSet | InvalidSpec, now: datetime) -> Iterator[Condition]:
    """With the times of their last transitions: those that held before keep theirs, so that an unchanged status stays
    equal and is not written again."""
    since = {c.type: c.last_transition_time for c in found.status.conditions if c.status == "True"}
    for c in conditions:
        began = since.get(c.type) or now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield c.model_copy(update={"last_transition_time": began, "observed_generation": found.generation})
