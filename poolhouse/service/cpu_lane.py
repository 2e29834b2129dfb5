"""Runs the computations of costly requests in one thread, apart from the event loop.

A service handles a usual request in a millisecond or two, on its event loop. A document of hundreds of devices takes a
hundred times as long, and would delay all other requests. Its computations run in the lane instead, one after another:

    with lane.enter(tenant, cost):                # only for a costly request
        document = await compute(parse, body)     # in the lane; without `enter`, at once

Only functions that write nothing run in the lane. A handler itself stays on the event loop, whose memories and clients
are not safe for threads. It waits for a turn at each `compute`, so it gathers what it computes into two functions:
one before its calls to other services, and one after them.

Tenants share the lane as they share the workers of a `FairQueue`. A request may use `budget_seconds` of processor time
in total, and is given up between two computations after that. A computation itself is not interrupted: its time is
bounded by the limits on documents.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import thread_time
from typing import TypeVar

from poolhouse.service.fair_queue import FairQueue, TenantQueueFull

T = TypeVar("T")

SWITCH_SECONDS = 0.001
"""Setting for `sys.setswitchinterval`: the event loop waits no longer than this for the lane's thread to let it run."""


class LaneFull(Exception):
    """Too many computations of the tenant wait."""


class BudgetSpent(Exception):
    """The request has used its processor time."""


@dataclass
class _Request:
    lane: "CpuLane"
    tenant: str
    cost: int
    spent_seconds: float = 0.0


_current: ContextVar[_Request | None] = ContextVar("costly_request", default=None)


async def compute(function: Callable[..., T], *arguments: object) -> T:
    """The result of a function without input and output. Raises `LaneFull` or `BudgetSpent` in a costly request."""
    request = _current.get()
    return function(*arguments) if request is None else await request.lane._run(request, function, arguments)


def is_costly() -> bool:
    """Whether the current request uses a lane, so that its own cost may be why it is late."""
    return _current.get() is not None


class CpuLane:
    def __init__(self, *, budget_seconds: float, max_per_tenant: int, thread: Executor | None = None) -> None:
        """`thread` runs one function at a time; by default, it is a thread of the lane's own."""
        self._budget_seconds = budget_seconds
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(max_per_tenant=max_per_tenant, costly=0)
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="costly")
        self._busy = False

    def __len__(self) -> int:
        """The number of computations that wait."""
        return len(self._queue)

    @contextmanager
    def enter(self, tenant: str, cost: int) -> Iterator[None]:
        """Makes the current request a costly one. `cost` is its share of the lane, in any unit."""
        _current.set(_Request(self, tenant, cost))
        try:
            yield
        finally:
            _current.set(None)

    async def _run(self, request: _Request, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        await self._turn(request)
        loop = asyncio.get_running_loop()
        try:
            result, seconds = await loop.run_in_executor(self._thread, _timed, function, arguments)
        finally:
            self._end_turn()
        request.spent_seconds += seconds
        if request.spent_seconds > self._budget_seconds:
            raise BudgetSpent
        return result

    async def _turn(self, request: _Request) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._queue.push(turn, request.tenant, request.cost)
        except TenantQueueFull:
            raise LaneFull from None
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was this request's turn already
                self._end_turn()
            raise

    def _start_next(self) -> None:
        if self._busy:
            return
        turn = self._queue.pop(costly=True, wanted=lambda each: not each.done())
        if turn is not None:
            self._busy = True
            turn.set_result(None)

    def _end_turn(self) -> None:
        self._busy = False
        self._start_next()


def _timed(function: Callable[..., T], arguments: tuple[object, ...]) -> tuple[T, float]:
    began = thread_time()
    return function(*arguments), thread_time() - began
