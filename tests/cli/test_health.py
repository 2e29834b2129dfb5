"""Health and age of objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.health import Health, assess, format_age

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def pool(*conditions: Json, generation: int = 1, **metadata: Any) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "a", "generation": generation, **metadata},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "conditions": list(conditions)},
    }


def condition(kind: str, status: bool, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


READY = condition("Ready", True, "Ready", "all VMs are as the spec requires")
UPDATING = condition("Ready", False, "UpdatingVMs", "1 of 3")
STALLED = condition("Stalled", True, "FailedCreate", "no")


@pytest.mark.parametrize(
    ("document", "found"),
    [
        pytest.param(pool(READY), Health("Healthy"), id="ready"),
        pytest.param(
            pool(condition("Ready", True, "MaxTotalReached", "1 of 2 VMs is ready; maxTotal is 2")),
            Health("Healthy", "MaxTotalReached: 1 of 2 VMs is ready; maxTotal is 2"),
            id="a ready object that has not all it asks for",
        ),
        pytest.param(
            pool(UPDATING, condition("Reconciling", True, "UpdatingVMs")),
            Health("Progressing", "UpdatingVMs: 1 of 3"),
            id="updating",
        ),
        pytest.param(pool(UPDATING), Health("Suspended", "UpdatingVMs: 1 of 3"), id="a user must act"),
        pytest.param(pool(UPDATING, STALLED), Health("Degraded", "FailedCreate: no"), id="stalled"),
        pytest.param(
            pool(READY, condition("UnownedVMs", True, "NoOwner", "web-1: no owner")),
            Health("Healthy", "NoOwner: web-1: no owner"),
            id="VMs without an owner are told of a healthy pool",
        ),
        pytest.param(
            pool(READY, condition("EvictionBudgetFailure", True, "ForeignEvictionBudget", "mine allows no eviction")),
            Health("Healthy", "ForeignEvictionBudget: mine allows no eviction"),
            id="a budget that stops every drain is told of a healthy pool",
        ),
        pytest.param(
            pool(UPDATING, STALLED, condition("EvictionBudgetFailure", True, "EvictionsBlocked", "a drain must wait")),
            Health("Degraded", "FailedCreate: no; EvictionsBlocked: a drain must wait"),
            id="a budget that stops every drain is told of a stalled pool",
        ),
        pytest.param(
            pool(
                UPDATING,
                condition("Reconciling", True, "UpdatingVMs"),
                condition("UnownedVMs", False, "NoUnownedVMs"),
                condition("RevisionLost", True, "RevisionLost", "web-1"),
            ),
            Health("Progressing", "UpdatingVMs: 1 of 3; RevisionLost: web-1"),
            id="a lost revision is told of a pool that is updated",
        ),
        pytest.param(
            pool(STALLED, generation=2),
            Health("Progressing", "the controller has not observed the last change yet"),
            id="a problem of before the change",
        ),
        pytest.param(
            {"metadata": {"name": "web", "generation": 1}, "spec": {}},
            Health("Progressing", "the controller has not observed the last change yet"),
            id="a new object",
        ),
        pytest.param(
            pool(STALLED, deletionTimestamp="2026-01-01T00:00:00Z"),
            Health("Progressing", "it is being deleted"),
            id="deletion comes before conditions",
        ),
        pytest.param(
            pool(STALLED, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a.com/x", "foregroundDeletion"]),
            Health(
                "Progressing",
                "it is being deleted; it stays until these finalizers are removed: a.com/x, foregroundDeletion",
            ),
            id="finalizers keep it",
        ),
        pytest.param(
            {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "phase": "Released"}},
            Health("Healthy", "Released"),
            id="a claim that asks for nothing any more",
        ),
    ],
)
def test_health(document: Json, found: Health) -> None:
    assert assess(document) == found


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
