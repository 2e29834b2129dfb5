"""Many calls of one kind: expected before they are made, told of after, and what became of them.

An action that was refused for good is said in the status; one that merely lost a race is nobody's fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from controllers.pool.actions import Action, Create, Delete, Heal, Restart, Update
from controllers.pool.news import News
from controllers.pool.state import Failure, Pool
from runtime.batches import slow_start
from runtime.errors import AlreadyExists, Conflict, NotFound, Throttled, Unavailable, Unreachable
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


class NotSent(Exception):
    """An earlier batch failed."""


PASSING = (AlreadyExists, Conflict, NotFound, Throttled, Unreachable, NotSent)
"""Nobody's fault: somebody was first, it has changed since it was chosen, the server is busy or away. The next plan
knows more."""


@dataclass
class Batches:
    news: News
    expectations: Expectations[str]
    """by UID of the pool"""
    clock: Callable[[], float]
    _trusted: set[tuple[str, str]] = field(default_factory=set)
    """pools and verbs whose last calls were all accepted: the next ones need not begin one by one"""

    async def make(
        self,
        pool: Pool | None,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[None]],
        *,
        most: int = 250,
        quiet: bool = False,
    ) -> Outcome:
        """Makes the calls in growing batches, says what was done unless that is of no interest, and remembers what is
        still to be seen in the store. Without a pool for VMs whose pool is gone."""
        # Before the first call, all of them: an event that comes before its call's answer must find itself expected.
        self.expect(pool, actions)
        if not actions:
            return Outcome()
        trust = (pool.uid if pool else "", actions[0].verb)
        first = most if trust in self._trusted else 1
        self._trusted.discard(trust)
        results = await slow_start([partial(call, action) for action in actions], first=first, most=most)
        refusals, undone = [], []
        for action, result in zip_longest(actions, results, fillvalue=NotSent()):
            assert not isinstance(action, NotSent)
            if not isinstance(result, Exception):
                if pool is not None and not quiet:
                    self.news.done(pool, action)
                continue
            if _surely_not_done(result):
                self.give_up(pool, [action])
                undone.append(action)
            if not isinstance(result, PASSING):
                refusals.append((action, result))
        if refusals and pool is not None:
            return replace(self.refused(pool, *refusals[0]), undone=tuple(undone))
        again = any(isinstance(result, Exception) for result in results)
        if not again:
            self._trusted.add(trust)
        return Outcome(again=again, undone=tuple(undone))

    def refused(self, pool: Pool, action: Action, error: Exception) -> Outcome:
        reason, message = self.news.refused(pool, action, error)
        return Outcome(Failure(reason, message[:FAILURE_CHARACTERS]), True)

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._trusted -= {each for each in self._trusted if each[0] == uid}

    def expect(self, pool: Pool | None, actions: Sequence[Action]) -> None:
        appear = [token for a in actions for token in _appears(a)]
        go = [token for a in actions for token in _goes(a)]
        if pool is not None and (appear or go):
            self.expectations.expect(pool.uid, creates=appear, deletes=go, now=self.clock())

    def give_up(self, pool: Pool | None, actions: Sequence[Action]) -> None:
        if pool is None:
            return
        for action in actions:
            self.expectations.gave_up(pool.uid, creates=_appears(action), deletes=_goes(action))


def _appears(action: Action) -> list[str]:
    """What the store will show when it is done."""
    match action:
        case Create():
            return [action.name]
        case Update():
            return [has_revision(action.name, action.revision)]
    return []


def _goes(action: Action) -> list[str]:
    """UIDs that the store will not show any more, or as being deleted."""
    match action:
        case Delete() | Heal():
            return [action.uid]
        case Restart():
            return [action.guest]
    return []


def has_revision(name: str, revision: str) -> str:
    return f"{name}@{revision}"


def _surely_not_done(error: Exception) -> bool:
    """An answer that never came leaves open whether it was done; its event, or the expectation's timeout, will tell."""
    return not isinstance(error, Unreachable | Unavailable | TimeoutError)
