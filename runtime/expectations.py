"""What was written and has not been seen yet.

A store lags behind the API server. A controller that has just created three machines and plans again from a store that
shows none of them would create three more. So before it writes it notes what it expects to see, and it doesn't plan
for that owner until it has seen it.

The order matters:

- *Expect before the call.* The event can come before the call's answer does. If it is noted after the call, the event
has gone by
  unnoticed, and the owner waits for something that will not come a second time.
- *Give up after a refusal.* A call that was refused makes no event. A call with no answer (`Unreachable`,
`Unavailable`) may
  have been carried out: leave its expectation, the event or the timeout will settle it.

What it costs: when an event never comes (the object was made and deleted between two lists), the owner is left alone
until the timeout. What bounds the harm after the timeout: names that are a function of the ordinal, and deletes with a
UID, make repeated writes refused ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741

TIMEOUT_SECONDS = 300.0


@dataclass
class Expected:
    since: float
    creates: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)


class Expectations(Generic[O]):
    """By owner: names that will appear, UIDs that will go. A delete is seen when the object is gone *or has a
    deletionTimestamp*: behind a finalizer it may stay for hours, and by then nobody would count it any more."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._owners: dict[O, Expected] = {}

    def expect(self, owner: O, *, creates: Iterable[str] = (), deletes: Iterable[str] = (), now: float) -> None:
        """To be called before the writes. The timeout of all that is open for this owner begins anew."""
        expected = self._owners.setdefault(owner, Expected(now))
        expected.since = now
        expected.creates |= set(creates)
        expected.deletes |= set(deletes)
        self._drop_if_met(owner)

    def creation_observed(self, owner: O, name: str) -> None:
        if expected := self._owners.get(owner):
            expected.creates.discard(name)
            self._drop_if_met(owner)

    def deletion_observed(self, owner: O, uid: str) -> None:
        if expected := self._owners.get(owner):
            expected.deletes.discard(uid)
            self._drop_if_met(owner)

    def write_failed(self, owner: O, *, creates: Iterable[str] = (), deletes: Iterable[str] = ()) -> None:
        """These writes were refused or never sent: nothing of them will be seen."""
        for name in creates:
            self.creation_observed(owner, name)
        for uid in deletes:
            self.deletion_observed(owner, uid)

    def satisfied(self, owner: O, now: float) -> bool:
        """Whether the store shows all that was written for this owner, or has had long enough to."""
        expected = self._owners.get(owner)
        if expected is None:
            return True
        if now - expected.since < self._timeout_seconds:
            return False
        del self._owners[owner]
        return True

    def open(self, owner: O) -> tuple[frozenset[str], frozenset[str]]:
        """The names and UIDs that are still waited for: what to log when an owner seems stuck."""
        expected = self._owners.get(owner)
        return (frozenset(expected.creates), frozenset(expected.deletes)) if expected else (frozenset(), frozenset())

    def forget(self, owner: O) -> None:
        """The owner is gone. One of the same name that comes later must not wait for what was this one's."""
        self._owners.pop(owner, None)

    def wait_seconds(self, owner: O, now: float) -> float | None:
        """When to look again at the latest, or None when nothing is expected."""
        expected = self._owners.get(owner)
        return None if expected is None else max(0.0, expected.since + self._timeout_seconds - now)

    def _drop_if_met(self, owner: O) -> None:
        expected = self._owners[owner]
        if not expected.creates and not expected.deletes:
            del self._owners[owner]
