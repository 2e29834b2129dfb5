"""Imports with the real qemu-img and a real HTTP server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from poolhouse.runtime.events import EventRecorder
from poolhouse.stack.engine.datavolume.importer import QemuImgImporter
from poolhouse.stack.engine.datavolume.phases import ImportProgress
from poolhouse.stack.engine.datavolume.registry import MAX_MANIFEST_BYTES, RegistryRefused, parse_reference
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.fault_injection import Faults
from tests.serving import ANY_PATH, serving
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

    async with serving(web.get(ANY_PATH, serve)) as port:
        yield f"http://127.0.0.1:{port}"


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


def content(path: Path) -> bytes:
    raw = path.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw], check=True)
    return raw.read_bytes()


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


class Registry:
    """A registry with one image, which gives nothing without a token."""

    def __init__(self, *layers: dict[str, bytes], folder: Path) -> None:
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        for number, files in enumerate(layers):
            path = folder / f"{number}.tar.gz"
            with tarfile.open(path, "w:gz") as archive:
                for name, content in files.items():
                    (folder / "content").write_bytes(content)
                    archive.add(folder / "content", name)
            self.blobs[f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"] = path.read_bytes()
        self.ours = self._add({"layers": [{"digest": digest} for digest in self.blobs]})
        variants = {"s390x": "sha256:other", "amd64": self.ours, "arm64": self.ours}
        listed = [{"digest": digest, "platform": {"architecture": name}} for name, digest in variants.items()]
        self.manifests["1"] = self.manifests[self._add({"manifests": listed})]

    def _add(self, manifest: Any) -> str:
        """Returns the digest of the manifest."""
        raw = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        self.manifests[digest] = raw
        return digest

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return web.json_response({"token": f"{request.query['service']} {request.query['scope']}"})
        if request.headers.get("Authorization") != "Bearer shop pull":
            challenge = f'Bearer realm="{request.url.origin()}/token",service="shop",scope="pull"'
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": challenge})
        _, _, kind, name = request.path.removeprefix("/v2").split("/")
        if kind == "manifests" and name in self.manifests:
            return web.Response(body=self.manifests[name])
        if kind == "blobs" and name in self.blobs:
            return web.Response(body=self.blobs[name])
        raise web.HTTPNotFound


async def imported(registry: Registry, directory: Path, version: str = "1") -> tuple[ImportProgress, Path]:
    """What an import of `version` from the registry leads to, and the disk."""
    async with serving(web.get(ANY_PATH, registry.answer)) as port:
        url = f"docker://127.0.0.1:{port}/guest:{version}"
        importer = new_importer(directory, Said())
        made = await filled(importer, disk(phase="", source={"registry": {"url": url}}), SMALL)
        return made, importer.path(SMALL)


async def test_the_disk_of_a_container_disk_is_imported(tmp_path: Path) -> None:
    image = b"disk of the guest".ljust(1 << 20, b"\0")
    registry = Registry({"etc/disk": b"none"}, {"./disk/guest.img": image}, folder=tmp_path)
    made, path = await imported(registry, tmp_path)
    assert (made.state, made.content) == ("done", "image"), made.reason
    assert [each.name for each in (tmp_path / "disks").iterdir()] == [path.name]
    assert content(path)[: len(image)] == image


async def test_what_a_registry_cannot_give_fails_the_import(tmp_path: Path) -> None:
    registry = Registry({"etc/disk": b"none"}, folder=tmp_path)
    made, _ = await imported(registry, tmp_path)
    assert (made.state, made.reason) == ("failed", "Failed to find VM disk image file in the container image")
    made, _ = await imported(registry, tmp_path, version="2")
    assert "/guest/manifests/2: 404" in made.reason
    registry.blobs = dict.fromkeys(registry.blobs, b"other bytes")
    made, _ = await imported(registry, tmp_path)
    assert "the layer sha256:" in made.reason
    assert "has other bytes than its digest says" in made.reason
    for raw, why in (
        (b"{}", "has other bytes than its digest says"),
        (b" " * MAX_MANIFEST_BYTES, f"has {MAX_MANIFEST_BYTES} bytes or more"),
    ):
        registry.manifests[registry.ours] = raw
        made, _ = await imported(registry, tmp_path)
        assert f"the manifest {registry.ours} {why}" in made.reason
    for raw, why in ((b"none", "is not JSON"), (b"[]", "is not an object")):
        registry.manifests["3"] = raw
        made, _ = await imported(registry, tmp_path, version="3")
        assert f"the manifest 3 {why}" in made.reason
    assert list((tmp_path / "disks").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "address", "version"),
    [
        ("docker://quay.io/containerdisks/fedora:41", "https://quay.io/v2/containerdisks/fedora", "41"),
        ("docker://localhost:5000/guest", "http://localhost:5000/v2/guest", "latest"),
        ("docker://a.example/b/c@sha256:12", "https://a.example/v2/b/c", "sha256:12"),
        ("docker://a.example/b/c:1@sha256:12", "https://a.example/v2/b/c", "sha256:12"),
    ],
)
def test_the_address_of_an_image(url: str, address: str, version: str) -> None:
    found = parse_reference(url)
    assert (found.address, found.version) == (address, version)


def test_an_image_without_the_host_of_its_registry_is_refused() -> None:
    with pytest.raises(RegistryRefused, match="name the host of the registry"):
        parse_reference("docker://kubevirt/guest:1")


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
