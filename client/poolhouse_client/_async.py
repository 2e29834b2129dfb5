"""The async client."""

from __future__ import annotations

import asyncio
import builtins
import json
import random
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from .connection import Connection, connect
from .errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    NotFound,
    Throttled,
    Unavailable,
    Unreachable,
    error_from_response,
    error_from_status,
)
from .failures import ClaimFailed, DeadlineExceeded, Stalled, describe
from .models import (
    DryRunResponse,
    ErrorResponse,
    ExplainResponse,
    MigrationPolicy,
    PlanResponse,
    VirtualMachineClaim,
    VirtualMachineInstanceReplicaSet,
    VirtualMachinePool,
    VirtualMachineWarmPool,
)
from .objects import Event, Json, KubernetesObject
from .transport import AsyncDeadline, new_async_http

T = TypeVar("T", bound=KubernetesObject)

PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 10.0
WATCH_SECONDS = 300.0
SILENCE_SECONDS = 100.0
"""The API server sends a bookmark each minute; a watch that is silent for longer is broken."""
PAGE = 500
CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class AsyncClient:
    """A client of one cluster, for the objects of one namespace unless a call names another.

    `kubeconfig` and `context` are as kubectl's. `stack` is the directory of an embedded stack instead. Every call ends
    after `timeout_seconds`, with its retries: after 429 and, if the request can be repeated, after 5xx and lost
    connections, with growing pauses. `webhook`, `controllers` and `defaulter` are the URLs of services that
    `dry_run`, `explain`, `plan` and `defaults` ask, and `ca` is a file with the CA of their certificates.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        stack: Path | str | None = None,
        timeout_seconds: float = 30.0,
        webhook: str = "https://poolhouse-webhook.poolhouse-system.svc",
        controllers: str = "",
        defaulter: str = "",
        ca: Path | str | None = None,
        field_manager: str = "poolhouse-client",
        connection: Connection | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        urls = {"webhook": webhook, "controllers": controllers, "defaulter": defaulter}
        if stack is not None:
            found = json.loads((Path(stack) / "endpoints.json").read_text())
            urls = {name: found.get(name, "") for name in urls}
            kubeconfig, ca = kubeconfig or Path(stack) / "kubeconfig", ca or found["ca"]
        self._connection = connection or connect(kubeconfig, context)
        self.namespace = namespace or self._connection.namespace
        self.timeout_seconds, self.field_manager = timeout_seconds, field_manager
        self._urls, self._ca, self._transport = urls, ca, transport
        self._http = self._new_http(self._connection.tls, self._connection.proxy)
        self._services_http: httpx.AsyncClient | None = None
        self.pools = AsyncPools(self, VirtualMachinePool)
        self.replica_sets = AsyncPools(self, VirtualMachineInstanceReplicaSet)
        self.warm_pools = AsyncPools(self, VirtualMachineWarmPool)
        self.claims = AsyncClaims(self, VirtualMachineClaim)
        self.policies = AsyncObjects(self, MigrationPolicy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()
        if self._services_http is not None:
            await self._services_http.aclose()

    async def plan(self, found: KubernetesObject | Json) -> PlanResponse:
        """What the controller would do with a pool or replica set, in order, if each action succeeds. Changes
        nothing."""
        document = self._document(found)
        kinds = {"VirtualMachinePool": "pools", "VirtualMachineInstanceReplicaSet": "replicasets"}
        path = f"/apis/{kinds[document['kind']]}/plan"
        return PlanResponse.model_validate(await self._ask("controllers", path, document))

    async def dry_run(self, found: KubernetesObject | Json) -> DryRunResponse:
        """What admission says about an object, with every problem, the object as it would be stored, and for a pool
        or replica set the plan. Changes nothing."""
        return DryRunResponse.model_validate(await self._ask("webhook", "/apis/vms/dryrun", self._document(found)))

    async def explain(
        self,
        name: str,
        *,
        namespace: str | None = None,
        with_labels: Mapping[str, str | None] | None = None,
        with_policies: list[MigrationPolicy] | None = None,
    ) -> ExplainResponse:
        """Which migration policy a VM or VMI obeys, and why. `with_labels` and `with_policies` are assumed."""
        policies = [self._document(each) for each in with_policies or ()]
        question = {
            "namespace": namespace or self.namespace,
            "name": name,
            "withLabels": dict(with_labels or {}),
            "withPolicies": policies,
        }
        return ExplainResponse.model_validate(await self._ask("webhook", "/apis/policies/explain", question))

    async def defaults(self, vm: Json) -> Json:
        """The VM or VMI with its guest-visible hardware decided, as admission would store it."""
        return await self._ask("defaulter", "/apis/vms/defaults", vm)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        repeatable: bool | None = None,
        timeout_seconds: float = float("inf"),
    ) -> Json:
        """Sends a request to the API server, and returns its answer. Raises ApiError. `repeatable` says whether a
        request whose outcome is unknown may be sent again; the default is that only POST may not. The deadline is
        `timeout_seconds`, but at most that of the client."""
        return await self._send(self._http, method, path, body, query, content_type, repeatable, timeout_seconds)

    def _document(self, found: KubernetesObject | Json) -> Json:
        document = found.to_json() if isinstance(found, KubernetesObject) else deepcopy(found)
        if document.get("kind") != MigrationPolicy.TYPE.kind:
            document.setdefault("metadata", {}).setdefault("namespace", self.namespace)
        return document

    async def _ask(self, service: str, path: str, body: Json) -> Json:
        if not self._urls[service]:
            raise ValueError(f"the client has no URL of the {service}: give Client({service}=URL)")
        if self._services_http is None:
            tls = ssl.create_default_context(cafile=str(self._ca) if self._ca else None)
            self._services_http = self._new_http(tls, None)
        return await self._send(self._services_http, "POST", self._urls[service] + path, body, repeatable=True)

    def _new_http(self, tls: ssl.SSLContext, proxy: str | None) -> httpx.AsyncClient:
        return new_async_http(
            server=self._connection.server,
            tls=tls,
            auth=self._connection.auth,
            proxy=proxy,
            headers={"User-Agent": self.field_manager, "Accept": "application/json"},
            transport=self._transport,
        )

    async def _send(
        self,
        http: httpx.AsyncClient,
        method: str,
        url: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        repeatable: bool | None = None,
        timeout_seconds: float = float("inf"),
    ) -> Json:
        repeats = method != "POST" if repeatable is None else repeatable
        end, attempt = monotonic() + min(self.timeout_seconds, timeout_seconds), 0
        while True:
            try:
                return await self._send_once(http, method, url, body, query, content_type, end)
            except (Throttled, Unavailable, Unreachable) as error:
                growing = min(MAX_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)
                pause = max(growing, error.retry_after_seconds or 0.0)
                safe = repeats or isinstance(error, Throttled)
                if not safe or monotonic() + pause >= end:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def _send_once(
        self,
        http: httpx.AsyncClient,
        method: str,
        url: str,
        body: Any,
        query: Mapping[str, str] | None,
        content_type: str,
        end: float,
    ) -> Json:
        call = f"{method} {httpx.URL(url).path}"
        try:
            async with AsyncDeadline(end):
                answer = await http.request(
                    method,
                    url,
                    params=dict(query or {}),
                    content=json.dumps(body) if body is not None else None,
                    headers={"Content-Type": content_type} if body is not None else None,
                    timeout=max(0.1, end - monotonic()),
                    extensions=self._extensions,
                )
        except httpx.HTTPError as error:
            raise _unreachable(error, call) from error
        if answer.status_code >= 300:
            retry_after = answer.headers.get("Retry-After")
            raise error_from_response(
                answer.status_code,
                _as_status(answer.content),
                retry_after=retry_after,
                now=datetime.now(UTC),
                call=call,
            )
        return _parse(answer.content, call)

    @property
    def _extensions(self) -> dict[str, Any]:
        name = self._connection.server_name
        return {"sni_hostname": name} if name else {}

    async def _lines(self, path: str, query: Mapping[str, str], seconds: float) -> AsyncGenerator[Json]:
        """The events of a watch, until its end, `seconds`, or a silence that a working watch does not have."""
        call, end = f"watch {path}", monotonic() + seconds
        # The deadlines are shorter. One around a `yield` would also limit the caller's code.
        limits = httpx.Timeout(max(self.timeout_seconds, SILENCE_SECONDS))
        request = self._http.build_request("GET", path, params=dict(query), timeout=limits, extensions=self._extensions)
        try:
            async with AsyncDeadline(min(end, monotonic() + self.timeout_seconds)):
                answer = await self._http.send(request, stream=True)
            async with aclosing(answer):
                if answer.status_code >= 300:
                    async with AsyncDeadline(min(end, monotonic() + self.timeout_seconds)):
                        raw = await answer.aread()
                    raise error_from_response(answer.status_code, raw, now=datetime.now(UTC), call=call)
                lines = answer.aiter_lines()
                while True:
                    async with AsyncDeadline(min(end, monotonic() + SILENCE_SECONDS)):
                        line = await anext(lines, None)
                    if line is None:
                        return
                    if line:
                        yield _parse(line.encode(), call)
        except httpx.ReadTimeout:
            return
        except httpx.HTTPError as error:
            raise _unreachable(error, call) from error


class AsyncObjects(Generic[T]):
    """The objects of one kind."""

    def __init__(self, client: AsyncClient, model: type[T]) -> None:
        self._client, self._model = client, model

    async def get(self, name: str, *, namespace: str | None = None) -> T:
        return self._parsed(await self._client.request("GET", self._path(namespace, name)))

    async def list(self, *, namespace: str | None = None, label_selector: str = "") -> builtins.list[T]:
        end = monotonic() + self._client.timeout_seconds
        return (await self._list(namespace, label_selector, "", end))[0]

    async def create(self, new: T | Json, *, dry_run: bool = False, repeatable: bool = False) -> T:
        """Raises Invalid with all problems of the spec, and AlreadyExists. With `repeatable`, the request is sent again
        if its outcome is unknown; AlreadyExists can then mean that the first one was successful."""
        document = self._client._document(new)
        path = self._path(document["metadata"].get("namespace"))
        query = {"fieldManager": self._client.field_manager, "fieldValidation": "Strict"} | _dry(dry_run)
        answer = await self._client.request("POST", path, body=document, query=query, repeatable=repeatable)
        return self._parsed(answer)

    async def apply(self, wanted: T | Json, *, force: bool = False, dry_run: bool = False) -> T:
        """Creates or changes the object with server-side apply. Raises Conflict if another client has set a field to
        another value, unless `force`."""
        document = self._client._document(wanted)
        metadata = document["metadata"]
        query = {"fieldManager": self._client.field_manager, "fieldValidation": "Strict"} | _dry(dry_run)
        if force:
            query["force"] = "true"
        path = self._path(metadata.get("namespace"), metadata["name"])
        document.pop("status", None)
        metadata.pop("managedFields", None)  # of an object that was read; the API server refuses it
        answer = await self._client.request(
            "PATCH", path, body=document, query=query, content_type=CONTENT_TYPES["apply"]
        )
        return self._parsed(answer)

    async def patch(self, name: str, change: Json, *, namespace: str | None = None) -> T:
        """Merges `change` into the object; None deletes a field."""
        path, query = self._path(namespace, name), {"fieldManager": self._client.field_manager}
        answer = await self._client.request(
            "PATCH", path, body=change, query=query, content_type=CONTENT_TYPES["merge"]
        )
        return self._parsed(answer)

    async def edit(self, name: str, change: Callable[[T], object], *, namespace: str | None = None) -> T:
        """Reads the object, lets `change` modify it, and writes it. Begins again if another client was faster."""
        end, attempt = monotonic() + self._client.timeout_seconds, 0
        path = self._path(namespace, name)
        while True:
            found = self._parsed(await self._client.request("GET", path, timeout_seconds=end - monotonic()))
            change(found)
            query = {"fieldManager": self._client.field_manager}
            try:
                # Not repeatable: after a lost answer, the Conflict of a repetition would apply the change again.
                answer = await self._client.request(
                    *("PUT", path),
                    body=found.to_json(),
                    query=query,
                    repeatable=False,
                    timeout_seconds=end - monotonic(),
                )
                return self._parsed(answer)
            except Conflict:
                pause = min(1.0, 0.05 * 2**attempt) * random.uniform(0.5, 1.0)
                if monotonic() + pause >= end:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def delete(self, name: str, *, namespace: str | None = None, uid: str = "", missing_ok: bool = False) -> None:
        """Deletes the object; with `uid`, only if it is still the same. Does not wait for its end."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._client.request("DELETE", self._path(namespace, name), body=body)
        except (NotFound, Conflict) as error:
            if not missing_ok or (isinstance(error, Conflict) and not uid):
                raise

    async def watch(
        self,
        name: str = "",
        *,
        namespace: str | None = None,
        label_selector: str = "",
        timeout_seconds: float = float("inf"),
    ) -> AsyncGenerator[Event[T]]:
        """The objects as they are, and each change of them, until the time is over. Connects again when the server
        ends the watch. Changes may be combined, and an object may come twice: only its last state counts."""
        end, known, attempt = monotonic() + timeout_seconds, dict[str, T](), 0
        while True:
            try:
                found, version = await self._list(namespace, label_selector, name, end)
                present = {each.metadata.uid for each in found}
                for gone in [uid for uid in known if uid not in present]:
                    yield Event("DELETED", known.pop(gone))
                for each in found:
                    event: Literal["ADDED", "MODIFIED"] = "MODIFIED" if each.metadata.uid in known else "ADDED"
                    known[each.metadata.uid] = each
                    yield Event(event, each)
                while (left := end - monotonic()) > 0:
                    query = _selectors(label_selector, name) | {
                        "watch": "true",
                        "allowWatchBookmarks": "true",
                        "resourceVersion": version,
                        "timeoutSeconds": str(max(1, round(min(left, WATCH_SECONDS)))),
                    }
                    began = monotonic()
                    lines = self._client._lines(self._path(namespace), query, min(left, WATCH_SECONDS + 10))
                    async with aclosing(lines) as events:
                        async for line in events:
                            kind, document = line["type"], line["object"]
                            if kind == "ERROR":
                                raise error_from_status(
                                    document, now=datetime.now(UTC), call=f"watch {self._path(namespace)}"
                                )
                            version, attempt = document["metadata"]["resourceVersion"], 0
                            if kind == "BOOKMARK":
                                continue
                            each = self._parsed(document)
                            if kind == "DELETED":
                                known.pop(each.metadata.uid, None)
                            else:
                                known[each.metadata.uid] = each
                            yield Event(kind, each)
                    # A server that ends each watch at once must not be asked without a pause.
                    await asyncio.sleep(min(max(0.0, 1.0 - (monotonic() - began)), max(0.0, end - monotonic())))
                return
            except (Expired, Throttled, Unavailable, Unreachable) as error:
                pause = min(MAX_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)
                pause = max(pause, error.retry_after_seconds or 0.0)
                if monotonic() + pause >= end:
                    return
                attempt += 1
                await asyncio.sleep(pause)

    async def wait(
        self, name: str, until: Callable[[T], bool], *, timeout_seconds: float = 300.0, namespace: str | None = None
    ) -> T:
        """The object, once `until` is true for it. Raises NotFound if it does not exist or is deleted, and
        DeadlineExceeded."""
        begun, path = monotonic(), self._path(namespace, name)
        least = max(1.0, timeout_seconds)  # 0 asks once
        last = self._parsed(await self._client.request("GET", path, timeout_seconds=least))
        if until(last):
            return last
        left = timeout_seconds - (monotonic() - begun)
        watch = self.watch(name, namespace=namespace, timeout_seconds=left)
        async with aclosing(watch) as events:
            async for event in events:
                last = event.object
                if event.type == "DELETED":
                    raise NotFound(f"{last.TYPE.kind} {name} was deleted", status=404, call="watch")
                if until(last):
                    return last
        raise DeadlineExceeded(f"after {timeout_seconds:g} s: {describe(last)}", last)

    async def wait_ready(self, name: str, *, timeout_seconds: float = 300.0, namespace: str | None = None) -> T:
        """The object, once it is as its spec requires: for a pool, also the end of its rollout. Raises Stalled at once
        if it does not become ready without a change, or has ended."""
        found = await self.wait(
            name,
            lambda each: each.ready or each.stalled or each.ended,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
        )
        if not found.ready:
            raise Stalled(describe(found), found)
        return found

    async def _list(
        self, namespace: str | None, label_selector: str, name: str, end: float
    ) -> tuple[builtins.list[T], str]:
        query, found = _selectors(label_selector, name) | {"limit": str(PAGE)}, list[T]()
        while True:
            left = max(0.1, end - monotonic())
            page = await self._client.request("GET", self._path(namespace), query=query, timeout_seconds=left)
            found += [self._parsed(each) for each in page.get("items") or ()]
            if not (more := page["metadata"].get("continue")):
                return found, page["metadata"]["resourceVersion"]
            query["continue"] = more

    def _path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        found = self._model.TYPE
        parts = ["apis", found.group, found.version]
        if found.namespaced:
            parts += ["namespaces", namespace or self._client.namespace]
        parts += [found.plural, *([name] if name else ()), *([subresource] if subresource else ())]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def _parsed(self, document: Json) -> T:
        return self._model.model_validate(document)


