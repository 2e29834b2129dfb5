"""What is said of a warm pool, from its document alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import click
import pytest

from cli.warmpool_status import WARMTH, examine, pool_row
from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner
from kinds import meta
from runtime.api import Api
from runtime.resource import VMS, Resource

NOW = datetime(2026, 1, 2, tzinfo=UTC)
METADATA = {"name": "web", "namespace": "a", "generation": 1, "creationTimestamp": "2026-01-01T23:59:30Z"}


def shown(**status: Any) -> list[str]:
    document = {"metadata": METADATA, "spec": {"replicas": 3, "default": True}, "status": status}
    head, line = WARMTH.lines("wide", [pool_row(document, NOW)])
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


FREE: dict[str, Any] = {"metadata": {"name": "web-a", "namespace": "a", "uid": "vm"}}
MINE = {meta.CLAIM_UID: "c", meta.WARM_STATE: "InUse"}
OWNED = {"labels": MINE, "ownerReferences": [Owner(CLAIM_KIND, "mine", "c").json()]}
TAKEN = {"metadata": {**FREE["metadata"], **OWNED}}
ASKED = {"metadata": {"name": "mine", "namespace": "a", "uid": "c"}, "spec": {}}
SERVED = {**ASKED, "status": {"phase": "Ready", "poolName": "web", "vmRef": {"name": "web-a", "uid": "vm"}}}


class Moments:
    """An API server whose lists are each of a later moment."""

    def __init__(self, machines: list[list[Any]], claims: list[list[Any]]) -> None:
        self.left = {VMS: [*machines], CLAIMS: [*claims]}

    def now(self) -> datetime:
        return NOW

    async def list(self, resource: Resource, namespace: str | None, **asked: Any) -> tuple[list[Any], str]:
        return (self.left[resource].pop(0) if resource in self.left else []), "1"


@pytest.mark.parametrize(
    ("machines", "claims", "expected"),
    [
        pytest.param([[TAKEN]], [[SERVED]], [], id="all is well, and looked at once"),
        pytest.param([[], [TAKEN]], [[SERVED], [SERVED]], [], id="a claim that was served between two lists"),
        pytest.param([[TAKEN], []], [[], []], [], id="one that was given back between them"),
        pytest.param([[], []], [[SERVED], [SERVED]], ["Inconsistent"], id="what stays so"),
        pytest.param([[], [TAKEN]], [[SERVED], []], [], id="something else each time"),
    ],
)
async def test_what_is_on_its_way_is_no_finding(machines: list[Any], claims: list[Any], expected: list[str]) -> None:
    api = Moments(machines, claims)
    found = await examine(cast(Api, api), "a", again_seconds=0)
    assert [each.problem for _, each in found] == expected
    assert api.left == {VMS: [], CLAIMS: []}
