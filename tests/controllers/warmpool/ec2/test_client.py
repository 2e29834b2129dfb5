"""What EC2's refusals mean."""

from __future__ import annotations

import pytest

from controllers.warmpool.apply import create_failure
from controllers.warmpool.ec2.client import CAPACITY, refusal
from runtime.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound, Throttled, Unavailable


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidAMIID.NotFound", 400, Invalid),
        ("InvalidParameterValue", 400, Invalid),
        ("RequestLimitExceeded", 503, Throttled),
        ("UnauthorizedOperation", 403, Forbidden),
        ("AuthFailure", 401, Forbidden),
        ("IdempotentParameterMismatch", 400, AlreadyExists),
        ("InternalError", 500, Unavailable),
        ("", 502, Unavailable),
    ],
)
def test_each_refusal_is_another_reaction(code: str, status: int, kind: type[ApiError]) -> None:
    error = refusal({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}})
    assert type(error) is kind


@pytest.mark.parametrize("code", sorted(CAPACITY))
def test_no_capacity_is_what_a_pool_says_of_a_full_quota(code: str) -> None:
    error = refusal({"Error": {"Code": code, "Message": "none left"}, "ResponseMetadata": {"HTTPStatusCode": 400}})
    assert create_failure(error).reason == "InsufficientCapacity"
