"""The status of a replica set, from the same snapshot as its plan."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from apimachinery.label_selectors import to_string
from controllers.replicaset.plan import Plan
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.replicaset.snapshot import InvalidReplicaSet, ReplicaSetSnapshot
from controllers.shared.conditions import condition, merge, set_times
from kinds.metav1 import Condition
from kinds.replicaset import ReplicaSetStatus


def replica_set_status(snapshot: ReplicaSetSnapshot, plan: Plan, now: datetime) -> ReplicaSetStatus:
    found = snapshot.replica_set
    before = found.status.conditions
    return ReplicaSetStatus(
        observed_generation=found.generation,
        replicas=len(snapshot.active),
        ready_replicas=sum(vmi.ready for vmi in snapshot.active),
        terminating_replicas=sum(vmi.deleting for vmi in snapshot.members),
        label_selector=to_string(found.selector),
        conditions=set_times(_conditions(snapshot, plan), before, generation=found.generation, now=now),
    )


def invalid_spec_status(found: InvalidReplicaSet, now: datetime) -> ReplicaSetStatus:
    """The last status, with a condition that reports the problem."""
    fresh = condition("ReplicaFailure", True, ReplicaSetReason.INVALID_SPEC, found.problem)
    conditions = merge([fresh], found.status.conditions, generation=found.generation, now=now)
    return found.status.model_copy(update={"observed_generation": found.generation, "conditions": conditions})


def _conditions(snapshot: ReplicaSetSnapshot, plan: Plan) -> Iterator[Condition]:
    """Conditions exist only while they are True."""
    if snapshot.failure is not None:
        yield condition("ReplicaFailure", True, snapshot.failure.reason, snapshot.failure.message)
    elif plan.waits:
        yield condition("ReplicaFailure", True, ReplicaSetReason.FAILURE_START, str(plan.waits[0]))
    if snapshot.replica_set.spec.paused:
        message = "spec.paused is true: the controller creates and deletes nothing"
        yield condition("ReplicaPaused", True, ReplicaSetReason.PAUSED, message)
