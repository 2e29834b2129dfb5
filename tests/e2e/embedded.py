"""What an embedded stack offers guests: a server of disk images, which is a registry too, and claims and DataSources to
clone from."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.kinds.meta import NAMESPACE
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import CONFIG_MAPS, NAMESPACES, PVCS
from poolhouse.stack.engine.resources import DATA_SOURCES
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.e2e.target import Target
from tests.waiting import eventually

GOLDEN = "golden"


@contextmanager
def provide(paths: StackPaths, patience_seconds: float) -> Iterator[Target]:
    """A target whose sources are all there."""
    images = paths.dir / "images"
    images.mkdir()
    image = images / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(image), "16M"], check=True, timeout=60)
    write_container_disk(images / "v2" / "guest", image)
    with served(images) as address:
        target = Target(
            paths.kubeconfig,
            embedded=paths,
            patience_seconds=patience_seconds,
            sources={
                "http": f"{address}/disk.qcow2",
                "missing_http": f"{address}/none.qcow2",
                "registry": f"{address.replace('http', 'docker')}/guest:1",
                "clone": f"{GOLDEN}/guest",
                "data_source": f"{GOLDEN}/guest",
            },
        )
        asyncio.run(make_golden(target))
        yield target


def write_container_disk(repository: Path, disk: Path) -> None:
    """The files that a registry serves for a container disk with the tag 1."""
    manifests, blobs = repository / "manifests", repository / "blobs"
    for folder in (manifests, blobs):
        folder.mkdir(parents=True)
    layer = repository / "layer.tar.gz"
    with tarfile.open(layer, "w:gz") as archive:
        archive.add(disk, f"disk/{disk.name}")
    digest = f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"
    layer.rename(blobs / digest)
    (manifests / "1").write_text(json.dumps({"schemaVersion": 2, "layers": [{"digest": digest}]}))


@contextmanager
def served(directory: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def make_golden(target: Target) -> None:
    async with await Api.connect(target.kubeconfig, user_agent="e2e", timeout_seconds=60) as api:
        # Linux would need most of the processor time of the tests, and few of them ask what runs in a guest.
        settings = {"metadata": {"namespace": NAMESPACE, "name": "simulation"}, "data": {"linux": "false"}}
        await api.create(CONFIG_MAPS, settings)
        await api.create(NAMESPACES, {"metadata": {"name": GOLDEN}})
        await api.create(DATA_VOLUMES, manifest(DATA_VOLUMES, "guest", target.source("http"), GOLDEN))
        source = {"source": {"pvc": {"namespace": GOLDEN, "name": "guest"}}}
        await api.create(DATA_SOURCES, manifest(DATA_SOURCES, "guest", source, GOLDEN))

        async def bound() -> bool:
            claims, _ = await api.list(PVCS, GOLDEN)
            return any((claim.get("status") or {}).get("phase") == "Bound" for claim in claims)

        await eventually(bound)
