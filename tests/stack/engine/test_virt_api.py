from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from poolhouse.stack.engine.admission import server as admission
from poolhouse.stack.engine.installation import VERSION
from poolhouse.stack.engine.simulated import SimulatedHypervisor
from poolhouse.stack.engine.virt_api import BASE, VirtApi, accepts_any, from_front_proxy

NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations: "


async def ask(
    path: str, method: str = "GET", body: bytes = b"", peer: str | None = None, accept: str = "*/*"
) -> tuple[int, Any]:
    # Nothing here comes as far as the API server: what does is tested against a real one.
    app = VirtApi(None, SimulatedHypervisor(), lambda: {"nodes": "not listed"}, CollectorRegistry())
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    subject = {"subject": ((("commonName", peer),),)} if peer else {}
    extensions = {"poolhouse.client-certificate": subject}
    headers = [(b"accept", accept.encode())] if accept else []
    scope = {"type": "http", "path": path, "method": method, "headers": headers, "extensions": extensions}
    await app(scope, receive, send)
    is_json = (b"content-type", b"application/json") in sent[0]["headers"]
    return sent[0]["status"], json.loads(sent[1]["body"]) if is_json else sent[1]["body"].decode()


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
    assert (await ask(f"{BASE}/version"))[1]["gitVersion"] == VERSION


@pytest.mark.parametrize(
    ("path", "method", "body", "peer", "status"),
    [
        pytest.param("virtualmachines/vm/stop", "PUT", b"{}", None, 401, id="no certificate"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"{}", "kube-apiserver", 401, id="another certificate"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[", "poolhouse-front-proxy", 400, id="not JSON"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[]", "poolhouse-front-proxy", 400, id="not an object"),
        pytest.param("virtualmachines/vm/stop", "PUT", b"[" * 100000, "poolhouse-front-proxy", 400, id="too deep"),
        pytest.param("virtualmachines/vm/stop", "PUT", b" " * (2 << 20), "poolhouse-front-proxy", 413, id="too large"),
    ],
)
async def test_refused_requests(path: str, method: str, body: bytes, peer: str | None, status: int) -> None:
    found, answer = await ask(f"{BASE}/namespaces/default/{path}", method, body, peer)
    assert (found, answer["kind"], answer["code"]) == (status, "Status", status)


@pytest.mark.parametrize(
    ("path", "method", "accept", "status", "text"),
    [
        ("virtualmachines/vm/stop", "GET", "*/*", 405, "405: Method Not Allowed"),
        ("virtualmachines/vm/explode", "PUT", "*/*", 404, "404: Page Not Found"),
        ("virtualmachines/vm/pause", "PUT", "*/*", 404, "404: Page Not Found"),
        ("virtualmachineinstances/vm/start", "PUT", "*/*", 404, "404: Page Not Found"),
        ("pods/vm/stop", "PUT", "*/*", 404, "404: Page Not Found"),
        ("virtualmachines/vm/stop", "PUT", "application/json", 406, NOT_ACCEPTABLE),
        ("virtualmachines/vm/stop", "PUT", "application/json, text/*", 406, NOT_ACCEPTABLE),
    ],
)
async def test_the_router_answers_in_plain_text(path: str, method: str, accept: str, status: int, text: str) -> None:
    found = await ask(f"{BASE}/namespaces/default/{path}", method, b"{}", "poolhouse-front-proxy", accept)
    assert found == (status, text)


@pytest.mark.parametrize("accept", ["", "*/*", "application/json, */*", "application/json;q=0.9,*/*;q=0.1"])
def test_a_client_that_accepts_any_type_passes_the_router(accept: str) -> None:
    assert accepts_any({"headers": [(b"accept", accept.encode())] if accept else []})


@pytest.mark.parametrize("path", admission.PATHS)
@pytest.mark.parametrize("body", [b"", b"[]", b'{"request": "AAA"}', b'{"request": {"uid": "u", "object": "AAA"}}'])
async def test_a_body_that_is_no_review_is_refused(path: str, body: bytes) -> None:
    status, answer = await ask(path, "POST", body)
    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_a_malformed_vm_is_denied_with_the_path() -> None:
    vm = {"metadata": {"name": "a"}, "spec": "AAA"}
    review = {"request": {"uid": "u", "operation": "CREATE", "object": vm}}
    status, answer = await ask("/virtualmachines-mutate", "POST", json.dumps(review).encode())
    found = answer["response"]["status"]
    assert (status, found["code"], found["details"]["causes"][0]["field"]) == (200, 422, "spec")


async def test_readiness_needs_synced_informers() -> None:
    assert (await ask("/readyz"))[0] == 503


def test_headers_do_not_authenticate() -> None:
    assert not from_front_proxy({"headers": [(b"x-remote-user", b"admin")]})
