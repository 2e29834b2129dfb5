"""Starts the components in order, restarts components that exit, and stops all in reverse order.

Each component and each setup step has its own task. A component that was ready before is restarted without limit; the
pause grows while the component exits soon after its start. If a component never becomes ready, the stack fails.
Cancelling `run` stops the stack: `run` itself stops the processes, because cancelled tasks have no order.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from poolhouse.runtime.backoff import Backoff
from poolhouse.stack.components import Component, ComponentState, HttpProbe, SetupStep, StackError, is_ready
from poolhouse.stack.processes import Child
from poolhouse.stack.status_file import tail, trim_log

MAX_FIRST_STARTS = 3
"""limit of first starts; a start can fail because another process took the port, but hardly three times"""
STEADY_SECONDS = 30.0
"""run time after which the count of failures starts again"""
MAX_PAUSE_SECONDS = 10.0
PROBE_INTERVAL_SECONDS = 0.1
CHECK_INTERVAL_SECONDS = 5.0


class Run(NamedTuple):
    was_ready: bool
    exit_code: int
    """negative for a signal"""
    end: str
    """how the process ended, as a part of a sentence"""

    @classmethod
    def of(cls, was_ready: bool, exit_code: int) -> Self:
        """A process that has ended by itself, or by a signal of somebody else."""
        how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
        return cls(was_ready, exit_code, f"ended with {how}")


class Supervisor:
    """Runs components and setup steps. `env` is the environment of all components; a component's `env` overrides it.
    `run` calls `changed` with each new state."""

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
        self._steps = steps
        after = {component.name: component.after for component in components} | {
            step.name: step.after for step in steps
        }
        self._order = start_order(after)
        self._env, self._cwd, self._log, self._changed = env, cwd, log, changed
        self._reached = {name: asyncio.Event() for name in after}
        self._children: dict[str, Child] = {}
        self._killing = asyncio.Event()
        self.states = {name: ComponentState(name) for name in self._components}

    async def ready(self) -> None:
        """Returns when every component has been ready and every step is done."""
        for reached in self._reached.values():
            await reached.wait()

    def kill(self) -> None:
        """Ends the grace period of all components that are being stopped."""
        self._killing.set()

    async def run(self) -> None:
        """Runs the stack until cancelled, and ends every process before it returns. Raises `StackError`."""
        try:
            async with asyncio.TaskGroup() as group:
                for component in self._components.values():
                    group.create_task(self._keep_running(component), name=component.name)
                for step in self._steps:
                    group.create_task(self._run_step(step), name=step.name)
                group.create_task(self._check())
        except* StackError as errors:
            raise errors.exceptions[0] from None
        finally:
            for layer in reversed(self._order):
                await asyncio.gather(*(self._stop(name) for name in layer if name in self._children))

    async def _run_step(self, step: SetupStep) -> None:
        await self._wait_for(step.after)
        await step.run()
        self._reached[step.name].set()

    async def _keep_running(self, component: Component) -> None:
        await self._wait_for(component.after)
        pauses = Backoff(component.restart_seconds, MAX_PAUSE_SECONDS, spread=0)
        failures = 0
        while True:
            started = time.monotonic()
            run = await self._run_once(component)
            failures = 1 if run.was_ready and time.monotonic() - started > STEADY_SECONDS else failures + 1
            if not self._reached[component.name].is_set() and failures >= MAX_FIRST_STARTS:
                raise self._broken(component, f"{run.end} {failures} times")
            self._set_state(component, pid=None, ready=False, exit_code=run.exit_code, end=run.end)
            await asyncio.sleep(pauses.delay(failures))
            self._set_state(component, restarts=self.states[component.name].restarts + 1)

    async def _run_once(self, component: Component) -> Run:
        try:
            child = Child(
                component.command,
                env={**self._env, **component.env},
                cwd=component.cwd or self._cwd,
                log=self._log(component.name),
                uid=component.uid,
            )
        except OSError as error:
            message = f"{component.name} cannot be started: {component.command[0]}: {error.strerror}"
            raise StackError(message) from error
        self._children[component.name] = child
        self._set_state(component, pid=child.pid)
        death = asyncio.create_task(child.wait())
        readiness = asyncio.create_task(self._becomes_ready(component))
        try:
            await asyncio.wait({death, readiness}, return_when=asyncio.FIRST_COMPLETED)
            if not readiness.done():
                return Run.of(False, death.result())
            if readiness.result():
                self._set_state(component, ready=True)
                self._reached[component.name].set()
                return Run.of(True, await death)
            late = f"was not ready after {component.ready_seconds:g} s"
            if not self._reached[component.name].is_set():
                raise self._broken(component, late)
            return Run(False, await child.end(component.stop_seconds), f"{late}, was stopped")
        finally:
            death.cancel()
            readiness.cancel()

    async def _becomes_ready(self, component: Component) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(component.ready_seconds):
                while True:
                    if component.ready is None or await is_ready(component.ready):
                        return True
                    await asyncio.sleep(PROBE_INTERVAL_SECONDS)
        return False

    async def _check(self) -> None:
        """Trims logs and probes running components, because a running process may stop being ready."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            for component in self._components.values():
                with contextlib.suppress(OSError):  # the disk is full
                    trim_log(self._log(component.name))
                # A socket probe shows only that the process runs, and libvirtd logs an error for each probe.
                if isinstance(component.ready, HttpProbe) and self._reached[component.name].is_set():
                    pid = self.states[component.name].pid
                    ready = await is_ready(component.ready)
                    if pid is not None and pid == self.states[component.name].pid:
                        self._set_state(component, ready=ready)

    async def _wait_for(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._reached:
                await self._reached[name].wait()

    def _set_state(self, component: Component, **changes: Any) -> None:
        before = self.states[component.name]
        after = replace(before, **changes)
        if after != before:
            self.states[component.name] = after
            self._changed(after)

    async def _stop(self, name: str) -> None:
        child = self._children[name]
        end = asyncio.create_task(child.end(self._components[name].stop_seconds))
        killing = asyncio.create_task(self._killing.wait())
        await asyncio.wait({end, killing}, return_when=asyncio.FIRST_COMPLETED)
        killing.cancel()
        if not end.done():
            end.cancel()
            await child.end(0)
        # The state shows no exit code, because a regular stop is not a failure.
        self._set_state(self._components[name], pid=None, ready=False, exit_code=None)

    def _broken(self, component: Component, what: str) -> StackError:
        log = self._log(component.name)
        last = tail(log)
        end = f"; the last lines of {log}:\n{last}" if last else f" (see {log})"
        return StackError(f"{component.name} {what}{end}")


def start_order(after: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Returns layers of names in start order; the names of one layer do not depend on each other. Dependencies without
    an entry, such as components that `--without` leaves out, are ignored."""
    done: set[str] = set()
    layers = []
    while len(done) < len(after):
        layer = [name for name, needs in after.items() if name not in done and not (set(needs) & set(after)) - done]
        if not layer:
            raise ValueError(f"these depend on each other: {sorted(set(after) - done)}")
        layers.append(layer)
        done |= set(layer)
    return layers
