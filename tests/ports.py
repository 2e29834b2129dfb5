"""Ports for servers that a test has to know before they listen, or while they don't."""

from __future__ import annotations

import random

from local.ports import FIRST, is_free

LOWEST = FIRST - 6000


def free_port() -> int:
    """Below those of stacks, and of outgoing connections: one of these could take it before the server listens, or
    between two of its lives. By chance, for other tests look for theirs at the same moment."""
    return next(port for port in iter(lambda: random.SystemRandom().randrange(LOWEST, FIRST), None) if is_free(port))
