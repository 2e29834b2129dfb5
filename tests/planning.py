"""A planner without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import ParamSpec, TypeVar

from controllers.shared.planner import Planned, Planner

P = ParamSpec("P")
T = TypeVar("T")


class InlinePlanner(Planner):
    """Calls functions on the event loop. With `pauses`, each call takes time, so that events come in between."""

    LONGEST_SECONDS = 0.5

    def __init__(self, pauses: Random | None = None, seconds: float = 0.0) -> None:
        """`seconds` is the processor time of each call."""
        super().__init__()
        self._pauses, self._each = pauses, seconds

    def seconds(self, of: Planned) -> float:
        return self._each

    async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        if self._pauses is not None:
            await asyncio.sleep(self._pauses.uniform(0, self.LONGEST_SECONDS))
        return function(*arguments, **named)
