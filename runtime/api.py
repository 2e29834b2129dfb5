"""The API server, in raw documents. The only file that imports the Kubernetes client.

`kubernetes.aio` finds the server, its TLS and the credentials, and renews them. What it would do with documents is left
alone: its typed models cost nine times the parsing, and its watch asks two thousand times a second of a server that
hangs up.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.request import getproxies, proxy_bypass

from runtime.clock import ApiServerClock
from runtime.errors import (
    Unreachable,
    error_from_status,
)
from runtime.metrics import Metrics
from runtime.resource import Resource, resource_of_path
from runtime.transport import Document, Request, Transport, new_session, parse_object

Documents = list[Document]
Operations = list[Any]
Sentences = list[str]
PatchKind = Literal["json", "merge", "apply"]

PATCHES: dict[str, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

# The API server sends a bookmark about once a minute. A watch that is silent for longer is half open as often as it is
# quiet; starting it again from where it was costs one request, trusting it costs minutes of blindness.
QUIET_SECONDS = 100.0
# How long a watch may outlive the end that was asked for before it is closed from this side.
OVERTIME_SECONDS = 10.0
# A kubeconfig whose credentials were refused is read again, but not for every refused call.
RELOAD_SECONDS = 10.0
# What the Kubernetes client trips over in a file that is YAML and no kubeconfig.
MISSHAPEN = (AttributeError, IndexError, KeyError, TypeError)


class Credentials:
    """How to reach the server and as whom, by the Kubernetes client's own rules."""

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._loaded_at = float("-inf")
        self.proxy: str | None = None
        self.host = ""

    async def load(self) -> None:
        # Here and not at the top: it takes 0.2 s and 22 MB, which nobody should pay who only names an ApiError.
        from kubernetes.aio import client, config

        settings = client.Configuration()
        try:
            if self._kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                # Its TLS files may be written to a temporary directory, and exec plugins are run.
                await config.load_kube_config(
                    config_file=str(self._kubeconfig),
                    context=self._context,
                    client_configuration=settings,
                    persist_config=False,
                )
            tls, anonymous_tls = _tls(settings, certified=True), _tls(settings, certified=False)
        except Exception as error:  # whatever YAML, PEM or a plugin may fail with
            where = self._kubeconfig or "the pod's service account"
            why = "it is not as a kubeconfig should be" if isinstance(error, MISSHAPEN) else error
            raise Unreachable(f"cannot read how to reach the API server from {where}: {why}") from error
        self._settings = settings
        self.tls: ssl.SSLContext = tls
        self.anonymous_tls: ssl.SSLContext = anonymous_tls
        self.host = str(settings.host).rstrip("/")
        self.server_name: str | None = settings.tls_server_name
        self.proxy = settings.proxy or _proxy_of_environment(self.host)
        self._loaded_at = asyncio.get_running_loop().time()

    async def authorization(self) -> str | None:
        # Renews the token of a pod when its minute is over.
        value = await self._settings.get_api_key_with_prefix("BearerToken", alias="authorization")
        return value.strip() if value else None

    async def renew(self) -> bool:
        if asyncio.get_running_loop().time() - self._loaded_at < RELOAD_SECONDS:
            return False
        await self.load()
        return True


