"""Chooses the ports of the stack. A port stays the same from one `up` to the next while it is free."""

import json
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

# The range is below the kernel's ephemeral ports, so that no outgoing connection takes a port before its server starts.
FIRST, COUNT = 18000, 14000


def choose_ports(
    names: Iterable[str], stack: str, recorded: Mapping[str, int], is_free: Callable[[int], bool]
) -> dict[str, int]:
    """Returns a free port for each name: the recorded port, or else the first free port of a search. The search begins
    at a hash of stack and name, so that stacks that start at the same time try different ports."""
    chosen: dict[str, int] = {}
    for name in names:
        if (port := recorded.get(name)) and port not in chosen.values() and is_free(port):
            chosen[name] = port
            continue
        start = zlib.crc32(f"{stack}\0{name}".encode())
        candidates = (FIRST + (start + step) % COUNT for step in count())
        chosen[name] = next(port for port in candidates if port not in chosen.values() and is_free(port))
    return chosen


def load_ports(names: Iterable[str], stack: str, record: Path, is_free: Callable[[int], bool]) -> dict[str, int]:
    """Calls `choose_ports` with the ports recorded in a file, and records the result."""
    try:
        recorded = json.loads(record.read_text())
    except (OSError, ValueError):
        recorded = {}
    chosen = choose_ports(names, stack, recorded, is_free)
    record.write_text(json.dumps({**recorded, **chosen}, indent=2) + "\n")
    return chosen


class PortReservations:
    """Reserves ports until this process ends, so that no other stack takes them before a server listens."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Reserves the port. Returns False if the port is in use or reserved."""
        # Only one process can bind the name of an abstract socket. The kernel releases the name when the process ends.
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0poolhouse-port-{port}")
            with socket.socket() as probe:
                # With SO_REUSEADDR, which servers set too, a port with connections in TIME_WAIT counts as free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            return False
        self._sockets.append(reservation)
        return True
