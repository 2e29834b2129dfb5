"""How updates to revisions ended. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.history import history
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.api.kinds.pool import MAX_HISTORY, PoolStatus, UpdateAbort
from tests.controllers.pool.builders import LIGHT, NOW, OLD, REVISION, a_pool, ago, snapshot, vm

Json = dict[str, Any]
NAME = REVISION.name


def ended(revision: str, outcome: str, seconds: float = 50, **given: Any) -> Json:
    return {"revision": revision, "outcome": outcome, "time": ago(seconds), **given}


def observed(*entries: Json, current: str = OLD.name, update: str = NAME, aborted: str = "") -> PoolSnapshot:
    status = {"currentRevision": current, "updateRevision": update, "history": list(entries)}
    found = snapshot(a_pool(1, status=status), vm(1))
    if not aborted:
        return found
    return replace(found, revision=OLD, aborted=(REVISION, UpdateAbort(reason=aborted, message="why", time=ago(7))))


@pytest.mark.parametrize(
    ("of", "complete", "expected"),
    [
        pytest.param(observed(current="", update=""), False, [], id="a new pool"),
        pytest.param(observed(), True, [(NAME, "Complete", 0)], id="all VMs have the template"),
        pytest.param(observed(ended(NAME, "Complete")), True, [(NAME, "Complete", 50)], id="they still have it"),
        pytest.param(
            observed(ended(NAME, "Complete"), current=NAME), False, [(NAME, "Complete", 50)], id="a VM is lost later"
        ),
        pytest.param(observed(ended(OLD.name, "Complete")), False, [(OLD.name, "Complete", 50)], id="an update runs"),
        pytest.param(
            observed(ended(OLD.name, "Complete"), update=LIGHT.name),
            False,
            [(OLD.name, "Complete", 50), (LIGHT.name, "Superseded", 0)],
            id="another template replaces one whose update has not ended",
        ),
        pytest.param(
            observed(ended(OLD.name, "Complete"), update=OLD.name),
            False,
            [(OLD.name, "Complete", 50)],
            id="an update that was complete stays so",
        ),
        pytest.param(
            observed(ended(NAME, "Superseded"), ended(LIGHT.name, "Complete", 20), update=LIGHT.name),
            True,
            [(LIGHT.name, "Complete", 20), (NAME, "Complete", 0)],
            id="a revision is tried again, and its last end counts",
        ),
        pytest.param(observed(ended(NAME, "RolledBack")), False, [], id="a revision that is tried again has not ended"),
        pytest.param(observed(aborted="AbortedByUser"), False, [(NAME, "Aborted", 7)], id="a user aborts it"),
        pytest.param(observed(aborted="TooManyFailing"), False, [(NAME, "RolledBack", 7)], id="it is rolled back"),
        pytest.param(
            observed(ended("web-pruned", "Complete")), True, [(NAME, "Complete", 0)], id="a revision that is pruned"
        ),
    ],
)
def test_how_an_update_ended(of: PoolSnapshot, complete: bool, expected: list[tuple[str, str, int]]) -> None:
    found = history(of, REVISION, complete, NOW)
    assert [(each.revision, each.outcome, each.time) for each in found] == [
        (name, outcome, ago(seconds)) for name, outcome, seconds in expected
    ]


def test_a_rollback_has_its_reason() -> None:
    (found,) = history(observed(aborted="AnalysisFailed"), REVISION, False, NOW)
    assert (found.reason, found.message) == ("AnalysisFailed", "why")


def test_the_history_is_bounded() -> None:
    many = [Revision(f"web-{n}", "u-web", n, str(n)) for n in range(MAX_HISTORY)]
    status = PoolStatus.model_validate({"history": [ended(each.name, "Complete") for each in many]})
    of = observed()
    of = replace(of, revisions=tuple(many), pool=replace(of.pool, status=status))
    found = history(of, REVISION, True, NOW)
    assert len(found) == MAX_HISTORY
    assert (found[0].revision, found[-1].revision) == ("web-1", NAME)
