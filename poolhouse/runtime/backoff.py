"""Computes the pauses between retries."""

import zlib
from dataclasses import dataclass


def hash_fraction(identity: str) -> float:
    """A number in [0, 1) that depends only on the identity, for jitter that is the same in each run."""
    return zlib.crc32(identity.encode()) / 2**32


@dataclass(frozen=True)
class Backoff:
    """An exponential backoff with a cap. The jitter shortens a pause by up to the fraction `spread`. It depends on
    the identity, so that replicas that lose the API server together do not retry together."""

    base_seconds: float
    cap_seconds: float
    factor: float = 2.0
    spread: float = 0.25

    def delay(self, failures: int, identity: str = "") -> float:
        """The pause after this many failures in a row."""
        if failures <= 0:
            return 0.0
        # Without the limit of 64, 2.0 ** 1024 raises OverflowError after a day of failures.
        pause = min(self.cap_seconds, self.base_seconds * self.factor ** min(failures - 1, 64))
        return pause * (1 - self.spread * hash_fraction(f"{identity}#{failures}"))
