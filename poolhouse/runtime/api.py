"""A client of the Kubernetes API that returns raw documents."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.credentials import Credentials
from poolhouse.runtime.errors import NotFound, Unreachable, error_from_status
from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.resource import Resource, resource_of_path
from poolhouse.runtime.transport import Request, Transport, new_session, parse_object
from poolhouse.runtime.user_token import UserToken

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

    from poolhouse.runtime.metrics import Metrics

# A name for `list[Json]` inside `Api`, where `list` is a method.
Documents = list[Json]
JSONPatch = list[Any]
Warnings = list[str]
PatchKind = Literal["json", "merge", "apply"]

PATCH_TYPES: dict[str, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

# The API server sends a bookmark about every minute. The connection of a watch that is silent for longer may be dead.
# A new watch costs one request. A dead watch can hide changes for minutes.
IDLE_TIMEOUT_SECONDS = 100.0
# How long a watch may exceed its `timeout_seconds` before the client closes it.
OVERTIME_SECONDS = 10.0


class Api:
    """A client of one API server, with at most `max_connections` calls in flight, and `max_per_namespace` of them for
    objects of one namespace. Namespaces have their turns, so that none waits for all calls of another. Clients for
    other users share the limits, with users in the place of namespaces. The deadline of a call starts when its request
    is sent, after the wait for other calls.

    After a 401 the client repeats a call once, with new credentials. Watches and `urgent` calls do not wait.
    """

    def __init__(self, transport: Transport, identity: str) -> None:
        self.identity = identity
        """A name of this client that does not change with a restart. The jitter of its retries depends on it."""
        self._transport = transport

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        user_agent: str,
        timeout_seconds: float = 15,
        max_connections: int = 64,
        max_per_namespace: int | None = None,
        identity: str | None = None,
        metrics: Metrics | None = None,
        context: str | None = None,
        clock: ApiServerClock | None = None,
    ) -> Api:
        """Reads address and credentials from `kubeconfig`, else $KUBECONFIG, else the pod's service account. Sends no
        request. `context` is the name of a context in the kubeconfig; the default is its current context."""
        if kubeconfig is None and (variable := os.environ.get("KUBECONFIG")):
            kubeconfig = Path(variable)
        credentials = Credentials(kubeconfig, context)
        await credentials.load()
        metrics = metrics or NO_METRICS
        transport = Transport(
            credentials,
            new_session(user_agent),
            timeout_seconds,
            FairSlots(max_connections, per_key=max_per_namespace or max_connections),
            metrics,
            clock or ApiServerClock(metrics),
        )
        return cls(transport, identity or f"{user_agent}@{socket.gethostname()}")

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.session.close()

    @property
    def host(self) -> str:
        return self._transport.config.host

    async def authorization(self) -> str | None:
        """The header by which the API server knows the user; None with a client certificate."""
        return await self._transport.config.authorization()

    @property
    def metrics(self) -> Metrics:
        return self._transport.metrics

    def now(self) -> datetime:
        """The time by the clock of the API server, to compare with times that other writers have stored."""
        return self._transport.clock.now()

    def monotonic(self) -> float:
        """Seconds by a clock that only runs forward, for pauses and deadlines."""
        return self._transport.clock.steady

    @property
    def urgent(self) -> Api:
        """The same client without the limit on calls in flight. A leader must renew its lease under any load."""
        return Api(self._transport.unbounded, self.identity)

    def with_token(self, token: Callable[[], str], user: str = "") -> Api:
        """The same client with the token that another user has at each request, and no other credentials. Without the
        name of the user, its requests count towards the limits of namespaces."""
        config = UserToken(self._transport.config, token)
        return Api(replace(self._transport, config=config, user=user), self.identity)

    def impersonating(self, user: str, groups: Iterable[str]) -> Api:
        """The same client, whose requests the API server executes as another user. The client's own user needs the
        right to `impersonate` that user and each group."""
        headers = ("Impersonate-User", user), *(("Impersonate-Group", each) for each in groups)
        return Api(replace(self._transport, impersonated=headers, user=user), self.identity)

    def websocket(
        self, path: str, protocol: str, *, max_message_bytes: int = 0
    ) -> AbstractAsyncContextManager[ClientWebSocketResponse]:
        """Opens a websocket, as KubeVirt's console and VNC and the `exec` of a Pod need."""
        request = Request("connect", resource_of_path(path.partition("?")[0]), "GET", path)
        return self._transport.websocket(request, protocol, max_message_bytes)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        return await self._call("get", resource, "GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        from_cache: bool = False,
    ) -> tuple[Documents, str]:
        """All objects, read page by page as `pages` does, and the resourceVersion of the list."""
        items: Documents = []
        version = ""
        async for page_items, version in self.pages(  # noqa: B007
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page=page,
            from_cache=from_cache,
        ):
            items += page_items
        return items, version

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
        from_cache: bool = False,
    ) -> AsyncGenerator[tuple[Documents, str]]:
        """Pages of objects, each with the resourceVersion of the list. All pages have the same resourceVersion.

        An API server waits up to 100 ms until its cache has all changes, unless the request accepts any state of the
        cache. With `from_cache` it answers at once, with objects that may be older than this process has seen.
        """
        query = {"limit": str(page)} | _selectors(label_selector, field_selector)
        any_state = {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"} if from_cache else {}
        while True:
            answer = await self._call("list", resource, "GET", resource.path(namespace), query=query | any_state)
            any_state = {}  # the next page is one of the same list
            metadata = answer.get("metadata")
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            if not version or not isinstance(answer.get("items") or [], list):
                raise Unreachable(f"not a list: {json.dumps(answer)[:200]}", call=f"list {resource.plural}")
            yield answer.get("items") or [], version
            more = answer["metadata"].get("continue")
            if not more:
                return
            query["continue"] = more

    async def create(
        self,
        resource: Resource,
        body: Json,
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Json:
        """With `strict`, the API server refuses a body with fields that it does not know."""
        path = resource.path(_namespace(resource, body))
        query = _dry(dry_run) | ({"fieldValidation": "Strict"} if strict else {})
        return await self._call("create", resource, "POST", path, body=body, query=query)

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        path = resource.path(_namespace(resource, body), body["metadata"]["name"], subresource)
        return await self._call("update", resource, "PUT", path, body=body)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: JSONPatch | Json,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Json:
        query = _dry(dry_run)
        if field_manager:
            query["fieldManager"] = field_manager
        if force:
            query["force"] = "true"
        path = resource.path(namespace, name, subresource)
        return await self._call(
            "patch", resource, "PATCH", path, body=patch, query=query, content_type=PATCH_TYPES[kind]
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Raises Conflict if the object has another UID or resourceVersion."""
        known = {"uid": uid, "resourceVersion": resource_version}
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions := {name: value for name, value in known.items() if value is not None}:
            body["preconditions"] = preconditions
        if propagation is not None:
            body["propagationPolicy"] = propagation
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._call("delete", resource, "DELETE", resource.path(namespace, name), body=body)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[tuple[str, Json]]:
        """Type and object of each event after `resource_version`, with bookmarks. Use it in `contextlib.aclosing`.
        `opened` is called when the API server has accepted the watch, which may be long before its first event.

        The watch ends when the server ends it, shortly after `timeout_seconds` at the latest, or after
        `idle_timeout_seconds` without an event. An interrupted stream or an ERROR event raises ApiError.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout_seconds))),
        } | _selectors(label_selector, field_selector)
        call = Request("watch", resource.plural, "GET", resource.path(namespace), query=query)
        end, idle = timeout_seconds + OVERTIME_SECONDS, idle_timeout_seconds
        stream = self._transport.lines(call, timeout_seconds=end, idle_timeout_seconds=idle, opened=opened)
        async with aclosing(stream) as lines:
            async for line in lines:
                yield _event(line, f"watch {resource.plural}", self.now)

    async def put_subresource(
        self, resource: Resource, namespace: str, name: str, subresource: str, options: Json | None = None
    ) -> None:
        """Calls a subresource, and ignores the body of the response: KubeVirt sends none."""
        path = resource.path(namespace, name, subresource)
        await self._transport.send_raw(Request("update", resource.plural, "PUT", path, body=options or {}))

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        warnings: Warnings | None = None,
    ) -> Json:
        """Sends any request. Appends the warnings of the response, even of an error, to `warnings`."""
        call = Request(
            method.lower(),
            resource_of_path(path),
            method,
            path,
            body=body,
            query=query,
            headers=headers,
            timeout_seconds=timeout_seconds,
            warnings=warnings,
        )
        return await self._transport.send(call)

    async def respond(
        self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Sends any request. Returns the code and the body of a response that may have any body, or none."""
        call = Request(method.lower(), resource_of_path(path), method, path, body=body, headers=headers)
        return await self._transport.respond(call)

    async def text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """Gets a response that is not JSON, such as the log of a pod or /readyz."""
        raw = await self._transport.send_raw(Request("get", resource_of_path(path), "GET", path, query=query))
        return raw.decode(errors="replace")

    async def _call(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Json:
        headers = {"Content-Type": content_type} if content_type else None
        return await self._transport.send(
            Request(verb, resource.plural, method, path, body=body, query=query, headers=headers)
        )


async def find(api: Api, resource: Resource, namespace: str | None, name: str) -> Json | None:
    """The object; None if it does not exist."""
    try:
        return await api.get(resource, namespace, name)
    except NotFound:
        return None


def _event(line: bytes, call: str, now: Callable[[], datetime]) -> tuple[str, Json]:
    event = parse_object(line, call)
    kind, changed = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(changed, dict):
        raise Unreachable(f"not an event: {line[:200]!r}", call=call)
    if kind == "ERROR":
        raise error_from_status(changed, now=now(), call=call)
    return kind, changed


def _namespace(resource: Resource, body: Json) -> str | None:
    if not resource.namespaced:
        return None
    namespace = body["metadata"].get("namespace")
    if not namespace:
        raise ValueError(f"{resource.kind} {body['metadata'].get('name')!r} has no namespace")
    return str(namespace)


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in selectors.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
