"""Sends batches of writes for one owner, with expectations before and events after the batch.

The controller does not plan for the owner again until its stores show the expected writes. See
`poolhouse.runtime.expectations`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from poolhouse.runtime.batch_writer import MAX_BATCH_SIZE, BatchWriter, ExpectedEvents, NotSent
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.errors import (
    OUTCOME_UNKNOWN,
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    NotServed,
    Throttled,
    Unreachable,
)
from poolhouse.runtime.events import ObjectMeta
from poolhouse.runtime.expectations import Expectations
from poolhouse.service.logs import printable

MAX_MESSAGE = 1000


class Action(Protocol):
    @property
    def verb(self) -> str: ...

    def expected_events(self) -> ExpectedEvents:
        """The events that show that the action has succeeded. Until the stores have them, nothing else is planned."""
        ...


A = TypeVar("A", bound=Action)
O_contra = TypeVar("O_contra", bound=ObjectMeta, contravariant=True)
O = TypeVar("O", bound=ObjectMeta)  # noqa: E741


def is_outdated(error: Exception | None) -> bool:
    """Whether the write failed because its snapshot is outdated: another client was first, or the object has changed or
    is gone. A kind that is not served is `NotFound`, too, but no newer snapshot will have it."""
    return isinstance(error, AlreadyExists | Conflict | NotFound | NotSent) and not isinstance(error, NotServed)


def is_passing(error: Exception | None) -> bool:
    """Whether the error gets no event, because the next plan uses a new snapshot, or because the server is busy or
    unreachable."""
    return is_outdated(error) or isinstance(error, Throttled | Unreachable)


@dataclass(frozen=True)
class Failure:
    reason: str
    message: str


@dataclass(frozen=True)
class Outcome:
    failure: Failure | None = None
    """The first refusal, for the owner's status."""
    retry: bool = False
    """Whether some writes were not done."""
    done: tuple[Any, ...] = ()
    not_done: tuple[Any, ...] = ()
    """Actions that were not done. An action without a response is neither in `done` nor in `not_done`."""
    error: Exception | None = None
    """The first error that does not come from an outdated snapshot."""


class Reporter(Protocol[O_contra]):
    def succeeded(self, owner: O_contra, action: Any) -> None: ...

    def failed(self, owner: O_contra, action: Any, error: Exception) -> Failure: ...


@dataclass
class WriteBatches(Generic[O]):
    reporter: Reporter[O]
    expectations: Expectations[str]
    clock: Callable[[], float]
    is_passing: Callable[[Exception | None], bool] = is_passing
    outcome_unknown: tuple[type[Exception], ...] = OUTCOME_UNKNOWN
    """errors after which the write may have been done"""
    _writes: BatchWriter = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._writes = BatchWriter(
            self.expectations,
            self.clock,
            lambda action: action.expected_events(),
            outcome_unknown=self.outcome_unknown,
        )

    async def send(
        self,
        owner: O | None,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[None]],
        *,
        max_in_flight: int = MAX_BATCH_SIZE,
        quiet: bool = False,
        careful: bool = True,
    ) -> Outcome:
        """Sends actions of one kind. `quiet` omits events of success. The owner is None after its deletion. Without
        `careful`, the first batch has full size also after a failure."""
        if not actions:
            return Outcome()
        uid = owner.uid if owner is not None else ""
        results = await self._writes.make(uid, actions[0].verb, actions, call, most=max_in_flight, careful=careful)
        done = tuple(action for action, error in results if error is None)
        if owner is not None and not quiet:
            for action in done:
                self.reporter.succeeded(owner, action)
        failed = [(action, error) for action, error in results if error is not None]
        not_done = tuple(action for action, error in failed if not isinstance(error, self.outcome_unknown))
        refused = next(((action, error) for action, error in failed if not self.is_passing(error)), None)
        failure = self.reporter.failed(owner, *refused) if refused and owner is not None else None
        server_error = next((error for _, error in failed if not is_outdated(error)), None)
        return Outcome(failure, bool(failed), done, not_done, server_error)

    def expect(self, owner: O, actions: Sequence[Action]) -> None:
        """Records writes that `send` makes later, so that other controllers know them now."""
        self._writes.expect(owner.uid, actions)

    def refuse(self, owner: O, actions: Sequence[Action], error: Exception) -> Outcome:
        """The outcome of unsent actions, because the API server would refuse the first action with this error."""
        self._writes.not_begun(owner.uid, actions, error)
        outage = error if isinstance(error, NotServed) else None
        return Outcome(self.reporter.failed(owner, actions[0], error), True, (), tuple(actions), outage)

    def skip(self, owner: O, actions: Sequence[Action], error: Exception | None = None) -> Outcome:
        """Takes back the expectations of actions that are not sent, because a request that they need has failed, and
        may succeed later. Returns their outcome."""
        if not actions:
            return Outcome()
        self._writes.not_begun(owner.uid, actions, NotSent())
        server_error = None if is_outdated(error) else error
        return Outcome(retry=True, not_done=tuple(actions), error=server_error)

    def refused(self, uid: str) -> frozenset[str]:
        """Names and UIDs of the owner's objects whose last write the API server refused."""
        return self._writes.refused(uid)

    def awaited(self, uids: Iterable[str]) -> set[str]:
        """The owners whose writes the stores do not show yet."""
        return {uid for uid in uids if any(self.expectations.open(uid))}

    def forget(self, uid: str) -> None:
        """Forgets what is known of the writes of a deleted owner, except those that the stores do not show yet."""
        self._writes.forget(uid)


def merge_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    found = list(outcomes)
    return Outcome(
        next((each.failure for each in found if each.failure), None),
        any(each.retry for each in found),
        tuple(action for each in found for action in each.done),
        tuple(action for each in found for action in each.not_done),
        next((each.error for each in found if each.error), None),
    )


def retry_unless_done(outcome: Outcome, reported: Failure | None = None) -> None:
    """Raises RetryWithBackoff if some writes were not done, with the message of their failure or of the reported one.
    Raises Throttled itself, because it has the server's Retry-After."""
    if not outcome.retry:
        return
    if isinstance(outcome.error, Throttled):
        raise outcome.error
    if failure := reported or outcome.failure:
        raise RetryWithBackoff(failure.message) from outcome.error
    message = error_message(outcome.error) if outcome.error else "the cluster has changed meanwhile"
    raise RetryWithBackoff(message) from outcome.error


def failure(reason: str, message: str) -> Failure:
    """A failure whose message is short enough for a condition."""
    return Failure(reason, message[:MAX_MESSAGE])


def error_message(error: Exception) -> str:
    """The error of a write for users, on one line: the API server's message, which a webhook may have written, without
    the path and the code of the request."""
    text = error.message if isinstance(error, ApiError) else str(error)
    text = text or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    return printable(" ".join(text.split()))[:MAX_MESSAGE]
