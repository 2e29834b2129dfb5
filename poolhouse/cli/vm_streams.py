"""Connects a terminal or a VNC viewer to a VM, through the subresources `console` and `vnc` of KubeVirt.

Both are websockets with the subprotocol `plain.kubevirt.io`, whose messages are the bytes of the stream. The user needs
the right to `get` the subresource of the VMI.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from poolhouse.cli.output import Failed, echo

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

    from poolhouse.runtime.api import Api

SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"
PLAIN_PROTOCOL = "plain.kubevirt.io"
ESCAPE = b"\x1d"
"""Ctrl+], which ends a console, as in virtctl and telnet"""
CHUNK_BYTES = 64 * 1024
LOOPBACK = "127.0.0.1"
VIEWERS = ("remote-viewer", "vncviewer")

Stream = Literal["console", "vnc"]


def stream_path(namespace: str, vmi: str, stream: Stream) -> str:
    return f"{SUBRESOURCES}/namespaces/{namespace}/virtualmachineinstances/{vmi}/{stream}"


def viewer_command(port: int, which: Callable[[str], str | None] = shutil.which) -> list[str] | None:
    """The command line of the first installed VNC viewer; None without one."""
    for name in VIEWERS:
        if (found := which(name)) is not None:
            address = f"vnc://{LOOPBACK}:{port}" if name == "remote-viewer" else f"{LOOPBACK}::{port}"
            return [found, address]
    return None


async def attach_console(api: Api, namespace: str, vmi: str) -> None:
    """Connects standard input and output to the serial console, until Ctrl+], the end of the input or of the VM."""
    async with api.websocket(stream_path(namespace, vmi, "console"), PLAIN_PROTOCOL) as socket:
        echo(f"connected to the console of {vmi}; Ctrl+] ends it, Enter wakes a silent one", err=True)
        with _raw_terminal():
            async with standard_input() as typed:
                sending = asyncio.ensure_future(_send_typed(typed, socket))
                printing = asyncio.ensure_future(_print_received(socket))
                await _first_of(sending, printing)
    echo("", err=True)
    if sending.cancelled():
        raise Failed(f"the console of {vmi} was closed: the VM stopped or moved, or another user connected to it")


async def serve_vnc(
    api: Api, namespace: str, vmi: str, port: int, ready: Callable[[int], Sequence[str] | None]
) -> None:
    """Forwards connections to a port on loopback to the VM's display. `ready` is called with the port, and returns the
    command line of a viewer. Ends with the viewer; without one at Ctrl-C. Raises ApiError if the VM has no display."""
    path = stream_path(namespace, vmi, "vnc")
    # The first connection is made before anybody is told of the port, so that errors are seen.
    async with api.websocket(path, PLAIN_PROTOCOL):
        pass

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from poolhouse.runtime.errors import ApiError

        try:
            async with api.websocket(path, PLAIN_PROTOCOL) as socket:
                await _first_of(
                    asyncio.ensure_future(_send_typed(reader, socket, escape=b"")),
                    asyncio.ensure_future(_write_received(socket, writer)),
                )
        except ApiError as error:
            echo(f"{vmi}: {error.message}", err=True)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(forward, LOOPBACK, port)
    except OSError as error:
        raise Failed(f"cannot listen on {LOOPBACK}:{port}: {error.strerror}; choose another --port") from None
    async with server:
        viewer = ready(server.sockets[0].getsockname()[1])
        if viewer is None:
            await server.serve_forever()
        process = await asyncio.create_subprocess_exec(*viewer or (), stdout=asyncio.subprocess.DEVNULL)
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()


async def _first_of(*tasks: asyncio.Future[None]) -> None:
    """Waits until one of the tasks ends, and cancels the others. Raises the error of the first."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for each in results if isinstance(each, Exception) and not isinstance(each, ConnectionError)]
    if failed:
        raise failed[0]


async def _send_typed(typed: asyncio.StreamReader, socket: ClientWebSocketResponse, escape: bytes = ESCAPE) -> None:
    while data := await typed.read(CHUNK_BYTES):
        before, found, _ = data.partition(escape) if escape else (data, b"", b"")
        if before:
            await socket.send_bytes(before)
        if found:
            return


async def _messages(socket: ClientWebSocketResponse) -> AsyncIterator[bytes]:
    async for message in socket:  # ends when the server closes the websocket
        yield message.data if isinstance(message.data, bytes) else str(message.data).encode()


async def _print_received(socket: ClientWebSocketResponse) -> None:
    output = sys.stdout.buffer
    async for data in _messages(socket):
        output.write(data)
        output.flush()


async def _write_received(socket: ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for data in _messages(socket):
        writer.write(data)
        await writer.drain()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Passes every key to the guest, Ctrl-C too, while standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    # These would leave the terminal without echo.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@asynccontextmanager
async def standard_input() -> AsyncIterator[asyncio.StreamReader]:
    """Standard input as a stream."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    given = sys.stdin.fileno()
    kind = os.fstat(given).st_mode
    if not (os.isatty(given) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):  # epoll refuses files and /dev/null
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
        yield reader
        return
    # The transport closes the descriptor and makes it non-blocking. In a terminal, a copy would share that with the
    # output, so the terminal is opened again.
    own = os.open(os.ttyname(given), os.O_RDONLY | os.O_NOCTTY) if os.isatty(given) else os.dup(given)
    pipe = os.fdopen(own, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        yield reader
    finally:
        transport.close()
        with suppress(OSError):
            os.set_blocking(sys.stdin.fileno(), True)
