"""The claims that wait for VMs of one pool, and the order in which they are served.

Requesters take turns; the claims of one requester are served first come, first served. So a requester with a thousand
claims delays another requester by one VM, not by a thousand. A requester that was served goes to the end of the turns.

Each waiting claim asks for its position again and again. So the turns are kept sorted, and a position costs a binary
search plus one step for each requester with more than one claim.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import islice

Ticket = tuple[str, str, str]
"""Orders the claims of one requester: creationTimestamp (whole seconds), when the controller saw it, and its UID."""
Turn = tuple[int, Ticket]
"""Orders requesters: the number of the requester's last service, then its first ticket."""


@dataclass
class WaitQueue:
    _tickets: dict[str, list[Ticket]] = field(default_factory=dict)
    """by requester, sorted"""
    _claims: dict[str, tuple[str, Ticket]] = field(default_factory=dict)
    """requester and ticket, by UID of the claim"""
    _last_served: dict[str, int] = field(default_factory=dict)
    """by requester"""
    _served: int = 0
    _turns: dict[str, Turn] = field(default_factory=dict)
    """by requester"""
    _order: list[tuple[Turn, str]] = field(default_factory=list)
    """turns and requesters, sorted"""
    _with_several: set[str] = field(default_factory=set)
    """requesters with more than one claim"""

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, uid: str) -> bool:
        return uid in self._claims

    def join(self, requester: str, created_at: str, uid: str, *, observed_at: str = "") -> None:
        """`observed_at` sorts as text, and must be the same when the claim joins again."""
        if uid in self._claims:
            return
        ticket = (created_at, observed_at, uid)
        self._claims[uid] = (requester, ticket)
        insort(self._tickets.setdefault(requester, []), ticket)
        self._update_turn(requester)

    def leave(self, uid: str, *, served: bool = False) -> None:
        """`served`: the claim got a VM, which uses up its requester's turn."""
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
            self._last_served.clear()  # an empty queue owes no requester a turn
        self._update_turn(requester)

    def position(self, uid: str) -> int:
        """How many claims will have been served when this one is: 1 is next. A claim outside the queue would be the
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
        """UIDs of the claims that are served next."""
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
