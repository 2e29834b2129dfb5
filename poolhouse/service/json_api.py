"""Serves POST endpoints that accept and return a JSON object. The caller's token authorizes the request."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.cpu_lane import BudgetSpent, CpuLane, compute
from poolhouse.service.held_counter import HeldCounter
from poolhouse.service.request_body import BodyReader, RequestRefused, parse

Endpoint = Callable[[Json, str], Awaitable[tuple[int, Json]]]
"""A function of the request's object and the caller's token that returns a status and an object."""
Authenticate = Callable[[str], Awaitable[str | tuple[int, Json]]]
"""A function of the caller's token that returns the caller's tenant, or the answer to a token that nobody knows."""

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 32
MAX_IN_FLIGHT_OF_TENANT = 4
"""limit for the requests of one token, and of one tenant, who may have many tokens"""
PARSE_SECONDS = 1.0
"""limit for the processor time of a body; the largest take half of it"""
HEADERS: Mapping[int, list[tuple[bytes, bytes]]] = {
    401: [(b"www-authenticate", b"Bearer")],
    405: [(b"allow", b"POST")],
    429: [(b"retry-after", b"1")],
    503: [(b"retry-after", b"1")],
}
"""headers that the statuses require, or by which clients know what to do"""


class JsonApi:
    """An ASGI app that serves the endpoints, by path, and passes all other requests to `app`. It refuses requests
    beyond `MAX_IN_FLIGHT` and `MAX_IN_FLIGHT_OF_TENANT`, so that endpoints cannot block the service.

    A token that nobody knows is refused before its body is read. Bodies are parsed beside the event loop, in turns of
    tenants."""

    def __init__(self, app: Any, endpoints: Mapping[str, Endpoint], authenticate: Authenticate) -> None:
        self._app, self._endpoints, self._authenticate = app, endpoints, authenticate
        self._bodies = BodyReader()
        self._lane = CpuLane(budget_seconds=PARSE_SECONDS, max_per_tenant=MAX_IN_FLIGHT_OF_TENANT)
        self._in_flight = HeldCounter[str]()
        """requests: all, by token, and by tenant"""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in self._endpoints:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, 405, problem_body("this path accepts only POST with a JSON object"))
        else:
            await _send(send, *await self._answer(scope, receive))

    async def _answer(self, scope: Any, receive: Any) -> tuple[int, Json]:
        token = bearer_token(scope["headers"])
        if not token:
            return 401, problem_body("send a Kubernetes token: Authorization: Bearer TOKEN")
        caller = hashlib.sha256(token.encode()).hexdigest()
        try:
            with self._place("all", MAX_IN_FLIGHT), self._place(f"token {caller}"):
                tenant = await self._authenticate(token)
                if not isinstance(tenant, str):
                    return tenant
                with self._place(f"tenant {tenant}"):
                    return await self._call_endpoint(scope, receive, token, tenant)
        except RequestRefused as error:
            return error.status, problem_body(error.message)
        except BudgetSpent:
            return 413, problem_body(f"the body needs more than {PARSE_SECONDS:g} s of processor time")
        except Exception:
            log.exception("%s failed", scope["path"])
            return 500, problem_body("internal error; the service's log has the details")

    async def _call_endpoint(self, scope: Any, receive: Any, token: str, tenant: str) -> tuple[int, Json]:
        async with self._bodies.raw(scope, receive) as body:
            with self._lane.enter(tenant, len(body)):
                document = await compute(parse, body)
            return await self._endpoints[scope["path"]](document, token)

    @contextmanager
    def _place(self, of: str, most: int = MAX_IN_FLIGHT_OF_TENANT) -> Iterator[None]:
        if self._in_flight[of] >= most:
            raise RequestRefused(429, "too many requests at once; try again in a second")
        with self._in_flight.one_more(of):
            yield


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of the caller. Empty without one, and for a text that cannot be sent on in a header."""
    given = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1")
    scheme, _, token = given.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.isascii() and token.isprintable() else ""


async def _send(send: Any, status: int, document: Json) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += HEADERS.get(status, ())
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem_body(message: str, path: str = "") -> Json:
    """The body of an error, in the form of all errors of the services."""
    return {"problems": [{"path": path, "message": message}]}
