"""The hypervisor and the importer of `--engine simulated`: objects pass through the same phases without real guests.

The state of a domain depends only on the VMI and the time, so that a restart of the engine changes no VMI.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.runtime.resource import Key
from poolhouse.stack.engine.agents.addresses import GuestAddresses
from poolhouse.stack.engine.datavolume.phases import ImportProgress, http_failure
from poolhouse.stack.engine.datavolume.registry import RegistryRefused, parse_reference
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import (
    ABSENT,
    Domain,
    DomainState,
    HypervisorRefused,
    MigrationAborted,
    Pair,
    Stream,
    Switched,
)
from poolhouse.stack.engine.migration.settings import MigrationSettings, timeout_message
from poolhouse.stack.engine.objects import VMI, seconds_until
from poolhouse.stack.engine.vm.live_updates import Hotplug
from poolhouse.stack.engine.vmi.devices import DeviceReport
from poolhouse.stack.engine.vmi.phases import is_paused
from poolhouse.stack.engine.vmi.probes import Probe

COPY_BYTES_PER_SECOND = 256 << 20
DOWNTIME_SECONDS = 0.3
"""downtime limit of QEMU, in which it copies the rest of the memory while the guest is stopped"""

IMPORT_SECONDS = 2.0
"""duration of a simulated import that fails"""
PULL_MESSAGE = "failed to pull and unpack image: failed to resolve reference: not found"
UNSCHEDULABLE_MESSAGE = "0/2 nodes are available: 2 Insufficient memory."


def simulate_domain(vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """Returns the domain of a VMI at a time. `Faults.outcome` explains `identity` and `failures`."""
    if vmi.deleted is not None:
        return _stopping_domain(vmi, faults, now)
    if vmi.phase == "Running":
        return _running_domain(vmi, faults, now)
    outcome = faults.outcome(identity, failures)
    start_seconds = faults.start_after(identity)
    if outcome in ("ErrorUnschedulable", "ErrImagePull"):
        return _retried_start(vmi, outcome, faults, start_seconds, now)
    left = seconds_until(vmi.created + timedelta(seconds=start_seconds), now)
    if outcome == "Stuck":
        return Domain("starting", vmi.node)
    if left > 0:
        return Domain("starting", vmi.node, change_seconds=left)
    if outcome == "CrashLoopBackOff":
        return Domain("crashed", vmi.node, reason="the guest crashed while it was starting (simulated)")
    return Domain("paused" if vmi.start_paused else "running", vmi.node, agent=faults.agent)


def injected_failure(vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """Returns the domain of a start that fails by fault injection, for real hypervisors; `absent` without a fault."""
    started = vmi.deleted is not None or vmi.final or vmi.phase == "Running"
    if started or faults.outcome(identity, failures) is None:
        return ABSENT
    domain = simulate_domain(vmi, faults, identity, failures, now)
    return ABSENT if domain.state in ("running", "paused") else domain


def copy_seconds(memory: int, settings: MigrationSettings, dirty: int) -> float:
    """Returns the seconds of a migration; infinity if the guest dirties more memory than the downtime can copy."""
    speed = settings.bandwidth or COPY_BYTES_PER_SECOND
    return math.inf if dirty > speed * DOWNTIME_SECONDS and not settings.auto_converge else memory / speed


def _running_domain(vmi: VMI, faults: Faults, now: datetime) -> Domain:
    ends: dict[DomainState, tuple[float | None, str]] = {
        "crashed": (faults.crash_seconds, "the guest crashed after it had started (simulated)"),
        "off": (faults.reboot_seconds if vmi.ends_at_reboot else None, "the guest has rebooted (simulated)"),
    }
    started, waits = vmi.reached("Running"), list[float]()
    for state, (seconds, reason) in ends.items():
        if seconds is not None and started is not None:
            waits.append(seconds_until(started + timedelta(seconds=seconds), now))
            if waits[-1] <= 0:
                return Domain(state, vmi.node, reason=reason)
    left = min(waits, default=None)
    return Domain("paused" if is_paused(vmi) else "running", vmi.node, agent=faults.agent, change_seconds=left)


def _retried_start(vmi: VMI, outcome: str, faults: Faults, start_seconds: float, now: datetime) -> Domain:
    """Returns the domain of a start that KubeVirt retries with the same VMI. A try takes as long as a start."""
    left = None
    if faults.fail_times is not None:
        left = seconds_until(vmi.created + timedelta(seconds=start_seconds * faults.fail_times), now)
        if left == 0:
            return Domain("running", vmi.node, agent=faults.agent)
    if outcome == "ErrImagePull":
        return Domain(start_problem="ErrImagePull", reason=PULL_MESSAGE, change_seconds=left)
    return Domain(start_problem="Unschedulable", reason=UNSCHEDULABLE_MESSAGE, change_seconds=left)


def _stopping_domain(vmi: VMI, faults: Faults, now: datetime) -> Domain:
    if vmi.deleted is None or vmi.phase not in ("Scheduled", "Running"):
        return ABSENT
    stop_seconds = min(faults.stop_seconds, vmi.grace_seconds)
    left = seconds_until(vmi.deleted + timedelta(seconds=stop_seconds), now)
    return Domain("running", vmi.node, change_seconds=left) if left > 0 else ABSENT


def _drawn_mac(uid: str, nic: str) -> str:
    octets = hashlib.sha256(f"{uid} {nic}".encode()).digest()[:5]
    return "02:" + ":".join(f"{octet:02x}" for octet in octets)


class SimulatedHypervisor:
    """Simulates domains. Its only state is what the VMIs do not show yet: pauses, and guests that are shutting down."""

    hotplugs: tuple[Hotplug, ...] = ("cpu", "memory")

    def __init__(self, addresses: GuestAddresses | None = None) -> None:
        self._addresses = addresses or GuestAddresses()
        self._changed: Callable[[str], None] = lambda uid: None
        self._paused: dict[str, bool] = {}
        # By UID, since when a guest is shutting down; None: since the next observation.
        self._pressed: dict[str, datetime | None] = {}

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._changed = changed

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        domain = self._shutting_down(simulate_domain(vmi, faults, identity, failures, now), vmi, faults, now)
        if domain.alive and not vmi.status.get("interfaces"):
            given = {name: self._addresses.address(vmi.uid, name) for name, _ in vmi.interfaces}
            domain = replace(domain, addresses=given)
        paused = self._paused.get(vmi.uid)
        if paused is None or domain.state not in ("running", "paused"):
            self._paused.pop(vmi.uid, None)
            return domain
        if paused == (domain.state == "paused"):
            del self._paused[vmi.uid]
        return replace(domain, state="paused" if paused else "running", reason="", change_seconds=None)

    def _shutting_down(self, domain: Domain, vmi: VMI, faults: Faults, now: datetime) -> Domain:
        if vmi.uid not in self._pressed:
            return domain
        if not domain.alive or vmi.deleted is not None:
            del self._pressed[vmi.uid]
            return domain
        since = self._pressed[vmi.uid] = self._pressed[vmi.uid] or now
        left = seconds_until(since + timedelta(seconds=faults.stop_seconds), now)
        return replace(domain, change_seconds=left) if left > 0 else Domain("off", domain.node)

    async def launch(self, document: Json, node: str, faults: Faults) -> None: ...

    async def sync_devices(self, vmi: VMI, document: Json, pending: Collection[str]) -> DeviceReport:
        disks = [str(disk["name"]) for _, disk in entries(document, "spec", "domain", "devices", "disks")]
        targets = {name: f"disk-{index}" for index, name in enumerate(disks) if name not in pending}
        # As KubeVirt does, each start draws the addresses that the spec leaves open anew.
        nics = {name: mac or _drawn_mac(vmi.uid, name) for name, mac in vmi.interfaces if name not in vmi.absent}
        return DeviceReport(targets, nics, addresses={name: self._addresses.address(vmi.uid, name) for name in nics})

    async def press_power(self, vmi: VMI) -> None:
        # The domain of a VMI that is being deleted depends on the time of its deletion only.
        if vmi.deleted is None and vmi.uid not in self._pressed:
            self._pressed[vmi.uid] = None
            self._changed(vmi.uid)

    async def pause(self, vmi: VMI, paused: bool) -> None:
        self._paused[vmi.uid] = paused
        self._changed(vmi.uid)

    async def why_no_post_copy(self) -> str | None:
        return None

    def why_no_probe(self, probe: Probe) -> str:
        return "a simulated guest executes no commands" if probe.handler == "exec" else ""

    async def probe(self, vmi: VMI, probe: Probe, faults: Faults, now: datetime) -> str:
        if probe.handler == "guestAgentPing":
            return "" if faults.agent else "the guest agent does not answer (simulated)"
        started = vmi.reached("Running")
        if faults.service_seconds is None or started is None:
            return ""
        served = seconds_until(started + timedelta(seconds=faults.service_seconds), now) > 0
        return "" if served else "connection refused (simulated)"

    async def migrate(
        self, vmi: VMI, target: str, settings: MigrationSettings, faults: Faults, switched: Switched
    ) -> None:
        """Waits as long as a real migration copies memory."""
        timeout = settings.timeout_seconds(vmi.memory)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(copy_seconds(vmi.memory, settings, faults.dirty_memory))
        except TimeoutError:
            assert timeout is not None
            if settings.at_timeout is None:
                raise MigrationAborted(timeout_message(timeout, {})) from None
            await switched()

    async def open_stream(self, vmi: VMI, stream: Stream) -> AbstractAsyncContextManager[Pair]:
        raise HypervisorRefused("a simulated VM has no console and no display; start the stack with --engine qemu")

    async def clear(self, uid: str) -> None: ...


class SimulatedSnapshots:
    """Simulates copies of disks, which take as long as the fault injection says."""

    async def take(self, disks: Mapping[str, PVC], vmi: VMI | None, faults: Faults) -> None:
        await asyncio.sleep(faults.snapshot_seconds)

    async def restore(self, copy: str, pvc: PVC) -> None: ...

    async def delete(self, copies: Collection[str]) -> None: ...

    async def delete_others(self, copies: Collection[str]) -> None: ...


def _refusal(source: Json) -> str:
    """Why the engine for real guests refuses the image of a registry, as far as its URL shows; else an empty string."""
    url = str(at(source, "registry", "url") or "")
    try:
        if url.startswith("docker://"):
            parse_reference(url)
    except RegistryRefused as error:
        return str(error)
    return ""


class SimulatedImporter:
    """Simulates imports, which succeed at once unless fault injection fails them, or nothing can be imported from the
    source."""

    def subscribe(self, changed: Callable[[Key], None]) -> None: ...

    def progress(self, data_volume: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        done = ImportProgress("done", content="simulated")
        if pvc is None and (why := _refusal(data_volume.source)):
            return ImportProgress("failed", reason=why, failures=1)
        if pvc is not None or faults.fail != "DataVolumeError":
            return done
        tries = int((now - data_volume.created).total_seconds() / IMPORT_SECONDS) + 1
        if faults.outcome(data_volume.uid, 0) is None or (faults.fail_times is not None and tries > faults.fail_times):
            return done
        reason = http_failure(404, "Not Found (simulated)")
        if faults.fail_times is None:
            return ImportProgress("failed", reason=reason, failures=1)
        next_try = seconds_until(data_volume.created + timedelta(seconds=IMPORT_SECONDS * tries), now)
        return ImportProgress("failed", reason=reason, failures=tries, requeue_seconds=next_try + 0.01)

    async def start(self, data_volume: DataVolume, pvc: PVC) -> None: ...

    async def create_blank(self, pvc: PVC) -> str:
        return "blank"

    async def delete(self, pvc: PVC) -> None: ...

    async def delete_orphans(self, pvcs: list[PVC]) -> None: ...
