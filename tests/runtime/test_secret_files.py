"""The data of a Secret becomes files, which change with the Secret and stay when it is deleted."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from poolhouse.runtime.api import Api
from poolhouse.runtime.secret_files import SecretFiles
from tests.runtime.faulty_server import Request, Server


def secret(version: int, **data: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": "serving", "uid": "u", "resourceVersion": str(version)},
        "data": {name.replace("_", "."): base64.b64encode(text.encode()).decode() for name, text in data.items()},
    }


class Cluster:
    """A server that lists the Secret and then sends the events of the test."""

    def __init__(self, server: Server) -> None:
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.requests: list[Request] = []
        server.script = self

    async def __call__(self, request: Request) -> None:
        self.requests.append(request)
        if not request.watching:
            await request.answer(200, {"metadata": {"resourceVersion": "10"}, "items": []})
            return
        await request.begin()
        while True:
            await request.event(*await self.events.get())


async def test_files_follow_the_secret(server: Server, api: Api, tmp_path: Path) -> None:
    cluster, directory = Cluster(server), tmp_path / "tls"
    files = SecretFiles(api, "n", "serving", directory)
    written = asyncio.create_task(files.wait_until_written())
    running = asyncio.create_task(files.run())
    try:
        await cluster.events.put(("ADDED", secret(11)))
        await asyncio.sleep(1)
        assert not written.done(), "a Secret without data is not written"
        await cluster.events.put(("MODIFIED", secret(12, tls_key="key")))
        await written
        assert (directory / "tls.key").read_bytes() == b"key"
        assert (directory / "tls.key").stat().st_mode & 0o777 == 0o600
        await cluster.events.put(("MODIFIED", secret(13, tls_key="other")))
        await asyncio.sleep(1)
        assert (directory / "tls.key").read_bytes() == b"other"
        await cluster.events.put(("DELETED", secret(14, tls_key="other")))
        await asyncio.sleep(60)
        assert (directory / "tls.key").exists()
        assert len(cluster.requests) == 2, "one list and one watch"
        assert all(each.query["fieldSelector"] == "metadata.name=serving" for each in cluster.requests)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
