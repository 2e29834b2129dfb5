"""What disks ask of whoever brings their content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from local.engine.faults import Faults
from local.engine.times import seconds_until
from local.engine.views import Claim, Disk
from local.engine.volumes import Filling
from runtime.resource import Key

IMPORT_SECONDS = 2.0
"""how long one simulated try to import takes before it fails"""


class Filler(Protocol):
    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Calls `changed` with the name of each DataVolume whose filling has come on."""

    def filling(self, disk: Disk, claim: Claim | None, faults: Faults, now: datetime) -> Filling:
        """What is known now; never waits."""

    async def fill(self, disk: Disk, claim: Claim) -> None:
        """Begin it, unless it has begun."""

    async def provide(self, claim: Claim) -> str:
        """The content of a claim that no DataVolume fills: an empty disk."""

    async def drop(self, claim: Claim) -> None:
        """The claim is gone: so is what it held."""

    async def sweep(self, claims: list[Claim]) -> None:
        """Drop what belongs to none of these, which are all there are."""


class NoFiles:
    """Disks of simulated VMs: there at once, unless they are to fail."""

    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Nothing changes but with time."""

    def filling(self, disk: Disk, claim: Claim | None, faults: Faults, now: datetime) -> Filling:
        done = Filling("done", content="simulated")
        if claim is not None or faults.fail != "DataVolumeError":
            return done
        tries = int((now - disk.created).total_seconds() / IMPORT_SECONDS) + 1
        if faults.outcome(disk.uid, 0) is None or (faults.fail_times is not None and tries > faults.fail_times):
            return done
        reason = "Unable to connect to http data source: the server answered 404 (simulated)"
        if faults.fail_times is None:
            return Filling("failed", reason=reason, failures=1)
        next_try = seconds_until(disk.created + timedelta(seconds=IMPORT_SECONDS * tries), now)
        return Filling("failed", reason=reason, failures=tries, again_seconds=next_try + 0.01)

    async def fill(self, disk: Disk, claim: Claim) -> None: ...

    async def provide(self, claim: Claim) -> str:
        return "blank"

    async def drop(self, claim: Claim) -> None: ...

    async def sweep(self, claims: list[Claim]) -> None: ...
