"""The async client."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import httpx

from ._async_claims import AsyncClaims
from ._async_objects import AsyncObjects, AsyncPools
from .connection import Connection, connect
from .errors import Throttled, Unavailable, Unreachable, WebhookFailed, error_from_response
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
from .objects import Json, KubernetesObject
from .transport import AsyncDeadline, new_async_http, pause_seconds

SILENCE_SECONDS = 100.0
"""The API server sends a bookmark each minute; a watch that is silent for longer is broken."""


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
            except (Throttled, Unavailable, Unreachable, WebhookFailed) as error:
                pause = pause_seconds(error, attempt)
                safe = repeats or isinstance(error, Throttled | WebhookFailed)
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
