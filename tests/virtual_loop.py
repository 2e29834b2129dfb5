"""An event loop with virtual time, which advances only when no task can run: an hour of pauses takes a millisecond."""

from __future__ import annotations

import asyncio
import selectors

# Sockets between two tasks of the loop are ready at once; threads and other processes need a moment.
MOMENT_SECONDS = 0.001
STUCK_SECONDS = 120.0


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            ready = super().select(STUCK_SECONDS)
            if not ready:
                raise RuntimeError("deadlock: no task can run and no timer is set")
            return ready
        ready = super().select(MOMENT_SECONDS)
        if not ready:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now
