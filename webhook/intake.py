"""Reading a request's body: no longer than a while, no more than a limit, and not more at once than memory allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request

from webhook.body import Unreadable, acceptable, parse, within_limit


class Intake:
    """`held_bytes` bounds the bodies that are being worked on, all requests together. A document takes about ten times
    the memory of its text, and a thousand people may each send the largest one that is allowed."""

    def __init__(self, *, seconds: float = 5.0, held_bytes: int = 32 * 1024 * 1024) -> None:
        self._seconds = seconds
        self._free_bytes = held_bytes

    @asynccontextmanager
    async def document(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        """The JSON object in the body, for as long as the request is worked on. Raises `Unreadable`."""
        headers = request.headers
        acceptable(headers.get("content-type"), headers.get("content-encoding"), headers.get("content-length"))
        taken = 0
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.stream():
                    taken += len(part)
                    self._free_bytes -= len(part)
                    within_limit(taken)
                    if self._free_bytes < 0:
                        raise Unreadable(
                            429, "too many large requests at once; try again in a second", retry_after_seconds=1
                        )
                    parts.append(part)
            yield parse(b"".join(parts))
        except TimeoutError:
            raise Unreadable(408, f"the body did not arrive within {self._seconds:g} s") from None
        except ClientDisconnect:
            raise Unreadable(400, "the body ended before it was whole") from None
        finally:
            self._free_bytes += taken
