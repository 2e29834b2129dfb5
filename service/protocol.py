"""HTTP/1.1 for peers that may be slow on purpose: a request that does not come in time is not waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Go's clients, the API server among them, keep connections for 90 s, also such as they have made and not used yet. One
# that we close just as a request is on its way costs that request: it is a POST, which they don't send again.
IDLE_SECONDS = 120.0
HEAD_SECONDS = 5.0
HEAD_BYTES = 64 * 1024
# Apps have their own, shorter deadlines for reading a body. This one is for what still trickles in after their answer.
BODY_SECONDS = 30.0


class Guarded(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits for ever for the rest of a request and keeps headers of any size."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # None while no head is being read
        self._silent = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._within(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._silent:
            self._silent = False
            self._within(HEAD_SECONDS)
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's head is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        if self._deadline is None:
            self._within(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        self._within(BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._done()
        super().on_message_complete()

    def _within(self, seconds: float) -> None:
        self._done()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _done(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        # Aborted, not closed: a peer that doesn't send may not read either, and then closing waits for it.
        self.transport.abort()
