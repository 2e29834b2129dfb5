"""Serves `subresources.kubevirt.io/v1` as KubeVirt's virt-api does: start, stop, restart, migrate, pause, unpause,
console and vnc. Also serves virt-api's webhooks.

The API server authorizes each request for a subresource before it forwards the request. The app accepts requests for
subresources from the API server only.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.errors import ApiError, Conflict
from poolhouse.runtime.resource import VMIS, VMS, Key
from poolhouse.service.callers import client_certificate, common_names
from poolhouse.service.health import health_app
from poolhouse.service.request_body import RequestRefused, parse
from poolhouse.stack.engine import installation, objects
from poolhouse.stack.engine.admission import evictions
from poolhouse.stack.engine.admission import server as admission
from poolhouse.stack.engine.hypervisor import Hypervisor, HypervisorRefused, Stream
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.resources import FRONT_PROXY, KUBEVIRT_USER, MIGRATIONS, SUBRESOURCE_GROUP
from poolhouse.stack.engine.streams import PROTOCOL, STREAMS, check_stream, relay
from poolhouse.stack.engine.vm import subresources
from poolhouse.stack.engine.vm.subresources import SUCCESS_CODES, UNREADABLE_BODY, VERBS, StatusError

GROUP, VERSION = SUBRESOURCE_GROUP, "v1"
BASE = f"/apis/{GROUP}/{VERSION}"
BODY_LIMIT_BYTES = 1 << 20
RELEASE = dict.fromkeys(
    ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"), "embedded engine"
) | {"gitVersion": installation.VERSION}
"""the answer for `virtctl version`, which virtctl also compares with its own version after an error"""
NO_NETWORK = (
    "a guest of the embedded stack has a network of its own, which nothing outside reaches; "
    "use `virtctl console` or `virtctl vnc`, or a cluster with KubeVirt"
)
TRIES = 5


def discovery(path: str) -> Json | None:
    """Returns the discovery document at a path; None for other paths."""
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
                for resource, verbs in VERBS.items()
                for verb in verbs
            ]
            resources += [
                {
                    "name": f"{VMIS.plural}/{stream}",
                    "singularName": "",
                    "namespaced": True,
                    "kind": "",
                    "verbs": ["get"],
                }
                for stream in STREAMS
            ]
            header = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
            return {**header, "resources": resources}
        case base if base == f"{BASE}/version":
            return RELEASE
        case _:
            return None


def from_front_proxy(scope: Mapping[str, Any]) -> bool:
    """Whether the client certificate is the API server's front proxy certificate. The TLS handshake has verified the
    certificate with the stack's CA."""
    return FRONT_PROXY in common_names(client_certificate(scope))


def accepts_any(scope: Mapping[str, Any]) -> bool:
    """Whether the client accepts every content type. KubeVirt's router knows no content type of these routes, and
    refuses a client that names the types which it accepts."""
    values = [value.decode("latin-1") for name, value in scope.get("headers") or () if name.lower() == b"accept"]
    accept = values[0] if values else ""
    return not accept or "*/*" in (each.partition(";")[0].strip() for each in accept.split(","))


