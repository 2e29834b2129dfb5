"""An HTTP proxy with CONNECT on loopback, by which the controllers reach the agents in guests.

The guests of the stack have addresses that exist only in the status of their VMIs. The proxy lets only the controllers'
requests to agents through, so that it works without root and without a network.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8192
HEAD_SECONDS = 5.0
CHUNK_BYTES = 65536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OpenGuest = Callable[[str, int], Awaitable[Streams]]
"""Opens a connection to a port of the guest with this address. Raises OSError if nothing answers there."""


async def serve_proxy(host: str, port: int, open_guest: OpenGuest) -> NoReturn:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                await _handle(reader, writer, open_guest)
            finally:
                writer.close()

    server = await asyncio.start_server(handle, host, port, limit=MAX_HEAD_BYTES)
    async with server:
        await server.serve_forever()
    raise AssertionError("the server serves until it is cancelled")


async def _handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, open_guest: OpenGuest) -> None:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return
    target = parse_connect(head)
    if target is None:
        await _answer(writer, 405, "Method Not Allowed")
        return
    try:
        guest_reader, guest_writer = await open_guest(*target)
    except OSError as error:
        log.debug("no connection to %s port %d: %s", *target, error)
        await _answer(writer, 502, "Bad Gateway")
        return
    try:
        await _answer(writer, 200, "Connection established")
        await _join(reader, writer, guest_reader, guest_writer)
    finally:
        guest_writer.close()


def parse_connect(head: bytes) -> tuple[str, int] | None:
    """The host and port of a CONNECT request. None for another request."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


async def _answer(writer: asyncio.StreamWriter, status: int, words: str) -> None:
    writer.write(f"HTTP/1.1 {status} {words}\r\n\r\n".encode())
    await writer.drain()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    guest_reader: asyncio.StreamReader,
    guest_writer: asyncio.StreamWriter,
) -> None:
    """Copies in both directions until one side has ended."""
    copies = [asyncio.ensure_future(_copy(reader, guest_writer)), asyncio.ensure_future(_copy(guest_reader, writer))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copies:
            each.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
