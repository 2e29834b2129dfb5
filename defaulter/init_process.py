"""An init process for containers that have none: reaps processes whose parents have ended.

libvirt probes QEMU with daemons, which stay zombies after they end until the init process reaps them. libvirt waits
half a minute for each zombie.
"""

import os
import signal
from collections.abc import Callable

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_under_init(service: Callable[[], int], first: bool) -> int:
    """Runs the service and returns its exit code. With `first`, this process becomes the service's init process."""
    if not first:
        return service()
    # The loop waits for signals. With handlers, a signal just before a wait for children would be missed.
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
        elif (status := _reap(child)) is not None:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _reap(child: int) -> int | None:
    """Reaps every ended process, because a signal may stand for several. Returns the child's status if it has ended."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if not ended:
            return None
