"""Asking a component whether it is ready."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from local.components import FileProbe, HttpProbe, Probe, SocketProbe

ANSWER_SECONDS = 5.0


async def is_ready(probe: Probe) -> bool:
    """Whether the component is ready now; no answer in time is a no."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            match probe:
                case HttpProbe():
                    return await _answers_200(probe)
                case SocketProbe(path):
                    _, writer = await asyncio.open_unix_connection(str(path))
                    writer.close()
                    return True
                case FileProbe(path):
                    return path.exists()
    except (OSError, ssl.SSLError, TimeoutError, asyncio.IncompleteReadError):
        return False


async def _answers_200(probe: HttpProbe) -> bool:
    url = urlsplit(probe.url)
    # The file is read each time: authorities change while the stack runs.
    trust = ssl.create_default_context(cafile=str(probe.ca)) if url.scheme == "https" else None
    host = url.hostname or "127.0.0.1"
    reader, writer = await asyncio.open_connection(host, url.port, ssl=trust)
    try:
        path = url.path or "/"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        return status.split(b" ")[1:2] == [b"200"]
    finally:
        writer.close()