class Api:
    """One API server. Every call has a deadline, which begins when the call is sent: no more than `max_connections`
    calls are under way at once, and those that wait their turn don't lose time to the others.

    No call is tried twice here (but once, with fresh credentials, after a 401). Watches and `urgent` calls wait for
    nobody.
    """

    def __init__(self, wire: Transport, identity: str) -> None:
        self.identity = identity
        """Who calls, stable over restarts: what jitter is a function of."""
        self._wire = wire

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        user_agent: str,
        timeout_seconds: float = 15,
        max_connections: int = 64,
        identity: str | None = None,
        metrics: Metrics | None = None,
        context: str | None = None,
        clock: ApiServerClock | None = None,
    ) -> Api:
        """Reads how to reach the server (`kubeconfig`, else $KUBECONFIG, else the pod's service account; of a
        kubeconfig the `context`, else its current one); asks it nothing."""
        if kubeconfig is None and (named := os.environ.get("KUBECONFIG")):
            kubeconfig = Path(named)
        credentials = Credentials(kubeconfig, context)
        await credentials.load()
        metrics = metrics or Metrics()
        wire = Transport(
            credentials,
            new_session(user_agent),
            seconds=timeout_seconds,
            turns=asyncio.Semaphore(max_connections),
            metrics=metrics,
            clock=clock or ApiServerClock(metrics),
        )
        return cls(wire, identity or f"{user_agent}@{socket.gethostname()}")

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.session.close()

    @property
    def host(self) -> str:
        return self._wire.reach.host

    @property
    def metrics(self) -> Metrics:
        return self._wire.metrics

    def now(self) -> datetime:
        """The time by this server's clock, with which times that others have written are to be compared."""
        return self._wire.clock.now()

    @property
    def urgent(self) -> Api:
        """The same server and connections without waiting for a turn: a lease must be renewed however busy we are."""
        return Api(self._wire.urgent, self.identity)

    # Objects

    async def get(self, r: Resource, namespace: str | None, name: str) -> Document:
        return await self._call("get", r, "GET", r.path(namespace, name))

    async def list(
        self,
        r: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
    ) -> tuple[Documents, str]:
        """Every object, read page by page, and the resourceVersion of the whole."""
        items: Documents = []
        version = ""
        async for some, version in self.pages(  # noqa: B007
            r, namespace, label_selector=label_selector, field_selector=field_selector, page=page
        ):
            items += some
        return items, version

    async def pages(
        self,
        r: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page: int = 500,
    ) -> AsyncGenerator[tuple[Documents, str]]:
        """The objects a page at a time, all as of one moment; each page comes with that moment's resourceVersion.

        It is asked for without a resourceVersion, so it is never older than what was already seen: a list "from the
        cache" after the API server's restart may be.
        """
        query = {"limit": str(page)} | _selectors(label_selector, field_selector)
        while True:
            answer = await self._call("list", r, "GET", r.path(namespace), query=query)
            metadata = answer.get("metadata")
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            if not version or not isinstance(answer.get("items") or [], list):
                raise Unreachable(f"not a list: {json.dumps(answer)[:200]}", call=f"list {r.plural}")
            yield answer.get("items") or [], version
            more = answer["metadata"].get("continue")
            if not more:
                return
            query["continue"] = more

    async def create(self, r: Resource, body: Document, *, dry_run: bool = False) -> Document:
        path = r.path(_namespace(r, body))
        return await self._call("create", r, "POST", path, body=body, query=_dry(dry_run))

    async def replace(self, r: Resource, body: Document, *, subresource: str | None = None) -> Document:
        path = r.path(_namespace(r, body), body["metadata"]["name"], subresource)
        return await self._call("update", r, "PUT", path, body=body)

    async def patch(
        self,
        r: Resource,
        namespace: str | None,
        name: str,
        patch: Operations | Document,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Document:
        query = _dry(dry_run)
        if field_manager:
            query["fieldManager"] = field_manager
        if force:
            query["force"] = "true"
        path = r.path(namespace, name, subresource)
        return await self._call("patch", r, "PATCH", path, body=patch, query=query, content_type=PATCHES[kind])

    async def delete(
        self,
        r: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Asks for its deletion; Conflict when it is not the one of that UID or resourceVersion any more."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        body: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions := {name: value for name, value in wanted.items() if value is not None}:
            body["preconditions"] = preconditions
        if propagation is not None:
            body["propagationPolicy"] = propagation
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._call("delete", r, "DELETE", r.path(namespace, name), body=body)

    async def watch(
        self,
        r: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> AsyncGenerator[tuple[str, Document]]:
        """(type, object) of each event after that version, bookmarks included. It ends when the server ends it, at the
        latest shortly after `timeout_seconds`, or when nothing came for `quiet_seconds`; a cut stream and an ERROR
        event raise. Use it in `contextlib.aclosing`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout_seconds))),
        } | _selectors(label_selector, field_selector)
        call = Request("watch", r.plural, "GET", r.path(namespace), query=query)
        end = timeout_seconds + OVERTIME_SECONDS
        async with aclosing(self._wire.lines(call, seconds=end, quiet_seconds=quiet_seconds)) as lines:
            async for line in lines:
                yield _event(line, f"watch {r.plural}", self.now)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        timeout_seconds: float | None = None,
        warnings: Sentences | None = None,
    ) -> Document:
        """Any other call. With `token` it is made in the name of whose token that is, and of nobody else. To `warnings`
        are added those that the server sends with its answer, whatever the answer."""
        call = Request(
            method.lower(),
            resource_of_path(path),
            method,
            path,
            body=body,
            query=query,
            headers=headers,
            token=token,
            seconds=timeout_seconds,
            warnings=warnings,
        )
        return await self._wire.exchange(call)

    async def text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """What is no document: the log of a pod, the server's own health page."""
        raw = await self._wire.body(Request("get", resource_of_path(path), "GET", path, query=query))
        return raw.decode(errors="replace")

    async def _call(
        self,
        verb: str,
        r: Resource,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Document:
        headers = {"Content-Type": content_type} if content_type else None
        return await self._wire.exchange(Request(verb, r.plural, method, path, body=body, query=query, headers=headers))


def _event(line: bytes, call: str, now: Callable[[], datetime]) -> tuple[str, Document]:
    event = parse_object(line, call)
    kind, changed = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(changed, dict):
        raise Unreachable(f"not an event: {line[:200]!r}", call=call)
    if kind == "ERROR":
        raise error_from_status(changed, now=now(), call=call)
    return kind, changed


def _namespace(r: Resource, body: Document) -> str | None:
    if not r.namespaced:
        return None
    namespace = body["metadata"].get("namespace")
    if not namespace:
        raise ValueError(f"{r.kind} {body['metadata'].get('name')!r} names no namespace")
    return str(namespace)


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    wanted = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in wanted.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _tls(settings: Any, *, certified: bool) -> ssl.SSLContext:
    """As the Kubernetes client makes it, in all of its releases; with our own certificate, or without."""
    # Its older releases always write the authority to a file.
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert, cadata=getattr(settings, "ca_cert_data", None))
    if certified and settings.cert_file:
        context.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _proxy_of_environment(host: str) -> str | None:
    scheme, _, rest = host.partition("://")
    name = rest.split("/")[0].rsplit(":", 1)[0].strip("[]")
    return None if proxy_bypass(name) else getproxies().get(scheme)
