"""The data of a Secret becomes files, which change with the Secret and stay when it is deleted."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.secret_files import SecretFiles
from tests.runtime.faulty_server import Request, Server, status


async def test_files_follow_the_secret(server: Server, api: Api, tmp_path: Path) -> None:
    data: dict[str, str] | None = None

    async def script(request: Request) -> None:
        if data is None:
            await request.answer(404, status(404, "NotFound"))
        else:
            await request.answer(200, {"data": data})

    server.script = script
    directory = tmp_path / "tls"
    files = SecretFiles(api, "n", "serving", directory)
    with pytest.raises(NotFound):
        await files.update()
    data = {}
    assert not await files.update(), "a Secret without data is not written"
    data = {"tls.key": base64.b64encode(b"key").decode()}
    assert await files.update()
    assert not await files.update()
    assert (directory / "tls.key").read_bytes() == b"key"
    assert (directory / "tls.key").stat().st_mode & 0o777 == 0o600
    await files.wait_until_written()
    data = None
    with pytest.raises(NotFound):
        await files.update()
    assert (directory / "tls.key").exists()
