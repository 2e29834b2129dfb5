"""What claims want of a pool beyond what it keeps ready. Claims write it, pools read it; a restart finds it again in
the claims themselves."""

from __future__ import annotations

from collections.abc import Callable


class Demand:
    """By UID of the pool."""

    def __init__(self) -> None:
        self._queued: dict[str, int] = {}
        self._making: dict[str, set[str]] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed(pool_uid)` for every pool of which more or fewer machines are wanted than before."""
        self._subscribers.append(changed)

    def queued(self, pool_uid: str) -> int:
        """Claims that wait for a machine of this pool: it fills to `replicas` and as many more."""
        return self._queued.get(pool_uid, 0)

    def making(self, pool_uid: str) -> int:
        """Machines that are being made for claims and that no store shows yet: they count towards `maxTotal`."""
        return len(self._making.get(pool_uid, ()))

    def wait(self, pool_uid: str, claims: int) -> None:
        """So many claims wait by now."""
        if self._queued.get(pool_uid, 0) == claims:
            return
        self._queued[pool_uid] = claims
        if not claims:
            del self._queued[pool_uid]
        for changed in self._subscribers:
            changed(pool_uid)

    def make(self, pool_uid: str, name: str) -> None:
        """To be called before the machine is asked for: whoever counts between the call and its event counts it."""
        self._making.setdefault(pool_uid, set()).add(name)

    def made(self, pool_uid: str, name: str) -> None:
        """The store shows it, or it was refused."""
        names = self._making.get(pool_uid, set())
        names.discard(name)
        if not names:
            self._making.pop(pool_uid, None)
