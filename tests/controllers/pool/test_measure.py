"""What a Job says about an update. tests/cluster has Jobs and a Prometheus."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.measure import result_of

Json = dict[str, Any]


def job(*conditions: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": "j", **metadata}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("of", "result", "words"),
    [
        pytest.param({"metadata": {"name": "j"}}, "Running", "is running", id="a new Job"),
        pytest.param(job({"type": "Complete", "status": "True"}), "Successful", "is complete", id="complete"),
        pytest.param(job({"type": "Complete", "status": "False"}), "Running", "is running", id="not complete yet"),
        pytest.param(job({"type": "SuccessCriteriaMet", "status": "True"}), "Running", "", id="its Pods still end"),
        pytest.param(
            job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}),
            "Failed",
            "Job j failed: DeadlineExceeded: too long",
            id="failed",
        ),
        pytest.param(
            job({"type": "Complete", "status": "True"}, deletionTimestamp="2026-01-01T00:00:00Z"),
            "Error",
            "is being deleted",
            id="deleted",
        ),
    ],
)
def test_the_result_of_a_job(of: Json, result: str, words: str) -> None:
    found, message = result_of(of)
    assert found == result
    assert words in message
