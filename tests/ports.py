"""Ports for servers that a test has to know before they listen, or while they don't."""

from __future__ import annotations

import random

from local.ports import FIRST, PortReservations

LOWEST = FIRST - 6000

_reserved = PortReservations()


def free_port() -> int:
    """One that no other call is given until the end of the tests, in this process or beside it. Below those of stacks,
    and of outgoing connections: one of these could take it before the server listens, or between two of its lives."""
    ports = iter(lambda: random.SystemRandom().randrange(LOWEST, FIRST), None)
    return next(port for port in ports if _reserved.take(port))
