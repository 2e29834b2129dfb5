"""The interface of hypervisors: the state of a VMI's domain, and the operations on the domain."""

from asyncio import StreamReader
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.migration.settings import MigrationSettings
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.vm.live_updates import Hotplug
from poolhouse.stack.engine.vmi.devices import DeviceReport
from poolhouse.stack.engine.vmi.probes import Probe

Switched = Callable[[], Awaitable[None]]
"""function that the hypervisor calls when a migration switches to post-copy, or pauses the guest"""
Stream = Literal["console", "vnc"]


class StreamWriter(Protocol):
    """The writing methods of `asyncio.StreamWriter`."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


Pair = tuple[StreamReader, StreamWriter]
DomainState = Literal["unknown", "absent", "starting", "running", "paused", "off", "crashed"]


class NotStartable(Exception):
    """An object that the VMI names does not exist yet. The launch is tried again."""


class HypervisorRefused(Exception):
    """The hypervisor cannot perform the operation, and a retry would fail too."""


class MigrationAborted(Exception):
    """The migration was aborted at its timeout, and the VMI still runs on its source node."""


@dataclass(frozen=True)
class Domain:
    """The observed libvirt domain of a VMI."""

    state: DomainState = "absent"
    """`unknown`: the domain cannot be observed now. `off`: the guest shut itself down. The engine undefines a domain
    that is `off` or `crashed`."""
    node: str = ""
    reason: str = ""
    """reason why the domain is off, crashed or does not start"""
    start_problem: Literal["", "Unschedulable", "ErrImagePull"] = ""
    """KubeVirt's reason why the domain does not start"""
    agent: bool = False
    """whether the guest agent is connected"""
    change_seconds: float | None = None
    """seconds until the state changes, if known"""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """by name of the NIC: its address, for NICs without QEMU's user-mode network"""

    @property
    def alive(self) -> bool:
        return self.state in ("starting", "running", "paused")


ABSENT = Domain()


class Hypervisor(Protocol):
    hotplugs: tuple[Hotplug, ...]
    """what the hypervisor adds to running guests by a migration"""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the UID of each VMI whose domain has changed."""

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        """Returns the last observed domain without waiting. `Faults.outcome` explains `identity` and `failures`."""

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        """Starts the domain of a VMI unless it runs already. Raises `HypervisorRefused` or `NotStartable`."""

    async def sync_devices(self, vmi: VMI, document: Json, pending: Collection[str]) -> DeviceReport:
        """Plugs and unplugs disks and NICs of a running domain until it has those of the VMI's document, except the
        disks of volumes that are `pending`. Raises `HypervisorRefused` if the domain's devices are unknown."""

    async def press_power(self, vmi: VMI) -> None:
        """Sends an ACPI power button event to the guest."""

    async def pause(self, vmi: VMI, paused: bool) -> None: ...

    async def why_no_post_copy(self) -> str | None:
        """Returns why this machine does not support post-copy; None if it does."""

    async def migrate(
        self, vmi: VMI, target: str, settings: MigrationSettings, faults: Faults, switched: Switched
    ) -> None:
        """Live-migrates the VMI. Raises `HypervisorRefused`, or `MigrationAborted` after the timeout of the settings.

        At the timeout, the migration switches to post-copy or pauses the guest if the settings allow it, and calls
        `switched`. Cancellation aborts the migration; the call returns normally if the migration has already succeeded.
        """

    def why_no_probe(self, probe: Probe) -> str:
        """Why the hypervisor cannot run a probe of this kind; "" if it can."""

    async def probe(self, vmi: VMI, probe: Probe, faults: Faults, now: datetime) -> str:
        """Asks the guest once. Returns why the probe fails, or "". Raises `HypervisorRefused` if it cannot be asked."""

    async def open_stream(self, vmi: VMI, stream: Stream) -> AbstractAsyncContextManager[Pair]:
        """Returns the streams from and to the serial console or the display. Raises `HypervisorRefused`."""

    async def clear(self, uid: str) -> None:
        """Destroys and undefines the domain with the UID of a VMI. The VMI may no longer exist."""
