"""Opens the serial console and the display of a domain."""

import asyncio
import os
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lxml import etree

from poolhouse.stack.engine.hypervisor import HypervisorRefused, Pair, Stream

RETRY_SECONDS = 0.02


def stream_file(domain: str, stream: Stream) -> str:
    """The path of the console's pseudo-terminal, or of the display's Unix socket, in the XML of a running domain."""
    path = "devices/graphics/listen/@socket" if stream == "vnc" else "devices/serial/source/@path"
    element, _, attribute = path.rpartition("/@")
    found = etree.fromstring(domain).find(element)
    if found is None or attribute not in found.attrib:
        raise HypervisorRefused(f"the VM was started without a {stream}; restart it")
    return str(found.get(attribute))


@asynccontextmanager
async def open_stream(path: str, stream: Stream) -> AsyncIterator[Pair]:
    """The streams to and from the guest. Raises `HypervisorRefused` if the domain has just ended."""
    try:
        reader, writer = await (asyncio.open_unix_connection(path) if stream == "vnc" else _open_terminal(path))
    except OSError as error:
        raise HypervisorRefused(f"{path}: {error.strerror}") from error
    try:
        yield reader, writer
    finally:
        writer.close()


async def _open_terminal(path: str) -> Pair:
    terminal = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    tty.setraw(terminal)
    reader, writing = asyncio.StreamReader(), os.dup(terminal)
    protocol = asyncio.StreamReaderProtocol(reader)
    reading, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(terminal, "rb", 0))
    return reader, TerminalWriter(writing, reading)


class TerminalWriter:
    """Writes to a terminal without a transport, because uvloop's also reads, and drops what it reads."""

    def __init__(self, terminal: int, reading: asyncio.ReadTransport) -> None:
        self._terminal, self._reading, self._waiting = terminal, reading, b""

    def write(self, data: bytes) -> None:
        self._waiting += data

    async def drain(self) -> None:
        while self._waiting:
            try:
                self._waiting = self._waiting[os.write(self._terminal, self._waiting) :]
            except BlockingIOError:  # the guest does not read
                await asyncio.sleep(RETRY_SECONDS)

    def close(self) -> None:
        os.close(self._terminal)
        self._reading.close()
