"""Templates, forms and headers, for the console and the portal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

from poolhouse.cli.output import Failed


def templates(directory: Path) -> Environment:
    """The templates of a directory. They escape values, and an unknown variable is an error."""
    return Environment(
        loader=FileSystemLoader(directory),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def digest(html: str) -> str:
    """A short hash, by which a browser knows whether it has this HTML."""
    return hashlib.blake2b(html.encode(), digest_size=8).hexdigest()


async def form(request: Request, max_bytes: int) -> dict[str, str]:
    """The fields of a form. Raises `Failed` for a body that is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise Failed(f"the form must be at most {max_bytes} bytes")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def request_headers(scope: Scope) -> dict[str, str]:
    """The headers of a request, by lower-case names."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Adds headers to the response, also to that of a refused websocket."""

    async def guarded(message: Message) -> None:
        if message["type"].endswith("http.response.start"):
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return guarded
