"""What the first process of a container owes the others: to wait for those whose parents are gone.

QEMU's probes are daemons: they leave their parent, end, and stay zombies until the first process takes notice. libvirt
waits for them to disappear, half a minute each. Where no init was given to the container, we are our own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def with_init(service: Callable[[], int], first: bool) -> int:
    """Runs the service and returns its exit code; below an init of our own where we are the first process."""
    if not first:
        return service()
    child = os.fork()
    if child == 0:
        os._exit(service())

    def forward(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
