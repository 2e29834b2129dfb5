"""Runs one application: carries out the actions of the plan, and turns what happens into new states."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from poolhouse_agent import state as states
from poolhouse_agent.application import Application, Container
from poolhouse_agent.launcher import Launcher, Run
from poolhouse_agent.plan import Action, CleanUp, RunProbe, Start, Stop, is_finished, plan
from poolhouse_agent.podman import Refused
from poolhouse_agent.probes import run_probe
from poolhouse_agent.state import RUNNING, STARTING, ApplicationState, ContainerState, End
from poolhouse_agent.status import pod_status
from poolhouse_agent.store import Record, Store, after_reboot

log = logging.getLogger(__name__)

Json = dict[str, Any]


class AnotherApplication(Exception):
    """The VM already runs another Pod. The message names it."""


class Runner:
    """The task of `run` is the only one that carries out actions. Everything else changes the state, and wakes it."""

    def __init__(
        self,
        launcher: Launcher,
        store: Store,
        parse: Callable[[bytes], Application],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._launcher, self._store, self._parse, self._clock = launcher, store, parse, clock
        self._application: Application | None = None
        self._state: ApplicationState | None = None
        self._lost: Record | None = None
        """an application that a reboot of the VM has ended"""
        self._runs: dict[str, Run] = {}
        self._changed = asyncio.Condition()
        self._version = 0
        self.adopted = asyncio.Event()
        """set when the application of an earlier agent is known"""

    @property
    def uid(self) -> str:
        """of the newest Pod; empty if none was launched"""
        return self._application.uid if self._application else self._lost.uid if self._lost else ""

    @property
    def is_finished(self) -> bool:
        if self._application is None or self._state is None:
            return True
        return is_finished(self._application, self._state) and self._state.cleaned_up

    def status(self) -> Json:
        if self._application is not None and self._state is not None:
            return pod_status(self._application, self._state)
        return after_reboot(self._lost.status) if self._lost else {}

    async def watch(self) -> AsyncIterator[Json]:
        """Yields the status now, and after each change."""
        last: Json | None = None
        while True:
            async with self._changed:
                while (status := self.status()) == last:
                    await self._changed.wait()
                last = status
            yield last

    async def launch(self, pod: bytes) -> None:
        """Does nothing if the Pod was launched before. Raises InvalidApplication, AnotherApplication, and OSError for a
        Pod that cannot be written, after which it is as if nobody had sent it."""
        application = self._parse(pod)
        if application.uid == self.uid:
            return
        if not self.is_finished and self._application is not None:
            other = self._application
            raise AnotherApplication(f"the VM runs the Pod {other.namespace}/{other.name} with UID {other.uid}")
        log.info("launching the Pod %s/%s with UID %s", application.namespace, application.name, application.uid)
        self._store.begin(pod)
        self._launcher.prepare(application)
        state = states.launched(application, self._clock())
        self._store.save(application.uid, state, pod_status(application, state))
        self._application, self._lost, self._runs = application, None, {}
        await self._set(state)

    async def terminate(self, uid: str, grace_seconds: float | None) -> None:
        """Returns when all containers have ended. Termination goes on if the caller does not wait."""
        application = self._application
        if application is None or self._state is None or uid not in ("", application.uid):
            return
        if not self.is_finished:
            grace = application.grace_seconds if grace_seconds is None else grace_seconds
            log.info("terminating the Pod %s/%s within %g s", application.namespace, application.name, grace)
            await self._set(states.terminating(self._state, grace, self._clock()))
            self._launcher.cancel_pulls()
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_finished or self._application is not application)

    def log_of(self, container: str, previous: bool) -> tuple[Path, Callable[[], bool]] | None:
        """The log of a container's newest run or of the one before, and whether that run still goes on."""
        found = self._container(container)
        if found is None or self._state is None:
            return None
        own = self._state.of(found)
        # A container that waits for its restart has only runs that have ended.
        newest = own.restarts if own.phase in (STARTING, RUNNING, states.ENDED) else own.restarts - 1
        number = max(newest, 0) - (1 if previous else 0)
        if number < 0:
            return None
        return self._launcher.log(found, number), lambda: self._is_running(found, number)

    async def run(self) -> None:
        """Runs until it is cancelled. The containers go on."""
        async with asyncio.TaskGroup() as tasks:
            await self._adopt(tasks)
            self.adopted.set()
            while True:
                seen = self._version
                due = await self._step(tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(due - self._clock(), 0)), self._changed:
                        while self._version == seen:
                            await self._changed.wait()

    async def _adopt(self, tasks: asyncio.TaskGroup) -> None:
        """Goes on with the application that an earlier agent has started."""
        record = self._store.load(self._clock())
        if record is None:
            return
        if record.pod is None:
            self._lost = record
            self._launcher.clean_up()
            return
        self._application, self._state = self._parse(record.pod), record.state
        log.info("going on with the Pod %s/%s", self._application.namespace, self._application.name)
        for container in self._application.all_containers:
            own = self._state.of(container)
            if own.phase not in (STARTING, RUNNING):
                continue
            found = await self._launcher.find(self._application, container, own.restarts)
            if isinstance(found, Run):
                if own.phase == STARTING:
                    own = states.started(container, own, self._clock())
                self._runs[container.name] = found
                tasks.create_task(self._wait(self._application, container, found))
                await self._set(self._state.with_container(container.name, own))
            elif isinstance(found, End):
                await self._set(states.exited(self._application, container, self._state, found))
            elif own.phase == STARTING:
                await self._set(self._state.with_container(container.name, replace(own, phase=states.WAITING)))
            else:
                end = End(137, self._clock(), own.started_at, states.UNKNOWN, "the container's process is gone")
                await self._set(states.exited(self._application, container, self._state, end))

    async def _step(self, tasks: asyncio.TaskGroup) -> float | None:
        if self._application is None or self._state is None:
            return None
        actions, due = plan(self._application, self._state, self._clock())
        for action in actions:
            await self._begin(self._application, action, tasks)
        return due

    async def _begin(self, application: Application, action: Action, tasks: asyncio.TaskGroup) -> None:
        """Notes in the state that the action has begun, and begins it."""
        if isinstance(action, CleanUp):
            self._launcher.clean_up()
            log.info("the Pod %s/%s is %s", application.namespace, application.name, self.status()["phase"])
            await self._set(replace(self._current, cleaned_up=True))
            return
        container = self._container(action.container)
        assert container is not None
        own = self._current.of(container)
        task: Coroutine[Any, Any, None]
        match action:
            case Start():
                if not await self._note_start(container, own):
                    return
                own, task = self._current.of(container), self._start(application, container, own.restarts)
            case RunProbe(kind=kind):
                own, task = states.probing(own, kind), self._probe(application, container, kind)
            case Stop(kill=kill):
                own, task = states.signalled(own), self._stop(application, container, kill)
        await self._set(self._current.with_container(container.name, own))
        tasks.create_task(task)

    async def _note_start(self, container: Container, own: ContainerState) -> bool:
        """Whether the start is written. An agent that starts again must know of it, or it starts a second process."""
        begun = self._current.with_container(container.name, states.starting(own))
        try:
            self._write(begun)
        except OSError as error:
            await self._refuse(container, "CreateContainerError", f"the start cannot be written: {error}")
            return False
        self._state = begun
        return True

    async def _refuse(self, container: Container, reason: str, message: str) -> None:
        log.warning("container %s cannot be started: %s: %s", container.name, reason, message)
        own = states.refused(self._current.of(container), reason, message, self._clock())
        await self._set(self._current.with_container(container.name, own))

    async def _start(self, application: Application, container: Container, number: int) -> None:
        try:
            run = await self._launcher.start(application, container, number)
        except (Refused, OSError) as error:
            reason = error.reason if isinstance(error, Refused) else "CreateContainerError"
            await self._refuse(container, reason, str(error))
            return
        self._runs[container.name] = run
        own = states.started(container, self._current.of(container), self._clock())
        await self._set(self._current.with_container(container.name, own))
        await self._wait(application, container, run)

    async def _wait(self, application: Application, container: Container, run: Run) -> None:
        end = await self._launcher.wait(application, container, run)
        del self._runs[container.name]
        log.info("container %s has ended with exit code %d", container.name, end.exit_code)
        await self._set(states.exited(application, container, self._current, end))

    async def _probe(self, application: Application, container: Container, kind: str) -> None:
        run, probe = self._runs.get(container.name), container.probes[kind]
        if run is None:
            return
        try:
            command = self._launcher.execution(application, container, run, probe.action.get("command", ()))
        except FileNotFoundError:  # The shim was killed before it wrote the file, and the run ends.
            return
        success = await run_probe(container, probe, command)
        if self._runs.get(container.name) is run:  # else the answer is about an earlier run
            own = states.probed(application, container, self._current.of(container), kind, success, self._clock())
            await self._set(self._current.with_container(container.name, own))

    async def _stop(self, application: Application, container: Container, kill: bool) -> None:
        if run := self._runs.get(container.name):
            await self._launcher.stop(application, container, run, kill)

    @property
    def _current(self) -> ApplicationState:
        assert self._state is not None
        return self._state

    def _container(self, name: str) -> Container | None:
        known = self._application.all_containers if self._application else ()
        return next((each for each in known if each.name == name), None)

    def _is_running(self, container: Container, number: int) -> bool:
        if self._container(container.name) is not container or self._state is None:
            return False
        own = self._state.of(container)
        return own.restarts == number and own.phase in (STARTING, RUNNING)

    def _write(self, state: ApplicationState) -> None:
        assert self._application is not None
        self._store.save(self._application.uid, state, pod_status(self._application, state))

    async def _set(self, state: ApplicationState) -> None:
        """If the disk is full, the state is written with the next change. An agent that starts again before finds out
        by the shims what has become of the containers that it knows."""
        self._state = state
        try:
            self._write(state)
        except OSError as error:
            log.warning("the state of the Pod cannot be written: %s", error)
        self._version += 1
        async with self._changed:
            self._changed.notify_all()
