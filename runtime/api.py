"""The API server, in raw documents. The only file that imports the Kubernetes client.

`kubernetes.aio` finds the server, its TLS and the credentials, and renews them. What it would do with documents is left
alone: its typed models cost nine times the parsing, and its watch asks two thousand times a second of a server that
hangs up.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn
from urllib.request import getproxies, proxy_bypass

import aiohttp

from runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
    Unreachable,
    of_answer,
    of_status,
)
from runtime.lines import Lines, TooLong
from runtime.metrics import Metrics
from runtime.resource import Key, Resource, key_of

__all__ = [
    "AlreadyExists",
    "Api",
    "ApiError",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "Key",
    "NotFound",
    "Resource",
    "Throttled",
    "Unavailable",
    "Unreachable",
    "key_of",
]

Document = dict[str, Any]
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


class Credentials:
    """How to reach the server and as whom, by the Kubernetes client's own rules."""

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._loaded_at = float("-inf")
        self.proxy: str | None = None
        self.host = ""

    async def load(self) -> None:
        # Here and not at the top: it takes 0.2 s and 22 MB, which nobody should pay who only names an ApiError.
        from kubernetes.aio import client, config
        from kubernetes.aio.client.rest import RESTClientObject

        settings = client.Configuration()
        try:
            if self._kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            else:
                # Its TLS files may be written to a temporary directory, and exec plugins are run.
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(self._kubeconfig), client_configuration=settings, persist_config=False
                )
            tls = RESTClientObject(settings).ssl_context
            settings.cert_file = settings.key_file = None
            anonymous_tls = RESTClientObject(settings).ssl_context
        except Exception as error:  # whatever YAML, PEM or a plugin may fail with
            where = self._kubeconfig or "the pod's service account"
            raise Unreachable(f"cannot read how to reach the API server from {where}: {error}") from error
        self._settings = settings
        self.tls: ssl.SSLContext = tls
        # For calls in another's name: a client certificate would win over their token.
        self.anonymous_tls: ssl.SSLContext = anonymous_tls
        self.host = str(settings.host).rstrip("/")
        self.server_name: str | None = settings.tls_server_name
        self.proxy = settings.proxy or _proxy_of_environment(self.host)
        self._loaded_at = asyncio.get_running_loop().time()

    async def authorization(self) -> str | None:
        # Renews the token of a pod when its minute is over.
        value = await self._settings.get_api_key_with_prefix("BearerToken", alias="authorization")
        return value.strip() if value else None

    async def refused(self) -> bool:
        """Reads everything again after a 401, if that was not just done; whether it's worth another try."""
        if asyncio.get_running_loop().time() - self._loaded_at < RELOAD_SECONDS:
            return False
        before = await self.authorization()
        await self.load()
        return await self.authorization() != before


