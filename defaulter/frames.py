"""How the service and a worker talk: a tag, a length and that many bytes, over the worker's standard streams."""

from __future__ import annotations

import struct
from typing import BinaryIO

HEADER = struct.Struct("!HI")
MOST_BYTES = 16 * 1024 * 1024
"""an answer is its request and a few fields; a length beyond this is no answer"""

SETTINGS = 0
"""the first frame; the others are requests"""
DOCUMENT = 1
VERSION = 2
PROBE = 3
DOMAIN = 4
"""as DOCUMENT, answered with the domain's XML"""


def pack(tag: int, body: bytes) -> bytes:
    return HEADER.pack(tag, len(body)) + body


def receive(stream: BinaryIO) -> tuple[int, bytes] | None:
    """The next frame; None at the end of the stream, in the middle of a frame too."""
    header = _exactly(stream, HEADER.size)
    if header is None:
        return None
    tag, length = HEADER.unpack(header)
    body = _exactly(stream, length)
    return None if body is None else (tag, body)


def _exactly(stream: BinaryIO, count: int) -> bytes | None:
    data = stream.read(count)
    return data if len(data) == count else None
