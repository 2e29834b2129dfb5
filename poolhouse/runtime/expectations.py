"""Records writes that the store does not show yet, like client-go's `ControllerExpectations`.

A store lags behind the API server. A controller that has just created three VMs and plans again from a store that shows
none of them would create three more. The controller therefore records its writes as expectations before it sends
them. It does not plan for their owner until the store shows them.

The order of calls matters:

- *Expect before the call.* The event may arrive before the answer to the call. An expectation recorded after the event
  would wait for an event that does not come again.
- *Remove after a refusal.* A refused call causes no event. A call without a response (`Unreachable`, `Unavailable`) may
  have succeeded: its expectation stays until the event or the timeout.
- *Write inside of `writing`.* The last of many calls may be sent later than the timeout of the first.

If an event never comes (an object was created and deleted between two lists), the owner waits until the timeout.
Repeated writes then fail, because created names depend on the ordinal and deletes have a UID as precondition.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741

TIMEOUT_SECONDS = 300.0


@dataclass
class _Expected:
    since: float
    unsent: bool = False
    """whether expectations were added since the last batch of writes"""
    creates: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)


class Expectations(Generic[O]):
    """Names of objects to be created and UIDs of objects to be deleted, by owner. A delete is observed when the object
    has a deletionTimestamp or is gone, because finalizers may keep it for hours and no controller counts it.

    The expectations of a deleted owner end like those of others, because another owner may wait for its writes."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._owners: dict[O, _Expected] = {}
        """in the order in which their timeouts began"""
        self._writing: dict[O, int] = {}
        """the number of batches that are being written for an owner"""
        self._handlers: list[Callable[[O], None]] = []

    def subscribe(self, satisfied: Callable[[O], None]) -> None:
        """Calls `satisfied(owner)` when nothing is expected for an owner any more."""
        self._handlers.append(satisfied)

    def expect(self, owner: O, *, creates: Iterable[str] = (), deletes: Iterable[str] = (), now: float) -> None:
        """Adds expectations, and restarts the timeout of all expectations of the owner. Call it before the writes."""
        # Nobody may ask again for an owner that was deleted.
        while self._owners and self.satisfied(next(iter(self._owners)), now):
            pass
        expected = self._owners.pop(owner, None) or _Expected(now)
        self._owners[owner] = expected
        expected.since, expected.unsent = now, True
        expected.creates |= set(creates)
        expected.deletes |= set(deletes)
        self._fulfil(owner)

    @contextmanager
    def writing(self, owner: O, clock: Callable[[], float]) -> Iterator[None]:
        """The timeout of expectations that were added for these writes begins after this time. Writes without
        expectations do not delay it: one that fails again and again would otherwise hold the owner."""
        self._writing[owner] = self._writing.get(owner, 0) + 1
        try:
            yield
        finally:
            self._writing[owner] -= 1
            if not self._writing[owner]:
                del self._writing[owner]
                self._written(owner, clock())

    def _written(self, owner: O, now: float) -> None:
        expected = self._owners.get(owner)
        if expected is not None and expected.unsent:
            self._owners[owner] = self._owners.pop(owner)
            expected.since, expected.unsent = now, False

    def creation_observed(self, owner: O, name: str) -> None:
        self._fulfil(owner, creates=(name,))

    def deletion_observed(self, owner: O, uid: str) -> None:
        self._fulfil(owner, deletes=(uid,))

    def write_failed(self, owner: O, *, creates: Iterable[str], deletes: Iterable[str] = ()) -> None:
        """Removes the expectations of writes that were refused or not sent."""
        self._fulfil(owner, creates, deletes)

    def satisfied(self, owner: O, now: float) -> bool:
        """Whether the store shows all writes for the owner, or the timeout is over."""
        if self.wait_seconds(owner, now):
            return False
        if owner in self._owners:
            self._end(owner)
        return True

    def open(self, owner: O) -> tuple[frozenset[str], frozenset[str]]:
        """The names and the UIDs that are still expected."""
        expected = self._owners.get(owner)
        return (frozenset(expected.creates), frozenset(expected.deletes)) if expected else (frozenset(), frozenset())

    def wait_seconds(self, owner: O, now: float) -> float | None:
        """The time until the timeout; None when nothing is expected."""
        expected = self._owners.get(owner)
        if expected is None:
            return None
        since = now if owner in self._writing else expected.since
        return max(0.0, since + self._timeout_seconds - now)

    def _fulfil(self, owner: O, creates: Iterable[str] = (), deletes: Iterable[str] = ()) -> None:
        if expected := self._owners.get(owner):
            expected.creates.difference_update(creates)
            expected.deletes.difference_update(deletes)
            if not expected.creates and not expected.deletes:
                self._end(owner)

    def _end(self, owner: O) -> None:
        del self._owners[owner]
        for satisfied in self._handlers:
            satisfied(owner)
