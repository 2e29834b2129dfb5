"""What vmis ask of whoever runs the guests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

from local.engine.domain import Domain
from local.engine.fault_injection import Faults
from local.engine.migration.settings import MigrationSettings, timeout_message
from local.engine.objects import VMI
from local.engine.simulated import copy_seconds, domain_of

Json = dict[str, Any]


class HypervisorRefused(Exception):
    """A guest cannot be started as it is asked for; trying again gives the same."""


class MigrationAborted(Exception):
    """A migration was given up when its time was over: the guest is where it was."""


class Hypervisor(Protocol):
    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the UID of each VMI whose domain has changed."""

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        """What is known now; never waits."""

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Start the VMI's domain, or find it started. Raises `Refused`."""

    async def press_power(self, vmi: VMI) -> None: ...

    async def destroy(self, vmi: VMI) -> None: ...

    async def pause(self, vmi: VMI, paused: bool) -> None: ...

    async def no_post_copy(self) -> str | None:
        """Why guests cannot be moved by post-copy here, or None."""

    async def migrate(
        self,
        vmi: VMI,
        target: str,
        settings: MigrationSettings,
        faults: Faults,
        switched: Callable[[], Awaitable[None]],
    ) -> None:
        """Live-migrates the VMI. Raises `HypervisorRefused`, or `MigrationAborted` after the timeout of the settings.

        Where the settings allow post-copy, the migration switches at the timeout and calls `switched`. A cancelled
        migration is aborted; it returns normally where the abort came too late.
        """

    async def clear(self, uid: str) -> None:
        """End the domain of a VMI that is no more."""


class SimulatedHypervisor:
    """Starts nothing; a pause is remembered until the VMI's condition tells of it."""

    def __init__(self) -> None:
        self._changed: Callable[[str], None] = lambda uid: None
        self._paused: dict[str, bool] = {}

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._changed = changed

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        found = domain_of(vmi, faults, identity, failures, now)
        paused = self._paused.get(vmi.uid)
        if paused is None or found.state not in ("running", "paused"):
            self._paused.pop(vmi.uid, None)
            return found
        if paused == (found.state == "paused"):
            del self._paused[vmi.uid]
        return Domain("paused" if paused else "running", found.node, agent=found.agent)

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Nothing to start: by the VMI's phase it is on its way."""

    async def press_power(self, vmi: VMI) -> None:
        """It ends when its time is over."""

    async def destroy(self, vmi: VMI) -> None:
        """Nothing to clear away."""

    async def pause(self, vmi: VMI, paused: bool) -> None:
        self._paused[vmi.uid] = paused
        self._changed(vmi.uid)

    async def no_post_copy(self) -> str | None:
        return None

    async def migrate(
        self,
        vmi: VMI,
        target: str,
        settings: MigrationSettings,
        faults: Faults,
        switched: Callable[[], Awaitable[None]],
    ) -> None:
        """Takes as long as copying its memory would."""
        deadline = settings.deadline_seconds(vmi.memory)
        try:
            async with asyncio.timeout(deadline):
                await asyncio.sleep(copy_seconds(vmi.memory, settings, faults.dirty_memory))
        except TimeoutError:
            assert deadline is not None
            if not settings.post_copy:
                raise MigrationAborted(timeout_message(deadline, {})) from None
            await switched()

    async def clear(self, uid: str) -> None:
        """Nothing is left of it."""
