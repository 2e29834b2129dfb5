"""Connects a browser to the serial console or the screen of a VM, by KubeVirt's subresources with the user's rights.

Each message is a piece of the stream. The reason with which the websocket is closed is a sentence for the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect

from poolhouse.cli.vm_streams import PLAIN_PROTOCOL
from poolhouse.console.cluster_state import Right
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound
from poolhouse.runtime.resource import VMIS, Key

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse
    from starlette.websockets import WebSocket

    from poolhouse.runtime.api import Api

STREAMED = replace(VMIS, group="subresources.kubevirt.io")
LABELS: Mapping[str, str] = {"console": "Serial console", "vnc": "Screen"}
"""what a user calls each subresource"""
IDLE_SECONDS = 30 * 60.0
"""A stream without a byte for this time is closed, because each costs connections of the API server and of KubeVirt."""
CLOSED = 4000
"""a code of websockets that is free for applications"""
CLOSED_BY_KUBEVIRT = "The connection was closed: the VM stopped or moved, or another user connected to it."
MAX_REASON_BYTES = 123
"""limit of RFC 6455 for the reason of a close"""

REFUSALS: Mapping[str, str] = {
    "No serial consoles are present": "The VM has no serial console: its autoattachSerialConsole is false.",
    "No graphics devices are present": "The VM has no screen: its autoattachGraphicsDevice is false.",
    "VMI is not running": "The VM is not running. Connect again once it runs.",
    "VMI is in failed status": "The guest has failed. Connect again once the VM runs again.",
    "Active VNC connection": "Another user is connected to the screen.",
}
"""sentences by a part of KubeVirt's message"""


def right(stream: str) -> Right:
    return Right("get", STREAMED, stream)


def sentence(error: ApiError, stream: str) -> str:
    """What the user reads if KubeVirt or the API server refuses a stream."""
    if isinstance(error, Forbidden):
        return f"You may not {right(stream)} here."
    for part, text in REFUSALS.items():
        if part in error.message:
            return text
    if isinstance(error, NotFound):
        return "The VM is not running, or it was deleted."
    return error.message


def reason(text: str) -> str:
    """The text, if necessary cut to what a websocket can be closed with."""
    if len(text.encode()) <= MAX_REASON_BYTES:
        return text
    return text.encode()[: MAX_REASON_BYTES - len("…".encode())].decode(errors="ignore") + "…"


async def connect(
    browser: WebSocket,
    api: Api,
    stream: str,
    vmi: Key,
    stop: Callable[[], Awaitable[str]],
    idle: float = IDLE_SECONDS,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Copies bytes between the browser and the VM, until one of them ends, no byte came for `idle` seconds, or `stop`
    returns why the stream must end. Accepts the browser's websocket in any case, because browsers hide why one was
    refused. `headers` are those of the answer."""
    try:
        async with api.websocket(STREAMED.path(*vmi, stream), PLAIN_PROTOCOL) as guest:
            await browser.accept(headers=headers)
            text = await _relay(browser, guest, stop, idle)
    except ApiError as error:
        await browser.accept(headers=headers)
        text = sentence(error, stream)
    with suppress(RuntimeError, WebSocketDisconnect):  # the browser has closed it
        await browser.close(CLOSED, reason(text))


async def _relay(
    browser: WebSocket, guest: ClientWebSocketResponse, stop: Callable[[], Awaitable[str]], idle: float
) -> str:
    """Why it has ended."""
    loop = asyncio.get_running_loop()

    async def to_browser() -> None:
        async for message in guest:
            deadline.reschedule(loop.time() + idle)
            await browser.send_bytes(message.data if isinstance(message.data, bytes) else str(message.data).encode())

    async def to_guest() -> None:
        async for data in browser.iter_bytes():
            deadline.reschedule(loop.time() + idle)
            await guest.send_bytes(data)

    copying = {asyncio.ensure_future(to_browser()), asyncio.ensure_future(to_guest())}
    stopping = asyncio.ensure_future(stop())
    ends = {*copying, stopping}
    try:
        async with asyncio.timeout(idle) as deadline:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # If the browser has ended it, nobody reads the reason.
        return CLOSED_BY_KUBEVIRT if done & copying else stopping.result()
    except TimeoutError:
        return f"Nothing was sent for {idle / 60:g} minutes."
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
