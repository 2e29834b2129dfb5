"""Imports and clones disks as CDI does: each PVC is a qcow2 file named by its UID.

If an image's server does not answer, the disk gets the built-in Linux. An HTTP error fails the import, as in CDI.
"""

import asyncio
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import aiohttp

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import Key
from poolhouse.stack.engine.datavolume.phases import ImportProgress, http_failure, source_type
from poolhouse.stack.engine.datavolume.registry import (
    NO_DISK,
    RegistryRefused,
    extract_disk,
    find_layers,
    parse_reference,
)
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.reasons import EngineReason
from poolhouse.stack.engine.resources import BUILT_IN_GUEST, DATA_VOLUMES
from poolhouse.stack.processes import as_user

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
IMPORT_SECONDS = 3600.0
COMMAND_SECONDS = 1800.0
PARALLEL_IMPORTS = 4
LIMIT_BYTES = 64 << 30
RETRIES = Backoff(base_seconds=5, cap_seconds=300)
CHUNK_BYTES = 1 << 20
PROGRESS_SECONDS = 2.0
DEFAULT_SIZE = 1 << 30

GetPVC = Callable[[Key], PVC | None]


class SourceUnreachable(Exception):
    """No server answers at the address of an image."""


class ImportFailed(Exception):
    """The image cannot be fetched or used. The message gives the reason."""


