"""The messages between the service and a worker: a tag, a length and a body of that length.

Requests go to the worker's standard input, responses come from its standard output. A response has an HTTP status as
its tag.
"""

import struct
from enum import IntEnum
from typing import BinaryIO

HEADER = struct.Struct("!HI")
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""limit on a message: a response is its request with a few more fields"""

Response = tuple[int, bytes]
"""an HTTP status and a body"""


class Operation(IntEnum):
    """Tags of the messages to a worker."""

    SETTINGS = 0
    """the first message; it has no response"""
    DOCUMENT = 1
    """set the defaults of a document"""
    VERSION = 2
    PROBE = 3
    """define a domain, to show that libvirt works"""
    DOMAIN = 4
    """like DOCUMENT, but the response is the domain's XML"""


def pack(tag: int, body: bytes) -> bytes:
    return HEADER.pack(tag, len(body)) + body


def receive(stream: BinaryIO) -> tuple[int, bytes] | None:
    """The next message; None at the end of the stream, even in the middle of a message."""
    header = stream.read(HEADER.size)
    if len(header) != HEADER.size:
        return None
    tag, length = HEADER.unpack(header)
    body = stream.read(length)
    return (tag, body) if len(body) == length else None
