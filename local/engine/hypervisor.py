"""What instances ask of whoever runs the guests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from local.engine.domain import Domain
from local.engine.faults import Faults
from local.engine.simulated import domain_of
from local.engine.terms import Terms
from local.engine.views import Instance

Json = dict[str, Any]


SIMULATED_BANDWIDTH = 256 << 20


class Refused(Exception):
    """A guest cannot be started as it is asked for; trying again gives the same."""


class Hypervisor(Protocol):
    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the UID of each VMI whose domain has changed."""

    def domain(self, instance: Instance, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        """What is known now; never waits."""

    async def launch(self, document: Json, node: str) -> None:
        """Start the VMI's domain, or find it started. Raises `Refused`."""

    async def press_power(self, instance: Instance) -> None: ...

    async def destroy(self, instance: Instance) -> None: ...

    async def pause(self, instance: Instance, paused: bool) -> None: ...

    async def migrate(self, instance: Instance, target: str, terms: Terms) -> None:
        """Move it, live; raises `Refused`, or TimeoutError when the terms' time is over. Cancelled, it gives up."""

    async def clear(self, uid: str) -> None:
        """End the domain of a VMI that is no more."""


class Simulated:
    """Starts nothing; a pause is remembered until the VMI's condition tells of it."""

    def __init__(self) -> None:
        self._changed: Callable[[str], None] = lambda uid: None
        self._paused: dict[str, bool] = {}

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._changed = changed

    def domain(self, instance: Instance, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        found = domain_of(instance, faults, identity, failures, now)
        paused = self._paused.get(instance.uid)
        if paused is None or found.state not in ("running", "paused"):
            self._paused.pop(instance.uid, None)
            return found
        if paused == (found.state == "paused"):
            del self._paused[instance.uid]
        return Domain("paused" if paused else "running", found.node, agent=found.agent)

    async def launch(self, document: Json, node: str) -> None:
        """Nothing to start: by the VMI's phase it is on its way."""

    async def press_power(self, instance: Instance) -> None:
        """It ends when its time is over."""

    async def destroy(self, instance: Instance) -> None:
        """Nothing to clear away."""

    async def pause(self, instance: Instance, paused: bool) -> None:
        self._paused[instance.uid] = paused
        self._changed(instance.uid)

    async def migrate(self, instance: Instance, target: str, terms: Terms) -> None:
        """Takes as long as copying its memory would."""
        speed = terms.bandwidth or SIMULATED_BANDWIDTH
        async with asyncio.timeout(terms.deadline_seconds(instance.size)):
            await asyncio.sleep(instance.size / speed)

    async def clear(self, uid: str) -> None:
        """Nothing is left of it."""
