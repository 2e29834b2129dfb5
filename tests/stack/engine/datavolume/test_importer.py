"""Imports with the real qemu-img and a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from poolhouse.runtime.events import EventRecorder
from poolhouse.stack.engine.datavolume.importer import QemuImgImporter
from poolhouse.stack.engine.datavolume.phases import ImportProgress
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.fault_injection import Faults
from tests.stack.engine.builders import NOW, disk, pvc
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")


class Said(EventRecorder):
    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def emit(self, regarding: Any, type: Any, reason: str, note: str, *, action: str) -> None:
        self.notes.append((reason, note))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    image = tmp_path / "image.qcow2"
    create(str(image), "1M")

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path == "/image":
            return web.FileResponse(image)
        raise web.HTTPNotFound

    runner = web.AppRunner(web.Application())
    runner.app.router.add_get("/{path:.*}", serve)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def filled(importer: QemuImgImporter, wanted: DataVolume, made: PVC) -> ImportProgress:
    done = asyncio.Event()
    importer.subscribe(lambda key: done.set())
    await importer.start(wanted, made)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while importer.progress(wanted, made, Faults(), NOW).state == "running":
            await done.wait()
            done.clear()
    return importer.progress(wanted, made, Faults(), NOW)


def new_importer(tmp_path: Path, said: Said, source: PVC | None = None) -> QemuImgImporter:
    directory = tmp_path / "disks"
    directory.mkdir(exist_ok=True)
    return QemuImgImporter(directory, said, lambda key: source, None)


def info(path: Path) -> Any:
    done = subprocess.run(["qemu-img", "info", "--output=json", path], capture_output=True, check=True)
    return json.loads(done.stdout)


def create(*arguments: str) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *arguments], check=True)


SMALL = pvc(phase="Pending", size="2Mi")


async def test_an_image_is_imported_and_resized(tmp_path: Path, server: str) -> None:
    importer = new_importer(tmp_path, Said())
    made = await filled(importer, disk(phase="", source={"http": {"url": f"{server}/image"}}), SMALL)
    assert (made.state, made.content) == ("done", "image")
    assert info(importer.path(SMALL))["virtual-size"] == 2 << 20
    assert [path.name for path in (tmp_path / "disks").iterdir()] == ["disk-pvc.qcow2"]


async def test_an_unreachable_image_is_replaced_with_the_built_in_linux(tmp_path: Path) -> None:
    said = Said()
    made = await filled(
        new_importer(tmp_path, said), disk(phase="", source={"http": {"url": "http://127.0.0.1:1/x"}}), SMALL
    )
    assert (made.state, made.content) == ("done", "tiny")
    assert said.notes[0][0] == "ImageUnreachable"


async def test_an_error_answer_fails_the_import(tmp_path: Path, server: str) -> None:
    made = await filled(
        new_importer(tmp_path, Said()), disk(phase="", source={"http": {"url": f"{server}/none"}}), SMALL
    )
    assert made.state == "failed"
    assert "404" in made.reason
    assert made.requeue_seconds is not None


async def test_an_image_with_a_backing_file_is_refused(tmp_path: Path) -> None:
    secret, evil = tmp_path / "secret", tmp_path / "evil.qcow2"
    secret.write_bytes(b"x" * 1024)
    create("-b", str(secret), "-F", "raw", str(evil))
    made = await filled(
        new_importer(tmp_path, Said()), disk(phase="", source={"http": {"url": f"file://{evil}"}}), SMALL
    )
    assert made.state == "failed"
    assert "stands alone" in made.reason


async def test_an_image_larger_than_the_pvc_is_refused(tmp_path: Path, server: str) -> None:
    small = pvc(phase="Pending", size="512Ki")
    made = await filled(
        new_importer(tmp_path, Said()), disk(phase="", source={"http": {"url": f"{server}/image"}}), small
    )
    assert "512" in made.reason or "524288" in made.reason


async def test_a_clone_has_the_content_of_its_source(tmp_path: Path) -> None:
    source = pvc("source", content="image", size="1Mi")
    importer = new_importer(tmp_path, Said(), source)
    await importer.blank(importer.path(source), 1 << 20)
    made = await filled(importer, disk(phase="", source={"pvc": {"name": "source", "namespace": "default"}}), SMALL)
    assert (made.state, made.content) == ("done", "image")


async def test_files_of_deleted_pvcs_are_deleted(tmp_path: Path) -> None:
    importer = new_importer(tmp_path, Said())
    kept, gone = pvc("kept"), pvc("gone")
    for each in (kept, gone):
        await importer.blank(importer.path(each), 1 << 20)
    await importer.delete_orphans([kept])
    assert importer.path(kept).exists()
    assert not importer.path(gone).exists()
    await importer.delete(kept)
    assert not importer.path(kept).exists()
