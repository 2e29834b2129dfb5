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
        self._config, self._token = config, token

    @property
    def tls(self) -> ssl.SSLContext:
        return self._config.anonymous_tls

    @property
    def anonymous_tls(self) -> ssl.SSLContext:
        return self._config.anonymous_tls

    async def authorization(self) -> str | None:
        return f"Bearer {self._token()}"

    async def renew(self) -> bool:
        return await self._config.renew()

    async def renew_authorization(self) -> bool:
        return False
