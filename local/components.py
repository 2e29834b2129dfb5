"""What the supervisor runs, as values: a component is a process, a step is a step of our own between processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class HttpProbe:
    """Ready when a GET is answered with 200."""

    url: str
    ca: Path | None = None


@dataclass(frozen=True)
class SocketProbe:
    """Ready when a unix socket accepts a connection."""

    path: Path


@dataclass(frozen=True)
class FileProbe:
    """Ready when the file is there."""

    path: Path


Probe = HttpProbe | SocketProbe | FileProbe


@dataclass(frozen=True)
class Component:
    """One process of the stack, started when all that it comes after is ready and started again when it dies."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Probe | None = None
    """none: ready as soon as it runs"""
    uid: int | None = None
    """none: the supervisor's own"""
    cwd: Path | None = None
    """none: DIR"""
    after: tuple[str, ...] = ()
    """names of components and steps"""
    ready_seconds: float = 180
    """a first start that takes longer is broken"""
    stop_seconds: float = 10
    """from SIGTERM to SIGKILL"""
    restart_seconds: float = 0.2
    """the pause before the first restart; it doubles with each one that follows soon"""


@dataclass(frozen=True)
class SetupStep:
    """A step of our own that others wait for, done once in each `up`."""

    name: str
    open: Callable[[], Awaitable[None]]
    after: tuple[str, ...] = ()


class StackError(Exception):
    """The stack cannot run; the text is the sentence that a person needs."""
