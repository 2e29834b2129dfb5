from __future__ import annotations

import json
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from local.engine.simulated import SimulatedHypervisor
from local.engine.virt_api import BASE, VirtApi, from_front_proxy
from runtime.api import Api


async def ask(path: str, method: str = "GET", body: bytes = b"", peer: str | None = None) -> tuple[int, Any]:
    # Nothing here comes as far as the API server: what does is tested against a real one.
    app = VirtApi(cast(Api, None), SimulatedHypervisor(), lambda: {"nodes": "not listed"}, CollectorRegistry())
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    subject = {"subject": ((("commonName", peer),),)} if peer else {}
    extensions = {"poolhouse.client-certificate": subject}
    await app({"type": "http", "path": path, "method": method, "extensions": extensions}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"] or b"null")


async def test_discovery() -> None:
    status, found = await ask(BASE)
    assert status == 200
    assert {each["name"] for each in found["resources"]} >= {
        "virtualmachines/start",
        "virtualmachines/stop",
        "virtualmachines/restart",
        "virtualmachineinstances/pause",
        "virtualmachineinstances/unpause",
    }
    assert (await ask("/apis"))[1]["groups"][0]["name"] == "subresources.kubevirt.io"


@pytest.mark.parametrize(
    ("path", "method", "body", "peer", "status"),
    [
        pytest.param("virtualmachines/vm/stop", "PUT", b"{}", None, 401, id="no certificate"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"{}", "kube-apiserver", 401, id="another certificate"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[", "poolhouse-front-proxy", 400, id="not JSON"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[]", "poolhouse-front-proxy", 400, id="not an object"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[" * 100000, "poolhouse-front-proxy", 400, id="too deep"),
        pytest.param("virtualmachines/vm/stop", "PUT", b" " * (2 << 20), "poolhouse-front-proxy", 413, id="too large"),
        pytest.param("virtualmachines/vm/stop", "GET", b"", "poolhouse-front-proxy", 405, id="another method"),
        pytest.param("virtualmachines/vm/explode", "PUT", b"{}", "poolhouse-front-proxy", 404, id="unknown verb"),
        pytest.param("pods/vm/stop", "PUT", b"{}", "poolhouse-front-proxy", 404, id="unknown resource"),
    ],
)
async def test_refused_requests(path: str, method: str, body: bytes, peer: str | None, status: int) -> None:
    found, answer = await ask(f"{BASE}/namespaces/default/{path}", method, body, peer)
    assert (found, answer["kind"], answer["code"]) == (status, "Status", status)


async def test_readiness_needs_synced_informers() -> None:
    assert (await ask("/readyz"))[0] == 503


def test_headers_do_not_authenticate() -> None:
    assert not from_front_proxy({"headers": [(b"x-remote-user", b"admin")]})
