"""The hypervisor of `--engine qemu`: QEMU under one libvirt daemon per node."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.live_devices import is_hotpluggable
from poolhouse.stack.engine.agents.addresses import GuestAddresses
from poolhouse.stack.engine.agents.proxy import Streams
from poolhouse.stack.engine.datavolume.importer import GetPVC, ImportFailed, QemuImgImporter
from poolhouse.stack.engine.disk_objects import PVC
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import (
    ABSENT,
    Domain,
    HypervisorRefused,
    MigrationAborted,
    Pair,
    Stream,
    Switched,
)
from poolhouse.stack.engine.migration.settings import MigrationSettings, timeout_message
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.qemu.capabilities import why_no_post_copy
from poolhouse.stack.engine.qemu.connections import LibvirtRefused, NodeConnections, NodeUnavailable
from poolhouse.stack.engine.qemu.devices import plan_devices, read_devices
from poolhouse.stack.engine.qemu.domain_xml import (
    DomainContext,
    InvalidDomain,
    VolumeFile,
    define_like_kubevirt,
    domain_xml,
)
from poolhouse.stack.engine.qemu.guest_image import GuestImage
from poolhouse.stack.engine.qemu.migration_job import MigrationTimeout
from poolhouse.stack.engine.qemu.probing import LOOPBACK, GuestProber
from poolhouse.stack.engine.qemu.secret_disks import SecretDisks
from poolhouse.stack.engine.qemu.streams import open_stream, stream_file
from poolhouse.stack.engine.simulated import injected_failure
from poolhouse.stack.engine.vm.live_updates import Hotplug
from poolhouse.stack.engine.vmi.devices import DeviceReport
from poolhouse.stack.engine.vmi.probes import Probe

UNKNOWN = Domain("unknown")
SMALL_DISK = 1 << 20
CONTAINER_DISK = 64 << 20


@dataclass(frozen=True)
class QemuSettings:
    marker: str
    """the stack's directory"""
    runtime: Path
    """directory with a subdirectory for each node"""
    consoles: Path
    scratch: Path
    """directory of disks that are deleted with their VMI"""
    guest: GuestImage
    kvm: bool
    uid: int | None