class Api:
    """One API server. Every call has a deadline, which begins when the call is sent: no more than `max_connections`
    calls are under way at once, and those that wait their turn don't lose time to the others.

    No call is tried twice here (but once, with fresh credentials, after a 401). Watches and `urgent` calls wait for
    nobody.
    """

    def __init__(
        self,
        credentials: Credentials,
        session: aiohttp.ClientSession,
        *,
        identity: str,
        timeout_seconds: float,
        max_connections: int,
        metrics: Metrics,
    ) -> None:
        self.identity = identity
        """Who calls, stable over restarts: what jitter is a function of."""
        self.metrics = metrics
        self._credentials = credentials
        self._session = session
        self._timeout_seconds = timeout_seconds
        self._turns: asyncio.Semaphore | None = asyncio.Semaphore(max_connections)

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
    ) -> Api:
        """Reads how to reach the server (`kubeconfig`, else $KUBECONFIG, else the pod's service account); asks it
        nothing."""
        if kubeconfig is None and (named := os.environ.get("KUBECONFIG")):
            kubeconfig = Path(named)
        credentials = Credentials(kubeconfig)
        await credentials.load()
        session = aiohttp.ClientSession(
            # The number of connections is bounded by turns, so that a watch never takes the place of a call.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            # With it, aiohttp looks for a .netrc in a thread on every request; the proxy is found once instead.
            trust_env=False,
            auto_decompress=True,
        )
        return cls(
            credentials,
            session,
            identity=identity or f"{user_agent}@{socket.gethostname()}",
            timeout_seconds=timeout_seconds,
            max_connections=max_connections,
            metrics=metrics or Metrics(),
        )

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    @property
    def host(self) -> str:
        return self._credentials.host

    @property
    def urgent(self) -> Api:
        """The same server and connections without waiting for a turn: a lease must be renewed however busy we are."""
        other = Api.__new__(Api)
        other.__dict__.update(self.__dict__)
        other._turns = None
        return other

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
        } | _selectors(label_selector, None)
        call = f"watch {r.plural}"
        lines = Lines()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_seconds + OVERTIME_SECONDS
        # No deadline may be around a `yield`: it would cancel what its caller does with the event.
        async with (
            _answers(call),
            self._send("watch", r.plural, "GET", r.path(namespace), query=query) as answer,
        ):
            while True:
                try:
                    async with asyncio.timeout_at(min(end, loop.time() + quiet_seconds)):
                        chunk = await answer.content.readany()
                except TimeoutError:
                    return
                for line in lines.feed(chunk):
                    yield _event(line, call)
                if not chunk:
                    break
        if lines.rest:
            raise Unreachable("the stream was cut inside an event", call=call)

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
        return await self._exchange(
            method.lower(),
            path.rsplit("/", 1)[-1],
            method,
            path,
            body=body,
            query=query,
            headers=headers,
            token=token,
            seconds=timeout_seconds,
            warnings=warnings,
        )

    # HTTP

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
        return await self._exchange(verb, r.plural, method, path, body=body, query=query, headers=headers)

    async def _exchange(
        self,
        verb: str,
        what: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        seconds: float | None = None,
        warnings: Sentences | None = None,
    ) -> Document:
        call = f"{method} {path}"
        seconds = seconds or self._timeout_seconds
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        if self._turns is not None:
            await self._turns.acquire()
        try:
            async with (
                _answers(call),
                asyncio.timeout(seconds),
                self._send(
                    verb,
                    what,
                    method,
                    path,
                    data=data,
                    query=query,
                    headers=headers,
                    token=token,
                    seconds=seconds,
                    warnings=warnings,
                ) as answer,
            ):
                raw = await answer.read()
        finally:
            if self._turns is not None:
                self._turns.release()
        return _document(raw, call)

    @asynccontextmanager
    async def _send(
        self,
        verb: str,
        what: str,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        seconds: float | None = None,
        warnings: Sentences | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of 2xx, its head had within the deadline; any other is raised as the error it is."""
        began = time.perf_counter()
        code = 0
        try:
            async with asyncio.timeout(seconds or self._timeout_seconds):
                answer = await self._open(method, path, data, query, headers, token)
                code = answer.status
                if warnings is not None:
                    warnings += _warnings(answer.headers.getall("Warning", ()))
                if code >= 300:
                    async with answer:
                        await _refuse(answer, f"{method} {path}")
            async with answer:
                yield answer
        finally:
            self.metrics.requests.labels(verb, what, str(code)).inc()
            if verb != "watch":
                self.metrics.request_seconds.labels(verb).observe(time.perf_counter() - began)

    async def _open(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        token: str | None,
    ) -> aiohttp.ClientResponse:
        answer = await self._open_once(method, path, data, query, headers, token)
        if answer.status == 401 and token is None and await self._credentials.refused():
            answer.release()
            answer = await self._open_once(method, path, data, query, headers, token)
        return answer

    async def _open_once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        token: str | None,
    ) -> aiohttp.ClientResponse:
        credentials = self._credentials
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent |= headers or {}
        authorization = f"Bearer {token}" if token is not None else await credentials.authorization()
        if authorization:
            sent["Authorization"] = authorization
        return await self._session.request(
            method,
            credentials.host + path,
            data=data,
            params=query or None,
            headers=sent,
            ssl=credentials.tls if token is None else credentials.anonymous_tls,
            server_hostname=credentials.server_name,
            proxy=credentials.proxy,
            # Deadlines are asyncio.timeout's: a timeout of aiohttp would be rounded up to whole seconds.
            timeout=aiohttp.ClientTimeout(total=None),
            # Elsewhere our credentials are nobody's business.
            allow_redirects=False,
        )


@asynccontextmanager
async def _answers(call: str) -> AsyncIterator[None]:
    """Turns what a connection can die of into `Unreachable`."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("no answer before the deadline", reason="Timeout", call=call) from error
    except TooLong as error:
        raise Unreachable(str(error), call=call) from error
    except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
        raise Unreachable(str(error) or type(error).__name__, reason=type(error).__name__, call=call) from error


def _warnings(headers: Iterable[str]) -> Sentences:
    """The sentences of `299 - "..."`, as RFC 7234 quotes them."""
    quoted = (header.split(" ", 2)[-1].strip() for header in headers)
    return [re.sub(r"\\(.)", r"\1", text[1:-1]) for text in quoted if text[:1] == text[-1:] == '"']


async def _refuse(answer: aiohttp.ClientResponse, call: str) -> NoReturn:
    raise of_answer(
        answer.status,
        await answer.read(),
        retry_after=answer.headers.get("Retry-After"),
        now=datetime.now(UTC),
        call=call,
    )


def _document(raw: bytes, call: str) -> Document:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON ({error}): {raw[:200]!r}", call=call) from error
    if not isinstance(document, dict):
        raise Unreachable(f"the answer is not an object: {raw[:200]!r}", call=call)
    return document


def _event(line: bytes, call: str) -> tuple[str, Document]:
    event = _document(line, call)
    kind, document = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(document, dict):
        raise Unreachable(f"not an event: {line[:200]!r}", call=call)
    if kind == "ERROR":
        raise of_status(document, now=datetime.now(UTC), call=call)
    return kind, document


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


def _proxy_of_environment(host: str) -> str | None:
    scheme, _, rest = host.partition("://")
    name = rest.split("/")[0].rsplit(":", 1)[0].strip("[]")
    return None if proxy_bypass(name) else getproxies().get(scheme)
