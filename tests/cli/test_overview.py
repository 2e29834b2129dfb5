"""Rows of `poolhouse overview`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from poolhouse.api.kinds import CLAIM, KINDS, POOL
from poolhouse.cli.overview import current, object_row

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_the_counted_fields_are_in_the_status_of_every_kind() -> None:
    for kind in KINDS:
        known = {each.alias or name for name, each in kind.status.model_fields.items()}
        wanted = {kind.ready_replicas, kind.updated_replicas} - {""} if kind.scale else set()
        assert wanted <= known


def test_counts_without_a_status_are_zero() -> None:
    found = object_row(POOL, {"metadata": {"name": "web"}, "spec": {"replicas": 2}}, NOW)
    assert (found["desired"], found["ready"], found["updated"]) == (2, 0, 0)
    claim = object_row(CLAIM, {"metadata": {"name": "c"}, "spec": {}}, NOW)
    assert (claim["desired"], claim["ready"], claim["updated"]) == (None, None, None)


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        pytest.param({}, True, id="new"),
        pytest.param({"phase": "Ready"}, True, id="ready"),
        pytest.param({"phase": "Released", "finishedAt": "2026-01-01T23:59:59.000000Z"}, False, id="released"),
        pytest.param({"phase": "Failed", "finishedAt": "2026-01-01T23:00:01.000000Z"}, True, id="failed lately"),
        pytest.param({"phase": "Failed", "finishedAt": "2026-01-01T23:00:00.000000Z"}, False, id="failed an hour ago"),
        pytest.param({"phase": "Failed"}, True, id="failed, by another release"),
    ],
)
def test_claims_that_are_shown(status: dict[str, str], shown: bool) -> None:
    document = {"metadata": {"name": "c"}, "spec": {}, "status": status}
    assert bool(list(current([document], CLAIM, NOW))) is shown
