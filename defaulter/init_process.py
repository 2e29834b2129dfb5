"""What the first process of a container owes the others: to wait for those whose parents are gone.

QEMU's probes are daemons: they leave their parent, end, and stay zombies until the first process takes notice. libvirt
waits for them to disappear, half a minute each. Where no init was given to the container, we are our own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_under_init(service: Callable[[], int], first: bool) -> int:
    """Runs the service and returns its exit code; below an init of our own where we are the first process."""
    if not first:
        return service()
    # Waited for, not handled: a handler could run just before a wait for children begins, which then never ends.
    awaited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os._exit(service())
    while True:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            os.kill(child, number)
        elif (status := _ended(child)) is not None:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _ended(child: int) -> int | None:
    """Takes notice of all that have ended, as one signal may tell of many; the child's status if it is among them."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if not ended:
            return None
