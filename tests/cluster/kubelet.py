"""A node in the role of the kubelet: the API server connects to it for `exec`, by websocket, and it answers with text.

The API server, its RBAC and admission, and the stream between it and the node are real. No container runs.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.pod_exec import PROTOCOL
from poolhouse.runtime.resource import NODES, PODS, VMIS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, owned_by
from tests.serving import serving

Json = dict[str, Any]
SUCCESS: Json = {"metadata": {}, "status": "Success"}


@dataclass
class Kubelet:
    """What its containers print, by the name of the Pod."""

    node: str
    output: dict[str, bytes] = field(default_factory=dict)
    errors: bytes = b""
    status: Json | None = field(default_factory=lambda: dict(SUCCESS))
    """None closes the stream without one"""
    commands: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """Pod, container and command"""

    async def exec(self, request: web.Request) -> web.StreamResponse:
        pod, container = request.match_info["pod"], request.match_info["container"]
        self.commands.append((pod, container, request.query.getall("command")))
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        text = self.output.get(pod, b"")
        for start in range(0, len(text), 4096):
            await socket.send_bytes(b"\x01" + text[start : start + 4096])
        if self.errors:
            await socket.send_bytes(b"\x02" + self.errors)
        if self.status is not None:
            await socket.send_bytes(b"\x03" + json.dumps(self.status).encode())
        await socket.close()
        return socket


@asynccontextmanager
async def kubelet(api: Api, paths: StackPaths, node: str) -> AsyncIterator[Kubelet]:
    """A Node whose kubelet this process is."""
    made = Kubelet(node)
    tls, directory = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), paths.tls_of("cluster")
    tls.load_cert_chain(directory / "apiserver.crt", directory / "apiserver.key")
    async with serving(web.get("/exec/{namespace}/{pod}/{container}", made.exec), tls=tls) as port:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        try:
            await api.create(NODES, manifest(NODES, node, {}, status=status))
            yield made
        finally:
            with suppress(NotFound):
                await api.delete(NODES, None, node)


async def launcher(api: Api, namespace: str, name: str, vmi: Json, node: str) -> Json:
    """The launcher Pod of a VMI, which runs on the node."""
    spec = {
        "nodeName": node,
        "containers": [{"name": "compute", "image": "virt-launcher"}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    uid, labels = vmi["metadata"]["uid"], {"kubevirt.io/created-by": vmi["metadata"]["uid"]}
    owners = owned_by(VMIS, vmi["metadata"]["name"], uid)
    await api.create(PODS, manifest(PODS, name, spec, namespace, labels=labels, ownerReferences=owners))
    return await api.patch(PODS, namespace, name, {"status": {"phase": "Running"}}, subresource="status")
