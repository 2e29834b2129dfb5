"""Commands in Pods: refusals and Pods that do not answer. tests/cluster/test_domains.py has a real API server."""

from __future__ import annotations

import pytest

from poolhouse.runtime import pod_exec
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, Unreachable
from tests.runtime.faulty_server import Hangup, Request, Server, silence, status


async def run(api: Api) -> bytes:
    return await pod_exec.run(api, "n", "pod", "compute", ["virsh", "a b&c"], max_bytes=100, timeout_seconds=10)


async def test_a_pod_that_does_not_answer_is_given_up(server: Server, api: Api) -> None:
    server.script = silence
    with pytest.raises(pod_exec.CommandFailed, match="did not end within 10 s"):
        await run(api)
    (request,) = server.requests
    assert request.path == "/api/v1/namespaces/n/pods/pod/exec"
    assert request.query == {"container": "compute", "stdout": "true", "stderr": "true", "command": "a b&c"}
    assert request.headers["sec-websocket-protocol"] == pod_exec.PROTOCOL


async def test_a_refusal_has_the_message_of_the_server(server: Server, api: Api) -> None:
    async def refuse(request: Request) -> None:
        await request.answer(403, status(403, "Forbidden", message="no exec for you"))

    server.script = refuse
    with pytest.raises(Forbidden, match="no exec for you"):
        await run(api)


async def test_a_connection_that_ends_is_no_answer(server: Server, api: Api) -> None:
    async def hang_up(request: Request) -> None:
        raise Hangup

    server.script = hang_up
    with pytest.raises(Unreachable):
        await run(api)
