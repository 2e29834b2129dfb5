"""Probes the guests of running VMIs, as the kubelet probes their pods."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import VMIS
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import Hypervisor, HypervisorRefused
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.reasons import EngineReason
from poolhouse.stack.engine.resources import has_condition
from poolhouse.stack.engine.vmi.phases import is_paused
from poolhouse.stack.engine.vmi.probes import Probe, ProbeResults, ProbeState

log = logging.getLogger(__name__)


class Prober:
    """Runs a task for each probe of each running VMI, and calls `changed` with the VMI's UID after a new result."""

    def __init__(
        self, informers: Informers, hypervisor: Hypervisor, events: EventRecorder, changed: Callable[[str], None]
    ) -> None:
        self._informers, self._hypervisor, self._events, self._changed = informers, hypervisor, events, changed
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._states: dict[tuple[str, str], tuple[ProbeState, str]] = {}
        """state and last problem of each probe, by UID of the VMI and purpose"""
        informers.vmis.subscribe(self._vmi_changed)

    def results(self, vmi: VMI) -> ProbeResults:
        found, problem = {"liveness": True, "readiness": True}, ""
        for probe in vmi.probes:
            if self._hypervisor.why_no_probe(probe):
                continue
            state, reason = self._states.get((vmi.uid, probe.purpose)) or (_first(vmi, probe), "")
            found[probe.purpose] = state.passing
            problem = problem if state.passing else reason or problem
        return ProbeResults(found["liveness"], found["readiness"], problem)

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for vmi in self._informers.vmis.store.all():
                    self._follow(vmi)
                while True:
                    await asyncio.Event().wait()
            finally:
                self._group = None
                self._tasks.clear()
        raise AssertionError("the group ends only with an exception")

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if old is not None and (new is None or new.uid != old.uid or new.final or new.deleted is not None):
            self._forget(old)
        if new is not None:
            self._follow(new)

    def _follow(self, vmi: VMI) -> None:
        runs = vmi.phase == "Running" and vmi.deleted is None
        if self._group is None or not vmi.probes or not runs or vmi.uid in self._tasks:
            return
        self._tasks[vmi.uid] = []
        for probe in vmi.probes:
            if reason := self._hypervisor.why_no_probe(probe):
                note = f"the {probe.purpose} probe is not run, and counts as passed: {reason}"
                self._warn(vmi, EngineReason.PROBE_NOT_SUPPORTED, note)
                continue
            task = self._group.create_task(self._probe(vmi, probe), name=f"{probe.purpose}-{vmi.name}")
            self._tasks[vmi.uid].append(task)

    def _forget(self, vmi: VMI) -> None:
        for task in self._tasks.pop(vmi.uid, ()):
            task.cancel()
        for probe in vmi.probes:
            self._states.pop((vmi.uid, probe.purpose), None)

    async def _probe(self, vmi: VMI, probe: Probe) -> None:
        key, state = (vmi.uid, probe.purpose), _first(vmi, probe)
        since = vmi.reached("Running") or self._informers.now()
        await asyncio.sleep(max(0.0, probe.initial_delay_seconds - (self._informers.now() - since).total_seconds()))
        while True:
            current = self._informers.vmis.store.get(vmi.key)
            if current is not None and current.uid == vmi.uid and not is_paused(current):
                problem = await self._ask(current, probe)
                before, state = state, state.after(not problem, probe)
                self._states[key] = state, problem
                if state.passing != before.passing or before.last is None:
                    self._report(current, probe, state, problem)
            await asyncio.sleep(probe.period_seconds)

    async def _ask(self, vmi: VMI, probe: Probe) -> str:
        """Why the probe fails, or ""."""
        faults: Faults = self._informers.faults_of(vmi)[0]
        try:
            async with asyncio.timeout(probe.timeout_seconds):
                return await self._hypervisor.probe(vmi, probe, faults, self._informers.now())
        except TimeoutError:
            return f"no answer within {probe.timeout_seconds:g} s"
        except HypervisorRefused as refused:
            return str(refused)

    def _report(self, vmi: VMI, probe: Probe, state: ProbeState, problem: str) -> None:
        if problem:
            note = f"{probe.purpose.capitalize()} probe failed: {problem}"
            self._warn(vmi, EngineReason.UNHEALTHY, note)
        log.info("%s/%s: the %s probe %s", *vmi.key, probe.purpose, f"fails: {problem}" if problem else "passes")
        self._changed(vmi.uid)

    def _warn(self, vmi: VMI, reason: EngineReason, note: str) -> None:
        self._events.emit(vmi.reference(VMIS), "Warning", reason, note, action="Probe")


def _first(vmi: VMI, probe: Probe) -> ProbeState:
    """A guest is alive, but not ready, until its probe says otherwise. After a restart of the engine, a VMI stays as
    ready as it was."""
    if probe.purpose == "liveness":
        return ProbeState(passing=True)
    return ProbeState(passing=vmi.phase == "Running" and has_condition(vmi.conditions, "Ready"))
