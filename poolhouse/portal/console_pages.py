"""The routes below /console/: the choice of a namespace, the console of the user for it, and its streams."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from poolhouse.console.cluster_state import may_list_everywhere
from poolhouse.portal.consoles import ALL_NAMESPACES, Consoles
from poolhouse.portal.session import Session
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.resource import NAMESPACES

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from poolhouse.runtime.api import Api

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MAX_NAMES = 500


class NoConsole(Exception):
    """There is no console at this address."""


class ConsolePages:
    """Answers a request with the console of its user."""

    def __init__(
        self,
        consoles: Consoles,
        session_of: Callable[[Request], Awaitable[Session]],
        renewed: Callable[[Request, Session], Sequence[str]],
    ) -> None:
        """`renewed` renews the session if it must, and returns the cookies that the answer then sets."""
        self._consoles, self._session_of, self._renewed = consoles, session_of, renewed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, namespace = Request(scope), scope["path_params"]["namespace"]
        session = await self._session_of(request)
        cookies = self._renewed(request, session)

        async def with_cookies(message: Message) -> None:
            if message["type"] == "http.response.start":
                for each in cookies:
                    MutableHeaders(scope=message).append("set-cookie", each)
            await send(message)

        if namespace != ALL_NAMESPACES and not is_namespace(namespace):
            raise NoConsole
        async with self._consoles.use(session, namespace) as console:
            await console(scope, receive, with_cookies)


def is_namespace(text: str) -> bool:
    return NAMESPACE.fullmatch(text) is not None


async def choices(api: Api, known: Sequence[str]) -> dict[str, Any]:
    """The namespaces that a user can choose: all that the user may list, else those that the portal knows."""
    try:
        found = (await api.list(NAMESPACES))[0]
        names = [str(each["metadata"]["name"]) for each in found]
        lists = True
    except Forbidden:
        names, lists = [*known], False
    return {
        "names": sorted(names)[:MAX_NAMES],
        "more": max(0, len(names) - MAX_NAMES),
        "lists": lists,
        "everywhere": await may_list_everywhere(api),
    }
