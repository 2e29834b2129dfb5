"""Starts the components in order, restarts those that die, and stops them in reverse order.

Each component and each setup step has one task. A component that was ready once is restarted for ever, with a pause
that grows while it dies soon after each start. A component that never was ready breaks the stack, because a person
waits for it. Cancelling `run` stops the stack. A cancelled task does not stop its own process, so that the order holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from local.components import Component, HttpProbe, SetupStep, StackError
from local.logs import tail, trim
from local.probes import is_ready
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
class ComponentState:
    """What is known of one component."""

    name: str
    pid: int | None = None
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    """of its last death; negative for a signal"""


class Supervisor:
    """Runs components and setup steps.

    `env` is the environment of each component, which its own overrides. `changed` is called with each new state.
    """

    def __init__(
        self,
        components: Sequence[Component],
        steps: Sequence[SetupStep] = (),
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Callable[[str], Path],
        changed: Callable[[ComponentState], None] = lambda state: None,
    ) -> None:
        self._components = {component.name: component for component in components}
        self._steps = {step.name: step for step in steps}
        self._layers = start_order(
            {component.name: component.after for component in components} | {step.name: step.after for step in steps}
        )
        self._env, self._cwd, self._log, self._changed = env, cwd, log, changed
        self._reached = {name: asyncio.Event() for name in [*self._components, *self._steps]}
        self._children: dict[str, Child] = {}
        self._hurried = asyncio.Event()
        self.states = {name: ComponentState(name) for name in self._components}

    async def ready(self) -> None:
        """Returns when every component has been ready and every step is open."""
        for reached in self._reached.values():
            await reached.wait()

    def hurry(self) -> None:
        """No more grace for anyone."""
        self._hurried.set()

    async def run(self) -> None:
        """For ever, until cancelled; every process has ended when it returns. Raises `Broken`."""
        try:
            async with asyncio.TaskGroup() as group:
                for component in self._components.values():
                    group.create_task(self._keep(component), name=component.name)
                for step in self._steps.values():
                    group.create_task(self._open(step), name=step.name)
                group.create_task(self._check())
        except* StackError as broken:
            raise broken.exceptions[0] from None
        finally:
            await self._end()

    async def _open(self, step: SetupStep) -> None:
        await self._reach(step.after)
        await step.open()
        self._reached[step.name].set()

    async def _keep(self, component: Component) -> None:
        await self._reach(component.after)
        pauses = Backoff(component.restart_seconds, LONGEST_PAUSE_SECONDS, spread=0)
        failures = 0
        while True:
            started = time.monotonic()
            ready, code = await self._live(component)
            failures = 1 if ready and time.monotonic() - started > STEADY_SECONDS else failures + 1
            if not self._reached[component.name].is_set() and failures >= FIRST_TRIES:
                raise StackError(
                    _obituary(component, f"ended with {_exit(code)} {failures} times", self._log(component.name))
                )
            self._tell(component, pid=None, ready=False, exit_code=code)
            await asyncio.sleep(pauses.delay(failures))
            self._tell(component, restarts=self.states[component.name].restarts + 1)

    async def _live(self, component: Component) -> tuple[bool, int]:
        """One life of a component: whether it was ready, and its exit code."""
        try:
            child = Child(
                component.command,
                env={**self._env, **component.env},
                cwd=component.cwd or self._cwd,
                log=self._log(component.name),
                uid=component.uid,
            )
        except OSError as error:
            raise StackError(f"{component.name} cannot be started: {component.command[0]}: {error.strerror}") from error
        self._children[component.name] = child
        self._tell(component, pid=child.pid)
        death = asyncio.create_task(child.wait())
        readiness = asyncio.create_task(self._becomes_ready(component))
        try:
            await asyncio.wait({death, readiness}, return_when=asyncio.FIRST_COMPLETED)
            if not readiness.done():
                return False, death.result()
            if readiness.result():
                self._tell(component, ready=True)
                self._reached[component.name].set()
                return True, await death
            if not self._reached[component.name].is_set():
                text = f"was not ready after {component.ready_seconds:g} s"
                raise StackError(_obituary(component, text, self._log(component.name)))
            return False, await child.end(component.stop_seconds)
        finally:
            death.cancel()
            readiness.cancel()

    async def _becomes_ready(self, component: Component) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(component.ready_seconds):
                while True:
                    if component.ready is None or await is_ready(component.ready):
                        return True
                    await asyncio.sleep(PROBE_SECONDS)
        return False

    async def _check(self) -> None:
        """What a person is told of components that run: a component may be alive and not well."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for component in self._components.values():
                with contextlib.suppress(OSError):  # a full disk ends no component that runs
                    trim(self._log(component.name))
                # A socket only says that the process lives, and libvirtd complains of everyone who hangs up.
                if isinstance(component.ready, HttpProbe) and self._reached[component.name].is_set():
                    pid = self.states[component.name].pid
                    well = await is_ready(component.ready)
                    if pid is not None and pid == self.states[component.name].pid:
                        self._tell(component, ready=well)

    async def _reach(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._reached:
                await self._reached[name].wait()

    def _tell(self, component: Component, **news: object) -> None:
        before = self.states[component.name]
        after = replace(before, **news)  # type: ignore[arg-type]
        if after != before:
            self.states[component.name] = after
            self._changed(after)

    async def _end(self) -> None:
        for layer in reversed(self._layers):
            ends = [self._end_one(name) for name in layer if name in self._children]
            await asyncio.gather(*ends)

    async def _end_one(self, name: str) -> None:
        child = self._children[name]
        end = asyncio.create_task(child.end(self._components[name].stop_seconds))
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({end, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not end.done():
            end.cancel()
            await child.end(0)
        # Its last exit code was of an earlier life: this end is no news that somebody has to look into.
        self._tell(self._components[name], pid=None, ready=False, exit_code=None)


def start_order(after: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
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


def _obituary(component: Component, what: str, log: Path) -> str:
    last = tail(log)
    return (
        f"{component.name} {what}; its last words, from {log}:\n{last}"
        if last
        else f"{component.name} {what} (see {log})"
    )


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
