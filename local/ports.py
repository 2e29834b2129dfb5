"""Ports of the stack: the same ones from one `up` to the next, while they are free."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

# Below the range from which the kernel takes ports for outgoing connections: one of those could sit on a port of ours
# while the stack is down, or in the moment between choosing and listening.
FIRST, COUNT = 18000, 14000


def choose_ports(
    names: Iterable[str], stack: str, kept: Mapping[str, int], free: Callable[[int], bool]
) -> dict[str, int]:
    """A free port for each name: the kept one, else the first free one from a place that depends on stack and name, so
    that stacks that start at the same moment don't reach for the same ones."""
    chosen: dict[str, int] = {}
    for name in names:
        if (port := kept.get(name)) and port not in chosen.values() and free(port):
            chosen[name] = port
            continue
        start = zlib.crc32(f"{stack}\0{name}".encode())
        candidates = (FIRST + (start + step) % COUNT for step in count())
        chosen[name] = next(port for port in candidates if port not in chosen.values() and free(port))
    return chosen


def load_ports(names: Iterable[str], stack: str, record: Path, free: Callable[[int], bool]) -> dict[str, int]:
    """`choose`, from and into a file."""
    try:
        kept = json.loads(record.read_text())
    except (OSError, ValueError):
        kept = {}
    chosen = choose_ports(names, stack, kept, free)
    record.write_text(json.dumps({**kept, **chosen}, indent=2) + "\n")
    return chosen


class PortReservations:
    """Ports that no other stack of this machine gets, from when they are chosen until the end of this process. Some are
    listened on a minute later only, and a stack that starts meanwhile would find them free."""

    def __init__(self) -> None:
        self._signs: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Whether it is free; if so, it is ours."""
        # A name without a file: the kernel gives it to one process, of any user, and takes it back at its end.
        sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sign.bind(f"\0poolhouse-port-{port}")
        except OSError:
            sign.close()
            return False
        if not is_free(port):
            sign.close()
            return False
        self._signs.append(sign)
        return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose last connections linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
