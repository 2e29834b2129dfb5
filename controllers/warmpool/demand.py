"""What claims need from a pool beyond its ready VMs. Claims write it, pools read it; a restart rebuilds it."""

from __future__ import annotations

from collections.abc import Callable


class Demand:
    """By UID of the pool."""

    def __init__(self) -> None:
        self._queued: dict[str, int] = {}
        self._creating: dict[str, set[str]] = {}
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed(pool_uid)` when the number of queued claims changes."""
        self._subscribers.append(changed)

    def queued(self, pool_uid: str) -> int:
        """Claims that wait for a VM of the pool, which scales out to `replicas` plus this number."""
        return self._queued.get(pool_uid, 0)

    def creating(self, pool_uid: str) -> int:
        """VMs that are being created for claims and that no cache shows yet. They count towards `maxTotal`."""
        return len(self._creating.get(pool_uid, ()))

    def set_queued(self, pool_uid: str, claims: int) -> None:
        if self._queued.get(pool_uid, 0) == claims:
            return
        self._queued[pool_uid] = claims
        if not claims:
            del self._queued[pool_uid]
        for changed in self._subscribers:
            changed(pool_uid)

    def expect_creation(self, pool_uid: str, name: str) -> None:
        """Must be called before the request: until the cache shows the VM, only this entry counts it."""
        self._creating.setdefault(pool_uid, set()).add(name)

    def creation_over(self, pool_uid: str, name: str) -> None:
        """The cache shows the VM, or its creation was refused."""
        names = self._creating.get(pool_uid, set())
        names.discard(name)
        if not names:
            self._creating.pop(pool_uid, None)
