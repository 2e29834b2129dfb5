"""Many calls of one kind: expected before they are made, told of after, and what became of them.

An action that was refused for good is said in the status; one that merely lost a race is nobody's fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from controllers.pool.actions import Action, Create, Delete, Heal, Restart, Update
from controllers.pool.events import PoolEvents
from controllers.pool.naming import has_revision
from controllers.pool.snapshot import Failure, Pool
from runtime.batch_writer import MAX_BATCH_SIZE, BatchWriter, ExpectedEvents, NotSent
from runtime.errors import OUTCOME_UNKNOWN, AlreadyExists, Conflict, NotFound, Throttled, Unreachable
from runtime.expectations import Expectations

A = TypeVar("A", bound=Action)

FAILURE_CHARACTERS = 1000


@dataclass(frozen=True)
class Outcome:
    failure: Failure | None = None
    """to be said in the pool's status"""
    again: bool = False
    """something was not done, whether or not that is anybody's fault"""
    undone: tuple[Action, ...] = ()
    """what was certainly not done"""
    held: tuple[str, ...] = ()
    """names of VMs that were not made, as disks of the ones before are still there"""


PASSING = (AlreadyExists, Conflict, NotFound, Throttled, Unreachable, NotSent)
"""Nobody's fault: somebody was first, it has changed since it was chosen, the server is busy or away. The next plan
knows more."""


class Batches:
    def __init__(self, news: PoolEvents, expectations: Expectations[str], clock: Callable[[], float]) -> None:
        self._news = news
        self._writes = BatchWriter(expectations, clock, trace)

    async def make(
        self,
        pool: Pool | None,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[None]],
        *,
        most: int = MAX_BATCH_SIZE,
        quiet: bool = False,
    ) -> Outcome:
        """Makes the calls, says what was done unless that is of no interest, and remembers what is still to be seen in
        the store. Without a pool for VMs whose pool is gone."""
        if not actions:
            return Outcome()
        made = await self._writes.make(pool.uid if pool else "", actions[0].verb, actions, call, most=most)
        failed = [(action, error) for action, error in made if error is not None]
        if pool is not None and not quiet:
            for action, error in made:
                if error is None:
                    self._news.done(pool, action)
        undone = tuple(action for action, error in failed if not isinstance(error, OUTCOME_UNKNOWN))
        refusals = [each for each in failed if not isinstance(each[1], PASSING)]
        if refusals and pool is not None:
            return replace(self.refused(pool, *refusals[0]), undone=undone)
        return Outcome(again=bool(failed), undone=undone)

    def refused(self, pool: Pool, action: Action, error: Exception) -> Outcome:
        reason, message = self._news.refused(pool, action, error)
        return Outcome(Failure(reason, message[:FAILURE_CHARACTERS]), True)

    def expect(self, pool: Pool, actions: Sequence[Action]) -> None:
        self._writes.expect(pool.uid, actions)

    def not_begun(self, pool: Pool, actions: Sequence[Action], error: Exception) -> Outcome:
        """None of them was sent: the first, which was asked about before, would be refused."""
        self._writes.not_begun(pool.uid, actions, error)
        return replace(self.refused(pool, actions[0], error), undone=tuple(actions))

    def unwanted(self, uid: str) -> frozenset[str]:
        """What the API server refused the last time: names and UIDs of VMs, and `has_revision` of updates."""
        return self._writes.refused(uid)

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._writes.forget(uid)


def trace(action: Action) -> ExpectedEvents:
    match action:
        case Create():
            return ExpectedEvents(creates=(action.name,))
        case Update():
            return ExpectedEvents(creates=(has_revision(action.name, action.revision),))
        case Delete() | Heal():
            return ExpectedEvents(deletes=(action.uid,))
        case Restart():
            return ExpectedEvents(deletes=(action.guest,))
    return ExpectedEvents()
