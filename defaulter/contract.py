"""What other packages may use: the defaulter's requests and responses, its client, and checks without libvirt.

Importing this module loads neither libvirt nor lxml; `Defaulter` loads aiohttp when it is used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from defaulter.adoption import adopt
from defaulter.allowed_changes import defaulted_fields, forbidden_changes
from defaulter.errors import InvalidDocument
from defaulter.field_record import DEFAULTED_FIELDS
from defaulter.hook import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.identity import with_firmware_ids
from defaulter.instancetypes import MatchedSpecs, expand
from defaulter.known_shapes import KnownShapes, NewVM, ShapeResult, new_vm, without_answer
from defaulter.kubevirt_defaults import MACPolicy
from defaulter.limits import excessive_sizes
from defaulter.machine_types import is_canonical, resolve_alias
from defaulter.nodes import SCHEDULABLE_LABEL, CPUs, MachineTypes, Node, NodeIndex, read_node
from defaulter.stored_values import with_machine_type
from defaulter.structure import readable
from defaulter.superseded import follow_author, preserve_stored_values, record_defaults
from defaulter.undefaulted import open_addresses, undefaulted_fields
from defaulter.version_skew import COMPONENTS, Newer, newer_than_nodes
from defaulter.vm_paths import HOOK, SIDECARS, locate, opted_out
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.service.cpu_lane import compute, is_costly

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = [
    "API_VERSION",
    "COMPONENTS",
    "DEFAULTED_FIELDS",
    "DEFAULTS_PATH",
    "HARDWARE_ANNOTATION",
    "HOOK",
    "SCHEDULABLE_LABEL",
    "SIDECARS",
    "TENANT_HEADER",
    "CPUs",
    "Defaulter",
    "DefaulterClient",
    "DefaulterOverloaded",
    "DefaulterUnavailable",
    "DefaultingRequest",
    "DefaultingResponse",
    "ForbiddenChange",
    "InvalidDocument",
    "InvalidHardwareRecord",
    "KnownShapes",
    "MACPolicy",
    "MachineTypes",
    "MatchedSpecs",
    "NewVM",
    "Newer",
    "Node",
    "NodeIndex",
    "Problem",
    "Problems",
    "ShapeResult",
    "UndecidedDocument",
    "Version",
    "adopt",
    "defaulted_fields",
    "excessive_sizes",
    "expand",
    "forbidden_changes",
    "is_canonical",
    "newer_than_nodes",
    "open_addresses",
    "opted_out",
    "preserve_stored_values",
    "read_node",
    "resolve_alias",
    "restore_hardware",
    "undefaulted_fields",
    "with_firmware_ids",
    "with_machine_type",
    "without_answer",
]

API_VERSION: Literal["poolhouse.dev/v1alpha1"] = "poolhouse.dev/v1alpha1"
DEFAULTS_PATH = "/apis/vms/defaults"
TENANT_HEADER = "Poolhouse-Tenant"
"""names the namespace of a request, before its body is parsed: the service shares its workers between namespaces"""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, use_attribute_docstrings=True)


class Problems(_Message):
    """The body of every response whose status is not 200."""

    problems: tuple[Problem, ...]


class DefaultingRequest(_Message):
    """A document to default, with values from the admission request."""

    # The service tells this message from the document of a VM by its kind.
    model_config = ConfigDict(json_schema_extra={"required": ["kind", "object"]})

    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingRequest"] = "DefaultingRequest"
    object: Json
    """The document: a VM, a VMI, a replica set or a pool."""
    old_object: Json | None = Field(default=None, alias="oldObject")
    """The stored document, on UPDATE. Its values fill the fields that `object` leaves unset."""
    vmi: Json | None = None
    """The VM's VMI, into whose domain added devices are hotplugged; empty if it exists but cannot be read."""
    namespace: str | None = None
    """The namespace of a document without `metadata.namespace`."""
    seed: str | None = None
    """Seed of MAC addresses, firmware UUIDs and serials, instead of the seed in the service's settings."""
    offered: MachineTypes | None = None
    """Machine types that the nodes can run; absent where the client does not watch nodes."""
    cpus: CPUs | None = None
    """CPU models and features that the libvirt of a node knows; absent where the client does not watch nodes."""
    may_have_run: bool = Field(default=False, alias="mayHaveRun")
    """Whether the guest has run before, or may have. An alias of its machine type then stays."""
    kubevirt: Json | None = None
    """The cluster's KubeVirt object. Its version, feature gates and configuration decide which defaults KubeVirt sets
    and accepts. Absent where the client cannot read it."""
    instancetype: Json | None = None
    """The spec of the instance type that a VM names."""
    preference: Json | None = None
    """The spec of the preference that a VM names. Without it, hardware that it may change is left to KubeVirt."""
    unread: str = ""
    """Why the client could not read the instance type or the preference."""


class DefaultingResponse(_Message):
    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingResponse"] = "DefaultingResponse"
    object: Json
    """The document with its defaults."""
    warnings: tuple[str, ...] = ()
    """Messages for the user, for example, which machine type replaced an alias."""
    undecided: str = ""
    """Why hardware is left to KubeVirt, which chooses it when the VM starts. Empty for a complete VM."""


class Version(_Message):
    """The versions of the software that chooses defaults, and its machine types by architecture."""

    poolhouse: str
    libvirt: str
    qemu: dict[str, str]
    """Version of QEMU by architecture."""
    machines: dict[str, tuple[str, ...]]
    """Canonical machine types by architecture."""
    aliases: dict[str, dict[str, str]] = {}
    """By architecture, the canonical machine type of each alias."""


class DefaulterUnavailable(Exception):
    """The service did not respond in time or cannot work now. The document may be valid: fail open, or retry later."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class UndecidedDocument(DefaulterUnavailable):
    """The service works, but cannot decide this document: it has no emulator for the architecture, or the document
    takes too long. A retry fails too."""


class DefaulterOverloaded(DefaulterUnavailable):
    """The service works, but too many requests wait. Retry later."""


class ForbiddenChange(DefaulterUnavailable):
    """The service changed a field that it must not change; the client discards the whole response."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        super().__init__(f"the answer changed {paths[0]}, which the defaulter must not change")


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
        return self._known_answer(await self.new_vm(document, namespace, seed, may_have_run=may_have_run))

    async def version(self) -> Version:
        """The versions of the service. Raises `DefaulterUnavailable`."""
        status, content = await self._request("GET", "/version")
        try:
            return Version.model_validate(content)
        except ValidationError:
            raise DefaulterUnavailable(f"{self._url}/version answered {status}") from None

    async def new_vm(
        self, document: Json, namespace: str | None, seed: str | None, *, may_have_run: bool = False, also: Any = None
    ) -> NewVM | None:
        """The VM of a document that is not stored yet, with its shape. None if the answer to it must not be remembered.
        `also` belongs to the shape, too: VMs of one shape have equal values of it."""
        specs = await self._matched_specs(document, namespace)
        return _new_vm(self._current_cluster(), document, namespace, seed, may_have_run, specs, also)

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
    also: Any = None,
) -> NewVM | None:
    if "unread" in specs or is_costly():
        return None
    return new_vm(document, namespace, seed, cluster.digest + _encode([may_have_run, specs, also]))


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
