"""Which machines are ready to be given away, in the order in which they should be.

Kept by the store's events, so that to take one costs the same whether ten wait or ten thousand. What is taken is not
offered again until its event says what became of it: a thousand claims at once meet a thousand machines, not one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from controllers.warmpool.warm_vm import STANDBY_MODES, StandbyMode, WarmVM, why_not_in_standby
from kinds.warm_states import WarmState
from runtime.backoff import hash_fraction
from runtime.resource import Key


@dataclass(frozen=True, slots=True)
class Variant:
    """What machines have in common that may be given away one for the other."""

    standby: StandbyMode
    placement: str
    template_hash: str


Heap = list[tuple[float, str]]
"""ranks and UIDs. The rank is a hash of the UID: among equals, as good as chance, and the same whoever asks again"""


def is_unclaimed(m: WarmVM) -> bool:
    """Whether it is its pool's to give away, as far as it says itself."""
    waits = m.state is WarmState.READY and not (m.claim_uid or m.deleting or m.orphaned)
    return waits and m.owned_by(m.pool_uid)


@dataclass
class ReadyQueue:
    """Machines of one pool that can be given away now."""

    _heaps: dict[Variant, Heap] = field(default_factory=dict)
    """what is not offered any more stays in its heap until it comes up"""
    _heaped: set[tuple[Variant, str]] = field(default_factory=set)
    """what is in them: a machine that comes and goes is there once"""
    _offered: dict[str, tuple[Variant, Key]] = field(default_factory=dict)
    _numbers: Counter[Variant] = field(default_factory=Counter)
    """of those that are offered"""

    def __len__(self) -> int:
        return len(self._offered)

    def count(self, serves: Callable[[Variant], bool]) -> int:
        return sum(number for kin, number in self._numbers.items() if serves(kin))

    def offer(self, m: WarmVM) -> None:
        self.withdraw(m.uid)
        kin = Variant(m.standby, m.placement, m.template_hash)
        self._offered[m.uid] = (kin, m.key)
        self._numbers[kin] += 1
        if (kin, m.uid) not in self._heaped:
            self._heaped.add((kin, m.uid))
            heapq.heappush(self._heaps.setdefault(kin, []), (hash_fraction(m.uid), m.uid))

    def withdraw(self, uid: str) -> None:
        if uid not in self._offered:
            return
        kin, _ = self._offered.pop(uid)
        self._numbers[kin] -= 1
        if not self._numbers[kin]:
            del self._numbers[kin]

    def candidates(
        self, current: Callable[[Variant], bool], does: Callable[[Variant], bool] = lambda kin: True
    ) -> Generator[Key]:
        """The soonest to be handed over first, of those the ones of today's template, of those by chance."""

        def grade(kin: Variant) -> tuple[int, bool]:
            return STANDBY_MODES.index(kin.standby), not current(kin)

        wanted = [kin for kin in list(self._heaps) if self._tidy(kin) and does(kin)]
        for _, equals in groupby(sorted(wanted, key=grade), grade):
            yield from self._merged(list(equals))

    def _merged(self, equals: list[Variant]) -> Generator[Key]:
        passed: list[tuple[Variant, tuple[float, str]]] = []
        try:
            while heaps := [kin for kin in equals if self._tidy(kin)]:
                kin = min(heaps, key=lambda each: self._heaps[each][0])
                entry = heapq.heappop(self._heaps[kin])
                passed.append((kin, entry))
                yield self._offered[entry[1]][1]
        finally:
            for kin, entry in passed:
                heapq.heappush(self._heaps.setdefault(kin, []), entry)

    def _tidy(self, kin: Variant) -> bool:
        """Whether any is left. What has gone is thrown away where it would be the next."""
        heap = self._heaps.get(kin)
        while heap and self._offered.get(heap[0][1], (None,))[0] != kin:
            self._heaped.discard((kin, heapq.heappop(heap)[1]))
        if not heap:
            self._heaps.pop(kin, None)
        return bool(heap)


class ReadyQueues:
    """By UID of the pool."""

    def __init__(self) -> None:
        self._shelves: dict[str, ReadyQueue] = {}
        self._taken: set[str] = set()

    def of(self, pool_uid: str) -> ReadyQueue:
        return self._shelves.get(pool_uid) or ReadyQueue()

    def reset(self, machines: Iterable[WarmVM]) -> None:
        """As the stores show them; nothing is being given away."""
        self._taken.clear()
        self._shelves.clear()
        for m in machines:
            self.changed(None, m)

    def changed(self, old: WarmVM | None, new: WarmVM | None) -> bool:
        """Follows the stores: `new` has its guest and its node. Whether there is one more to give away. One that can't
        be given away now is not counted either, or who comes last would be given the machine of who is next."""
        if old is not None and (new is None or (new.uid, new.pool_uid) != (old.uid, old.pool_uid)):
            self._taken.discard(old.uid)
            self._withdraw(old)
        if new is None:
            return False
        if not is_unclaimed(new):
            self._taken.discard(new.uid)
        elif new.uid in self._taken:
            return False
        if not is_unclaimed(new) or why_not_in_standby(new):
            self._withdraw(new)
            return False
        shelf = self._shelves.setdefault(new.pool_uid, ReadyQueue())
        before = len(shelf)
        shelf.offer(new)
        return len(shelf) > before

    def take(self, m: WarmVM) -> None:
        """It is being given away: nobody else is offered it."""
        self._taken.add(m.uid)
        self._withdraw(m)

    def put_back(self, uid: str, m: WarmVM | None) -> None:
        """It was perhaps not given away after all. To offer one that was does no harm: who takes it will lose."""
        self._taken.discard(uid)
        if m is not None and m.uid == uid:
            self.changed(None, m)

    def _withdraw(self, m: WarmVM) -> None:
        shelf = self._shelves.get(m.pool_uid)
        if shelf is not None:
            shelf.withdraw(m.uid)
            if not len(shelf):
                del self._shelves[m.pool_uid]
