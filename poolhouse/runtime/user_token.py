"""Sends requests with the token of a user to the API server of another configuration."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse.runtime.transport import RestConfig


class UserToken:
    """The address of a configuration, with the token of a user in the place of its credentials."""

    def __init__(self, config: RestConfig, token: Callable[[], str]) -> None:
        self.host, self.server_name, self.proxy = config.host, config.server_name, config.proxy
        # A client certificate would take precedence over the token.
        self.tls: ssl.SSLContext = config.anonymous_tls
        self.anonymous_tls = self.tls
        self._token = token

    async def authorization(self) -> str | None:
        return f"Bearer {self._token()}"

    async def renew(self) -> bool:
        return False
