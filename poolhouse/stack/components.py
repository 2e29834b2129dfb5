"""Declares what the supervisor runs: components (processes), setup steps, and readiness probes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

PROBE_SECONDS = 5.0

Echo = Callable[[str], None]
"""Shows a line of progress."""


class StackError(Exception):
    """The stack cannot run. The message gives the reason."""


@dataclass(frozen=True)
class HttpProbe:
    """The component is ready when a GET returns 200."""

    url: str
    ca: Path | None = None


@dataclass(frozen=True)
class SocketProbe:
    """The component is ready when a unix socket accepts a connection."""

    path: Path


@dataclass(frozen=True)
class FileProbe:
    """The component is ready when the file exists."""

    path: Path


@dataclass(frozen=True)
class Component:
    """A process that the supervisor starts when everything in `after` is ready, and restarts when it exits."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: HttpProbe | SocketProbe | FileProbe | None = None
    """None: the component is ready as soon as its process runs"""
    uid: int | None = None
    """None: the supervisor's user"""
    cwd: Path | None = None
    """None: the stack's directory"""
    after: tuple[str, ...] = ()
    """names of components and setup steps that must be ready first"""
    ready_seconds: float = 180
    """limit for the first start; the stack fails after it"""
    stop_seconds: float = 10
    """seconds from SIGTERM to SIGKILL"""
    restart_seconds: float = 0.2
    """pause before the first restart; doubles after each further failure"""


@dataclass(frozen=True)
class ComponentState:
    name: str
    pid: int | None = None
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    """last exit code of the process; negative for a signal"""
    end: str = ""
    """how the last process ended, as a part of a sentence"""


@dataclass(frozen=True)
class SetupStep:
    """A function that the supervisor calls once in each `up`."""

    name: str
    run: Callable[[], Awaitable[None]]
    after: tuple[str, ...] = ()


async def is_ready(probe: HttpProbe | SocketProbe | FileProbe) -> bool:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
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
    # Each probe reads the CA file, because CAs change while the stack runs.
    trust = ssl.create_default_context(cafile=str(probe.ca)) if url.scheme == "https" else None
    host = url.hostname or "127.0.0.1"
    reader, writer = await asyncio.open_connection(host, url.port, ssl=trust)
    try:
        writer.write(f"GET {url.path or '/'} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        return status.split(b" ")[1:2] == [b"200"]
    finally:
        writer.close()