class AsyncPools(AsyncObjects[T]):
    """The objects of a kind that can be scaled."""

    async def scale(self, name: str, replicas: int, *, namespace: str | None = None) -> None:
        """Changes the number of VMs through the scale subresource, which needs only the right to scale."""
        path = self._path(namespace, name, "scale")
        await self._client.request(
            "PATCH", path, body={"spec": {"replicas": replicas}}, content_type=CONTENT_TYPES["merge"]
        )


class AsyncClaimedVM:
    """A VM that belongs to a claim."""

    def __init__(self, claims: AsyncClaims, claim: VirtualMachineClaim) -> None:
        self._claims, self.claim = claims, claim

    @property
    def address(self) -> str:
        """The primary IP address, or an empty text if KubeVirt does not report one."""
        return next(iter(self.claim.status.addresses), "")

    @property
    def name(self) -> str:
        """Name of the VM, or ID of the EC2 instance."""
        status = self.claim.status
        if status.vm_ref is not None:
            return status.vm_ref.name
        return status.instance_ref.id if status.instance_ref is not None else ""

    async def extend(self, ttl_seconds: int) -> None:
        """Lets the VM live until `ttl_seconds` after it was bound, up to the pool's maximum. Raises ClaimFailed if the
        claim has ended or has lost its VM."""
        change = {"spec": {"ttlSeconds": ttl_seconds}}
        where = self.claim.metadata
        found = await self._claims.get(where.name, namespace=where.namespace)
        if found.ended or found.stalled:
            raise ClaimFailed(describe(found), found)
        self.claim = await self._claims.patch(where.name, change, namespace=where.namespace)


