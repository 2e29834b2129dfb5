"""Signals that end a command as Ctrl-C does: SIGTERM, and SIGHUP when its terminal is closed."""

import os
import signal
import stat
import sys
from types import FrameType

STDOUT, STDERR = 1, 2


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that would end this process at once. `nohup` ignores SIGHUP, and so do its commands."""
    return tuple(each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) == signal.SIG_DFL)


def exit_at_signals() -> tuple[signal.Signals, ...]:
    """Lets these signals raise `SystemExit`, so that the command cleans up. Returns them."""
    numbers = ending_signals()
    for number in numbers:
        signal.signal(number, _exit)
    return numbers


def received(number: int) -> None:
    """After the SIGHUP of a closed terminal, output to a terminal is discarded, because it would raise an error."""
    if number == signal.SIGHUP:
        discard(*(each for each in (STDOUT, STDERR) if _is_device(each)))


def discard(*descriptors: int) -> None:
    """Discards later output of the process, and what its buffers have."""
    with open(os.devnull, "wb") as nothing:
        for each in descriptors:
            os.dup2(nothing.fileno(), each)


def _exit(number: int, frame: FrameType | None) -> None:
    received(number)
    sys.exit(128 + number)


def _is_device(descriptor: int) -> bool:
    """Whether the output may be a terminal. A closed terminal no longer says that it was one."""
    try:
        return stat.S_ISCHR(os.fstat(descriptor).st_mode)
    except OSError:
        return False
