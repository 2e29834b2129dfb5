"""Tests what `poolhouse up` says when it cannot set the stack up."""

import pytest

from poolhouse.runtime.errors import ApiError, Invalid, Unreachable
from poolhouse.stack.stack import setup_failure


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            Unreachable("no answer before the deadline", reason="Timeout", call="PATCH /crds/pools"),
            "the API server does not answer; if the machine is busy, run `poolhouse up` again: "
            "PATCH /crds/pools: Timeout: no answer before the deadline",
            id="no answer is no refusal",
        ),
        pytest.param(
            Invalid("spec.names: required", call="PATCH /crds/pools"),
            "the API server refuses the objects of Poolhouse: PATCH /crds/pools: spec.names: required",
            id="a refusal has the reason of the API server",
        ),
    ],
)
def test_a_failed_setup_says_what_to_do(error: ApiError, said: str) -> None:
    assert setup_failure(error) == said
