"""Computes plans and statuses in threads, within a budget of processor time.

The event loop renews the Lease, answers probes and reads the events of all objects. What grows with one object, or with
the product of two of its lists, therefore runs elsewhere, and ends when its budget is used:

    decided = await planner.run(("pool", key), plan, snapshot, now)

Three threads take calls, each with a larger budget than the one before. A call that needs more is interrupted, and is
made again in the next thread. Until it becomes cheaper again, its object begins there. A plan of three VMs therefore
waits for none of 2,000 VMs, nor this one for one of 10,000. In each thread, namespaces have their turns in order.

The functions must be pure: they may be interrupted at any point, and called twice.

Threads, because a snapshot cannot be passed on to another process for less than its plan costs. Of a pool of 10,000
VMs, a plan and a status take 0.48 s of processor time, and pickle 0.53 s to write the snapshot and 0.43 s to read it.
The event loop waits for a thread no longer than the interpreter's switch interval.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.runtime.resource import Key

P = ParamSpec("P")
T = TypeVar("T")
Planned = tuple[str, Key]
"""what a call is about: the kind and the key of the object"""

CHEAP_SECONDS = 0.01
"""Budget of the first thread. A plan of 100 VMs takes 2 ms, and the status as long."""
SHORT_SECONDS = 0.1
"""Budget of the second thread. A plan of 1,000 VMs takes 20 ms."""
BUDGET_SECONDS = 5.0
"""Budget of the third thread, ten times what a plan of 10,000 VMs takes."""
INTERRUPT_AGAIN_SECONDS = 0.05
"""Pause after which an interrupt is repeated. Code that ignores exceptions, such as a finalizer, may lose one."""
SWITCH_SECONDS = 0.001
"""Setting for `sys.setswitchinterval`, which bounds how long the event loop waits for a thread."""
MIN_WATCH_SECONDS = 0.001


class PlanTooExpensive(Exception):
    """The call has used its budget, and has no result."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"needs more than {seconds:g} s of processor time")


class _Interrupted(BaseException):
    """Raised in the thread of a call. Not an `Exception`, so that no `except Exception` in the call catches it."""


def _interrupt(thread: int) -> None:
    """Raises `_Interrupted` in a thread soon."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Interrupted))


def _absorb_interrupt() -> None:
    """Lets an interrupt that was sent as a call ended be raised here, and not in the code of the thread itself. CPython
    can take an interrupt back too, but all threads are slower afterwards, and a tracer may never end."""
    try:
        for _ in range(1000):  # the interpreter looks for interrupts at the end of each turn
            pass
    except _Interrupted:
        pass


@dataclass
class _Call:
    """A function with its arguments. It is called in one thread, and interrupted from another."""

    function: Callable[[], Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: int = 0
    """identity of the thread while the function runs, or 0"""
    _clock: int = 0
    """clock of the processor time of the thread"""
    _began: float = 0.0
    _interrupted: bool = False

    def __call__(self) -> tuple[Any, float]:
        """The result, and the processor time in seconds."""
        try:
            self._clock, self._began = time.pthread_getcpuclockid(threading.get_ident()), time.thread_time()
            with self._lock:
                if self._interrupted:  # before the thread came to it
                    raise _Interrupted
                self._thread = threading.get_ident()
            return self.function(), time.thread_time() - self._began
        finally:
            with self._lock:
                self._thread = 0
            if self._interrupted:
                _absorb_interrupt()

    @property
    def used_seconds(self) -> float:
        return time.clock_gettime(self._clock) - self._began if self._thread else 0.0

    def interrupt(self) -> None:
        with self._lock:
            self._interrupted = True
            if self._thread:
                _interrupt(self._thread)


class _Thread:
    """Calls functions one after another, each within the budget."""

    def __init__(self, name: str, budget_seconds: float) -> None:
        self.budget_seconds = budget_seconds
        self._name = name
        self._turns: FairSlots[str] = FairSlots(1, per_key=1)
        self._start()

    def _start(self) -> None:
        # A list, because a reference of the thread to this object would keep the thread for ever.
        self._started = started = list[threading.Thread]()
        self._executor = ThreadPoolExecutor(
            1, thread_name_prefix=self._name, initializer=lambda: started.append(threading.current_thread())
        )

    async def run(self, tenant: str, function: Callable[[], Any]) -> tuple[Any, float]:
        """The result, and the processor time in seconds. Raises `PlanTooExpensive`. After a cancellation it waits until
        the call has ended."""
        async with self._turns.slot(tenant):
            while True:
                if self._has_ended:
                    self._executor.shutdown(wait=False)
                    self._start()
                call = _Call(function)
                running = asyncio.wrap_future(self._executor.submit(call))
                try:
                    if await self._ends(call, running, self.budget_seconds):
                        return running.result()
                except _Interrupted:
                    raise PlanTooExpensive(self.budget_seconds) from None
                except asyncio.CancelledError:
                    if await self._ends(call, running, 0.0):
                        running.exception()  # asyncio would log one that nobody has seen
                    raise

    @property
    def _has_ended(self) -> bool:
        """Whether the thread has ended: an interrupt that is late may be raised in the code of the executor."""
        return bool(self._started) and not self._started[0].is_alive()

    async def _ends(self, call: _Call, running: "asyncio.Future[tuple[Any, float]]", budget_seconds: float) -> bool:
        """Waits for the end of the call, and interrupts the call when it has used the budget. False if the thread has
        ended before."""
        left = budget_seconds
        while True:
            if left <= 0:
                call.interrupt()
                left = INTERRUPT_AGAIN_SECONDS
            ended, _ = await asyncio.wait({running}, timeout=max(left, MIN_WATCH_SECONDS))
            if ended:
                return True
            if self._has_ended:
                return False
            left = budget_seconds - call.used_seconds


class Planner:
    """The threads of one event loop."""

    def __init__(self, budgets: Sequence[float] = (CHEAP_SECONDS, SHORT_SECONDS, BUDGET_SECONDS)) -> None:
        """`budgets`: the processor seconds of a call in each thread, in ascending order."""
        self._threads = [_Thread(f"plans-{budget:g}", budget) for budget in budgets]
        self._seconds: dict[Planned, float] = {}

    async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a pure function about one object. Raises what the function raises, or `PlanTooExpensive`."""
        tenant, call = of[1][0], partial(function, *arguments, **named)
        *cheaper, last = self._threads
        for thread in cheaper:
            if self.seconds(of) < thread.budget_seconds / 2:
                with suppress(PlanTooExpensive):
                    result, self._seconds[of] = await thread.run(tenant, call)
                    return result  # type: ignore[no-any-return]
                self._seconds[of] = thread.budget_seconds
        result, self._seconds[of] = await last.run(tenant, call)
        return result  # type: ignore[no-any-return]

    def seconds(self, of: Planned) -> float:
        """The processor time of the last call about the object."""
        return self._seconds.get(of, 0.0)

    def forget(self, of: Planned) -> None:
        """Forgets an object that is gone."""
        self._seconds.pop(of, None)