class AsyncClaims(AsyncObjects[VirtualMachineClaim]):
    @asynccontextmanager
    async def claim(
        self,
        pool: str | None = None,
        *,
        name: str = "",
        namespace: str | None = None,
        timeout_seconds: float = 120.0,
        **spec: Any,
    ) -> AsyncIterator[AsyncClaimedVM]:
        """Claims a VM of a warm pool, or of the namespace's default pool, and deletes the claim and the VM at the end
        of the block, also after an exception. `spec` has other fields of the claim's spec: `ttl_seconds=3600`.

        Give `ttl_seconds`, or a pool with `defaultTTLSeconds`: a program that is killed cannot delete its claim. Raises
        ClaimFailed with the reason if there is no VM, and DeadlineExceeded."""
        wanted = {**({"pool_name": pool} if pool else {}), **spec}
        new = VirtualMachineClaim.new(name or f"{pool or 'claim'}-{secrets.token_hex(5)}", spec=wanted)
        new.metadata.namespace = namespace or self._client.namespace
        created = await self._created(new) if name else await self._created_once(new)
        try:
            yield AsyncClaimedVM(self, await self._handed_over(created, timeout_seconds))
        except BaseException as error:
            try:
                await self._release(created)
            except ApiError as failure:
                error.add_note(f"the claim {created.name} was not deleted: {failure}")
            raise
        await self._release(created)

    async def _created(self, new: VirtualMachineClaim) -> VirtualMachineClaim:
        return await self.create(new, repeatable=False)

    async def _created_once(self, new: VirtualMachineClaim) -> VirtualMachineClaim:
        """Creates a claim with a unique name. A claim of this name is this claim, created by a request without an
        answer; therefore it is deleted after an error too."""
        try:
            try:
                return await self.create(new, repeatable=True)
            except AlreadyExists:
                return await self.get(new.name, namespace=new.metadata.namespace)
        except BaseException as error:
            try:
                await self.delete(new.name, namespace=new.metadata.namespace, missing_ok=True)
            except ApiError as failure:
                error.add_note(f"the claim {new.name} may exist: {failure}")
            raise

    async def _handed_over(self, claim: VirtualMachineClaim, timeout_seconds: float) -> VirtualMachineClaim:
        name, namespace = claim.name, claim.metadata.namespace
        try:
            return await self.wait_ready(name, timeout_seconds=timeout_seconds, namespace=namespace)
        except Stalled as error:
            raise ClaimFailed(str(error), error.found) from error
        except NotFound as error:
            raise ClaimFailed(f"the claim {namespace}/{name} was deleted", claim) from error

    async def _release(self, claim: VirtualMachineClaim) -> None:
        where = claim.metadata
        await self.delete(where.name, namespace=where.namespace, uid=where.uid, missing_ok=True)


def _parse(raw: bytes, call: str) -> Json:
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON: {raw[:200]!r}", call=call) from error
    if not isinstance(found, dict):
        raise Unreachable(f"the answer is not an object: {raw[:200]!r}", call=call)
    return found


def _as_status(raw: bytes) -> bytes:
    """The problems in an error of Poolhouse's services, as a Status of the API server. Other bodies stay."""
    try:
        answer = ErrorResponse.model_validate_json(raw)
    except ValueError:
        return raw
    causes = [{"field": each.path, "message": each.message} for each in answer.problems]
    message = "; ".join(": ".join(filter(None, each.values())) for each in causes)
    return json.dumps({"kind": "Status", "message": message, "details": {"causes": causes}}).encode()


def _unreachable(error: httpx.HTTPError, call: str) -> Unreachable:
    return Unreachable(str(error) or "no answer before the deadline", reason=type(error).__name__, call=call)


def _selectors(labels: str, name: str) -> dict[str, str]:
    found = {"labelSelector": labels, "fieldSelector": f"metadata.name={name}" if name else ""}
    return {key: value for key, value in found.items() if value}


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
