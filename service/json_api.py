"""Questions in JSON over HTTP, beside a service's health: POST an object to a path, get an object.

Who asks brings a Kubernetes token, and is told what its owner may know.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Answer = Callable[[Json, str], Awaitable[tuple[int, Json]]]
"""from the object that was sent, and the token of who sent it, to a status and an object"""

BODY_LIMIT_BYTES = 3 * 1024 * 1024
AT_ONCE = 4


def answering(app: Any, answers: Mapping[str, Answer]) -> Any:
    """An ASGI app that answers POSTs to these paths, and gives everything else to `app`.

    Without a token, or with a body that is too large, no JSON or no object, the answer is a 4xx with a sentence, and so
    it is to the fifth question while four are being thought about: a service has other work to do.
    """
    thinking = 0

    async def question(scope: Any, receive: Any, send: Any) -> None:
        nonlocal thinking
        token = _bearer(scope["headers"])
        if not token:
            await _send(send, 401, _problem("send a Kubernetes token: Authorization: Bearer TOKEN"))
            return
        if thinking >= AT_ONCE:
            await _send(send, 429, _problem("too many questions at once; ask again"))
            return
        thinking += 1
        try:
            status, body = await _answered(answers[scope["path"]], await _body(receive), token)
        finally:
            thinking -= 1
        await _send(send, status, body)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in answers:
            await app(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, 405, _problem("POST an object here"))
        else:
            await question(scope, receive, send)

    return outer


async def _answered(answer: Answer, body: bytes | None, token: str) -> tuple[int, Json]:
    if body is None:
        return 413, _problem(f"the body must be smaller than {BODY_LIMIT_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        return 400, _problem(f"the body is not JSON: {error}")
    if not isinstance(document, dict):
        return 400, _problem("the body must be a JSON object")
    return await answer(document, token)


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    given = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1")
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _body(receive: Any) -> bytes | None:
    """None when it is too large."""
    found = bytearray()
    while True:
        message = await receive()
        found += message.get("body", b"")
        if len(found) >= BODY_LIMIT_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(found)


async def _send(send: Any, status: int, answer: Json) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _problem(message: str) -> Json:
    return {"problems": [{"path": "", "message": message}]}
