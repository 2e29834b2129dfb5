"""Guests that QEMU runs, on nodes that are libvirt daemons."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from apimachinery.quantity import to_int
from local.engine.datavolume.importer import ImportFailed, QemuImgImporter
from local.engine.fault_injection import Faults
from local.engine.hypervisor import ABSENT, Domain, HypervisorRefused, MigrationAborted
from local.engine.migration.settings import MigrationSettings, timeout_message
from local.engine.objects import PVC, VMI
from local.engine.qemu import postcopy
from local.engine.qemu.connections import LibvirtRefused, NodeConnections, NodeUnavailable
from local.engine.qemu.domain_xml import DomainContext, InvalidDomain, VolumeFile, domain_xml, with_recorded_hardware
from local.engine.qemu.guest_image import GuestImage
from local.engine.qemu.migration_job import MigrationTimeout
from local.engine.simulated import injected_failure
from runtime.resource import Key

Json = dict[str, Any]

UNKNOWN = Domain("unknown")
SMALL_DISK = 1 << 20
LARGE_DISK = 64 << 20


@dataclass(frozen=True)
class QemuSettings:
    """What all guests have in common."""

    marker: str
    """DIR"""
    runtime: Path
    """below it each node has its own"""
    consoles: Path
    scratch: Path
    """for disks that live as long as their VMI"""
    guest: GuestImage
    kvm: bool
    uid: int | None


class QemuHypervisor:
    def __init__(
        self,
        setting: QemuSettings,
        images: QemuImgImporter,
        pvc: Callable[[Key], PVC | None],
        sockets: Mapping[str, Path],
    ) -> None:
        self._setting = setting
        self._images = images
        self._pvc = pvc
        self._changed: Callable[[str], None] = lambda uid: None
        self._moving: set[str] = set()
        self._health_changed: Callable[[str], None] = lambda node: None
        self.daemons = NodeConnections(sockets, self._changed_domain, self._changed_health)
        for directory in (setting.consoles, setting.scratch):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o711)
            if setting.uid is not None:
                os.chown(directory, setting.uid, -1)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._changed = changed

    def _changed_domain(self, uid: str) -> None:
        self._changed(uid)

    def subscribe_health(self, changed: Callable[[str], None]) -> None:
        """Calls `changed` with the name of each node that has come or gone."""
        self._health_changed = changed

    def _changed_health(self, node: str) -> None:
        self._health_changed(node)

    def health(self, node: str) -> str | None:
        found = self.daemons.nodes.get(node)
        return found.problem if found is not None else "there is no such node here"

    def domain(self, vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
        if not vmi.node:
            return injected_failure(vmi, faults, identity, failures, now)
        node = self.daemons.nodes.get(vmi.node)
        # What cannot be seen now is not taken for gone: a guest outlives its libvirtd.
        if node is None or node.problem is not None or vmi.uid in self._moving:
            return UNKNOWN
        found = node.domains.get(vmi.uid, ABSENT)
        # A guest that has moved is where it is, whoever has not yet heard of it.
        elsewhere = [other.domains[vmi.uid] for other in self.daemons.nodes.values() if vmi.uid in other.domains]
        seen = next((domain for domain in elsewhere if domain.alive), found) if not found.alive else found
        return injected_failure(vmi, faults, identity, failures, now) if seen == ABSENT else seen

    def orphans(self, known: Callable[[str], bool]) -> list[str]:
        """UIDs of domains whose VMI is no more."""
        return [uid for node in self.daemons.nodes.values() for uid in node.domains if not known(uid)]

    async def launch(self, document: Json, node: str, faults: Faults) -> None:
        uid = document["metadata"]["uid"]
        try:
            sources = await self._sources(document)
            xml = with_recorded_hardware(document, domain_xml(document, sources, self._host(document, faults)))
            paused = document["spec"].get("startStrategy") == "Paused"
            await self.daemons.nodes[node].launch(uid, xml, paused=paused)
        except (InvalidDomain, ImportFailed, LibvirtRefused) as error:
            raise HypervisorRefused(str(error)) from error

    async def press_power(self, vmi: VMI) -> None:
        await self.daemons.nodes[vmi.node].press_power(vmi.uid)

    async def destroy(self, vmi: VMI) -> None:
        await self.clear(vmi.uid)

    async def clear(self, uid: str) -> None:
        """End its domain, wherever it is."""
        for node in self.daemons.nodes.values():
            if uid in node.domains:
                await node.clear(uid)
        await asyncio.to_thread(self._forget, uid)

    async def why_no_post_copy(self) -> str | None:
        return await asyncio.to_thread(postcopy.why_no_post_copy, self._setting.uid)

    async def migrate(
        self,
        vmi: VMI,
        target: str,
        settings: MigrationSettings,
        faults: Faults,
        switched: Callable[[], Awaitable[None]],
    ) -> None:
        # Below the target's runtime directory: its QEMU makes the socket, and a socket's path must be short.
        socket = self._setting.runtime / target / f"m-{vmi.uid[:8]}"
        seconds = settings.timeout_seconds(vmi.memory)
        self._moving.add(vmi.uid)
        try:
            await self.daemons.migrate(vmi.uid, vmi.node, target, socket, settings, seconds, switched)
        except MigrationTimeout as slow:
            raise MigrationAborted(timeout_message(seconds or 0, slow.progress)) from slow
        except (LibvirtRefused, NodeUnavailable) as error:
            raise HypervisorRefused(str(error)) from error
        finally:
            self._moving.discard(vmi.uid)
            await asyncio.to_thread(socket.unlink, missing_ok=True)
            self._changed(vmi.uid)

    async def pause(self, vmi: VMI, paused: bool) -> None:
        await self.daemons.nodes[vmi.node].pause(vmi.uid, paused)

    def _host(self, document: Json, faults: Faults) -> DomainContext:
        metadata, setting = document["metadata"], self._setting
        console = setting.consoles / f"{metadata['namespace']}_{metadata['name']}.log"
        images = any(pvc.content == "image" for pvc in self._pvcs(document).values())
        return DomainContext(
            setting.marker, console, setting.kvm, None if images else setting.guest, faults.dirty_memory
        )

    def _pvcs(self, document: Json) -> dict[str, PVC]:
        """Claims of the VMI's volumes, by volume name."""
        found = {}
        for volume in document["spec"].get("volumes") or ():
            named = (volume.get("dataVolume") or {}).get("name")
            named = named or (volume.get("persistentVolumeClaim") or {}).get("claimName")
            pvc = self._pvc((document["metadata"]["namespace"], named)) if named else None
            if pvc is not None:
                found[volume["name"]] = pvc
        return found

    async def _sources(self, document: Json) -> dict[str, VolumeFile]:
        pvcs = self._pvcs(document)
        sources = {name: VolumeFile(self._images.path(pvc)) for name, pvc in pvcs.items()}
        for volume in document["spec"].get("volumes") or ():
            if volume["name"] in sources:
                continue
            path = self._setting.scratch / f"{document['metadata']['uid']}_{volume['name']}.qcow2"
            await self._images.blank(path, _size(volume))
            sources[volume["name"]] = VolumeFile(path)
        return sources

    def _forget(self, uid: str) -> None:
        for path in self._setting.scratch.glob(f"{uid}_*"):
            path.unlink(missing_ok=True)


def _size(volume: Json) -> int:
    """Of a disk that stands in for a volume that only a cluster can fill (container images, cloud-init, ...)."""
    if capacity := (volume.get("emptyDisk") or {}).get("capacity"):
        return to_int(str(capacity)) or SMALL_DISK
    return LARGE_DISK if "containerDisk" in volume else SMALL_DISK
