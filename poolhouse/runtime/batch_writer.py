"""Writes many objects for one owner in batches of growing size. Objects that were refused before come last."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from poolhouse.runtime.errors import OUTCOME_UNKNOWN, Forbidden, Invalid, QuotaExceeded
from poolhouse.runtime.expectations import Expectations

A = TypeVar("A")
T = TypeVar("T")

MAX_BATCH_SIZE = 250
MAX_REFUSED = 1000


async def slow_start_batch(
    calls: Sequence[Callable[[], Awaitable[T]]], *, first: int = 1, most: int = MAX_BATCH_SIZE
) -> list[T | Exception]:
    """Makes the calls in batches that double in size (1, 2, 4, ... `most`), and stops after a batch with a failure.

    Returns the results of the calls made, in their order. With a full quota or a refused template, an attempt
    therefore sends one request and not a thousand.
    """
    results: list[T | Exception] = []
    size = max(1, min(first, most))
    while len(results) < len(calls):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_result(call)) for call in calls[len(results) : len(results) + size]]
        batch = [task.result() for task in tasks]
        results += batch
        if any(isinstance(result, Exception) for result in batch):
            break
        size = min(size * 2, most)
    return results


async def _result(call: Callable[[], Awaitable[T]]) -> T | Exception:
    try:
        return await call()
    except Exception as error:
        return error


class NotSent(Exception):
    """The write was not sent, because an earlier batch failed."""


@dataclass(frozen=True)
class ExpectedEvents:
    """The changes that a store shows after a write: names of created objects and UIDs of deleted objects."""

    creates: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


class BatchWriter:
    def __init__(
        self,
        expectations: Expectations[str],
        clock: Callable[[], float],
        expected_events: Callable[[Any], ExpectedEvents],
        *,
        outcome_unknown: tuple[type[Exception], ...] = OUTCOME_UNKNOWN,
    ) -> None:
        """The owners in `expectations` are UIDs. The expectation of a write stays after an error of the types
        `outcome_unknown`, because the API server may have done the write."""
        self._expectations, self._clock = expectations, clock
        self._expected_events, self._outcome_unknown = expected_events, outcome_unknown
        # By owner, the verbs whose last writes were all accepted. Their next batch starts at full size.
        self._trusted: dict[str, set[str]] = {}
        # By owner, the writes that were refused for their content and not accepted since, in order of refusal.
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
        """Calls `call` for each action. Returns each action with its error, or None after a success. With `careful` the
        first batch is one write, unless the owner's last batch of the verb succeeded. Refused writes come last."""
        if not actions:
            return []
        # Must precede the first call, because an event may arrive before the response to its call.
        self.expect(owner, actions)
        trusted = self._trusted.get(owner, set())
        first = most if not careful or verb in trusted else 1
        trusted.discard(verb)
        actions = sorted(actions, key=lambda action: self._expected_events(action) in self._refused.get(owner, ()))
        with self._expectations.writing(owner, self._clock):
            results = await slow_start_batch([partial(call, action) for action in actions], first=first, most=most)
        errors = [result if isinstance(result, Exception) else None for result in results]
        errors += [NotSent()] * (len(actions) - len(errors))
        made = list(zip(actions, errors, strict=True))
        failed = [action for action, error in made if error and not isinstance(error, self._outcome_unknown)]
        self._take_back(owner, failed)
        self._remember(owner, made)
        if not any(errors):
            self._trusted.setdefault(owner, set()).add(verb)
        return made

    def not_begun(self, owner: str, actions: Sequence[A], error: Exception) -> None:
        """Removes the expectations of actions that were not sent, because the first would be refused with `error`."""
        self._take_back(owner, actions)
        self._remember(owner, [(actions[0], error)])

    def refused(self, owner: str) -> frozenset[str]:
        """Names and UIDs of the writes that were refused at the last attempt."""
        return frozenset(each for events in self._refused.get(owner, ()) for each in (*events.creates, *events.deletes))

    def expect(self, owner: str, actions: Sequence[Any]) -> None:
        """Records the expectations of the actions. Call it before `make` to stop planning for the owner earlier."""
        events = [self._expected_events(action) for action in actions]
        creates, deletes = [name for e in events for name in e.creates], [uid for e in events for uid in e.deletes]
        if owner and (creates or deletes):
            self._expectations.expect(owner, creates=creates, deletes=deletes, now=self._clock())

    def forget(self, owner: str) -> None:
        """Removes the batch sizes and the refused writes of a deleted owner."""
        self._trusted.pop(owner, None)
        self._refused.pop(owner, None)

    def _take_back(self, owner: str, actions: Sequence[Any]) -> None:
        for events in map(self._expected_events, actions):
            self._expectations.write_failed(owner, creates=events.creates, deletes=events.deletes)

    def _remember(self, owner: str, made: Sequence[tuple[Any, Exception | None]]) -> None:
        known = self._refused.pop(owner, {})
        for action, error in made:
            events = self._expected_events(action)
            if error is None:
                known.pop(events, None)
            # A full quota is no property of the object, so the next attempt may succeed.
            elif owner and isinstance(error, Invalid | Forbidden) and not isinstance(error, QuotaExceeded):
                known[events] = None
        if known:
            self._refused[owner] = dict.fromkeys([*known][-MAX_REFUSED:])
