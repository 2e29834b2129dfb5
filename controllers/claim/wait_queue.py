"""Whose turn it is where claims wait: in turns by who asked, first come first served among one's own.

One who asks for a thousand does not keep the next one waiting for a thousand. Who was served goes to the end of the
turns; who leaves and comes back gains nothing.

Every claim in line asks for its place again and again, so a line of ten thousand may not be walked through for each:
the turns are kept in order. Those who wait with more than one claim are walked through, by all but their first claims;
there are half as many of them as claims at most, and mostly a few.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import islice

Ticket = tuple[str, str, str]
"""when a claim was made (the API server says it in whole seconds), when it was seen, and its UID: the order among one's
own"""
Turn = tuple[int, Ticket]
"""of a requester: by when it was served last, as a count of all that were, then by its first ticket"""


@dataclass
class WaitQueue:
    """Claims that wait for machines of one pool."""

    _own: dict[str, list[Ticket]] = field(default_factory=dict)
    """by requester, in the order of their turns"""
    _who: dict[str, tuple[str, Ticket]] = field(default_factory=dict)
    """by UID of the claim"""
    _served: dict[str, int] = field(default_factory=dict)
    """when a requester was served last"""
    _count: int = 0
    _turns: dict[str, Turn] = field(default_factory=dict)
    """by requester"""
    _order: list[tuple[Turn, str]] = field(default_factory=list)
    """all of these, in order"""
    _many: set[str] = field(default_factory=set)
    """requesters with more than one claim"""

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
        self._settle(requester)

    def leave(self, uid: str, *, served: bool = False) -> None:
        """It waits no longer. `served`: because it got a machine, which was its requester's turn."""
        if uid not in self._who:
            return
        requester, ticket = self._who.pop(uid)
        own = self._own[requester]
        del own[bisect_left(own, ticket)]
        if not own:
            del self._own[requester]
        if served:
            self._count += 1
            self._served[requester] = self._count
        if not self._who:
            self._served.clear()  # nobody waits, so nobody's turn was passed over
        self._settle(requester)

    def place(self, uid: str) -> int:
        """How many will have been served when it is: 1 is the next one. One that is not in the line would be last."""
        if uid not in self._who:
            return len(self._who) + 1
        requester, ticket = self._who[uid]
        before = bisect_left(self._own[requester], ticket)
        mine = self._turns[requester]
        if not before:
            return 1 + bisect_left(self._order, (mine, requester))
        once = len(self._own) - len(self._many)
        others = ((self._turns[each], len(self._own[each])) for each in self._many if each != requester)
        return 1 + before + once + sum(min(count, before + (turn < mine)) for turn, count in others)

    def first(self, count: int) -> list[str]:
        """UIDs of the next ones."""
        found = [self._own[each][0][2] for _, each in islice(self._order, count)]
        turns, depth = [self._own[each] for _, each in self._order] if len(found) < count else [], 1
        while len(found) < count and (turns := [own for own in turns if len(own) > depth]):
            found += [own[depth][2] for own in turns]
            depth += 1
        return found[:count]

    def _settle(self, requester: str) -> None:
        """Its tickets have changed, or it was served."""
        own, known = self._own.get(requester), self._turns.pop(requester, None)
        if known is not None:
            del self._order[bisect_left(self._order, (known, requester))]
        self._many.discard(requester)
        if own is None:
            return
        turn = self._turns[requester] = self._served.get(requester, 0), own[0]
        insort(self._order, (turn, requester))
        if len(own) > 1:
            self._many.add(requester)
