from __future__ import annotations

from typing import Any

import pytest

from local.engine.conditions import holds
from local.engine.faults import Faults
from local.engine.filler import NoFiles
from local.engine.quantity import bytes_of
from local.engine.views import Claim
from local.engine.volumes import Bind, CreateClaim, Fill, Filling, step
from tests.local.engine.builders import NOW, ago, claim, disk


@pytest.mark.parametrize(
    ("made", "filling", "phase", "actions"),
    [
        pytest.param(None, Filling(), "", (CreateClaim(),), id="a claim comes first"),
        pytest.param(claim(phase="Pending"), Filling(), "ImportInProgress", (Fill(),), id="then what it holds"),
        pytest.param(
            claim(phase="Pending"), Filling("running", share=0.5), "ImportInProgress", (Fill(),), id="which takes time"
        ),
        pytest.param(
            claim(phase="Pending"), Filling("done", content="image"), "", (Bind("image"),), id="then it is bound"
        ),
        pytest.param(claim(phase="Pending", content="tiny"), Filling(), "", (Bind("tiny"),), id="even after a restart"),
        pytest.param(claim(), Filling(), "Succeeded", (), id="and all is done"),
        pytest.param(
            claim(data_volume="another"), Filling(), "", (), id="a claim that goes with its own disk is waited for"
        ),
        pytest.param(
            claim(phase="Pending"), Filling("failed", reason="404"), "ImportInProgress", (), id="a failure is shown"
        ),
    ],
)
def test_what_becomes_of_a_disk(made: Claim | None, filling: Filling, phase: str, actions: tuple[Any, ...]) -> None:
    done = step(disk(phase=""), made, filling, NOW)
    assert (done.status["phase"], done.actions) == (phase, actions)


def test_progress_and_failures_read_like_cdis() -> None:
    half = step(disk(phase=""), claim(phase="Pending"), Filling("running", share=0.5), NOW).status
    assert half["progress"] == "50.0%"
    failed = step(disk(phase=""), claim(phase="Pending"), Filling("failed", reason="404", failures=2), NOW).status
    assert (failed["restartCount"], failed["phase"]) == (2, "ImportInProgress")
    assert holds(failed["conditions"], "Running", "Error", "False")
    assert disk(status=failed).failed


def test_simulated_imports_fail_as_often_as_they_are_told() -> None:
    filler, never = NoFiles(), Faults(fail="DataVolumeError")
    assert filler.filling(disk(created=ago(99)), None, never, NOW).state == "failed"
    twice = Faults(fail="DataVolumeError", fail_times=2)
    assert filler.filling(disk(created=ago(3)), None, twice, NOW).failures == 2
    assert filler.filling(disk(created=ago(4)), None, twice, NOW).state == "done"
    assert filler.filling(disk(created=ago(0)), None, Faults(), NOW).state == "done"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128Mi", 128 << 20),
        ("1.5Gi", 3 << 29),
        ("500M", 500_000_000),
        ("7", 7),
        ("1500m", 2),
        ("1e3", 1000),
        ("2k", 2000),
        ("x", None),
        ("1K", None),
        ("", None),
        ("12 Mi", None),
    ],
)
def test_quantities(text: str, size: int | None) -> None:
    assert bytes_of(text) == size
