"""The kubelet endpoint of the virtual node: `kubectl logs` of its Pods, and a sentence for what it does not offer.

The API server connects to it with its client certificate for kubelets. The endpoint signs its own certificate, as a
kubelet does: API servers do not verify it unless they are told to.
"""

import asyncio
import json
import logging
import re
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from controllers.virtualnode.callers import authenticate, is_authorized
from controllers.virtualnode.logs import LogReader, NoLogs, log_request
from poolhouse.api.kinds.names import DNS_SUBDOMAIN
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import CONFIG_MAPS
from poolhouse.service.callers import client_certificate
from poolhouse.service.certificates import new_ca, new_server_certificate
from poolhouse.service.certwatcher import write_atomically
from poolhouse.service.server import serve
from poolhouse.service.settings import Address

log = logging.getLogger(__name__)

AUTHENTICATION = ("kube-system", "extension-apiserver-authentication")
"""the ConfigMap in which API servers publish the authority of client certificates"""
LIFE = timedelta(days=365)
RETRY_SECONDS = 10.0
LOGS, TEXT = "/containerLogs/", b"text/plain; charset=utf-8"
NOT_OFFERED = {
    "/exec/": "exec is not available: the Pod runs in a VM. Use the console or SSH of the VM",
    "/run/": "exec is not available: the Pod runs in a VM. Use the console or SSH of the VM",
    "/attach/": "attach is not available: the Pod runs in a VM. Use `kubectl logs --follow`",
    "/portForward/": "port-forward is not available: connect to the address of the Pod, which is that of its VM",
    "/stats": "figures of Pods in VMs are not available here: KubeVirt has metrics of the VMs",
    "/metrics": "figures of Pods in VMs are not available here: KubeVirt has metrics of the VMs",
}


@dataclass(frozen=True)
class KubeletApp:
    """The ASGI application of the endpoint."""

    api: Api
    node: str
    logs: LogReader

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Ends the request when its client is gone."""
        if scope["type"] != "http":
            return
        responding = asyncio.create_task(self._respond(scope, send))
        leaving = asyncio.create_task(_until_disconnect(receive))
        try:
            await asyncio.wait({responding, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            responding.cancel()
            with suppress(asyncio.CancelledError):
                await responding

    async def _respond(self, scope: Any, send: Any) -> None:
        try:
            refusal = await self._refusal(scope)
        except ApiError as error:
            refusal = 503, f"the API server does not say who may call: {error.message}"
        if refusal is not None:
            await _answer(send, *refusal)
        elif scope["path"].startswith(LOGS) and scope["method"] == "GET":
            await self._send_logs(scope, send)
        elif scope["path"] == "/healthz":
            await _answer(send, 200, "ok")
        else:
            why = next((why for path, why in NOT_OFFERED.items() if scope["path"].startswith(path)), "")
            await _answer(send, 501 if why else 404, why or f"node {self.node} has no {scope['path']}", status=True)

    async def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        user = await authenticate(self.api, client_certificate(scope), headers.get(b"authorization", ""))
        if user is None:
            return 401, "Unauthorized"
        if await is_authorized(self.api, user, scope["method"], self.node):
            return None
        return 403, f"Forbidden: {user.get('username')} has no right on nodes/proxy of node {self.node}"

    async def _send_logs(self, scope: Any, send: Any) -> None:
        parts = scope["path"].removeprefix(LOGS).split("/")
        if len(parts) != 3 or not all(re.fullmatch(DNS_SUBDOMAIN, each) for each in parts):
            await _answer(send, 404, "must be /containerLogs/NAMESPACE/POD/CONTAINER, with names as objects have")
            return
        try:
            request = log_request(dict(parse_qsl(scope["query_string"].decode("latin-1"))), self.api.now())
        except ValueError as error:
            await _answer(send, 400, str(error))
            return
        await _stream(self.logs.read(parts[0], parts[1], parts[2], request), send)


async def _stream(content: AsyncGenerator[bytes], send: Any) -> None:
    """Sends the content as it comes, or an answer that says why there is none."""
    started = False
    try:
        async with aclosing(content) as chunks:
            async for chunk in chunks:
                if not started:
                    await _start(send, 200)
                    started = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except NoLogs as error:
        if not started:
            # With another code, the API server replaces the sentence by its own, which names no reason.
            await _answer(send, 400, str(error))
            return
        log.warning("the log of a Pod ends early: %s", error)
    except ApiError as error:
        if not started:
            await _answer(send, 503, error.message)
            return
        raise
    if not started:
        await _start(send, 200)
    await send({"type": "http.response.body", "body": b""})


async def _until_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Any, code: int, text: str, *, status: bool = False) -> None:
    """`status` puts the text into a Status. kubectl shows a refused exec, attach or port-forward only as a Status: the
    API server reads a body that is not one as YAML, and a sentence with a colon then becomes a map."""
    if status:
        document = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": text, "code": code}
        text = json.dumps(document)
    await _start(send, code, b"application/json" if status else TEXT)
    await send({"type": "http.response.body", "body": text.encode()})


async def _start(send: Any, code: int, content_type: bytes = TEXT) -> None:
    headers = [(b"content-type", content_type)]
    await send({"type": "http.response.start", "status": code, "headers": headers})


async def serve_endpoint(app: KubeletApp, listen: Address, address: str) -> NoReturn:
    """Serves until it is cancelled. `address` is the IP address in the certificate."""
    with tempfile.TemporaryDirectory(prefix="poolhouse-kubelet-") as name:
        directory, now = Path(name), app.api.now()
        ca = new_ca("poolhouse virtual node", now, LIFE)
        pair = new_server_certificate(ca, app.node, [address], now, LIFE)
        write_atomically(directory / "tls.crt", pair.certificate)
        write_atomically(directory / "tls.key", pair.key)
        clients = directory / "clients.crt"
        write_atomically(clients, (await _client_authority(app.api)).encode())
        # It must end before the next leader begins, and a log has no end.
        await serve(app, listen.host, listen.port, directory, clients=clients, drain_seconds=0)
    raise AssertionError("the server ends only by a cancellation")


async def _client_authority(api: Api) -> str:
    """The authority of client certificates. Waits until the API server has published it."""
    while True:
        why = "its entry client-ca-file is empty"
        try:
            found = await api.get(CONFIG_MAPS, *AUTHENTICATION)
            if authority := (found.get("data") or {}).get("client-ca-file"):
                return str(authority)
        except ApiError as error:
            why = error.message
        log.warning("kubectl logs is not available yet: ConfigMap %s: %s", "/".join(AUTHENTICATION), why)
        await asyncio.sleep(RETRY_SECONDS)
