"""Health and age of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apimachinery.unstructured import Json
from cli.health import Health, assess, assess_phase, format_age
from kinds import CLAIM
from tests.controllers.readiness import ROWS, Row

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
        pytest.param(pool(), Health("Healthy"), id="no conditions"),
        pytest.param(pool(condition("Progressing", True, "Complete", "all is done")), Health("Healthy"), id="complete"),
        pytest.param(
            pool(condition("Progressing", True, "UpdatingVMs", "1 of 3")),
            Health("Progressing", "UpdatingVMs: 1 of 3"),
            id="updating",
        ),
        pytest.param(
            pool(condition("Available", False, "MinimumReplicasUnavailable", "2 VMs")),
            Health("Degraded", "MinimumReplicasUnavailable: 2 VMs"),
            id="a condition that should be True",
        ),
        pytest.param(
            pool(condition("ReplicaFailure", True, "FailedCreate", "quota")),
            Health("Degraded", "FailedCreate: quota"),
            id="a condition that should be False",
        ),
        pytest.param(
            pool(
                condition("Available", False, "MinimumReplicasUnavailable", "0 of 3"),
                condition("Degraded", True, "FailedCreate", "quota"),
            ),
            Health("Degraded", "FailedCreate: quota"),
            id="the cause comes before Available",
        ),
        pytest.param(
            pool(
                condition("Available", False, "MinimumReplicasUnavailable", "2 VMs"),
                condition("ReplicaFailure", True, "FailedCreate", "exceeded quota: few"),
                condition("Progressing", False, "FailedCreate", "exceeded quota: few"),
                condition("Ready", False, "FailedCreate", "exceeded quota: few"),
                condition("Reconciling", True, "FailedCreate", "exceeded quota: few"),
            ),
            Health("Progressing", "FailedCreate: exceeded quota: few"),
            id="a pool under a quota waits for room",
        ),
        pytest.param(
            pool(
                condition("ReplicaFailure", True, "FailureCreate", "exceeded quota: few"),
                condition("Ready", False, "FailureCreate", "exceeded quota: few"),
                condition("Reconciling", True, "FailureCreate", "exceeded quota: few"),
            ),
            Health("Progressing", "FailureCreate: exceeded quota: few"),
            id="so does a replica set",
        ),
        pytest.param(
            pool(
                condition("Available", False, "InsufficientCapacity", "0 of 3"),
                condition("Degraded", True, "InsufficientCapacity", "no node has room"),
                condition("Ready", False, "InsufficientCapacity", "no node has room"),
                condition("Reconciling", True, "InsufficientCapacity", "no node has room"),
            ),
            Health("Progressing", "InsufficientCapacity: no node has room"),
            id="and a warm pool without capacity",
        ),
        pytest.param(
            pool(
                condition("ReplicaFailure", True, "FailedCreate", "exceeded quota: few"),
                condition("DisksShared", True, "DiskConflict", "web-1"),
                condition("Ready", False, "FailedCreate", "exceeded quota: few"),
                condition("Reconciling", True, "FailedCreate", "exceeded quota: few"),
            ),
            Health("Degraded", "DiskConflict: web-1"),
            id="another problem under a quota",
        ),
        pytest.param(
            pool(
                condition("ReplicaFailure", True, "FailedDelete", "no"), condition("Reconciling", True, "UpdatingVMs")
            ),
            Health("Degraded", "FailedDelete: no"),
            id="a refusal that is not the shortage",
        ),
        pytest.param(
            pool(condition("Ready", True, "Ready"), condition("UnownedVMs", True, "NoOwner", "web-1: no owner")),
            Health("Healthy", "NoOwner: web-1: no owner"),
            id="VMs without an owner are told of a healthy pool",
        ),
        pytest.param(
            pool(
                condition("Ready", False, "UpdatingVMs", "1 of 3"),
                condition("UnownedVMs", False, "NoUnownedVMs"),
                condition("RevisionLost", True, "RevisionLost", "web-1"),
            ),
            Health("Progressing", "UpdatingVMs: 1 of 3; RevisionLost: web-1"),
            id="and what an update may have left, of one that is updated",
        ),
        pytest.param(
            pool(condition("Progressing", False, "ProgressDeadlineExceeded")),
            Health("Degraded", "ProgressDeadlineExceeded"),
            id="deadline exceeded",
        ),
        pytest.param(
            pool(condition("Healing", False, "TooManyFailing", "5 fail")),
            Health("Degraded", "TooManyFailing: 5 fail"),
            id="healing has stopped",
        ),
        pytest.param(pool(condition("Healing", False, "NoFailingVMs")), Health("Healthy"), id="nothing to heal"),
        pytest.param(pool(condition("Default", False, "DefaultConflict")), Health("Healthy"), id="not the default"),
        pytest.param(
            pool(condition("Progressing", False, "PoolPaused"), paused=True),
            Health("Progressing", "paused"),
            id="pause",
        ),
        pytest.param(
            pool(generation=2),
            Health("Progressing", "the controller has not observed the last change yet"),
            id="nobody has looked",
        ),
        pytest.param(
            pool(condition("Stalled", True, "UpdateAborted"), generation=2),
            Health("Progressing", "the controller has not observed the last change yet"),
            id="a problem of before the change",
        ),
        pytest.param(pool(replicas=5), Health("Progressing", "3 of 5 are ready"), id="a set without conditions"),
        pytest.param(
            pool(condition("Available", False, "X"), deletionTimestamp="2026-01-01T00:00:00Z"),
            Health("Progressing", "it is being deleted"),
            id="deletion comes before conditions",
        ),
    ],
)
def test_health(document: Json, found: Health) -> None:
    assert assess(document) == found


@pytest.mark.parametrize("row", [row for row in ROWS if row.document["kind"] != CLAIM.kind], ids=lambda row: row.name)
def test_health_by_the_conditions_of_kstatus(row: Row) -> None:
    """A pool of which too many VMs are unavailable or whose VMs cannot be listed, and a policy that is not enforced,
    are degraded also while the controllers work on them."""
    found = {each["type"]: each["status"] for each in row.document["status"]["conditions"]}
    degraded = [(kind, "False") for kind in ("Available", "Enforced")] + [("Degraded", "True")]
    working = {"Suspended": "Progressing"}.get(row.health, row.health)
    assert assess(row.document).state == ("Degraded" if found.items() & set(degraded) else working)


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, Health("Progressing", "Pending")),
        ({"phase": "Ready"}, Health("Healthy", "Ready")),
        (
            {"phase": "Queued", "conditions": [condition("Bound", False, "Queued", "2nd in line")]},
            Health("Progressing", "Queued: 2nd in line"),
        ),
        (
            {"phase": "Failed", "conditions": [condition("Bound", False, "NoCapacity")]},
            Health("Degraded", "Failed: NoCapacity"),
        ),
        (
            {"phase": "Expired", "conditions": [condition("Bound", False, "Expired")]},
            Health("Healthy", "Expired"),
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
def test_ages_have_the_form_of_kubectl(born: str | None, said: str) -> None:
    assert format_age({"metadata": {"creationTimestamp": born}}, NOW) == said
