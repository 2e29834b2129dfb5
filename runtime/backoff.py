"""How long to wait before trying again."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


def hash_fraction(identity: str) -> float:
    """A number in [0, 1) that looks like chance and is always the same for the same identity."""
    return zlib.crc32(identity.encode()) / 2**32


@dataclass(frozen=True)
class Backoff:
    """A pause that grows by `factor` up to a cap, less a part of up to `spread` that depends on who waits: replicas
    that failed together because the API server went away must not come back together. The part is a function of
    identity rather than of chance, so a schedule can be repeated and explained."""

    base_seconds: float
    cap_seconds: float
    factor: float = 2.0
    spread: float = 0.25

    def delay(self, failures: int, identity: str = "") -> float:
        """The pause after this many failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        # The exponent is bounded because a float is: 2.0 ** 1024 raises after a day of failing.
        whole = min(self.cap_seconds, self.base_seconds * self.factor ** min(failures - 1, 64))
        return whole * (1 - self.spread * hash_fraction(f"{identity}#{failures}"))
