"""The conditions Ready, Reconciling and Stalled of every kind, by the rules of kstatus."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds import KINDS
from tests.controllers.readiness import ROWS, Row

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def kstatus(document: dict[str, Any]) -> str:
    """The status that sigs.k8s.io/cli-utils/pkg/kstatus computes for a custom resource."""
    metadata, status = document["metadata"], document.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", ())
    for each in conditions:
        if each["type"] == "Reconciling" and each["status"] == "True":
            return "InProgress"
        if each["type"] == "Stalled" and each["status"] == "True":
            return "Failed"
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"


@EACH
def test_kstatus(row: Row) -> None:
    assert kstatus(row.document) == row.kstatus


@EACH
def test_conditions(row: Row) -> None:
    found = {each["type"]: each for each in row.document["status"]["conditions"]}
    assert found.get("Ready", {}).get("reason", "") == row.reason
    more = [kind for kind in ("Reconciling", "Stalled") if kind in found]
    assert more == {"Progressing": ["Reconciling"], "Degraded": ["Stalled"]}.get(row.health, [])
    for each in more:
        assert {key: found[each][key] for key in ("status", "reason")} == {"status": "True", "reason": row.reason}
    assert row.document["status"]["observedGeneration"] == 1


def test_every_kind_has_each_state() -> None:
    """A policy is never Suspended: no user suspends it."""
    found = {(row.document["kind"], row.kstatus) for row in ROWS}
    assert found == {(kind.kind, status) for kind in KINDS for status in ("Current", "InProgress", "Failed")}
