"""The ports of the stack, which stay the same from one `up` to the next while they are free."""

import json
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

# Below the kernel's range for outgoing connections, one of which could take a port between choosing and listening.
FIRST, COUNT = 18000, 14000


def choose_ports(
    names: Iterable[str], stack: str, recorded: Mapping[str, int], is_free: Callable[[int], bool]
) -> dict[str, int]:
    """A free port for each name: the recorded one, else the first free one from a start that depends on stack and name.
    Stacks that start at the same moment therefore try different ports."""
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
    """`choose_ports`, with the record in a file."""
    try:
        recorded = json.loads(record.read_text())
    except (OSError, ValueError):
        recorded = {}
    chosen = choose_ports(names, stack, recorded, is_free)
    record.write_text(json.dumps({**recorded, **chosen}, indent=2) + "\n")
    return chosen


class PortReservations:
    """Ports that no other stack on this machine takes until this process ends, even before a server listens."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Whether the port was free and is now reserved."""
        # An abstract socket: the kernel gives the name to one process of any user, and releases it at the end.
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0poolhouse-port-{port}")
            with socket.socket() as probe:
                # Servers set it too: a port with lingering connections is free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            return False
        self._sockets.append(reservation)
        return True
