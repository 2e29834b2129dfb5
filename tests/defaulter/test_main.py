"""Over HTTP: any request gets defaults or problems, and no worker dies.

`POOLHOUSE_EXAMPLES=20000 pytest tests/defaulter/test_main.py` looks longer.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from defaulter.contract import DEFAULTS_PATH
from poolhouse.service.request_body import MAX_BODY_BYTES
from tests.defaulter.goldens import NAMES
from tests.defaulter.goldens import given as golden
from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.libvirt

EXAMPLES = int(os.environ.get("POOLHOUSE_EXAMPLES", "30"))
HOW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

Json = dict[str, Any]
DOCUMENTS = [golden(name) for name in NAMES if name not in ("arm64", "s390x")]
REFUSALS = (400, 413, 415, 422)


@dataclass
class Service:
    """The service as its container starts it, with workers and the real libvirt."""

    port: int
    pid: int

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def replaced(self) -> list[str]:
        text = self.ask("GET", "/metrics")[1].decode()
        return [line for line in text.splitlines() if line.startswith("kubevirt_poolhouse_defaulter_worker_replacem")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    port = free_port()
    environment = {**os.environ, "POOLHOUSE_LISTEN": f"127.0.0.1:{port}", "POOLHOUSE_DEADLINE_SECONDS": "90"}
    directory = Path(tempfile.mkdtemp(prefix="w-", dir="/tmp"))  # a socket's path is short
    directory.chmod(0o711)
    environment |= {"TMPDIR": str(directory), "POOLHOUSE_WORKERS": "2"}
    log = tmp_path_factory.mktemp("wire") / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "defaulter.main"]
        process = subprocess.Popen(command, env=environment, stderr=output)
    found = Service(port, process.pid)
    try:
        wait_until(found.ready)
        yield found
        assert found.replaced() == [], log.read_text()
        assert b"Traceback" not in log.read_bytes(), log.read_text()
        assert found.ask("GET", "/readyz")[0] == 200
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert list(directory.iterdir()) == [], "its directories stay"
        directory.rmdir()


def judged(answer: tuple[int, bytes]) -> Json:
    """A response must have a document with defaults, or problems."""
    status, body = answer
    content = json.loads(body)
    assert status == 200 or status in REFUSALS, content
    if status != 200:
        assert content["problems"]
        assert all(set(problem) == {"path", "message"} and problem["message"] for problem in content["problems"])
    json.dumps(content, ensure_ascii=False).encode()
    found: Json = content
    return found


NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**40])
TEXTS = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["", " ", "\x00", "\ud800", "￿", "<a>&'\"", "]]>", "../../etc/passwd", "%s%n", "A" * 5000, "-1", "1e9", "0x1F"]
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.builds(list) | st.builds(dict) | st.builds(lambda: [[[[]]]])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


@st.composite
def spoiled(draw: st.DrawFn) -> Json:
    """A valid document with a few errors."""
    document = deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(document))
        if not found:
            break
        *above, last = draw(st.sampled_from(found))
        holder: Any = document
        for step in above:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "remove", "add", "repeat"])):
            case "replace":
                holder[last] = draw(LEAVES)
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(TEXTS)] = draw(LEAVES)
            case _ if isinstance(holder, list):
                holder.extend([deepcopy(holder[last])] * draw(st.sampled_from([1, 2, 300])))
            case _:
                holder[last] = [holder[last], holder[last]]
    return document


@HOW
@given(spoiled(), st.booleans())
@example({**DOCUMENTS[0], "metadata": {"name": "\ud800"}}, False)
def test_a_damaged_document_gets_defaults_or_problems(service: Service, document: Json, enveloped: bool) -> None:
    body = {"kind": "DefaultingRequest", "object": document, "oldObject": DOCUMENTS[0]} if enveloped else document
    judged(service.ask("POST", DEFAULTS_PATH, json.dumps(body).encode("utf-8", "surrogatepass")))


@HOW
@given(st.data())
def test_damaged_bytes_get_defaults_or_problems(service: Service, data: st.DataObject) -> None:
    body = bytearray(json.dumps(data.draw(st.sampled_from(DOCUMENTS))).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    judged(service.ask("POST", DEFAULTS_PATH, bytes(body)))


@HOW
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
    st.dictionaries(
        st.sampled_from(["Content-Type", "Accept", "Content-Encoding", "Expect", "X-Forwarded-For"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
        max_size=3,
    ),
)
def test_any_request_gets_a_response(service: Service, method: str, path: str, headers: dict[str, str]) -> None:
    status, _ = service.ask(method, "/" + path, b"{}", **headers)
    assert status < 500
    status, _ = service.ask("POST", DEFAULTS_PATH, b"{}", **headers)
    assert status < 500


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b'{"a":' * 900 + b"1" + b"}" * 900, 400, id="900 levels"),
        pytest.param(json.dumps({**DOCUMENTS[0], "metadata": {"name": "\udfff"}}).encode(), 422, id="a lone surrogate"),
        pytest.param(b"", 400, id="nothing"),
        pytest.param(b"[" * 1_000_000, 400, id="a million brackets"),
        pytest.param(b" " * MAX_BODY_BYTES + b"{}", 413, id="two bytes more than the limit"),
    ],
)
def test_a_body_is_rejected_before_it_is_validated(service: Service, body: bytes, status: int) -> None:
    answer = service.ask("POST", DEFAULTS_PATH, body)
    assert answer[0] == status, answer
    judged(answer)
