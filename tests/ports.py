"""Free ports for servers whose address a test needs before they listen."""

from __future__ import annotations

import random

from poolhouse.stack.ports import FIRST, PortReservations

LOWEST = FIRST - 6000

_reserved = PortReservations()


def free_port() -> int:
    """A port that no other call in any test process returns. It is below the ranges of stacks and of outgoing
    connections, either of which could take it before the server listens."""
    ports = iter(lambda: random.SystemRandom().randrange(LOWEST, FIRST), None)
    return next(port for port in ports if _reserved.take(port))
