"""Starts the parts in order, starts again what dies, ends them in reverse order.

Every part and every gate has one task. A part that was ready once is kept for ever, with a pause that grows while it
dies soon after each start; one that never was ready breaks the stack, because somebody is waiting for it. Cancelling
`run` ends the stack: tasks are only cancelled then, and no task ends its own process, so that the order holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from local.logs import tail, trim
from local.parts import Broken, Gate, HttpProbe, Part
from local.probes import passes
from local.processes import Child
from runtime.backoff import Backoff

FIRST_TRIES = 3
"""a first start may lose a port to someone else; three in a row are no accident"""
STEADY_SECONDS = 30.0
"""what lived this long has recovered, and its next death is a first one"""
LONGEST_PAUSE_SECONDS = 10.0
PROBE_SECONDS = 0.1
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class State:
    """What is known of one part."""

    name: str
    pid: int | None = None
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    """of its last death; negative for a signal"""


class Supervisor:
    """`env` goes to every part, under the part's own; `changed` is told of every change of a part's state."""

    def __init__(
        self,
        parts: Sequence[Part],
        gates: Sequence[Gate] = (),
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Callable[[str], Path],
        changed: Callable[[State], None] = lambda state: None,
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._gates = {gate.name: gate for gate in gates}
        self._layers = layers({part.name: part.after for part in parts} | {gate.name: gate.after for gate in gates})
        self._env, self._cwd, self._log, self._changed = env, cwd, log, changed
        self._reached = {name: asyncio.Event() for name in [*self._parts, *self._gates]}
        self._children: dict[str, Child] = {}
        self._hurried = asyncio.Event()
        self.states = {name: State(name) for name in self._parts}

    async def ready(self) -> None:
        """Returns when every part has been ready and every gate is open."""
        for reached in self._reached.values():
            await reached.wait()

    def hurry(self) -> None:
        """No more grace for anyone."""
        self._hurried.set()

    async def run(self) -> None:
        """For ever, until cancelled; every process has ended when it returns. Raises `Broken`."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in self._parts.values():
                    group.create_task(self._keep(part), name=part.name)
                for gate in self._gates.values():
                    group.create_task(self._open(gate), name=gate.name)
                group.create_task(self._check())
        except* Broken as broken:
            raise broken.exceptions[0] from None
        finally:
            await self._end()

    async def _open(self, gate: Gate) -> None:
        await self._reach(gate.after)
        await gate.open()
        self._reached[gate.name].set()

    async def _keep(self, part: Part) -> None:
        await self._reach(part.after)
        pauses = Backoff(part.restart_seconds, LONGEST_PAUSE_SECONDS, spread=0)
        failures = 0
        while True:
            started = time.monotonic()
            ready, code = await self._live(part)
            failures = 1 if ready and time.monotonic() - started > STEADY_SECONDS else failures + 1
            if not self._reached[part.name].is_set() and failures >= FIRST_TRIES:
                raise Broken(_obituary(part, f"ended with {_exit(code)} {failures} times", self._log(part.name)))
            self._tell(part, pid=None, ready=False, exit_code=code)
            await asyncio.sleep(pauses.delay(failures))
            self._tell(part, restarts=self.states[part.name].restarts + 1)

    async def _live(self, part: Part) -> tuple[bool, int]:
        """One life of a part: whether it was ready, and its exit code."""
        try:
            child = Child(
                part.command,
                env={**self._env, **part.env},
                cwd=part.cwd or self._cwd,
                log=self._log(part.name),
                uid=part.uid,
            )
        except OSError as error:
            raise Broken(f"{part.name} cannot be started: {part.command[0]}: {error.strerror}") from error
        self._children[part.name] = child
        self._tell(part, pid=child.pid)
        death = asyncio.create_task(child.wait())
        readiness = asyncio.create_task(self._becomes_ready(part))
        try:
            await asyncio.wait({death, readiness}, return_when=asyncio.FIRST_COMPLETED)
            if not readiness.done():
                return False, death.result()
            if readiness.result():
                self._tell(part, ready=True)
                self._reached[part.name].set()
                return True, await death
            if not self._reached[part.name].is_set():
                text = f"was not ready after {part.ready_seconds:g} s"
                raise Broken(_obituary(part, text, self._log(part.name)))
            return False, await child.end(part.stop_seconds)
        finally:
            death.cancel()
            readiness.cancel()

    async def _becomes_ready(self, part: Part) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(part.ready_seconds):
                while True:
                    if part.ready is None or await passes(part.ready):
                        return True
                    await asyncio.sleep(PROBE_SECONDS)
        return False

    async def _check(self) -> None:
        """What a person is told of parts that run: a part may be alive and not well."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for part in self._parts.values():
                with contextlib.suppress(OSError):  # a full disk ends no part that runs
                    trim(self._log(part.name))
                # A socket only says that the process lives, and libvirtd complains of everyone who hangs up.
                if isinstance(part.ready, HttpProbe) and self._reached[part.name].is_set():
                    pid = self.states[part.name].pid
                    well = await passes(part.ready)
                    if pid is not None and pid == self.states[part.name].pid:
                        self._tell(part, ready=well)

    async def _reach(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._reached:
                await self._reached[name].wait()

    def _tell(self, part: Part, **news: object) -> None:
        before = self.states[part.name]
        after = replace(before, **news)  # type: ignore[arg-type]
        if after != before:
            self.states[part.name] = after
            self._changed(after)

    async def _end(self) -> None:
        for layer in reversed(self._layers):
            ends = [self._end_one(name) for name in layer if name in self._children]
            await asyncio.gather(*ends)

    async def _end_one(self, name: str) -> None:
        child = self._children[name]
        end = asyncio.create_task(child.end(self._parts[name].stop_seconds))
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({end, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not end.done():
            end.cancel()
            await child.end(0)
        # Its last exit code was of an earlier life: this end is no news that somebody has to look into.
        self._tell(self._parts[name], pid=None, ready=False, exit_code=None)


def layers(after: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Steps in the order of starting; those of one layer don't wait for each other. Names that aren't steps (left out
    by `--without`) are waited for by nobody."""
    done: set[str] = set()
    result = []
    while len(done) < len(after):
        layer = [name for name, needs in after.items() if name not in done and not (set(needs) & set(after)) - done]
        if not layer:
            raise ValueError(f"steps that wait for each other: {sorted(set(after) - done)}")
        result.append(layer)
        done |= set(layer)
    return result


def _obituary(part: Part, what: str, log: Path) -> str:
    last = tail(log)
    return f"{part.name} {what}; its last words, from {log}:\n{last}" if last else f"{part.name} {what} (see {log})"


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
