"""What a set says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.plan import plan
from controllers.replicaset.snapshot import ReplicaSetSnapshot, parse_replica_set
from controllers.replicaset.status import invalid_spec_status, replica_set_status
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.write_batches import Failure
from kinds.replicaset import ReplicaSetStatus
from tests.controllers.replicaset.builders import NOW, a_set, ago, document, ended, orphan, snapshot, starting, vmi

REFUSED = Failure("FailureCreate", "no permission to create VMIs")


def said(observed: ReplicaSetSnapshot) -> ReplicaSetStatus:
    return replica_set_status(observed, plan(observed, NOW), NOW)


@pytest.mark.parametrize(
    ("observed", "replicas", "ready", "terminating"),
    [
        pytest.param(snapshot(3, vmi("a"), vmi("b"), starting("c")), 3, 2, 0, id="all, and those that are ready"),
        pytest.param(snapshot(1, vmi("a"), ended("b")), 1, 1, 0, id="what has ended does not count"),
        pytest.param(snapshot(1, vmi("a"), vmi("b", deleting=True)), 1, 1, 1, id="what is on its way out is apart"),
        pytest.param(snapshot(1, vmi("a"), orphan("b")), 2, 2, 0, id="an orphan counts when it is taken in"),
        pytest.param(snapshot(1, vmi("a"), vmi("b", labels={})), 1, 1, 0, id="one that is let go does not"),
        pytest.param(snapshot(1, vmi("a", migrating=True)), 1, 1, 0, id="one that is moved is ready"),
        pytest.param(
            snapshot(1, vmi("a"), vmi("b", phase="Unknown", ready=False)),
            2,
            1,
            0,
            id="an unknown state is not a final one",
        ),
    ],
)
def test_counts(observed: ReplicaSetSnapshot, replicas: int, ready: int, terminating: int) -> None:
    found = said(observed)
    assert (found.replicas, found.ready_replicas, found.terminating_replicas) == (replicas, ready, terminating)


def conditions(found: ReplicaSetStatus) -> list[tuple[Any, ...]]:
    return [(c.type, c.status, c.reason, c.message) for c in found.conditions]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(snapshot(1, vmi("a")), [], id="nothing to say at rest"),
        pytest.param(
            snapshot(1, failure=REFUSED),
            [("ReplicaFailure", "True", "FailureCreate", "no permission to create VMIs")],
            id="what the API server refused, in its words",
        ),
        pytest.param(
            snapshot(a_set(1, paused=True)),
            [("ReplicaPaused", "True", "Paused", "spec.paused is true: the controller creates and deletes nothing")],
            id="paused",
        ),
        pytest.param(
            snapshot(1, ended("a", attempt=2, ran=3, reason="GuestPanicked")),
            [
                (
                    "ReplicaFailure",
                    "True",
                    "FailureStart",
                    "a ended (Failed: GuestPanicked) early, and so did 2 before it: it is replaced at 12:00:11 UTC",
                )
            ],
            id="instances that end again and again",
        ),
    ],
)
def test_conditions(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert conditions(said(observed)) == expected


def test_a_condition_with_another_reason_keeps_its_time() -> None:
    before = [{"type": "ReplicaFailure", "status": "True", "reason": "FailureDelete", "lastTransitionTime": ago(99)}]
    (found,) = said(snapshot(a_set(1, status={"conditions": before}), failure=REFUSED)).conditions
    assert (found.reason, found.last_transition_time) == ("FailureCreate", ago(99))


def test_an_unchanged_status_is_equal() -> None:
    first = said(snapshot(a_set(1), vmi("a"), failure=REFUSED))
    again = said(snapshot(a_set(1, status=first.json()), vmi("a"), failure=REFUSED))
    assert again == first == a_set(1, status=first.json()).status


def test_the_label_selector_is_a_string() -> None:
    assert said(snapshot(1)).label_selector == "app=web"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": "some"}, "spec.replicas"),
        ({"selector": {"matchLabels": {"app": "db"}}}, "does not match"),
        ({"selector": {}}, "selects everything"),
    ],
)
def test_the_status_of_an_invalid_spec_keeps_its_counts_and_has_a_reason(spec: dict[str, Any], words: str) -> None:
    found = parse_replica_set(document(**{"status": {"replicas": 7}, **spec}))
    assert isinstance(found, InvalidSpec)
    written = invalid_spec_status(found, NOW)
    assert written.replicas == 7
    ((kind, _, reason, message),) = conditions(written)
    assert (kind, reason) == ("ReplicaFailure", "InvalidSpec")
    assert words in message
