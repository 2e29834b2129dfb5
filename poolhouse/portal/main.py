"""Starts the portal with settings from the environment."""

from __future__ import annotations

import logging
from time import time
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from poolhouse.portal.app import Portal
from poolhouse.portal.provider import Provider, new_http_session
from poolhouse.portal.session import Cookies
from poolhouse.portal.settings import Settings
from poolhouse.portal.users import Users
from poolhouse.runtime.api import Api
from poolhouse.service import lifecycle
from poolhouse.service.server import serve

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
CALLS_PER_USER = 16
"""how many requests of one user may be in flight at the API server, of 64"""
WEBSOCKETS: dict[str, Any] = {"ws": WSProtocol, "ws_per_message_deflate": False, "ws_max_size": 1024 * 1024}
"""A compressed message of a user could become a thousand times as large in memory."""


async def run(settings: Settings) -> None:
    async with (
        await Api.connect(user_agent="poolhouse-portal", max_per_namespace=CALLS_PER_USER) as api,
        new_http_session(settings) as session,
    ):
        provider = Provider(settings, session, time)
        users = Users(api, provider, settings, time)
        cookies = Cookies(settings.session_key, round(settings.session_hours * 3600), settings.names)
        portal = Portal(settings, users, provider, cookies, time)
        log.info("serving the portal %s on %s:%d", settings.url, settings.host, settings.port)
        await serve(portal.app(), settings.host, settings.port, settings.tls, drain_seconds=DRAIN_SECONDS, **WEBSOCKETS)


def main() -> int:
    return lifecycle.start("portal", Settings.read, run)
