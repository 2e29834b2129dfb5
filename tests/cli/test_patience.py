"""How long a command that follows changes waits for the API server."""

from __future__ import annotations

import pytest

from poolhouse.cli.patience import PATIENCE_SECONDS, until_answered
from poolhouse.runtime.errors import ApiError, Forbidden, Throttled, Unavailable, Unreachable


class Clock:
    """An API whose clock advances with each read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


NO_ANSWER = Unreachable("no answer")
BUSY = Unavailable("busy", status=503)
THROTTLED = Throttled("slow down", status=429)
REFUSED = Forbidden("no", status=403)


@pytest.mark.parametrize(
    ("answers", "seconds", "found"),
    [
        pytest.param([], 0, "an answer", id="an answer at once"),
        pytest.param([NO_ANSWER, BUSY, THROTTLED], 1, "an answer", id="an answer after three errors"),
        pytest.param([REFUSED], 1, REFUSED, id="a refusal ends the command"),
        pytest.param([NO_ANSWER, BUSY], PATIENCE_SECONDS / 2, BUSY, id="no answer for a minute"),
    ],
)
async def test_a_command_that_follows_changes_survives_an_api_server_that_does_not_answer(
    answers: list[ApiError], seconds: float, found: str | ApiError
) -> None:
    api, errors = Clock(), iter(answers)

    async def read() -> str:
        api.now += seconds
        if (error := next(errors, None)) is not None:
            raise error
        return "an answer"

    if isinstance(found, str):
        assert await until_answered(api, read, 0) == found
        return
    with pytest.raises(type(found)):
        await until_answered(api, read, 0)
