"""Who is at the other end of a TLS connection: uvicorn knows, and does not tell its application."""

from __future__ import annotations

from typing import Any

from service.server import DeadlineProtocol


class Peer(DeadlineProtocol):
    """Puts the certificate that the client has shown, if it has shown one, into the scope."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        connection: Any = self.transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        self.scope["extensions"] = {"poolhouse.peer": certificate or {}}
