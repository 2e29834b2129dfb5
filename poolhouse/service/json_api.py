"""Serves POST endpoints that accept and return a JSON object. The caller's token authorizes the request."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from poolhouse.service.cpu_lane import BudgetSpent, CpuLane, compute
from poolhouse.service.request_body import BodyReader, RequestRefused, parse
from poolhouse.service.strict_json import Json

Endpoint = Callable[[Json, str], Awaitable[tuple[int, Json]]]
"""A function of the request's object and the caller's token that returns a status and an object."""
Authenticate = Callable[[str], Awaitable[tuple[int, Json] | None]]
"""A function of the caller's token that returns the answer to a token that nobody knows, or None."""

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 32
MAX_IN_FLIGHT_OF_CALLER = 4
"""limit for the requests of one token, so that one caller does not take the places of all"""
PARSE_SECONDS = 1.0
"""limit for the processor time of a body; the largest take half of it"""
HEADERS: Mapping[int, list[tuple[bytes, bytes]]] = {
    401: [(b"www-authenticate", b"Bearer")],
    405: [(b"allow", b"POST")],
    429: [(b"retry-after", b"1")],
    503: [(b"retry-after", b"1")],
}
"""headers that the statuses require, or by which clients know what to do"""


def with_endpoints(app: Any, endpoints: Mapping[str, Endpoint], authenticate: Authenticate) -> Any:
    """An ASGI app that serves the endpoints, by path, and passes all other requests to `app`. The app refuses requests
    beyond `MAX_IN_FLIGHT` and `MAX_IN_FLIGHT_OF_CALLER`, so that endpoints cannot block the service.

    A token that nobody knows is refused before its body is read. Bodies are parsed beside the event loop, in turns of
    their callers."""
    bodies, lane = BodyReader(), CpuLane(budget_seconds=PARSE_SECONDS, max_per_tenant=MAX_IN_FLIGHT_OF_CALLER)
    in_flight: Counter[str] = Counter()

    async def answer_request(scope: Any, receive: Any, token: str, caller: str) -> tuple[int, Json]:
        try:
            if refused := await authenticate(token):
                return refused
            async with bodies.raw(scope, receive) as body:
                with lane.enter(caller, len(body)):
                    document = await compute(parse, body)
                return await endpoints[scope["path"]](document, token)
        except RequestRefused as error:
            return error.status, problem_body(error.message)
        except BudgetSpent:
            return 413, problem_body(f"the body needs more than {PARSE_SECONDS:g} s of processor time")
        except Exception:
            log.exception("%s failed", scope["path"])
            return 500, problem_body("internal error; the service's log has the details")

    async def serve_endpoint(scope: Any, receive: Any, send: Any) -> None:
        token = bearer_token(scope["headers"])
        if not token:
            await _send(send, 401, problem_body("send a Kubernetes token: Authorization: Bearer TOKEN"))
            return
        caller = hashlib.sha256(token.encode()).hexdigest()
        if in_flight.total() >= MAX_IN_FLIGHT or in_flight[caller] >= MAX_IN_FLIGHT_OF_CALLER:
            await _send(send, 429, problem_body("too many requests at once; try again in a second"))
            return
        in_flight[caller] += 1
        try:
            status, body = await answer_request(scope, receive, token, caller)
        finally:
            in_flight[caller] -= 1
            if not in_flight[caller]:
                del in_flight[caller]
        await _send(send, status, body)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in endpoints:
            await app(scope, receive, send)
        elif scope["method"] != "POST":
            problem = problem_body("this path accepts only POST with a JSON object")
            await _send(send, 405, problem)
        else:
            await serve_endpoint(scope, receive, send)

    return outer


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    given = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1")
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _send(send: Any, status: int, document: Json) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += HEADERS.get(status, ())
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem_body(message: str, path: str = "") -> Json:
    """The body of an error, in the form of all errors of the services."""
    return {"problems": [{"path": path, "message": message}]}
