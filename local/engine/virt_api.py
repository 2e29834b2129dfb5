"""`subresources.kubevirt.io/v1`, as the API server asks for it: start, stop, restart, pause, unpause, migrate.

The API server has authorized the caller before it asks here; what is left to check is that it is the API server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from local.engine import objects
from local.engine.hypervisor import Hypervisor
from local.engine.objects import VMI
from local.engine.resources import MIGRATIONS, VMIS, VMS
from local.engine.vm.subresources import (
    VERBS,
    Change,
    CreateMigration,
    QueueStateChanges,
    SetGracePeriod,
    SetPaused,
    SetRunning,
    StatusError,
    plan_request,
    vm_patch,
)
from runtime.api import Api
from runtime.errors import ApiError, Conflict, NotFound
from runtime.resource import Resource
from service.server import health

Json = dict[str, Any]

GROUP, VERSION = "subresources.kubevirt.io", "v1"
BASE = f"/apis/{GROUP}/{VERSION}"
BODY_LIMIT_BYTES = 1 << 20
FRONT_PROXY = "poolhouse-front-proxy"
TRIES = 5
# KubeVirt answers with nothing at all, which not every client takes for JSON.
ACCEPTED = json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}).encode()


def discovery(path: str) -> Json | None:
    """The documents by which clients find what is served."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    match path.rstrip("/"):
        case "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        case "/apis/subresources.kubevirt.io":
            return {"kind": "APIGroup", "apiVersion": "v1", **group}
        case base if base == BASE:
            served = [
                {"name": f"{resource}/{verb}", "singularName": "", "namespaced": True, "kind": "", "verbs": ["update"]}
                for resource, verbs in VERBS.items()
                for verb in verbs
            ]
            named = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
            return {**named, "resources": served}
        case _:
            return None


def from_front_proxy(scope: Mapping[str, Any]) -> bool:
    """Whether the connection was made with the API server's certificate for this purpose; the stack's own authority has
    signed it, or there would be no connection."""
    certificate = (scope.get("extensions") or {}).get("poolhouse.peer") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return FRONT_PROXY in names


class VirtApi:
    """An ASGI application, with the three paths that every service has."""

    def __init__(
        self,
        api: Api,
        hypervisor: Hypervisor,
        ready: Callable[[], Mapping[str, str] | None],
        registry: CollectorRegistry,
        trusted: Callable[[Mapping[str, Any]], bool] = from_front_proxy,
    ) -> None:
        self._api = api
        self._hypervisor = hypervisor
        self._ready = ready
        self._registry = registry
        self._trusted = trusted

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
            return health(path, self._ready, self._registry)
        if method in ("GET", "HEAD") and (document := discovery(path)) is not None:
            return 200, "application/json", json.dumps(document).encode()
        parts = path.removeprefix(BASE).strip("/").split("/")
        known = path.startswith(f"{BASE}/") and len(parts) == 5 and parts[0] == "namespaces"
        if not known or parts[4] not in VERBS.get(parts[2], ()):
            return _status(StatusError(404, "NotFound", "the server could not find the requested resource"))
        if method != "PUT":
            return _status(StatusError(405, "MethodNotAllowed", f"{parts[4]} is asked for with PUT"))
        if not self._trusted(scope):
            return _status(StatusError(401, "Unauthorized", "only the API server may ask here: go through it"))
        options = await _options(receive)
        if isinstance(options, StatusError):
            return _status(options)
        denied = await self._carry_out(parts[4], parts[2], (parts[1], parts[3]), options)
        return (202, "application/json", ACCEPTED) if denied is None else _status(denied)

    async def _carry_out(self, verb: str, resource: str, key: tuple[str, str], options: Json) -> StatusError | None:
        try:
            for _ in range(TRIES):
                try:
                    return await self._once(verb, resource, key, options)
                except Conflict:
                    continue  # it changed between reading and writing: decided again from what it is now
            return StatusError(409, "Conflict", f"{key[1]} keeps changing: try again")
        except ApiError as error:
            return StatusError(error.status or 503, error.reason or "ServiceUnavailable", error.message)

    async def _once(self, verb: str, resource: str, key: tuple[str, str], options: Json) -> StatusError | None:
        found = await self._find(VMS, key) if resource == "virtualmachines" else None
        running = await self._find(VMIS, key)
        vm = objects.read_vm(found) if found is not None else None
        vmi = objects.read_vmi(running) if running is not None else None
        changes = plan_request(verb, resource, key[1], vm, vmi, options)
        if isinstance(changes, StatusError):
            return changes
        if "All" in (options.get("dryRun") or ()):
            return None
        for change in changes:
            if (denied := await self._change(change, key, found, vmi)) is not None:
                return denied
        return None

    async def _change(
        self, change: Change, key: tuple[str, str], vm: Json | None, vmi: VMI | None
    ) -> StatusError | None:
        match change:
            case SetRunning() | QueueStateChanges():
                assert vm is not None
                patch = vm_patch(vm, change)
                if isinstance(patch, StatusError):
                    return patch
                await self._api.patch(VMS, *key, patch[1], subresource=patch[0])
            case SetGracePeriod(seconds):
                await self._api.patch(VMIS, *key, {"spec": {"terminationGracePeriodSeconds": seconds}})
            case SetPaused(paused):
                assert vmi is not None
                await self._hypervisor.pause(vmi, paused)
            case CreateMigration(selector):
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


async def _options(receive: Callable[[], Awaitable[Any]]) -> Json | StatusError:
    body = b""
    while True:
        message = await receive()
        body += message.get("body") or b""
        if len(body) > BODY_LIMIT_BYTES:
            return StatusError(413, "RequestEntityTooLarge", f"options are at most {BODY_LIMIT_BYTES} bytes")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            break
    try:
        options = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        return StatusError(400, "BadRequest", "the body is not JSON")
    return options if isinstance(options, dict) else StatusError(400, "BadRequest", "the body is not a JSON object")


def _status(denied: StatusError) -> tuple[int, str, bytes]:
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
