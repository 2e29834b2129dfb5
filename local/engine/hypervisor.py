"""What the controllers ask of a hypervisor: the state of a VMI's domain, and operations on it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from apimachinery.unstructured import Json
from local.engine.fault_injection import Faults
from local.engine.migration.settings import MigrationSettings
from local.engine.objects import VMI

Switched = Callable[[], Awaitable[None]]
"""called when a migration switches to post-copy"""
DomainState = Literal["unknown", "absent", "starting", "running", "paused", "off", "crashed"]


class HypervisorRefused(Exception):
    """The hypervisor cannot do what was asked; a retry has the same result."""


class MigrationAborted(Exception):
    """A migration was aborted at its timeout; the VMI still runs on its source node."""


@dataclass(frozen=True)
class Domain:
    """The observed libvirt domain of a VMI."""

    state: DomainState = "absent"
    """unknown: the domain cannot be observed now. off: the guest shut itself down. The engine still has to undefine a
    domain that is off or crashed."""
    node: str = ""
    reason: str = ""
    """why the domain is off, crashed or does not start"""
    start_problem: Literal["", "Unschedulable", "ErrImagePull"] = ""
    """what prevents the start, in KubeVirt's words"""
    agent: bool = False
    """whether the guest agent is connected"""
    change_seconds: float | None = None
    """when the state changes, if that is known"""

    @property
    def alive(self) -> bool:
        return self.state in ("starting", "running", "paused")


ABSENT = Domain()


class Hypervisor(Protocol):
    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the UID of each VMI whose domain has changed."""

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        """The last observed domain; does not wait. `identity` and `failures` are those of `Faults.outcome`."""

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Starts the domain of a VMI unless it runs already. Raises `HypervisorRefused`."""

    async def press_power(self, vmi: VMI) -> None:
        """Sends an ACPI power button event to the guest."""

    async def pause(self, vmi: VMI, paused: bool) -> None: ...

    async def why_no_post_copy(self) -> str | None:
        """Why this machine does not allow post-copy; None if it does."""

    async def migrate(
        self, vmi: VMI, target: str, settings: MigrationSettings, faults: Faults, switched: Switched
    ) -> None:
        """Live-migrates the VMI. Raises `HypervisorRefused`, or `MigrationAborted` after the timeout of the settings.

        Where the settings allow post-copy, the migration switches at the timeout and calls `switched`. A cancelled
        migration is aborted; it returns normally where the abort came too late.
        """

    async def clear(self, uid: str) -> None:
        """Destroys and undefines the domain of the VMI with that UID, which may no longer exist."""
