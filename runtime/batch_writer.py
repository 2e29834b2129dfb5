"""Many writes for one owner: expected before they are made, begun carefully, and given up where they were not done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from runtime.errors import OUTCOME_UNKNOWN, Forbidden, Invalid, QuotaExceeded
from runtime.expectations import Expectations

T = TypeVar("T")


async def slow_start_batch(
    calls: Sequence[Callable[[], Awaitable[T]]], *, first: int = 1, most: int = 250
) -> list[T | Exception]:
    """Makes the calls in batches that double in size (1, 2, 4, ... `most`); a batch with a failure is the last.

    Returns what came of those made, in their order: the list is shorter than `calls` by those that were not made. A
    full quota or a template that is refused so costs one refused request and not a thousand, every time it's tried.
    """
    results: list[T | Exception] = []
    size = max(1, min(first, most))
    while len(results) < len(calls):
        batch = calls[len(results) : len(results) + size]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_outcome(call)) for call in batch]
        outcomes = [task.result() for task in tasks]
        results += outcomes
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            break
        size = min(size * 2, most)
    return results


async def _outcome(call: Callable[[], Awaitable[T]]) -> T | Exception:
    try:
        return await call()
    except Exception as error:
        return error


A = TypeVar("A")

MAX_BATCH_SIZE = 250
MAX_REFUSED = 1000


class NotSent(Exception):
    """An earlier batch failed."""


@dataclass(frozen=True)
class ExpectedEvents:
    """What a store will show when a write is done."""

    creates: tuple[str, ...] = ()
    """names"""
    deletes: tuple[str, ...] = ()
    """UIDs, gone or on their way"""


class BatchWriter:
    def __init__(
        self,
        expectations: Expectations[str],
        clock: Callable[[], float],
        trace: Callable[[Any], ExpectedEvents],
        *,
        unsure: tuple[type[Exception], ...] = OUTCOME_UNKNOWN,
    ) -> None:
        """`expectations` by UID of the owner. `unsure` are the errors after which it may have been done:
        its event, or the expectation's timeout, will tell."""
        self._expectations = expectations
        self._clock = clock
        self._trace = trace
        self._unsure = unsure
        # Owners and verbs whose last writes were all accepted: the next ones need not begin one by one.
        self._trusted: set[tuple[str, str]] = set()
        # By owner, what was refused for what it is, until it is accepted; the newest last.
        self._refused: dict[str, dict[ExpectedEvents, None]] = {}

    async def make(
        self,
        owner: str,
        verb: str,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[object]],
        *,
        most: int = MAX_BATCH_SIZE,
        careful: bool = True,
    ) -> list[tuple[A, Exception | None]]:
        """What became of each: None where it was done. Those of the same `verb` begin with one if `careful`, until all
        of them were accepted once; after a failure the rest is not sent. What was refused before comes last, so that it
        holds up nothing else."""
        if not actions:
            return []
        # Before the first call, all of them: an event that comes before its call's answer must find itself expected.
        self.expect(owner, actions)
        first = most if not careful or (owner, verb) in self._trusted else 1
        self._trusted.discard((owner, verb))
        actions = sorted(actions, key=lambda action: self._trace(action) in self._refused.get(owner, ()))
        results = await slow_start_batch([partial(call, action) for action in actions], first=first, most=most)
        answers = [result if isinstance(result, Exception) else None for result in results]
        answers += [NotSent()] * (len(actions) - len(answers))
        made = list(zip(actions, answers, strict=True))
        self.give_up(owner, [a for a, error in made if error is not None and not isinstance(error, self._unsure)])
        self._remember(owner, made)
        if all(error is None for error in answers):
            self._trusted.add((owner, verb))
        return made

    def not_begun(self, owner: str, actions: Sequence[A], error: Exception) -> None:
        """None of them was sent, as the first would be refused."""
        self.give_up(owner, actions)
        self._remember(owner, [(actions[0], error)])

    def refused(self, owner: str) -> frozenset[str]:
        """Names and UIDs, of the traces of what was refused the last time that it was asked for."""
        return frozenset(each for trace in self._refused.get(owner, ()) for each in (*trace.creates, *trace.deletes))

    def _remember(self, owner: str, made: Sequence[tuple[Any, Exception | None]]) -> None:
        known = self._refused.pop(owner, {})
        for action, error in made:
            trace = self._trace(action)
            if error is None:
                known.pop(trace, None)
            # A full quota has nothing against this one: the next of its turn may find room.
            elif owner and isinstance(error, Invalid | Forbidden) and not isinstance(error, QuotaExceeded):
                known[trace] = None
        if known:
            self._refused[owner] = dict.fromkeys([*known][-MAX_REFUSED:])

    def expect(self, owner: str, actions: Sequence[Any]) -> None:
        """May be said before, where others must not be surprised meanwhile."""
        traces = [self._trace(action) for action in actions]
        appear, go = (
            [name for each in traces for name in each.creates],
            [uid for each in traces for uid in each.deletes],
        )
        if owner and (appear or go):
            self._expectations.expect(owner, creates=appear, deletes=go, now=self._clock())

    def give_up(self, owner: str, actions: Sequence[Any]) -> None:
        """They were certainly not done."""
        for each in map(self._trace, actions):
            self._expectations.write_failed(owner, creates=each.creates, deletes=each.deletes)

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        self._trusted -= {each for each in self._trusted if each[0] == owner}
        self._refused.pop(owner, None)
