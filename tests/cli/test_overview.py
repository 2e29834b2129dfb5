"""What is said of an object in one line, from its document alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.health import Health, assess, assess_phase, format_age
from cli.overview import object_row
from kinds import CLAIM, KINDS, POOL

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def pool(*conditions: Json, replicas: int = 3, paused: bool = False, generation: int = 1, **metadata: Any) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "a", "generation": generation, **metadata},
        "spec": {"replicas": replicas, "paused": paused},
        "status": {"observedGeneration": 1, "readyReplicas": 3, "conditions": list(conditions)},
    }


def condition(kind: str, status: bool, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        pytest.param(pool(), Health("well"), id="all is well"),
        pytest.param(pool(condition("Progressing", True, "Complete", "all is done")), Health("well"), id="it is done"),
        pytest.param(
            pool(condition("Progressing", True, "UpdatingVMs", "1 of 3")),
            Health("going", "UpdatingVMs: 1 of 3"),
            id="an update goes on",
        ),
        pytest.param(
            pool(condition("Available", False, "MinimumReplicasUnavailable", "2 VMs")),
            Health("wrong", "MinimumReplicasUnavailable: 2 VMs"),
            id="what should be True is not",
        ),
        pytest.param(
            pool(condition("ReplicaFailure", True, "FailedCreate", "quota")),
            Health("wrong", "FailedCreate: quota"),
            id="what should not be True is",
        ),
        pytest.param(
            pool(
                condition("Available", False, "MinimumReplicasUnavailable", "0 of 3"),
                condition("Degraded", True, "FailedCreate", "quota"),
            ),
            Health("wrong", "FailedCreate: quota"),
            id="the cause is told before what comes of it",
        ),
        pytest.param(
            pool(condition("Progressing", False, "ProgressDeadlineExceeded")),
            Health("wrong", "ProgressDeadlineExceeded"),
            id="it has stopped by itself",
        ),
        pytest.param(
            pool(condition("Healing", False, "TooManyFailing", "5 fail")),
            Health("wrong", "TooManyFailing: 5 fail"),
            id="healing has stopped",
        ),
        pytest.param(pool(condition("Healing", False, "NoFailingVMs")), Health("well"), id="nothing to heal is well"),
        pytest.param(pool(condition("Default", False, "DefaultConflict")), Health("well"), id="not the default"),
        pytest.param(
            pool(condition("Progressing", False, "PoolPaused"), paused=True), Health("going", "paused"), id="paused"
        ),
        pytest.param(
            pool(generation=2), Health("going", "its last change has not been looked at yet"), id="nobody has looked"
        ),
        pytest.param(pool(replicas=5), Health("going", "3 of 5 are ready"), id="a set without conditions"),
        pytest.param(
            pool(condition("Available", False, "X"), deletionTimestamp="2026-01-01T00:00:00Z"),
            Health("going", "it is being deleted"),
            id="whoever leaves has no other news",
        ),
    ],
)
def test_health(document: Json, found: Health) -> None:
    assert assess(document) == found


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, Health("going", "Pending")),
        ({"phase": "Ready"}, Health("well", "Ready")),
        (
            {"phase": "Queued", "conditions": [condition("Bound", False, "Queued", "2nd in line")]},
            Health("going", "Queued: 2nd in line"),
        ),
        (
            {"phase": "Failed", "conditions": [condition("Bound", False, "NoCapacity")]},
            Health("wrong", "Failed: NoCapacity"),
        ),
    ],
)
def test_health_of_claims(status: Json, found: Health) -> None:
    assert CLAIM.phases is not None
    assert assess_phase({"metadata": {}, "status": status}, CLAIM.phases) == found


@pytest.mark.parametrize(
    ("born", "said"),
    [
        ("2026-01-01T23:59:30Z", "30s"),
        ("2026-01-01T23:55:30Z", "4m30s"),
        ("2026-01-01T23:55:00Z", "5m"),
        ("2026-01-01T23:00:00Z", "60m"),
        ("2026-01-01T19:30:00Z", "4h30m"),
        ("2026-01-01T12:00:00Z", "12h"),
        ("2025-12-01T00:00:00Z", "32d"),
        ("2026-01-02T00:00:05Z", "0s"),
        (None, "<unknown>"),
    ],
)
def test_ages_are_said_as_kubectl_says_them(born: str | None, said: str) -> None:
    assert format_age({"metadata": {"creationTimestamp": born}}, NOW) == said


def test_every_kind_has_its_look() -> None:
    for kind in KINDS:
        assert kind.status is not None
        known = {each.alias or name for name, each in kind.status.model_fields.items()}
        wanted = {kind.ready_replicas, kind.updated_replicas} - {""} if kind.scale else set()
        assert wanted <= known


def test_a_row_has_zeros_where_nothing_was_counted_yet() -> None:
    found = object_row(POOL, {"metadata": {"name": "web"}, "spec": {"replicas": 2}}, NOW)
    assert (found["desired"], found["ready"], found["updated"]) == (2, 0, 0)
    claim = object_row(CLAIM, {"metadata": {"name": "c"}, "spec": {}}, NOW)
    assert (claim["desired"], claim["ready"], claim["updated"]) == (None, None, None)
