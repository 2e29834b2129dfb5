"""The client of the defaulter. It discards a response that changes what the defaulter must not change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

import orjson
from pydantic import ValidationError

from defaulter.allowed_changes import forbidden_changes
from defaulter.errors import InvalidDocument
from defaulter.known_shapes import KnownShapes, NewVM, new_vm
from defaulter.messages import (
    API_VERSION,
    DEFAULTS_PATH,
    TENANT_HEADER,
    DefaulterOverloaded,
    DefaulterUnavailable,
    DefaultingResponse,
    ForbiddenChange,
    Problems,
    UndecidedDocument,
    Version,
)
from defaulter.nodes import CPUs, MachineTypes, NodeIndex
from defaulter.structure import readable
from defaulter.superseded import follow_author, record_defaults
from defaulter.vm_paths import locate, opted_out
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.service.cpu_lane import compute, is_costly

if TYPE_CHECKING:
    from aiohttp import ClientSession


class DefaulterClient(Protocol):
    """What other packages need of `Defaulter`. Each call ends before its deadline, and the response changes only
    allowed fields."""

    async def complete(
        self,
        document: Json,
        *,
        old: Json | None = None,
        vmi: Json | None = None,
        namespace: str | None = None,
        seed: str | None = None,
        may_have_run: bool = False,
    ) -> DefaultingResponse: ...

    async def recall(
        self, document: Json, *, namespace: str | None = None, seed: str | None = None, may_have_run: bool = False
    ) -> DefaultingResponse | None: ...


class Defaulter:
    """A client of the service: `async with Defaulter(url) as defaulter: await defaulter.complete(vm)`.

    Each call ends within `timeout_seconds`, with a response, `InvalidDocument` or `DefaulterUnavailable`. The client
    closes only a session that it has opened itself. Each request says what the nodes can run, and contains the KubeVirt
    object that `kubevirt` returns. For a VM that names an instance type or a preference, it contains what `read_specs`
    returns for the VM and its namespace: `instancetype`, `preference` and `unread`. With `known_shapes`, the service is
    not called for a new VM of a shape that it has answered recently.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 2.0,
        session: ClientSession | None = None,
        *,
        nodes: NodeIndex | None = None,
        kubevirt: Callable[[], Json | None] = lambda: None,
        read_specs: Callable[[Json, str], Awaitable[Json]] | None = None,
        known_shapes: KnownShapes | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._session = session
        self._owns_session = session is None
        self._nodes = nodes or NodeIndex()
        self._kubevirt = kubevirt
        self._read_specs = read_specs
        self._known_shapes = known_shapes
        self._cluster = _Cluster(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    async def complete(
        self,
        document: Json,
        *,
        old: Json | None = None,
        vmi: Json | None = None,
        namespace: str | None = None,
        seed: str | None = None,
        may_have_run: bool = False,
    ) -> DefaultingResponse:
        """The document with every unset field that the guest sees filled, and nothing else changed. Raises
        `InvalidDocument` or `DefaulterUnavailable`."""
        cluster, specs = self._current_cluster(), await self._matched_specs(document, namespace)
        is_new = old is None and vmi is None and self._known_shapes is not None
        new = _new_vm(cluster, document, namespace, seed, may_have_run, specs) if is_new else None
        if (known := self._known_answer(new)) is not None:
            return known
        given: Json = {
            "oldObject": old,
            "vmi": vmi,
            "namespace": namespace,
            "seed": seed,
            **cluster.sent,
            "mayHaveRun": may_have_run or None,
            **specs,
        }
        body = {"apiVersion": API_VERSION, "kind": "DefaultingRequest", "object": document}
        body |= {name: value for name, value in given.items() if value is not None}
        tenant = namespace or typed(str, document, "metadata", "namespace") or ""
        response = await self._post(body, tenant)
        response = response.model_copy(update={"object": await compute(_accept, document, old, response.object)})
        if self._known_shapes is not None and new is not None:
            self._known_shapes.learn(new, response.object, response.warnings, response.undecided)
        return response

    async def recall(
        self, document: Json, *, namespace: str | None = None, seed: str | None = None, may_have_run: bool = False
    ) -> DefaultingResponse | None:
        """The answer to a document that is not stored yet, if its shape is known. The service is not called."""
        if self._known_shapes is None or not self._known_shapes:
            return None
        specs = await self._matched_specs(document, namespace)
        return self._known_answer(_new_vm(self._current_cluster(), document, namespace, seed, may_have_run, specs))

    async def version(self) -> Version:
        """The versions of the service. Raises `DefaulterUnavailable`."""
        status, content = await self._request("GET", "/version")
        try:
            return Version.model_validate(content)
        except ValidationError:
            raise DefaulterUnavailable(f"{self._url}/version answered {status}") from None

    def _known_answer(self, vm: NewVM | None) -> DefaultingResponse | None:
        known = self._known_shapes.find(vm) if self._known_shapes is not None and vm is not None else None
        if vm is None or known is None:
            return None
        return DefaultingResponse(object=known.apply(vm), warnings=known.warnings, undecided=known.undecided)

    def _current_cluster(self) -> _Cluster:
        types, cpus, kubevirt = self._nodes.machine_types(), self._nodes.cpus(), self._kubevirt()
        known = self._cluster
        if types is not known.types or cpus is not known.cpus or kubevirt is not known.kubevirt:
            self._cluster = _Cluster(types, cpus, kubevirt)
        return self._cluster

    async def _matched_specs(self, document: Json, namespace: str | None) -> Json:
        location = locate(document, namespace)
        if self._read_specs is None or location is None or not (location.has_instancetype or location.has_preference):
            return {}
        if opted_out(document):
            return {}
        seconds = self._timeout_seconds / 2
        try:
            async with asyncio.timeout(seconds):
                return await self._read_specs(at(document, *(location.vm or ())), location.namespace)
        except TimeoutError:
            return {"unread": f"the API server did not answer within {seconds:g} s"}

    async def _post(self, body: Json, tenant: str) -> DefaultingResponse:
        headers = _JSON | ({TENANT_HEADER: tenant} if is_header_text(tenant) else {})
        status, content = await self._request("POST", DEFAULTS_PATH, _encode(body), headers)
        try:
            if status == 200:
                return DefaultingResponse.model_validate(content)
            problems = Problems.model_validate(content).problems
        except ValidationError as error:
            if status == 200:
                raise DefaulterUnavailable(f"the answer is not a DefaultingResponse: {error}") from error
            problems = ()
        problems = problems or (Problem("", f"{self._url}{DEFAULTS_PATH} answered {status}"),)
        if status in (400, 413, 422):
            raise InvalidDocument(problems)
        failure = _FAILURES.get(status, DefaulterUnavailable)
        raise failure("; ".join(str(problem) if problem.path else problem.message for problem in problems))

    async def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, Any]:
        import aiohttp

        self._session = self._session or aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        try:
            async with self._session.request(
                method, self._url + path, data=body, headers=headers, timeout=timeout
            ) as response:
                return response.status, orjson.loads(await response.read())
        except TimeoutError:
            raise DefaulterUnavailable(f"no answer from {self._url} within {self._timeout_seconds:g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise DefaulterUnavailable(f"no answer from {self._url}: {error}") from error


class _Cluster:
    """What the client knows of the cluster, and sends with each request."""

    def __init__(self, types: MachineTypes | None, cpus: CPUs | None, kubevirt: Json | None) -> None:
        self.types, self.cpus, self.kubevirt = types, cpus, kubevirt
        self.sent: Json = {
            "offered": {"everywhere": sorted(types.everywhere), "somewhere": sorted(types.somewhere)}
            if types
            else None,
            "cpus": {"models": sorted(cpus.models), "features": sorted(cpus.features)} if cpus else None,
            "kubevirt": kubevirt,
        }
        self.digest = sha256(_encode(self.sent)).digest()


def _new_vm(
    cluster: _Cluster,
    document: Json,
    namespace: str | None,
    seed: str | None,
    may_have_run: bool,
    specs: Json,
) -> NewVM | None:
    if "unread" in specs or is_costly():
        return None
    return new_vm(document, namespace, seed, cluster.digest + _encode([may_have_run, specs]))


def _accept(document: Json, old: Json | None, completed: Json) -> Json:
    """The completed document with the record of its defaults. Raises `ForbiddenChange`."""
    edit = follow_author(document, readable(old))
    if paths := forbidden_changes(edit.document, completed):
        raise ForbiddenChange(paths)
    return record_defaults(edit, completed)


def _encode(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:  # a number beyond 64 bits or half a surrogate pair: the service says where
        return json.dumps(body).encode()


def is_header_text(text: str) -> bool:
    """Whether the text can be the value of an HTTP header. The API server has not checked every namespace yet."""
    return text.isascii() and text.isprintable() and bool(text.strip())


_JSON = {"Content-Type": "application/json"}
_FAILURES = {429: DefaulterOverloaded, 500: UndecidedDocument, 501: UndecidedDocument}
"""by HTTP status; 500 is an error in the code that handles the document"""
