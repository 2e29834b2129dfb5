"""Whose turn it is where claims wait: in turns by who asked, first come first served among one's own.

One who asks for a thousand does not keep the next one waiting for a thousand. Who was served goes to the end of the
turns; who leaves and comes back gains nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

Ticket = tuple[str, str, str]
"""when a claim was made (the API server says it in whole seconds), when it was seen, and its UID: the order among one's
own"""


@dataclass
class Line:
    """Claims that wait for machines of one pool."""

    _own: dict[str, list[Ticket]] = field(default_factory=dict)
    """by requester, in the order of their turns"""
    _who: dict[str, tuple[str, Ticket]] = field(default_factory=dict)
    """by UID of the claim"""
    _served: dict[str, int] = field(default_factory=dict)
    """when a requester was served last, as a count of all that were"""

    def __len__(self) -> int:
        return len(self._who)

    def __contains__(self, uid: str) -> bool:
        return uid in self._who

    def join(self, requester: str, born: str, uid: str, *, seen: str = "") -> None:
        """`seen` sorts as text, and is the same when it comes back."""
        if uid in self._who:
            return
        ticket = (born, seen, uid)
        self._who[uid] = (requester, ticket)
        insort(self._own.setdefault(requester, []), ticket)

    def leave(self, uid: str, *, served: bool = False) -> None:
        """It waits no longer. `served`: because it got a machine, which was its requester's turn."""
        if uid not in self._who:
            return
        requester, ticket = self._who.pop(uid)
        own = self._own[requester]
        own.remove(ticket)
        if not own:
            del self._own[requester]
        if served:
            self._served[requester] = max(self._served.values(), default=0) + 1
        if not self._who:
            self._served.clear()  # nobody waits, so nobody's turn was passed over

    def place(self, uid: str) -> int:
        """How many will have been served when it is: 1 is the next one. One that is not in the line would be last."""
        if uid not in self._who:
            return len(self._who) + 1
        requester, ticket = self._who[uid]
        before = bisect_left(self._own[requester], ticket)
        mine = self._turn(requester)
        others = ((self._turn(each), own) for each, own in self._own.items() if each != requester)
        return 1 + before + sum(min(len(own), before + (turn < mine)) for turn, own in others)

    def first(self, count: int) -> list[str]:
        """UIDs of the next ones."""
        turns = [self._own[each] for each in sorted(self._own, key=self._turn)]
        found: list[str] = []
        for depth in range(max(map(len, turns), default=0)):
            if len(found) >= count:
                break
            found += [own[depth][2] for own in turns if len(own) > depth]
        return found[:count]

    def _turn(self, requester: str) -> tuple[int, Ticket]:
        return self._served.get(requester, 0), self._own[requester][0]
