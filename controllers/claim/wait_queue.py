"""The claims that wait for VMs of one pool, and the order in which they are served.

Requesters are served in turn, and the claims of one requester in order of arrival. A requester with a thousand claims
therefore delays another requester by one VM. A requester that was served moves to the end of the turns. Positions are
read often, so the turns are sorted. A position needs a binary search, and one step for each requester with several
claims.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import islice

Ticket = tuple[str, str, str]
"""Sort key of one requester's claims: creationTimestamp (whole seconds), first observation, and UID."""
Turn = tuple[int, Ticket]
"""Sort key of requesters: the number of the last service of the requester, and its first ticket."""


@dataclass
class WaitQueue:
    _tickets: dict[str, list[Ticket]] = field(default_factory=dict)
    """sorted tickets, by requester"""
    _claims: dict[str, tuple[str, Ticket]] = field(default_factory=dict)
    """each waiting claim's requester and ticket, by UID of the claim"""
    _last_served: dict[str, int] = field(default_factory=dict)
    """the number of the last service, by requester"""
    _served: int = 0
    _turns: dict[str, Turn] = field(default_factory=dict)
    """the key is the requester"""
    _order: list[tuple[Turn, str]] = field(default_factory=list)
    """sorted turns, with the requester"""
    _with_several: set[str] = field(default_factory=set)
    """requesters with more than one claim"""

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, uid: str) -> bool:
        return uid in self._claims

    def join(self, requester: str, created_at: str, uid: str, *, observed_at: str = "") -> None:
        """`observed_at` must sort as text, and must not change if the claim joins again."""
        if uid in self._claims:
            return
        ticket = (created_at, observed_at, uid)
        self._claims[uid] = (requester, ticket)
        insort(self._tickets.setdefault(requester, []), ticket)
        self._update_turn(requester)

    def leave(self, uid: str, *, served: bool = False) -> None:
        """`served`: the claim got a VM, so the requester moves to the end of the turns."""
        if uid not in self._claims:
            return
        requester, ticket = self._claims.pop(uid)
        tickets = self._tickets[requester]
        del tickets[bisect_left(tickets, ticket)]
        if not tickets:
            del self._tickets[requester]
        if served:
            self._served += 1
            self._last_served[requester] = self._served
        if not self._claims:
            self._last_served.clear()  # an empty queue needs no order of requesters
        self._update_turn(requester)

    def position(self, uid: str) -> int:
        """The number of claims that are served up to and including this claim. A claim outside the queue would be the
        last."""
        if uid not in self._claims:
            return len(self._claims) + 1
        requester, ticket = self._claims[uid]
        earlier = bisect_left(self._tickets[requester], ticket)
        turn = self._turns[requester]
        if not earlier:
            return 1 + bisect_left(self._order, (turn, requester))
        with_one = len(self._tickets) - len(self._with_several)
        others = ((self._turns[each], len(self._tickets[each])) for each in self._with_several if each != requester)
        return 1 + earlier + with_one + sum(min(count, earlier + (other < turn)) for other, count in others)

    def first(self, count: int) -> list[str]:
        """UIDs of the next `count` claims."""
        found = [self._tickets[each][0][2] for _, each in islice(self._order, count)]
        rounds, depth = [self._tickets[each] for _, each in self._order] if len(found) < count else [], 1
        while len(found) < count and (rounds := [tickets for tickets in rounds if len(tickets) > depth]):
            found += [tickets[depth][2] for tickets in rounds]
            depth += 1
        return found[:count]

    def _update_turn(self, requester: str) -> None:
        tickets, previous = self._tickets.get(requester), self._turns.pop(requester, None)
        if previous is not None:
            del self._order[bisect_left(self._order, (previous, requester))]
        self._with_several.discard(requester)
        if tickets is None:
            return
        turn = self._turns[requester] = self._last_served.get(requester, 0), tickets[0]
        insort(self._order, (turn, requester))
        if len(tickets) > 1:
            self._with_several.add(requester)
