"""Computes what grows with the user's objects, in threads and within a budget of processor time.

One event loop serves all users of the portal. A plan of thousands of VMs, or a page that shows them, would delay all of
them. Users have their turns in order, as namespaces have in the controllers, so that a user with expensive pages waits
for their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from controllers.shared.planner import BUDGET_SECONDS, SHORT_SECONDS, Planner, PlanTooExpensive
from poolhouse.cli.output import Failed

P = ParamSpec("P")
T = TypeVar("T")


class TooExpensive(Failed):
    """The computation has used its budget, and has no result."""


class Computations:
    """The threads of one process, which all its consoles share."""

    def __init__(self, budget_seconds: float = BUDGET_SECONDS, short_seconds: float = SHORT_SECONDS) -> None:
        self._planner, self._cheap_seconds = Planner((short_seconds, budget_seconds)), short_seconds / 2

    async def run(self, user: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a pure function, which may be interrupted at any point and called twice. Raises what the
        function raises, or `TooExpensive`."""
        of = function.__qualname__, (user, "")
        try:
            return await self._planner.run(of, function, *arguments, **named)
        except PlanTooExpensive as error:
            raise TooExpensive(
                f"The page {error}, the limit of a page: it is about too many VMs, or a spec is too complex."
                " `poolhouse plan` and the other commands of `poolhouse` have no such limit."
            ) from None
        finally:
            # What is cheap for this user needs no memory, so that the memory does not grow with the users.
            if self._planner.seconds(of) < self._cheap_seconds:
                self._planner.forget(of)
