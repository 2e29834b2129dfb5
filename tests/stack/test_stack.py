"""Tests what `poolhouse up` says when it cannot set the stack up."""

from pathlib import Path

import pytest

from poolhouse.runtime.errors import ApiError, Invalid, Unreachable
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.stack import passed_variables, setup_failure, with_full_disk


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


def test_a_message_has_a_line_about_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "shared-dir").write_text(f"{tmp_path}\n")
    paths = StackPaths(tmp_path)
    assert with_full_disk("etcd ended", paths, lambda directory: 1 << 40) == "etcd ended"
    full = f"the disk of {tmp_path} has only 0 MiB free: delete files there"
    assert with_full_disk("etcd ended", paths, lambda directory: 0) == f"etcd ended\n{full}"


def test_the_services_have_the_cache_of_the_user_and_no_secret() -> None:
    theirs = {"XDG_CACHE_HOME": "/cache", "POOLHOUSE_LOG_LEVEL": "DEBUG"}
    assert passed_variables({**theirs, "AWS_SECRET_ACCESS_KEY": "s"}) == theirs
