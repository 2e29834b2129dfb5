"""The agents in the guests of a history, and what they were asked to launch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from controllers.warmpool.agent import AgentEndpoint, ApplicationHealth, LogsRefused, application_health
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import HEALTHY, Health
from poolhouse.api.kinds import meta
from poolhouse.stack.engine.agents.application import NOTHING, Application, Report, report
from poolhouse.stack.engine.objects import VMI
from tests.histories.world import BEGINNING, World

Json = dict[str, Any]

SECONDS, EXIT_CODE = meta.SIM_PREFIX + "application-seconds", meta.SIM_PREFIX + "application-exit-code"
"""annotations of a Pod, which its agent gets: when its containers end, and how"""
WATCH_SECONDS = 1.0
"""How often a stream looks for changes."""
SILENT = Health("Failed", AgentReason.NO_ANSWER, "the agent does not answer")


@dataclass
class Agents:
    """Has the interface of `AgentClient`. The processes of a history share it, because guests outlive processes."""

    world: World
    rate: float = 0.0
    """share of the calls without an answer; half of them are executed all the same"""
    applications: dict[str, Application] = field(default_factory=dict)
    """by UID of the VMI"""
    pods: dict[str, Json] = field(default_factory=dict)
    """what the agents have got, by UID of the Pod"""
    launched: dict[str, list[str]] = field(default_factory=dict)
    """UIDs of the VMIs in which an application was started, by UID of the Pod"""

    async def health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        return HEALTHY if await self._asked(endpoint) is not None else SILENT

    async def launch(self, endpoint: AgentEndpoint, pod: Json, timeout_seconds: float) -> Health:
        executed, answered = await self._fate()
        vmi = self._guest(endpoint) if executed else None
        if vmi is None:
            return SILENT
        uid = pod["metadata"]["uid"]
        if (known := self.applications.get(vmi.uid)) is not None and known.uid != uid:
            return Health("Failed", AgentReason.LAUNCH_REFUSED, "the guest runs another application")
        if known is None:
            self.pods[uid] = pod
            self.applications[vmi.uid] = Application(uid, pod["spec"], self._now())
            self.launched.setdefault(uid, []).append(vmi.uid)
        return application_health(self.report(vmi.uid).status) if answered else SILENT

    async def application_health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        vmi = await self._asked(endpoint)
        return SILENT if vmi is None else application_health(self.report(vmi.uid).status)

    async def watch(self, endpoint: AgentEndpoint) -> AsyncIterator[ApplicationHealth]:
        told: Json | None = None
        while (vmi := await self._asked(endpoint)) is not None:
            found = self.report(vmi.uid).status
            if found != told:
                told = found
                yield application_health(found)
            await asyncio.sleep(WATCH_SECONDS)

    async def logs(self, endpoint: AgentEndpoint, request: Any) -> AsyncIterator[bytes]:
        raise LogsRefused("UNIMPLEMENTED", "no history reads logs")
        yield b""

    async def terminate(
        self, endpoint: AgentEndpoint, timeout_seconds: float, grace_seconds: float | None = None, uid: str = ""
    ) -> None:
        vmi = await self._asked(endpoint)
        app = self.applications.get(vmi.uid) if vmi is not None else None
        if vmi is not None and app is not None and uid in ("", app.uid) and self.runs(vmi.uid):
            self.applications[vmi.uid] = replace(app, stopped=self._now())

    def report(self, vmi: str) -> Report:
        """What the agent in a VMI reports."""
        if (app := self.applications.get(vmi)) is None:
            return NOTHING
        notes = self.pods[app.uid]["metadata"].get("annotations") or {}
        seconds = float(notes[SECONDS]) if SECONDS in notes else None
        return report(app, seconds, int(notes.get(EXIT_CODE, 0)), self._now())

    def runs(self, vmi: str) -> bool:
        return self.report(vmi).status.get("phase") == "Running"

    def _now(self) -> Any:
        """The clocks of guests do not jump."""
        return BEGINNING + timedelta(seconds=asyncio.get_running_loop().time())

    async def _fate(self) -> tuple[bool, bool]:
        """Whether a call is executed, and whether it is answered."""
        random = self.world.random
        await asyncio.sleep(random.uniform(0.001, 0.05))
        lost = bool(self.rate) and random.random() < self.rate
        return not lost or random.random() < 0.5, not lost

    async def _asked(self, endpoint: AgentEndpoint) -> VMI | None:
        """The guest of an endpoint whose agent answers."""
        _, answered = await self._fate()
        return self._guest(endpoint) if answered else None

    def _guest(self, endpoint: AgentEndpoint) -> VMI | None:
        return self.world.running_guest(self.world.addresses.owner(endpoint.address))
