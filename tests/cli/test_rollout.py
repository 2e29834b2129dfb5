"""How far a change has come, from the pool's document alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.rollout import progress, summarize_changes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pool(replicas: int = 3, *, generation: int = 2, paused: bool = False, **status: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
    return {
        "metadata": {"name": "web", "generation": generation},
        "spec": {"replicas": replicas, "paused": paused, "progressDeadlineSeconds": 600},
        "status": {"observedGeneration": 2, "lastProgressTime": ago(599), **numbers, **status},
    }


def progressing(status: str, reason: str, message: str) -> list[dict[str, Any]]:
    return [{"type": "Progressing", "status": status, "reason": reason, "message": message}]


STUCK = progressing("False", "ProgressDeadlineExceeded", "no progress")
INVALID = progressing("False", "InvalidSpec", "spec.maxUnavailable: what is that")
REFUSED = progressing("False", "FailedCreate", "Create web-3: 503: away")
SHARED = progressing("False", "DiskConflict", "dataVolumeTemplate root is also pool db's")
PAUSED = progressing("False", "PoolPaused", "spec.paused is true")
GOING = progressing("True", "Updating", "")


@pytest.mark.parametrize(
    ("document", "state", "words"),
    [
        pytest.param(pool(), "done", "all 3 VMs", id="all is as it should be"),
        pytest.param(pool(generation=3), "going", "not been looked at", id="old news say nothing of a new change"),
        pytest.param({**pool(), "status": {}}, "going", "not been looked at", id="nobody has looked at a new pool"),
        pytest.param(pool(paused=True), "going", "paused", id="a paused pool is not done"),
        pytest.param(pool(updatedReplicas=1), "going", "1 of 3 VMs have the new template", id="some are updated"),
        pytest.param(pool(replicas=4), "done", "all 4", id="as many as are wanted"),
        pytest.param(pool(1), "done", "web: its VM has the template, and is ready", id="one"),
        pytest.param(pool(1, readyReplicas=0), "done", "and is not ready", id="one that is meant to be halted"),
        pytest.param(pool(0), "done", "web: it has no VMs, and should have none", id="none"),
        pytest.param({**pool(3, terminatingReplicas=1)}, "going", "1 VM is still to go", id="one is leaving"),
        pytest.param({**pool(3, terminatingReplicas=2)}, "going", "2 VMs are still to go", id="some are leaving"),
        pytest.param(pool(availableReplicas=2), "going", "2 of 3 VMs are available", id="some are starting"),
        pytest.param(pool(conditions=STUCK, updatedReplicas=1), "failed", "no progress", id="it has stopped by itself"),
        pytest.param(pool(conditions=INVALID), "failed", "what is that", id="nobody can read it"),
        pytest.param(
            pool(conditions=REFUSED, updatedReplicas=1),
            "going",
            "FailedCreate: Create web-3: 503",
            id="it is tried again",
        ),
        pytest.param(
            pool(conditions=REFUSED, updatedReplicas=1, lastProgressTime=ago(601)),
            "failed",
            "FailedCreate: Create web-3: 503",
            id="but not for ever",
        ),
        pytest.param(
            pool(conditions=PAUSED, paused=True, lastProgressTime=ago(601)),
            "going",
            "paused",
            id="a paused pool is not late",
        ),
        pytest.param(
            pool(conditions=SHARED), "failed", "is also pool db's", id="nobody tries again until it is changed"
        ),
        pytest.param(
            pool(conditions=GOING, availableReplicas=2, lastProgressTime=ago(601)),
            "going",
            "2 of 3 VMs are available",
            id="the pool says itself when it gives up",
        ),
        pytest.param(pool(conditions=GOING), "done", "all 3 VMs", id="conditions of success change nothing"),
    ],
)
def test_progress(document: dict[str, Any], state: str, words: str) -> None:
    found, said = progress(document, NOW)
    assert (found, words in said) == (state, True), said


def test_a_pool_that_shrinks_is_going_until_it_has_shrunk() -> None:
    document = pool(3)
    document["status"]["replicas"] = 5
    assert progress(document, NOW) == ("going", "web: 2 VMs are still to go")


@pytest.mark.parametrize(
    ("changes", "said"), [([], ""), (["a", "b"], "a; b"), (["a", "b", "c", "d"], "a; b; and 2 more")]
)
def test_a_line_has_room_for_some_changes(changes: list[str], said: str) -> None:
    assert summarize_changes(changes) == said
