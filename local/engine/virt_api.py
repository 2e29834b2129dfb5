"""Serves `subresources.kubevirt.io/v1` as KubeVirt's virt-api does: start, stop, restart, pause, unpause, migrate.

The API server authorizes each caller before it forwards a request. The app only checks that the API server called it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from apimachinery.unstructured import Json
from local.engine import objects
from local.engine.hypervisor import Hypervisor
from local.engine.objects import VMI
from local.engine.resources import MIGRATIONS
from local.engine.vm import subresources
from runtime.api import Api
from runtime.errors import ApiError, Conflict, NotFound
from runtime.resource import VMIS, VMS, Resource
from service.request_body import RequestRefused, parse
from service.server import DeadlineProtocol, health

GROUP, VERSION = "subresources.kubevirt.io", "v1"
BASE = f"/apis/{GROUP}/{VERSION}"
BODY_LIMIT_BYTES = 1 << 20
FRONT_PROXY = "poolhouse-front-proxy"
TRIES = 5
CLIENT_CERTIFICATE = "poolhouse.client-certificate"
"""key in `extensions` of the ASGI scope"""
# KubeVirt's answer is empty, which some clients fail to parse as JSON.
ACCEPTED = json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}).encode()


def discovery(path: str) -> Json | None:
    """The discovery document at a path; None for other paths."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    match path.rstrip("/"):
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        case "/apis/subresources.kubevirt.io":
            return {"kind": "APIGroup", "apiVersion": "v1", **group}
        case base if base == BASE:
            resources = [
                {"name": f"{resource}/{verb}", "singularName": "", "namespaced": True, "kind": "", "verbs": ["update"]}
                for resource, verbs in subresources.VERBS.items()
                for verb in verbs
            ]
            header = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
            return {**header, "resources": resources}
        case _:
            return None


def from_front_proxy(scope: Mapping[str, Any]) -> bool:
    """Whether the client certificate is the front proxy certificate of the API server.

    The TLS handshake has verified it against the stack's CA.
    """
    certificate = (scope.get("extensions") or {}).get(CLIENT_CERTIFICATE) or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return FRONT_PROXY in names


class ClientCertificateProtocol(DeadlineProtocol):
    """Puts the client's certificate into the ASGI scope, where uvicorn itself does not."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        connection: Any = self.transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        self.scope["extensions"] = {CLIENT_CERTIFICATE: certificate or {}}


class VirtApi:
    """An ASGI application, with /healthz, /readyz and /metrics beside the subresources."""

    def __init__(
        self,
        api: Api,
        hypervisor: Hypervisor,
        not_ready: Callable[[], Mapping[str, str] | None],
        registry: CollectorRegistry,
    ) -> None:
        self._api = api
        self._hypervisor = hypervisor
        self._not_ready = not_ready
        self._registry = registry

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        status, kind, body = await self._answer(scope, receive)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Any, receive: Any) -> tuple[int, str, bytes]:
        path, method = scope["path"], scope["method"]
        if path in ("/healthz", "/readyz", "/metrics"):
            return health(path, self._not_ready, self._registry)
        if method in ("GET", "HEAD") and (document := discovery(path)) is not None:
            return 200, "application/json", json.dumps(document).encode()
        # namespaces/NAMESPACE/RESOURCE/NAME/VERB
        parts = path.removeprefix(BASE).strip("/").split("/")
        known = path.startswith(f"{BASE}/") and len(parts) == 5 and parts[0] == "namespaces"
        if not known or parts[4] not in subresources.VERBS.get(parts[2], ()):
            return _status(
                subresources.StatusError(404, "NotFound", "the server could not find the requested resource")
            )
        if method != "PUT":
            return _status(subresources.StatusError(405, "MethodNotAllowed", f"{parts[4]} must be requested with PUT"))
        if not from_front_proxy(scope):
            return _status(
                subresources.StatusError(
                    401,
                    "Unauthorized",
                    "only the API server may call this endpoint: send the request to the API server",
                )
            )
        options = await _options(receive)
        if isinstance(options, subresources.StatusError):
            return _status(options)
        denied = await self._execute(parts[4], parts[2], (parts[1], parts[3]), options)
        return (202, "application/json", ACCEPTED) if denied is None else _status(denied)

    async def _execute(
        self, verb: str, resource: str, key: tuple[str, str], options: Json
    ) -> subresources.StatusError | None:
        try:
            for _ in range(TRIES):
                try:
                    return await self._try(verb, resource, key, options)
                except Conflict:
                    continue  # The VM changed between the read and the write.
            return subresources.StatusError(
                409, "Conflict", f"{key[1]} changed during each of {TRIES} tries: try again"
            )
        except ApiError as error:
            return subresources.StatusError(error.status or 503, error.reason or "ServiceUnavailable", error.message)

    async def _try(
        self, verb: str, resource: str, key: tuple[str, str], options: Json
    ) -> subresources.StatusError | None:
        vm_document = await self._find(VMS, key) if resource == "virtualmachines" else None
        vmi_document = await self._find(VMIS, key)
        vm = objects.read_vm(vm_document) if vm_document is not None else None
        vmi = objects.read_vmi(vmi_document) if vmi_document is not None else None
        changes = subresources.plan_request(verb, resource, key[1], vm, vmi, options)
        if isinstance(changes, subresources.StatusError):
            return changes
        if "All" in (options.get("dryRun") or ()):
            return None
        for change in changes:
            if (denied := await self._apply(change, key, vm_document, vmi)) is not None:
                return denied
        return None

    async def _apply(
        self, change: subresources.Change, key: tuple[str, str], vm: Json | None, vmi: VMI | None
    ) -> subresources.StatusError | None:
        match change:
            case subresources.SetRunning() | subresources.QueueStateChanges():
                assert vm is not None
                patch = subresources.vm_patch(vm, change)
                if isinstance(patch, subresources.StatusError):
                    return patch
                await self._api.patch(VMS, *key, patch[1], subresource=patch[0])
            case subresources.SetGracePeriod(seconds):
                await self._api.patch(VMIS, *key, {"spec": {"terminationGracePeriodSeconds": seconds}})
            case subresources.SetPaused(paused):
                assert vmi is not None
                await self._hypervisor.pause(vmi, paused)
            case subresources.CreateMigration(selector):
                await self._api.create(MIGRATIONS, _migration(key, selector))
        return None

    async def _find(self, resource: Resource, key: tuple[str, str]) -> Json | None:
        try:
            return await self._api.get(resource, *key)
        except NotFound:
            return None


def _migration(key: tuple[str, str], selector: Json) -> Json:
    added = {"addedNodeSelector": selector} if selector else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": key[0]},
        "spec": {"vmiName": key[1], **added},
    }


async def _options(receive: Callable[[], Awaitable[Any]]) -> Json | subresources.StatusError:
    """The options in the body. Clients send none, or send them without a content type."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body") or b""
        more = message["type"] != "http.disconnect" and bool(message.get("more_body"))
        if len(body) > BODY_LIMIT_BYTES:
            return subresources.StatusError(
                413, "RequestEntityTooLarge", f"the body must be at most {BODY_LIMIT_BYTES} bytes"
            )
    try:
        return parse(body) if body.strip() else {}
    except RequestRefused as refused:
        return subresources.StatusError(400, "BadRequest", refused.message)


def _status(denied: subresources.StatusError) -> tuple[int, str, bytes]:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": denied.message,
        "reason": denied.reason,
        "code": denied.code,
    }
    return denied.code, "application/json", json.dumps(body).encode()
