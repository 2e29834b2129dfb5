"""What instances ask of whoever runs the guests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

from local.engine.domain import Domain
from local.engine.faults import Faults
from local.engine.simulated import copy_seconds, domain_of
from local.engine.terms import Terms, too_slow
from local.engine.views import Instance

Json = dict[str, Any]


class Refused(Exception):
    """A guest cannot be started as it is asked for; trying again gives the same."""


class Aborted(Exception):
    """A migration was given up when its time was over: the guest is where it was."""


class Hypervisor(Protocol):
    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the UID of each VMI whose domain has changed."""

    def domain(self, instance: Instance, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        """What is known now; never waits."""

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Start the VMI's domain, or find it started. Raises `Refused`."""

    async def press_power(self, instance: Instance) -> None: ...

    async def destroy(self, instance: Instance) -> None: ...

    async def pause(self, instance: Instance, paused: bool) -> None: ...

    async def no_post_copy(self) -> str | None:
        """Why guests cannot be moved by post-copy here, or None."""

    async def migrate(
        self, instance: Instance, target: str, terms: Terms, faults: Faults, switched: Callable[[], Awaitable[None]]
    ) -> None:
        """Move it, live; raises `Refused`, or `Aborted` when the terms' time is over. Where the terms have post-copy it
        goes on by that instead, and `switched` is called. Cancelled, it gives up; where it is too late for that, it
        returns all the same when the guest has moved."""

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

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Nothing to start: by the VMI's phase it is on its way."""

    async def press_power(self, instance: Instance) -> None:
        """It ends when its time is over."""

    async def destroy(self, instance: Instance) -> None:
        """Nothing to clear away."""

    async def pause(self, instance: Instance, paused: bool) -> None:
        self._paused[instance.uid] = paused
        self._changed(instance.uid)

    async def no_post_copy(self) -> str | None:
        return None

    async def migrate(
        self, instance: Instance, target: str, terms: Terms, faults: Faults, switched: Callable[[], Awaitable[None]]
    ) -> None:
        """Takes as long as copying its memory would."""
        deadline = terms.deadline_seconds(instance.memory)
        try:
            async with asyncio.timeout(deadline):
                await asyncio.sleep(copy_seconds(instance.memory, terms, faults.dirty_memory))
        except TimeoutError:
            assert deadline is not None
            if not terms.post_copy:
                raise Aborted(too_slow(deadline, {})) from None
            await switched()

    async def clear(self, uid: str) -> None:
        """Nothing is left of it."""