class Importer(Protocol):
    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Calls `changed` with the key of each DataVolume whose import has progressed."""

    def progress(self, data_volume: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        """Returns the last known progress without waiting."""

    async def start(self, data_volume: DataVolume, pvc: PVC) -> None:
        """Starts the import unless it runs already."""

    async def create_blank(self, pvc: PVC) -> str:
        """Creates an empty disk for a PVC without a DataVolume; returns its content, `blank`."""

    async def delete(self, pvc: PVC) -> None:
        """Stops the import and deletes the file of a deleted PVC."""

    async def delete_orphans(self, pvcs: list[PVC]) -> None:
        """Deletes the files of PVCs that are not in the list."""


@dataclass
class ImportJob:
    progress: ImportProgress
    task: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0


class QemuImgImporter:
    """`uid` is the user that runs qemu-img and owns the files; None is the engine's user."""

    def __init__(self, directory: Path, events: EventRecorder, get_pvc: GetPVC, uid: int | None) -> None:
        self._directory, self._events, self._get_pvc, self._uid = directory, events, get_pvc, uid
        self._jobs: dict[str, ImportJob] = {}
        self._changed: Callable[[Key], None] = lambda key: None
        self._slots = asyncio.Semaphore(PARALLEL_IMPORTS)

    def subscribe(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed

    def path(self, pvc: PVC) -> Path:
        return self._directory / f"{pvc.uid}.qcow2"

    def progress(self, data_volume: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        job = self._jobs.get(pvc.uid) if pvc is not None else None
        if job is None:
            return ImportProgress()
        left = job.retry_at - asyncio.get_running_loop().time()
        if job.progress.state == "failed" and left <= 0:
            return ImportProgress(failures=job.failures)
        return replace(job.progress, requeue_seconds=left if job.progress.state == "failed" else None)

    async def start(self, data_volume: DataVolume, pvc: PVC) -> None:
        job = self._jobs.setdefault(pvc.uid, ImportJob(ImportProgress()))
        if job.progress.state in ("running", "done"):
            return
        job.progress = ImportProgress("running")
        job.task = asyncio.create_task(self._import(data_volume, pvc, job), name=f"import-{data_volume.name}")

    async def create_blank(self, pvc: PVC) -> str:
        await self.blank(self.path(pvc), to_int(pvc.size) or DEFAULT_SIZE)
        return "blank"

    async def delete(self, pvc: PVC) -> None:
        job = self._jobs.pop(pvc.uid, None)
        if job is not None and job.task is not None:
            job.task.cancel()
        for path in self._directory.glob(f"{pvc.uid}.*"):
            path.unlink(missing_ok=True)

    async def delete_orphans(self, pvcs: list[PVC]) -> None:
        known = {pvc.uid for pvc in pvcs}
        for path in self._directory.glob("*.*"):
            if path.is_file() and path.name.split(".")[0] not in known:
                log.info("deleting %s: it belongs to no PVC", path.name)
                path.unlink(missing_ok=True)

    async def blank(self, path: Path, size: int) -> None:
        """Creates an empty disk; an existing file stays as it is."""
        if not _exists(path):
            draft = path.with_suffix(".new")
            await self._run("qemu-img", "create", "-q", "-f", "qcow2", str(draft), str(size))
            draft.rename(path)

    async def copy(self, source: Path, target: Path) -> None:
        """Copies a disk that no guest writes to. The target appears when it is complete. Raises `ImportFailed`."""
        draft = target.with_suffix(".copy")
        try:
            await self._run("qemu-img", "convert", "-q", "-f", "qcow2", "-O", "qcow2", str(source), str(draft))
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)

    async def _import(self, data_volume: DataVolume, pvc: PVC, job: ImportJob) -> None:
        try:
            async with self._slots, asyncio.timeout(IMPORT_SECONDS):
                content = await self._fill(data_volume, pvc, job)
            job.progress = ImportProgress("done", content=content)
        except (ImportFailed, RegistryRefused, OSError, TimeoutError, aiohttp.ClientError) as error:
            self._failed(data_volume, pvc, job, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("%s/%s: the import failed unexpectedly", *data_volume.key)
            self._failed(data_volume, pvc, job, repr(error))
        finally:
            for suffix in ("download", "new"):
                (self._directory / f"{pvc.uid}.{suffix}").unlink(missing_ok=True)
        self._changed(data_volume.key)

    def _failed(self, data_volume: DataVolume, pvc: PVC, job: ImportJob, why: str) -> None:
        job.failures += 1
        job.retry_at = asyncio.get_running_loop().time() + RETRIES.delay(job.failures, pvc.uid)
        job.progress = ImportProgress("failed", reason=why, failures=job.failures)
        self._emit(data_volume, EngineReason.IMPORT_FAILED, why)

    async def _fill(self, data_volume: DataVolume, pvc: PVC, job: ImportJob) -> str:
        path, size = self.path(pvc), to_int(pvc.size) or DEFAULT_SIZE
        source = source_type(data_volume.source)
        if _exists(path):
            # The file is complete, because files are renamed into place. The engine stopped before it bound the PVC.
            return "blank" if source in ("blank", "upload") else "image"
        match source:
            case "blank" | "upload":
                await self.blank(path, size)
                return "blank"
            case "pvc":
                return await self._clone(data_volume, path, size)
            case "http":
                url = str(data_volume.source["http"].get("url") or "")
            case _:
                url = str((data_volume.source[source] or {}).get("url") or source)
        try:
            await self._import_url(url, pvc, path, size, job, data_volume)
        except SourceUnreachable as error:
            note = f"{error}; the VM boots the built-in Linux instead"
            self._emit(data_volume, EngineReason.IMAGE_UNREACHABLE, note)
            await self.blank(path, size)
            return BUILT_IN_GUEST
        return "image"

    async def _import_url(
        self, url: str, pvc: PVC, path: Path, size: int, job: ImportJob, data_volume: DataVolume
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme == "file" or url.startswith("/"):
            local = Path(unquote(parts.path))
            if not _exists(local):
                raise ImportFailed(f"{local}: no such file")
            return await self._convert(local, path, size)
        if parts.scheme not in ("http", "https", "docker"):
            raise SourceUnreachable(f"{url}: the engine imports from http, https, docker and file URLs only")
        fetch = self._fetch_from_registry if parts.scheme == "docker" else self._download
        download = self._directory / f"{pvc.uid}.download"
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                await fetch(session, url, download, job, data_volume)
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, aiohttp.ConnectionTimeoutError) as error:
            raise SourceUnreachable(f"{url} cannot be reached: {str(error) or 'no answer in time'}") from error
        if self._uid is not None:
            os.chown(download, self._uid, -1)
        await self._convert(download, path, size)
        return None

    async def _fetch_from_registry(
        self, session: aiohttp.ClientSession, url: str, target: Path, job: ImportJob, data_volume: DataVolume
    ) -> None:
        image, layer = parse_reference(url), target.with_suffix(".layer")
        digests, headers = await find_layers(session, image)
        try:
            for digest in digests:
                blob = f"{image.address}/blobs/{digest}"
                await self._download(session, blob, layer, job, data_volume, headers=headers)
                if await asyncio.to_thread(extract_disk, layer, digest, target, self._limit()):
                    return
        finally:
            layer.unlink(missing_ok=True)
        raise ImportFailed(NO_DISK)

    def _limit(self) -> int:
        return min(LIMIT_BYTES, shutil.disk_usage(self._directory).free // 2)

    async def _download(
        self,
        session: aiohttp.ClientSession,
        url: str,
        target: Path,
        job: ImportJob,
        data_volume: DataVolume,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        limit = self._limit()
        async with session.get(url, headers=headers) as answer:
            if answer.status != 200:
                raise ImportFailed(http_failure(answer.status, answer.reason or ""))
            total = answer.content_length
            if total is not None and total > limit:
                raise ImportFailed(f"{url}: the image has {total} bytes, more than the {limit} that fit on disk")
            await self._save(answer.content.iter_chunked(CHUNK_BYTES), target, total, limit, job, data_volume)

    async def _save(
        self, chunks: Any, target: Path, total: int | None, limit: int, job: ImportJob, data_volume: DataVolume
    ) -> None:
        done, reported = 0, 0.0
        with target.open("wb") as file:
            async for chunk in chunks:
                done += len(chunk)
                if done > limit:
                    raise ImportFailed(f"the image is larger than the {limit} bytes that fit on disk")
                await asyncio.to_thread(file.write, chunk)
                job.progress = ImportProgress("running", share=done / total if total else None)
                now = asyncio.get_running_loop().time()
                if now - reported > PROGRESS_SECONDS:
                    reported = now
                    self._changed(data_volume.key)

    async def _convert(self, source: Path, path: Path, size: int) -> None:
        """Converts an image to qcow2 without a backing file, which could expose files of this machine."""
        info = json.loads(await self._run("qemu-img", "info", "--output=json", "-U", str(source)))
        specific = (info.get("format-specific") or {}).get("data") or {}
        if "backing-filename" in info or "data-file" in specific or info.get("format") not in ("raw", "qcow2"):
            raise ImportFailed(
                f"{source.name} must be a raw or qcow2 image that stands alone, not {info.get('format')}"
            )
        if int(info["virtual-size"]) > size:
            raise ImportFailed(
                f"the image is a disk of {info['virtual-size']} bytes, more than the {size} bytes that the PVC requests"
            )
        draft = path.with_suffix(".new")
        await self._run(
            *("qemu-img", "convert", "-q", "-U", "-f", info["format"], "-O", "qcow2", str(source), str(draft))
        )
        await self._run("qemu-img", "resize", "-q", "-f", "qcow2", str(draft), str(size))
        draft.rename(path)

    async def _clone(self, data_volume: DataVolume, path: Path, size: int) -> str:
        source = data_volume.source["pvc"]
        key = source.get("namespace") or data_volume.namespace, str(source.get("name"))
        pvc = self._get_pvc(key)
        if pvc is None or pvc.phase != "Bound":
            raise ImportFailed(f"PVC {key[0]}/{key[1]} cannot be cloned: it does not exist or is not bound")
        await self._convert(self.path(pvc), path, size)
        return pvc.content or "image"

    async def _run(self, *command: str) -> str:
        process = await asyncio.to_thread(self._start, command)
        try:
            output, errors = await asyncio.to_thread(process.communicate, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise ImportFailed(f"{command[0]} has not ended after {COMMAND_SECONDS:g} s") from None
        finally:
            process.kill()
        if process.returncode != 0:
            raise ImportFailed(errors.strip() or f"{command[0]} ended with exit code {process.returncode}")
        return str(output)

    def _start(self, command: tuple[str, ...]) -> subprocess.Popen[str]:
        # asyncio's subprocesses cannot run as another user under uvloop.
        pipe = subprocess.PIPE
        user = as_user(self._uid)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, **user)

    def _emit(self, data_volume: DataVolume, reason: EngineReason, note: str) -> None:
        log.warning("%s/%s: %s", *data_volume.key, note)
        self._events.emit(data_volume.reference(DATA_VOLUMES), "Warning", reason, note, action="Import")


def _exists(path: Path) -> bool:
    """Whether the file exists. The call takes microseconds, so it does not need a thread."""
    return path.is_file()