class QemuHypervisor:
    hotplugs: tuple[Hotplug, ...] = ()

    def __init__(
        self,
        settings: QemuSettings,
        importer: QemuImgImporter,
        get_pvc: GetPVC,
        sockets: Mapping[str, Path],
        secrets: SecretDisks,
        addresses: GuestAddresses | None = None,
    ) -> None:
        """With `addresses`, each guest is known by an address of its own, at which a proxy reaches it."""
        self._addresses = addresses
        self._settings, self._importer, self._get_pvc, self._secrets = settings, importer, get_pvc, secrets
        self._migrating: set[str] = set()
        self._domain_changed: Callable[[str], None] = lambda uid: None
        self._health_changed: Callable[[str], None] = lambda node: None
        self._prober = GuestProber()
        self.connections = NodeConnections(sockets, self._notify_domain_changed, self._notify_health_changed)
        for directory in (settings.consoles, settings.scratch):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o711)
            if settings.uid is not None:
                os.chown(directory, settings.uid, -1)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._domain_changed = changed

    def subscribe_health(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the name of each node whose connection is lost or restored."""
        self._health_changed = changed

    def _notify_domain_changed(self, uid: str) -> None:
        self._domain_changed(uid)

    def _notify_health_changed(self, node: str) -> None:
        self._health_changed(node)

    def why_not_ready(self, node: str) -> str | None:
        connection = self.connections.nodes.get(node)
        return connection.problem if connection is not None else "this stack has no such node"

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        if not vmi.node:
            return injected_failure(vmi, faults, identity, failures, now)
        node = self.connections.nodes.get(vmi.node)
        # A domain without a connection is not absent, because QEMU keeps running without libvirtd.
        if node is None or node.problem is not None or vmi.uid in self._migrating:
            return UNKNOWN
        domain = node.domains.get(vmi.uid, ABSENT)
        if not domain.alive:
            # A migrated domain runs on another node before the VMI's status names that node.
            domains = (each.domains.get(vmi.uid) for each in self.connections.nodes.values())
            domain = next((each for each in domains if each is not None and each.alive), domain)
        if domain == ABSENT:
            return injected_failure(vmi, faults, identity, failures, now)
        return replace(domain, addresses=self._addresses_of(vmi)) if domain.alive else domain

    def _addresses_of(self, vmi: VMI) -> dict[str, str]:
        if self._addresses is None:
            return {}
        return {name: self._addresses.address(vmi.uid, name) for name, _ in vmi.interfaces}

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        uid = document["metadata"]["uid"]
        try:
            files = await self._volume_files(document)
            # As in KubeVirt, hotpluggable volumes are attached when the guest runs.
            volumes = document["spec"].get("volumes") or ()
            plugged = {volume["name"] for volume in volumes if not is_hotpluggable(volume)}
            at_start = {name: file for name, file in files.items() if name in plugged}
            xml = domain_xml(document, at_start, self._context(document, faults))
            paused = document["spec"].get("startStrategy") == "Paused"
            await self.connections.nodes[node].launch(uid, partial(define_like_kubevirt, document, xml), paused=paused)
        except (InvalidDomain, ImportFailed, LibvirtRefused) as error:
            raise HypervisorRefused(str(error)) from error

    async def sync_devices(self, vmi: VMI, document: Json, pending: Collection[str]) -> DeviceReport:
        node, problems = self.connections.nodes[vmi.node], []
        try:
            files = await self._volume_files(document)
            changes = plan_devices(await node.running_xml(vmi.uid), document, files, pending)
            for act, devices in ((node.detach, changes.detach), (node.attach, changes.attach)):
                for device in devices:
                    try:
                        await act(vmi.uid, device)
                    except LibvirtRefused as error:
                        problems.append(str(error))
            report = read_devices(await node.running_xml(vmi.uid), "; ".join(problems))
            return replace(report, addresses=self._addresses_of(vmi))
        except (InvalidDomain, LibvirtRefused) as error:
            raise HypervisorRefused(str(error)) from error

    async def press_power(self, vmi: VMI) -> None:
        await self.connections.nodes[vmi.node].press_power(vmi.uid)

    def why_no_probe(self, probe: Probe) -> str:
        if probe.handler in ("exec", "guestAgentPing"):
            return "the guests of the embedded engine have no channel for a guest agent"
        return ""

    async def probe(self, vmi: VMI, probe: Probe, faults: Faults, now: datetime) -> str:
        node = self.connections.nodes.get(vmi.node)
        if node is None:
            raise HypervisorRefused("the guest is not on a node")
        return await self._prober.probe(node, vmi, probe)

    async def connect(self, vmi: VMI, port: int) -> Streams:
        """Connects to a port of the guest. Raises OSError."""
        node = self.connections.nodes.get(vmi.node)
        if node is None:
            raise ConnectionRefusedError("the guest is not on a node")
        try:
            return await asyncio.open_connection(LOOPBACK, await self._prober.forward(node, vmi, port))
        except (LibvirtRefused, NodeUnavailable, HypervisorRefused) as error:
            raise ConnectionRefusedError(str(error)) from error

    async def clear(self, uid: str) -> None:
        self._prober.forget(uid)
        for node in self.connections.nodes.values():
            if uid in node.domains:
                await node.clear(uid)
        await asyncio.to_thread(self._delete_scratch_disks, uid)

    async def why_no_post_copy(self) -> str | None:
        return await asyncio.to_thread(why_no_post_copy, self._settings.uid)

    async def migrate(
        self, vmi: VMI, target: str, settings: MigrationSettings, faults: Faults, switched: Switched
    ) -> None:
        # The target's QEMU creates the socket. The runtime directory has a short path, as sockets need.
        socket = self._settings.runtime / target / f"m-{vmi.uid[:8]}"
        timeout = settings.timeout_seconds(vmi.memory)
        self._migrating.add(vmi.uid)
        try:
            await self.connections.migrate(vmi.uid, vmi.node, target, socket, settings, timeout, switched)
        except MigrationTimeout as error:
            raise MigrationAborted(timeout_message(timeout or 0, error.progress)) from error
        except (LibvirtRefused, NodeUnavailable) as error:
            raise HypervisorRefused(str(error)) from error
        finally:
            self._migrating.discard(vmi.uid)
            await asyncio.to_thread(socket.unlink, missing_ok=True)
            self._domain_changed(vmi.uid)

    async def pause(self, vmi: VMI, paused: bool) -> None:
        await self.connections.nodes[vmi.node].pause(vmi.uid, paused)

    async def open_stream(self, vmi: VMI, stream: Stream) -> AbstractAsyncContextManager[Pair]:
        try:
            xml = await self.connections.nodes[vmi.node].running_xml(vmi.uid)
        except (LibvirtRefused, NodeUnavailable) as error:
            raise HypervisorRefused(str(error)) from error
        return open_stream(stream_file(xml, stream), stream)

    def _context(self, document: Json, faults: Faults) -> DomainContext:
        metadata, settings = document["metadata"], self._settings
        console = settings.consoles / f"{metadata['namespace']}_{metadata['name']}.log"
        has_image = any(pvc.content == "image" for pvc in self._pvcs(document).values())
        guest = settings.guest if faults.linux and not has_image else None
        return DomainContext(settings.marker, console, settings.kvm, guest, faults)

    def _pvcs(self, document: Json) -> dict[str, PVC]:
        """Returns the PVCs of the VMI's volumes, by volume name."""
        pvcs = {}
        for volume in document["spec"].get("volumes") or ():
            name = (volume.get("dataVolume") or {}).get("name")
            name = name or (volume.get("persistentVolumeClaim") or {}).get("claimName")
            pvc = self._get_pvc((document["metadata"]["namespace"], name)) if name else None
            if pvc is not None:
                pvcs[volume["name"]] = pvc
        return pvcs

    async def _volume_files(self, document: Json) -> dict[str, VolumeFile]:
        metadata = document["metadata"]
        files = {name: VolumeFile(self._importer.path(pvc)) for name, pvc in self._pvcs(document).items()}
        for volume in document["spec"].get("volumes") or ():
            if source := volume.get("secret"):
                path = self._settings.scratch / f"{metadata['uid']}_{volume['name']}.raw"
                await self._secrets.write(path, metadata["namespace"], source)
                files[volume["name"]] = VolumeFile(path, "raw")
            elif volume["name"] not in files:
                path = self._settings.scratch / f"{metadata['uid']}_{volume['name']}.qcow2"
                await self._importer.blank(path, _scratch_size(volume))
                files[volume["name"]] = VolumeFile(path)
        return files

    def _delete_scratch_disks(self, uid: str) -> None:
        for path in self._settings.scratch.glob(f"{uid}_*"):
            path.unlink(missing_ok=True)


def _scratch_size(volume: Json) -> int:
    """Returns the size of the blank disk that replaces a volume without a PVC (containerDisk, cloudInit, ...)."""
    if capacity := (volume.get("emptyDisk") or {}).get("capacity"):
        return to_int(str(capacity)) or SMALL_DISK
    return CONTAINER_DISK if volume.get("containerDisk") is not None else SMALL_DISK
