"""Serves `console` and `vnc` of a VMI as websockets with the subprotocol `plain.kubevirt.io`, as virt-api does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import wsproto.events
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.service.callers import CLIENT_CERTIFICATE
from poolhouse.stack.engine.hypervisor import Stream, StreamWriter
from poolhouse.stack.engine.vm.subresources import StatusError

STREAMS: tuple[Stream, ...] = ("console", "vnc")
PROTOCOL = "plain.kubevirt.io"
CHUNK_BYTES = 32 * 1024
ENDED = 1000
"""code of a websocket that ends normally"""


class ClientCertificateWebsocket(WSProtocol):
    """Adds the client's certificate to the ASGI scope, as `poolhouse.service.server` does for other requests."""

    def handle_connect(self, event: wsproto.events.Request) -> None:
        super().handle_connect(event)
        connection: Any = self.transport.get_extra_info("ssl_object")
        extensions: dict[str, Any] = {CLIENT_CERTIFICATE: connection.getpeercert() if connection is not None else {}}
        self.scope["extensions"] |= extensions


def check_stream(stream: Stream, vmi: Json) -> None:
    """Raises `StatusError` if KubeVirt would refuse the stream (pkg/virt-api/rest, console.go and vnc.go)."""
    device, missing = {
        "console": ("autoattachSerialConsole", "No serial consoles are present."),
        "vnc": ("autoattachGraphicsDevice", "No graphics devices are present."),
    }[stream]
    if at(vmi, "spec", "domain", "devices", device) is False:
        raise StatusError(400, "BadRequest", missing)
    if at(vmi, "status", "phase") == "Failed" and stream == "console":
        name = vmi["metadata"]["name"]
        of = f'virtualmachineinstance.kubevirt.io "{name}"'
        raise StatusError(409, "Conflict", f"Operation cannot be fulfilled on {of}: VMI is in failed status")
    if at(vmi, "status", "phase") != "Running":
        raise StatusError(400, "BadRequest", "VMI is not running")


async def relay(
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[Any], Awaitable[None]],
    reader: asyncio.StreamReader,
    writer: StreamWriter,
) -> None:
    """Copies bytes between an accepted websocket and a stream, until one of them ends."""

    async def to_client() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await send({"type": "websocket.send", "bytes": data})
        await send({"type": "websocket.close", "code": ENDED})

    async def to_guest() -> None:
        while (message := await receive())["type"] == "websocket.receive":
            writer.write(message.get("bytes") or (message.get("text") or "").encode())
            await writer.drain()

    tasks = [asyncio.ensure_future(each()) for each in (to_client, to_guest)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
