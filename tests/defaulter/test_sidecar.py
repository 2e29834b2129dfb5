"""The hook as a sidecar of KubeVirt, called as virt-launcher calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from defaulter import xml
from defaulter.contract import HARDWARE_ANNOTATION
from defaulter.sidecar import CALLBACKS, INFO
from tests.defaulter.test_plugin import BARE, RECORD, answered, field
from tests.waiting import PATIENCE_SECONDS, wait_until


class Sidecar:
    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.process = subprocess.Popen([sys.executable, "-m", "defaulter.sidecar", str(socket)])
        wait_until(lambda: socket.exists() or self.process.poll() is not None)

    def ask(self, service: str, method: str, message: bytes = b"") -> bytes:
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            call = channel.unary_unary(f"/{service}/{method}")
            answer: bytes = call(message, timeout=PATIENCE_SECONDS, wait_for_ready=True)
            return answer


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    found = Sidecar(tmp_path / "hook.sock")
    yield found
    if found.process.poll() is None:
        os.kill(found.process.pid, signal.SIGTERM)
    assert found.process.wait(PATIENCE_SECONDS) == 0


def params(annotations: dict[str, str]) -> bytes:

    return field(1, BARE.encode()) + field(2, json.dumps({"metadata": {"annotations": annotations}}).encode())


def test_the_launcher_finds_the_hook_and_ends_it(sidecar: Sidecar) -> None:
    """By hand, as KubeVirt's messages are on the wire: name, hook points, versions."""
    info = sidecar.ask(INFO, "Info")
    assert info == field(1, b"poolhouse-hardware") + field(3, field(1, b"OnDefineDomain")) + field(4, b"v1alpha3")
    domain = xml.read(answered(sidecar.ask(CALLBACKS, "OnDefineDomain", params({HARDWARE_ANNOTATION: RECORD}))))
    address = domain.find("devices/memballoon/address")
    assert address.get("bus") == "0x09"
    assert answered(sidecar.ask(CALLBACKS, "OnDefineDomain", params({}))) == BARE
    with pytest.raises(grpc.RpcError) as failed:
        sidecar.ask(CALLBACKS, "OnDefineDomain", params({HARDWARE_ANNOTATION: RECORD.replace("0x09", "0x0a")}))
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert sidecar.ask(CALLBACKS, "Shutdown") == b""
    assert sidecar.process.wait(PATIENCE_SECONDS) == 0
