"""Starts the portal with settings from the environment."""

from __future__ import annotations

import asyncio
import logging
import sys
from time import time
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from poolhouse.console.vm_usage import DEADLINE_SECONDS
from poolhouse.portal.app import Portal
from poolhouse.portal.consoles import Consoles
from poolhouse.portal.provider import Provider, new_http_session
from poolhouse.portal.queries import Queries
from poolhouse.portal.session import Cookies
from poolhouse.portal.settings import Settings
from poolhouse.portal.users import Users
from poolhouse.runtime.api import Api
from poolhouse.service import lifecycle
from poolhouse.service.cpu_lane import SWITCH_SECONDS
from poolhouse.service.prometheus import connect as connect_prometheus
from poolhouse.service.server import serve

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
CALLS_PER_USER = 16
"""how many requests of one user may be in flight at the API server, of 64"""
WEBSOCKETS: dict[str, Any] = {"ws": WSProtocol, "ws_per_message_deflate": False, "ws_max_size": 1024 * 1024}
"""A compressed message of a user could become a thousand times as large in memory."""


async def run(settings: Settings) -> None:
    # A reflector warns of each right that a user lacks. The pages of the console show it to the user instead.
    logging.getLogger("poolhouse.runtime.reflector").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_SECONDS)
    async with (
        await Api.connect(user_agent="poolhouse-portal", max_per_namespace=CALLS_PER_USER) as api,
        new_http_session(settings) as session,
        connect_prometheus(settings.prometheus, DEADLINE_SECONDS) as prometheus,
    ):
        provider = Provider(settings, session, time)
        users = Users(api, provider, settings, time)
        cookies = Cookies(settings.session_key, round(settings.session_hours * 3600), settings.names)
        consoles = Consoles(users, settings.max_consoles, time, Queries(prometheus) if prometheus else None)
        app = Portal(settings, users, provider, cookies, consoles, time).app()
        log.info("serving the portal %s on %s:%d", settings.url, settings.host, settings.port)
        options = {"drain_seconds": DRAIN_SECONDS, **WEBSOCKETS}
        # Both are cancelled at once, because the server waits for the streams, which end with the consoles.
        async with asyncio.TaskGroup() as group:
            group.create_task(consoles.run(), name="consoles")
            group.create_task(serve(app, settings.host, settings.port, settings.tls, **options), name="server")


def main() -> int:
    return lifecycle.start("portal", Settings.read, run)