class RouteError(Exception):
    """A request that no route accepts. The answer is the exception's text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class VirtApi:
    """The ASGI application of the subresources, with /healthz, /readyz and /metrics."""

    def __init__(
        self,
        api: Api,
        hypervisor: Hypervisor,
        not_ready: Callable[[], Mapping[str, str] | None],
        registry: CollectorRegistry,
        settings: Callable[[], ClusterSettings] = ClusterSettings,
    ) -> None:
        self._api, self._hypervisor, self._settings = api, hypervisor, settings
        self._health = health_app(not_ready, registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._stream(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"] in ("/healthz", "/readyz", "/metrics"):
            await self._health(scope, receive, send)
            return
        try:
            code, document = await self._answer(scope, receive)
            body = json.dumps(document).encode() if document is not None else b""
        except RouteError as refused:
            code, body = refused.code, str(refused).encode()
        except StatusError as error:
            code, body = error.code, json.dumps(_failure(error)).encode()
        # Like KubeVirt's: an error of its router is plain text, and an accepted request has no body.
        content_type = [(b"content-type", b"application/json")] if body.startswith(b"{") else []
        headers = [*content_type, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Any, receive: Any) -> tuple[int, Json | None]:
        path, method = scope["path"], scope["method"]
        if method in ("GET", "HEAD") and (document := discovery(path)) is not None:
            return 200, document
        if path in admission.PATHS and method == "POST":
            return 200, await self._review(path, await _body(receive, admission.BODY_LIMIT_BYTES))
        # The path is namespaces/NAMESPACE/RESOURCE/NAME/VERB.
        parts = path.removeprefix(BASE).strip("/").split("/")
        known = path.startswith(f"{BASE}/") and len(parts) == 5 and parts[0] == "namespaces"
        if known and method == "GET" and parts[2] == VMIS.plural and parts[4] in STREAMS:
            raise await self._why_no_stream(scope, parts[4], (parts[1], parts[3]))
        if not known or parts[4] not in VERBS.get(parts[2], ()):
            raise RouteError(404, "404: Page Not Found")
        if method != "PUT":
            raise RouteError(405, "405: Method Not Allowed")
        if not accepts_any(scope):
            raise RouteError(406, "406: Not Acceptable\n\nAvailable representations: ")
        if not from_front_proxy(scope):
            raise StatusError(401, "Unauthorized", "only the API server may call this endpoint: send the request to it")
        await self.execute(parts[4], parts[2], (parts[1], parts[3]), await _options(receive))
        return SUCCESS_CODES[parts[4]], None

    async def _why_no_stream(self, scope: Any, stream: Stream, key: Key) -> StatusError:
        """The answer to a GET of a console or a display without a websocket. Clients whose library drops the body of a
        refused websocket ask again like this. Nothing is connected."""
        vmi = await self._find_streamed(scope, stream, key)
        try:
            await self._hypervisor.open_stream(vmi, stream)
        except HypervisorRefused as error:
            return StatusError(400, "BadRequest", str(error))
        return StatusError(400, "BadRequest", "websocket: the client is not using the websocket protocol")

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves the websocket of a console or a display."""
        parts = scope["path"].removeprefix(BASE).strip("/").split("/")
        await receive()  # websocket.connect
        try:
            if len(parts) >= 6 and parts[4] == "portforward":
                raise StatusError(501, "NotImplemented", NO_NETWORK)
            if len(parts) != 5 or parts[2] != VMIS.plural or parts[4] not in STREAMS:
                raise StatusError(404, "NotFound", "404: Page Not Found")
            stream: Stream = parts[4]
            vmi = await self._find_streamed(scope, stream, (parts[1], parts[3]))
            opened = await self._hypervisor.open_stream(vmi, stream)
            async with opened as (reader, writer):
                protocol = PROTOCOL if PROTOCOL in scope["subprotocols"] else None
                await send({"type": "websocket.accept", "subprotocol": protocol})
                await relay(receive, send, reader, writer)
        except (StatusError, HypervisorRefused) as error:
            refused = error if isinstance(error, StatusError) else StatusError(400, "BadRequest", str(error))
            body = json.dumps(_failure(refused)).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            start = {"type": "websocket.http.response.start", "status": refused.code, "headers": headers}
            await send(start)
            await send({"type": "websocket.http.response.body", "body": body})

    async def _find_streamed(self, scope: Any, stream: Stream, key: Key) -> VMI:
        """Returns the VMI of a console or a display. Raises `StatusError`."""
        if not from_front_proxy(scope):
            raise StatusError(401, "Unauthorized", "only the API server may call this endpoint: send the request to it")
        document = await find(self._api, VMIS, *key)
        if document is None:
            raise StatusError(404, "NotFound", f'{VMIS.kind.lower()}.kubevirt.io "{key[1]}" not found')
        check_stream(stream, document)
        return objects.read_vmi(document)

    async def _review(self, path: str, body: bytes) -> Json:
        try:
            if path == evictions.PATH:
                return await admission.answer_eviction(self._api, body, self._settings())
            return admission.answer(path, body, self._settings(), KUBEVIRT_USER)
        except admission.InvalidReview as error:
            raise StatusError(400, "BadRequest", f"the body is no AdmissionReview: {error}") from None

    async def execute(self, verb: str, resource: str, key: Key, options: Json) -> None:
        """Executes a subresource request. Raises `StatusError` if KubeVirt would refuse it."""
        try:
            for _ in range(TRIES):
                try:
                    return await self._try(verb, resource, key, options)
                except Conflict:
                    continue  # The VM changed between the read and the write.
        except ApiError as error:
            raise StatusError(error.status or 503, error.reason or "ServiceUnavailable", error.message) from error
        raise StatusError(409, "Conflict", f"{key[1]} changed during each of {TRIES} tries: try again")

    async def _try(self, verb: str, resource: str, key: Key, options: Json) -> None:
        vm_document = await find(self._api, VMS, *key) if resource == "virtualmachines" else None
        vmi_document = await find(self._api, VMIS, *key)
        if verb in subresources.VOLUME_VERBS:
            document = vm_document if resource == "virtualmachines" else vmi_document
            edit = subresources.plan_volume_request(verb, resource, key[1], document, options)
            assert document is not None
            await self._edit_volumes(document, edit, options)
            return
        vm = objects.read_vm(vm_document) if vm_document is not None else None
        vmi = objects.read_vmi(vmi_document) if vmi_document is not None else None
        changes = subresources.plan_request(verb, resource, key[1], vm, vmi, options)
        if "All" not in (options.get("dryRun") or ()):
            for change in changes:
                await self._apply(change, key, vm_document, vmi)

    async def _edit_volumes(self, document: Json, change: subresources.EditVolumes, options: Json) -> None:
        metadata = document["metadata"]
        target = VMS if document["kind"] == VMS.kind else VMIS
        spec = {"template": {"spec": change.patch}} if target is VMS else change.patch
        if "All" not in (options.get("dryRun") or ()):
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": spec}
            await self._api.patch(target, metadata["namespace"], metadata["name"], patch)

    async def _apply(self, change: subresources.Change, key: Key, vm: Json | None, vmi: VMI | None) -> None:
        match change:
            case subresources.SetRunning() | subresources.QueueStateChanges():
                assert vm is not None
                subresource, patch = subresources.vm_patch(vm, change)
                await self._api.patch(VMS, *key, patch, subresource=subresource)
            case subresources.SetGracePeriod(seconds):
                await self._api.patch(VMIS, *key, {"spec": {"terminationGracePeriodSeconds": seconds}})
            case subresources.SetPaused(paused):
                assert vmi is not None
                await self._hypervisor.pause(vmi, paused)
            case subresources.CreateMigration(selector):
                await self._api.create(MIGRATIONS, _new_migration(key, selector))


def _new_migration(key: Key, selector: Json) -> Json:
    added = {"addedNodeSelector": selector} if selector else {}
    return {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": key[0]},
        "spec": {"vmiName": key[1], **added},
    }


async def _body(receive: Callable[[], Awaitable[Any]], limit_bytes: int) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body") or b""
        more = message["type"] != "http.disconnect" and bool(message.get("more_body"))
        if len(body) > limit_bytes:
            raise StatusError(413, "RequestEntityTooLarge", f"the body must be at most {limit_bytes} bytes")
    return body


async def _options(receive: Callable[[], Awaitable[Any]]) -> Json:
    """Returns the options in the body, which may be empty. The content type is ignored, because clients omit it."""
    body = await _body(receive, BODY_LIMIT_BYTES)
    try:
        return parse(body) if body.strip() else {}
    except RequestRefused as refused:
        raise StatusError(400, "BadRequest", f"{UNREADABLE_BODY}{refused.message}") from None


def _failure(error: StatusError) -> Json:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    status |= {"message": error.message, "reason": error.reason, "code": error.code}
    return {**status, "details": error.details} if error.details else status
