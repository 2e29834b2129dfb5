"""An event loop with virtual time, which advances only when no task can run: an hour of pauses takes a millisecond."""

from __future__ import annotations

import asyncio
import selectors

# Sockets between two tasks of the loop are ready at once; threads and other processes need a moment.
MOMENT_SECONDS = 0.001
STUCK_SECONDS = 120.0
TURN_SECONDS = 1e-6


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop
    moment_seconds: float

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Each turn takes some time, or a task that waits for less than a float can express would never end.
        self.loop.now += TURN_SECONDS
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            ready = super().select(STUCK_SECONDS)
            if not ready:
                raise RuntimeError("deadlock: no task can run and no timer is set")
            return ready
        ready = super().select(self.moment_seconds)
        if not ready:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, moment_seconds: float = MOMENT_SECONDS) -> None:
        """A loop without sockets, threads and processes needs no moment."""
        self.now = 1000.0
        selector = _Selector()
        selector.loop, selector.moment_seconds = self, moment_seconds
        super().__init__(selector)

    def time(self) -> float:
        return self.now
