"""Files of disks: made blank, imported or cloned, each a qcow2 file named by its pvc's UID.

An image that nobody can reach becomes the built-in Linux; one whose server says no is an error, as in CDI.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import aiohttp

from local.engine.datavolume.phases import ImportProgress, source_type
from local.engine.fault_injection import Faults
from local.engine.objects import PVC, DataVolume
from local.engine.quantity import bytes_of
from local.engine.resources import BUILT_IN_GUEST, DATA_VOLUMES
from local.engine.user import as_user
from runtime.backoff import Backoff
from runtime.events import EventRecorder
from runtime.resource import Key

log = logging.getLogger(__name__)

REACH_SECONDS = 5.0
SILENT_SECONDS = 30.0
IMPORT_SECONDS = 3600.0
COMMAND_SECONDS = 1800.0
LIMIT_BYTES = 64 << 30
RETRIES = Backoff(base_seconds=5, cap_seconds=300)
CHUNK = 1 << 20
TELL_SECONDS = 2.0
DEFAULT_SIZE = 1 << 30


class SourceUnreachable(Exception):
    """Nobody answers where the image should be."""


class ImportFailed(Exception):
    """The image cannot be had or cannot be used; the text says why."""


@dataclass
class ImportJob:
    progress: ImportProgress
    task: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0


class Importer(Protocol):
    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Calls `changed` with the name of each DataVolume whose progress has come on."""

    def progress(self, disk: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        """What is known now; never waits."""

    async def fill(self, disk: DataVolume, pvc: PVC) -> None:
        """Begin it, unless it has begun."""

    async def provide(self, pvc: PVC) -> str:
        """The content of a pvc that no DataVolume fills: an empty disk."""

    async def drop(self, pvc: PVC) -> None:
        """The pvc is gone: so is what it held."""

    async def sweep(self, pvcs: list[PVC]) -> None:
        """Drop what belongs to none of these, which are all there are."""


class QemuImgImporter:
    def __init__(
        self, directory: Path, events: EventRecorder, pvc: Callable[[Key], PVC | None], uid: int | None
    ) -> None:
        self._directory = directory
        self._events = events
        self._pvc = pvc
        self._uid = uid
        self._jobs: dict[str, ImportJob] = {}
        self._changed: Callable[[Key], None] = lambda key: None
        self._slots = asyncio.Semaphore(4)

    def subscribe(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed

    def path(self, pvc: PVC) -> Path:
        return self._directory / f"{pvc.uid}.qcow2"

    def progress(self, disk: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        job = self._jobs.get(pvc.uid) if pvc is not None else None
        if job is None:
            return ImportProgress()
        left = job.retry_at - asyncio.get_running_loop().time()
        if job.progress.state == "failed" and left <= 0:
            return ImportProgress(failures=job.failures)
        return replace(job.progress, requeue_seconds=left if job.progress.state == "failed" else None)

    async def fill(self, disk: DataVolume, pvc: PVC) -> None:
        job = self._jobs.setdefault(pvc.uid, ImportJob(ImportProgress()))
        if job.progress.state in ("running", "done"):
            return
        job.progress = ImportProgress("running")
        job.task = asyncio.create_task(self._bring(disk, pvc, job), name=f"import-{disk.name}")

    async def provide(self, pvc: PVC) -> str:
        await self.blank(self.path(pvc), bytes_of(pvc.size) or DEFAULT_SIZE)
        return "blank"

    async def drop(self, pvc: PVC) -> None:
        job = self._jobs.pop(pvc.uid, None)
        if job is not None and job.task is not None:
            job.task.cancel()
        self._remove(pvc.uid)

    async def sweep(self, pvcs: list[PVC]) -> None:
        known = {pvc.uid for pvc in pvcs}
        for path in self._directory.glob("*.*"):
            if path.is_file() and path.name.split(".")[0] not in known:
                log.info("removing %s: no pvc has it", path.name)
                path.unlink(missing_ok=True)

    async def blank(self, path: Path, size: int) -> None:
        """A new empty disk; one that is there stays as it is."""
        if not _is_file(path):
            fresh = path.with_suffix(".new")
            await self._run("qemu-img", "create", "-q", "-f", "qcow2", str(fresh), str(size))
            fresh.rename(path)

    async def end(self) -> None:
        """Ends what is under way; it begins anew at the next start."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bring(self, disk: DataVolume, pvc: PVC, job: ImportJob) -> None:
        try:
            async with self._slots, asyncio.timeout(IMPORT_SECONDS):
                content = await self._content(disk, pvc, job)
            job.progress = ImportProgress("done", content=content)
        except (ImportFailed, OSError, TimeoutError, aiohttp.ClientError) as error:
            self._failed(disk, pvc, job, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("%s/%s: the import failed in a way that was not foreseen", *disk.key)
            self._failed(disk, pvc, job, repr(error))
        finally:
            for suffix in ("download", "new"):
                (self._directory / f"{pvc.uid}.{suffix}").unlink(missing_ok=True)
        self._changed(disk.key)

    def _failed(self, disk: DataVolume, pvc: PVC, job: ImportJob, why: str) -> None:
        job.failures += 1
        job.retry_at = asyncio.get_running_loop().time() + RETRIES.delay(job.failures, pvc.uid)
        job.progress = ImportProgress("failed", reason=why, failures=job.failures)
        self._tell(disk, "Error", why)

    async def _content(self, disk: DataVolume, pvc: PVC, job: ImportJob) -> str:
        path, size = self.path(pvc), bytes_of(pvc.size) or DEFAULT_SIZE
        kind = source_type(disk.source)
        if _is_file(path):
            # Whole, because it was renamed into place: we ended before it could be said.
            return "blank" if kind in ("blank", "upload") else "image"
        match kind:
            case "blank" | "upload":
                await self.blank(path, size)
                return "blank"
            case "pvc":
                return await self._clone(disk, pvc, path, size)
            case "http":
                url = str(disk.source["http"].get("url") or "")
            case _:
                url = str((disk.source[kind] or {}).get("url") or kind)
        try:
            await self._import(url, pvc, path, size, job, disk)
        except SourceUnreachable as error:
            self._tell(disk, "ImageUnreachable", f"{error}; the VM gets the built-in tiny Linux instead")
            await self.blank(path, size)
            return BUILT_IN_GUEST
        return "image"

    async def _import(self, url: str, pvc: PVC, path: Path, size: int, job: ImportJob, disk: DataVolume) -> None:
        parts = urlsplit(url)
        if parts.scheme == "file" or url.startswith("/"):
            local = Path(unquote(parts.path))
            if not _is_file(local):
                raise ImportFailed(f"{local}: there is no such file")
            return await self._convert(local, path, size)
        if parts.scheme not in ("http", "https"):
            raise SourceUnreachable(f"{url}: images can be had here from http, https and files only")
        download = self._directory / f"{pvc.uid}.download"
        await self._download(url, download, job, disk)
        await self._convert(download, path, size)
        return None

    async def _download(self, url: str, target: Path, job: ImportJob, disk: DataVolume) -> None:
        limits = aiohttp.ClientTimeout(total=None, connect=REACH_SECONDS, sock_read=SILENT_SECONDS)
        room = min(LIMIT_BYTES, shutil.disk_usage(self._directory).free // 2)
        try:
            async with aiohttp.ClientSession(timeout=limits) as session, session.get(url) as answer:
                if answer.status != 200:
                    raise ImportFailed(f"{url}: the server answered {answer.status} {answer.reason}")
                total = answer.content_length
                if total is not None and total > room:
                    raise ImportFailed(f"{url}: {total} bytes do not fit, there is room for {room}")
                await self._save(answer.content.iter_chunked(CHUNK), target, total, room, job, disk)
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, aiohttp.ConnectionTimeoutError) as error:
            raise SourceUnreachable(f"{url} cannot be reached: {error or 'no answer in time'}") from error

    async def _save(
        self, chunks: Any, target: Path, total: int | None, room: int, job: ImportJob, disk: DataVolume
    ) -> None:
        done, told = 0, 0.0
        with target.open("wb") as file:
            async for chunk in chunks:
                done += len(chunk)
                if done > room:
                    raise ImportFailed(f"the image is larger than the {room} bytes that there is room for")
                await asyncio.to_thread(file.write, chunk)
                job.progress = ImportProgress("running", share=done / total if total else None)
                now = asyncio.get_running_loop().time()
                if now - told > TELL_SECONDS:
                    told = now
                    self._changed(disk.key)
        if self._uid is not None:
            os.chown(target, self._uid, -1)

    async def _convert(self, source: Path, path: Path, size: int) -> None:
        """Into a qcow2 file of its own. Whatever refers to another file could show it that of someone else."""
        info = json.loads(await self._run("qemu-img", "info", "--output=json", "-U", str(source)))
        specific = (info.get("format-specific") or {}).get("data") or {}
        if "backing-filename" in info or "data-file" in specific or info.get("format") not in ("raw", "qcow2"):
            raise ImportFailed(
                f"{source.name} must be a raw or qcow2 image that stands alone, not {info.get('format')}"
            )
        if int(info["virtual-size"]) > size:
            raise ImportFailed(
                f"the image is a disk of {info['virtual-size']} bytes, more than the {size} that were asked for"
            )
        fresh = path.with_suffix(".new")
        await self._run(
            *("qemu-img", "convert", "-q", "-U", "-f", info["format"], "-O", "qcow2", str(source), str(fresh))
        )
        await self._run("qemu-img", "resize", "-q", "-f", "qcow2", str(fresh), str(size))
        fresh.rename(path)

    async def _clone(self, disk: DataVolume, pvc: PVC, path: Path, size: int) -> str:
        wanted = disk.source["pvc"]
        key = wanted.get("namespace") or disk.namespace, str(wanted.get("name"))
        source = self._pvc(key)
        if source is None or source.phase != "Bound":
            raise ImportFailed(f"PVC {key[0]}/{key[1]} is not there to be cloned")
        await self._convert(self.path(source), path, size)
        return source.content or "image"

    async def _run(self, *command: str) -> str:
        process = await asyncio.to_thread(self._begin, command)
        try:
            output, errors = await asyncio.to_thread(process.communicate, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise ImportFailed(f"{command[0]} has not ended in {COMMAND_SECONDS:g} s") from None
        finally:
            process.kill()
        if process.returncode != 0:
            raise ImportFailed(errors.strip() or f"{command[0]} ended with {process.returncode}")
        return str(output)

    def _begin(self, command: tuple[str, ...]) -> subprocess.Popen[str]:
        # Not asyncio's own subprocesses: uvloop's cannot be another user's.
        pipe = subprocess.PIPE
        user = as_user(self._uid)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, **user)

    def _remove(self, uid: str) -> None:
        for path in self._files(uid):
            path.unlink(missing_ok=True)

    def _files(self, uid: str) -> Iterable[Path]:
        return self._directory.glob(f"{uid}.*")

    def _tell(self, disk: DataVolume, reason: str, note: str) -> None:
        log.warning("%s/%s: %s", *disk.key, note)
        self._events.emit(disk.reference(DATA_VOLUMES), "Warning", reason, note, action="Import")


def _is_file(path: Path) -> bool:
    return path.is_file()
