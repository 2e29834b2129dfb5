"""Copies disks for snapshots and restores: by a backup job of QEMU while the VM runs, else by qemu-img.

A backup job copies all disks as they were when the job began, while the guest goes on. The copies are whole files, so
neither the disk nor another copy depends on one.
"""

import asyncio
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lxml import etree

from poolhouse.stack.engine.datavolume.importer import ImportFailed, QemuImgImporter
from poolhouse.stack.engine.disk_objects import PVC
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.qemu.connections import LibvirtRefused, NodeConnections, NodeUnavailable
from poolhouse.stack.engine.snapshot.storage import SnapshotRefused

POLL_SECONDS = 0.2


class QemuSnapshots:
    def __init__(
        self, directory: Path, importer: QemuImgImporter, connections: NodeConnections, uid: int | None
    ) -> None:
        self._directory, self._importer, self._connections = directory, importer, connections
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if uid is not None:
            os.chown(directory, uid, -1)

    def path(self, copy: str) -> Path:
        return self._directory / f"{copy}.qcow2"

    async def take(self, disks: Mapping[str, PVC], vmi: VMI | None, faults: Faults) -> None:
        drafts = {copy: self.path(copy).with_suffix(".new") for copy in disks}
        try:
            for draft in drafts.values():
                await asyncio.to_thread(draft.unlink, missing_ok=True)
            if vmi is None or vmi.final:
                for copy, pvc in disks.items():
                    await self._importer.copy(self._importer.path(pvc), drafts[copy])
            elif disks:
                await self._back_up(vmi, {self._importer.path(pvc): drafts[copy] for copy, pvc in disks.items()})
            for copy, draft in drafts.items():
                draft.rename(self.path(copy))
        except (ImportFailed, LibvirtRefused, NodeUnavailable, OSError) as error:
            raise SnapshotRefused(str(error)) from error
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)

    async def _back_up(self, vmi: VMI, targets: Mapping[Path, Path]) -> None:
        node = self._connections.nodes.get(vmi.node)
        if node is None or not node.domains.get(vmi.uid):
            raise SnapshotRefused("the guest is starting or stopping")
        await node.begin_backup(vmi.uid, backup_xml(await node.running_xml(vmi.uid), targets))
        try:
            while True:
                if not await node.backup_runs(vmi.uid):
                    return
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            await node.abort(vmi.uid)
            raise

    async def restore(self, copy: str, pvc: PVC) -> None:
        try:
            await self._importer.copy(self.path(copy), self._importer.path(pvc))
        except (ImportFailed, OSError) as error:
            raise SnapshotRefused(str(error)) from error

    async def delete(self, copies: Collection[str]) -> None:
        for copy in copies:
            await asyncio.to_thread(self.path(copy).unlink, missing_ok=True)

    async def delete_others(self, copies: Collection[str]) -> None:
        kept = {self.path(copy) for copy in copies}
        for path in await asyncio.to_thread(lambda: list(self._directory.iterdir())):
            if path not in kept:
                path.unlink(missing_ok=True)


def backup_xml(domain: str, targets: Mapping[Path, Path]) -> str:
    """Returns the XML of a backup of those disks of the domain whose files are keys of `targets`. Raises
    `SnapshotRefused` if the domain lacks one of them."""
    root: Any = etree.Element("domainbackup", mode="push")
    parent, found = etree.SubElement(root, "disks"), set()
    domain_root: Any = etree.fromstring(domain)
    for each in domain_root.iterfind("devices/disk"):
        name, source = each.find("target").get("dev"), each.find("source")
        path = Path(source.get("file") or "") if source is not None else Path()
        target = targets.get(path)
        if target is None:
            etree.SubElement(parent, "disk", name=name, backup="no")
            continue
        found.add(path)
        disk = etree.SubElement(parent, "disk", name=name, backup="yes", type="file")
        etree.SubElement(disk, "driver", type="qcow2")
        etree.SubElement(disk, "target", file=str(target))
    if missing := sorted(path.name for path in targets.keys() - found):
        raise SnapshotRefused(f"the guest does not have the disks {', '.join(missing)} yet")
    return str(etree.tostring(root, encoding="unicode"))
