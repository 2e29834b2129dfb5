"""Runs a command in a container of a Pod, and returns what it prints, by `exec` over a websocket as kubectl does.

The first byte of each message is the number of its stream. The last message has the exit status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from poolhouse.runtime.resource import PODS

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

PROTOCOL = "v4.channel.k8s.io"
"""Every release of Kubernetes has it, and API servers pass it on to the kubelet unchanged."""
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3
MAX_MESSAGE_CHARACTERS = 300


class CommandFailed(Exception):
    """The command failed, printed too much or did not end. The message has the end of its error output."""


async def run(
    api: Api,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    max_bytes: int,
    timeout_seconds: float,
) -> bytes:
    """The output of the command. Raises ApiError if the API server or the kubelet refuses it, and CommandFailed if the
    command fails or does not end in time."""
    options = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query = urlencode([*options, *(("command", part) for part in command)])
    path = f"{PODS.path(namespace, pod, 'exec')}?{query}"
    streams = {_OUTPUT: bytearray(), _ERRORS: bytearray(), _STATUS: bytearray()}
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            api.websocket(path, PROTOCOL, max_message_bytes=max_bytes) as socket,
        ):
            async for message in socket:  # ends when the server closes the websocket, and after a message too long
                data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
                if data and data[0] in streams:
                    streams[data[0]] += data[1:]
                if sum(map(len, streams.values())) > max_bytes:
                    raise CommandFailed(f"the command printed more than {max_bytes} bytes")
    except TimeoutError as error:
        raise CommandFailed(f"the command did not end within {timeout_seconds:g} s") from error
    if (failure := _failure(bytes(streams[_STATUS]), bytes(streams[_ERRORS]))) is not None:
        raise CommandFailed(failure)
    return bytes(streams[_OUTPUT])


def _failure(status: bytes, errors: bytes) -> str | None:
    """Why the command failed; None if it succeeded. Without a status, the connection ended before the command."""
    try:
        found = json.loads(status)
        if found["status"] == "Success":
            return None
        message = str(found.get("message") or found)
    except (ValueError, LookupError, TypeError, AttributeError):
        message = "the connection ended before the command"
    printed = errors.decode(errors="replace").strip()
    return f"{message}: {printed}"[-MAX_MESSAGE_CHARACTERS:] if printed else message[-MAX_MESSAGE_CHARACTERS:]
