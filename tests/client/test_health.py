"""The controllers decide the health of an object, and everything that shows it agrees: `poolhouse overview`, `rollout
status`, the console, the Python client and the scripts for Argo CD.

The corpus has the statuses that the controllers write, each state with every pair of the other conditions that they
write, and objects that are new, changed, paused or being deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest
from poolhouse_client import models as client
from poolhouse_client.objects import KubernetesObject

from controllers.shared.readiness import Readiness, State
from poolhouse.api.kinds import KINDS, POOL, REPLICA_SET
from poolhouse.api.kinds.kind import Kind
from poolhouse.cli.health import assess
from poolhouse.cli.updates import progress
from poolhouse.console.overview import object_row
from poolhouse.console.words import condition_rows
from tests.builders import manifest
from tests.controllers.pool import builders as pools
from tests.controllers.readiness import ROWS
from tests.controllers.replicaset import builders as sets
from tests.manifests.test_argocd import health as script

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATES: dict[State, str] = {
    "Ready": "Healthy",
    "Reconciling": "Progressing",
    "Waiting": "Suspended",
    "Stalled": "Degraded",
}
"""health by what the controller has decided"""
ROLLOUT = {"Healthy": "Complete", "Progressing": "Progressing", "Suspended": "Progressing", "Degraded": "Failed"}
SPECS = {POOL.kind: pools.document(1)["spec"], REPLICA_SET.kind: sets.document(1)["spec"]}
DECIDED = ("Ready", "Reconciling", "Stalled")


def statuses(kind: Kind) -> Iterator[tuple[Json, str]]:
    """Statuses with their health."""
    written = [row for row in ROWS if row.document["kind"] == kind.kind]
    yield from ((row.document["status"], row.health) for row in written)
    others = {
        (each["type"], each["status"], each["reason"]): each
        for row in written
        for each in row.document["status"]["conditions"]
        if each["type"] not in DECIDED
    }
    for state, health in STATES.items():
        decided = [each.json() for each in Readiness(state, "Decided", "why").conditions]
        for pair in combinations(others.values(), 2):
            if pair[0]["type"] != pair[1]["type"]:
                yield {**written[0].document["status"], "conditions": [*pair, *decided]}, health


def corpus(kind: Kind) -> Iterator[tuple[Json, str]]:
    """Objects with their health in Argo CD's terms."""
    base: Json = manifest(
        kind, "web", SPECS.get(kind.kind) or ({"replicas": 1} if kind.scale else {}), "shop", generation=1
    )
    yield base, "Progressing"
    for status, health in statuses(kind):
        document = {**base, "status": status}
        yield document, health
        yield {**document, "metadata": {**base["metadata"], "generation": 2}}, "Progressing"
        yield {**document, "metadata": {**base["metadata"], "deletionTimestamp": "2026-03-01T00:00:00Z"}}, "Progressing"
        if kind.scale:
            yield {**document, "spec": {**base["spec"], "paused": True}}, health


def argocd(document: Json) -> str:
    """Argo CD asks no script about an object that is being deleted."""
    return "Progressing" if document["metadata"].get("deletionTimestamp") else script(document)["status"]


def in_client(document: Json) -> KubernetesObject:
    model: type[KubernetesObject] = getattr(client, document["kind"])
    return model.model_validate(document)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_command_line_console_and_argo_cd_show_the_same_health(kind: Kind) -> None:
    found = list(corpus(kind))
    assert len(found) > 30
    for document, health in found:
        assert assess(document).state == health, document
        assert object_row(kind, document, NOW)["state"] == health
        assert argocd(document) == health
        if health != "Progressing":
            assert any(row["bad"] for row in condition_rows(document["status"], NOW)) is (health == "Degraded")
        if kind is POOL:
            assert progress(document)[0] == ROLLOUT[health], document
        seen = in_client(document)
        assert (seen.ready or seen.ended, seen.stalled) == (health == "Healthy", health == "Degraded")
