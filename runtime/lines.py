"""Lines out of chunks, of any length up to a bound that no object reaches."""

from __future__ import annotations

LIMIT_BYTES = 32 * 1024 * 1024


class TooLong(ValueError):
    """A line that has no end: not an object of Kubernetes, which ends at a few megabytes."""


class Lines:
    """Splits a stream. A line is joined once, when its end arrives: a buffer that grows by `+=` and is searched from
    its beginning costs the square of an object's size, and `StreamReader.readline` ends at 64 KB."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty ones are left out."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for end in ended:
            lines.append(b"".join([*self._parts, end]) if self._parts else end)
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._limit:
                raise TooLong(f"a line longer than {self._limit} bytes")
        return [line for line in lines if line.strip()]

    @property
    def rest(self) -> bytes:
        """What came after the last line end. A stream that was cut leaves half an object here."""
        return b"".join(self._parts)
