"""What is said of a warm pool, from its document alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from cli.warmth import WARMTH, row

NOW = datetime(2026, 1, 2, tzinfo=UTC)
METADATA = {"name": "web", "namespace": "a", "generation": 1, "creationTimestamp": "2026-01-01T23:59:30Z"}


def shown(**status: Any) -> list[str]:
    document = {"metadata": METADATA, "spec": {"replicas": 3, "default": True}, "status": status}
    head, line = WARMTH.lines("wide", [row(document, NOW)])
    assert head.split() == [each.title for each in WARMTH.columns]
    return [cell.strip() for cell in click.unstyle(line).split("   ") if cell.strip()]


def test_a_pool_says_what_it_lacks() -> None:
    conditions = [
        {"type": "Available", "status": "False", "reason": "TooFew", "message": "1 of 3"},
        {"type": "Degraded", "status": "True", "reason": "Breaker", "message": "quota"},
        {"type": "Default", "status": "False", "reason": "NotWanted", "message": ""},
    ]
    said = shown(
        availableReplicas=1,
        queuedClaims=1,
        claimed=2,
        failures={"consecutive": 2},
        conditions=conditions,
    )
    assert said == [*("web", "3", "1", "2", "1", "30s", "true", "2 claimed", "2", "Breaker: quota")]


def test_a_pool_that_nobody_has_looked_at_has_zeros() -> None:
    assert shown() == [
        *("web", "3", "0", "0", "0", "30s", "true", "-", "-", "its last change has not been looked at yet")
    ]
