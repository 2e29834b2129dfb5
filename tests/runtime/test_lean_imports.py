"""Imports leave out what costs more than all the rest, and everything is still there for who asks for it."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.certificates import new_ca, new_server_certificate


def run(code: str, *arguments: str, **environment: str) -> str:
    """Runs the code in a new process, because this one has imported everything. Returns the last line."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


IMPORTED = """
import sys
from runtime.lean_imports import import_kubernetes_config
import_kubernetes_config()
from kubernetes.aio import client, config
assert client.Configuration() and config.load_kube_config and config.load_incluster_config
print(sum(name.startswith("kubernetes.") for name in sys.modules))
"""
THE_REST = """
assert client.V1Pod and client.ApiClient and config.kube_config
import kubernetes.client
assert kubernetes.client.V1Pod
print("all")
"""
BEFORE = """
import kubernetes.aio.client as before
from runtime.lean_imports import import_kubernetes_config
import_kubernetes_config()
from kubernetes.aio import client
print(client is before)
"""


def test_the_kubeconfig_reader_is_imported_without_the_models() -> None:
    assert int(run(IMPORTED)) < 30


def test_the_rest_of_the_client_can_be_imported_later() -> None:
    assert run(IMPORTED + THE_REST) == "all"


def test_a_client_that_was_imported_before_is_used() -> None:
    assert run(BEFORE) == "True"


TLS = """
import asyncio, ssl, sys
from runtime.lean_imports import aiohttp

async def main(certificate, key):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)

    async def answer(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with aiohttp.ClientSession() as session, session.get(f"https://127.0.0.1:{port}/") as found:
            print(await found.text())

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_session_without_a_context_trusts_the_certificates_of_the_system(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ca = new_ca("ca", now, timedelta(hours=1))
    leaf = new_server_certificate(ca, "leaf", ["127.0.0.1"], now, timedelta(hours=1))
    files = {"ca": ca.certificate, "certificate": leaf.certificate, "key": leaf.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    server = str(tmp_path / "certificate"), str(tmp_path / "key")
    assert run(TLS, *server, SSL_CERT_FILE=str(tmp_path / "ca")) == "ok"
    assert "CERTIFICATE_VERIFY_FAILED" in run(TLS, *server)
