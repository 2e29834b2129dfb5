"""What others may know of the defaulter: its requests, its answers, its client, and what it would still fill.

Needs no libvirt, no lxml and no server; aiohttp only once a `Defaulter` is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from defaulter.allowed_changes import defaulted_fields, forbidden_changes
from defaulter.errors import InvalidDocument
from defaulter.hook import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.json_paths import DocumentEditor
from defaulter.kubevirt_defaults import MACPolicy
from defaulter.machine_types import SCHEDULABLE_LABEL, MachineTypeIndex, MachineTypes, Node, read_node
from defaulter.stored_values import fill_stored_values
from defaulter.undefaulted import CLUSTER_INDEPENDENT, undefaulted_fields
from defaulter.vm_paths import locate, opted_out

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = [
    "API_VERSION",
    "BODY_LIMIT_BYTES",
    "DEFAULTS_PATH",
    "HARDWARE_ANNOTATION",
    "SCHEDULABLE_LABEL",
    "Defaulter",
    "DefaulterUnavailable",
    "DefaultingRequest",
    "DefaultingResponse",
    "ForbiddenChange",
    "InvalidDocument",
    "InvalidHardwareRecord",
    "MACPolicy",
    "MachineTypeIndex",
    "MachineTypes",
    "Node",
    "Problem",
    "Problems",
    "Version",
    "defaulted_fields",
    "forbidden_changes",
    "parse_mac_policy",
    "preserve_stored_values",
    "read_node",
    "restore_hardware",
    "undefaulted_fields",
]

API_VERSION: Literal["poolhouse.dev/v1alpha1"] = "poolhouse.dev/v1alpha1"
DEFAULTS_PATH = "/apis/vms/defaults"
BODY_LIMIT_BYTES = 3 * 1024 * 1024

_M = TypeVar("_M", bound=BaseModel)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Problems(_Message):
    """The body of every answer that is not 200."""

    problems: tuple[Problem, ...]


class DefaultingRequest(_Message):
    """A document with what admission knows about it. A bare document is a request too."""

    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingRequest"] = "DefaultingRequest"
    object: dict[str, Any]
    old_object: dict[str, Any] | None = Field(default=None, alias="oldObject")
    """the stored document on UPDATE: what it decided stays decided"""
    namespace: str | None = None
    """where the object will live, when its metadata doesn't say"""
    seed: str | None = None
    """replaces the service's own seed of MAC addresses, firmware UUIDs and serials"""
    offered: MachineTypes | None = None
    """machine types that the nodes can run; absent where the client does not watch nodes"""


class DefaultingResponse(_Message):
    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingResponse"] = "DefaultingResponse"
    object: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """sentences for the person who sent it, such as a machine alias that was made canonical"""


class Version(_Message):
    """Which libvirt and QEMU decide, and which machines they know."""

    poolhouse: str
    libvirt: str
    qemu: dict[str, str]
    """by architecture"""
    machines: dict[str, tuple[str, ...]]
    """by architecture: canonical machine types"""
    aliases: dict[str, dict[str, str]] = {}
    """by architecture: alias to canonical machine type"""


class DefaulterUnavailable(Exception):
    """No answer in time, or the service cannot work now; the document may be right. Fail open or ask again later."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ForbiddenChange(DefaulterUnavailable):
    """The service answered, and changed what is not its to change; nothing of it was taken."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        super().__init__(f"the answer changed {paths[0]}, which is not the defaulter's to change")


def parse_mac_policy(text: str) -> MACPolicy:
    """Of the setting POOLHOUSE_MACS, which the service and its clients share. Raises ValueError."""
    found: MACPolicy | None = next((policy for policy in get_args(MACPolicy) if policy == text), None)
    if found is None:
        raise ValueError(f"POOLHOUSE_MACS: must be {', '.join(get_args(MACPolicy))}, not {text!r}")
    return found


def preserve_stored_values(document: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The document with what the stored one (`old`) had decided and this one leaves open: as much of an answer to an
    update as can be had without the service."""
    location = locate(document)
    if location is None or opted_out(document) or not isinstance(at(document, *location.spec), dict):
        return document
    editor = DocumentEditor(document)
    fill_stored_values(editor, location, old, CLUSTER_INDEPENDENT)
    return editor.document


class Defaulter:
    """A client of the service: `async with Defaulter(url) as defaulter: await defaulter.complete(vm)`.

    Each call ends within `timeout_seconds`: with an answer, `InvalidDocument` or `DefaulterUnavailable`. A session that
    is given stays open. Without one the client opens and closes its own, trusting `ca` where the URL is https. Each
    request carries the machine types that `machine_types` returns.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 2.0,
        session: ClientSession | None = None,
        *,
        ca: Path | None = None,
        machine_types: Callable[[], MachineTypes | None] = lambda: None,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._session = session
        self._owned: ClientSession | None = None
        self._ca = ca
        self._machine_types = machine_types

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            await owned.close()

    async def complete(
        self,
        document: dict[str, Any],
        *,
        old: dict[str, Any] | None = None,
        namespace: str | None = None,
        seed: str | None = None,
    ) -> DefaultingResponse:
        """The document with every unset field that the guest sees filled, and nothing else changed. Raises
        `InvalidDocument` or `DefaulterUnavailable`."""
        types = self._machine_types()
        given = {
            "oldObject": old,
            "namespace": namespace,
            "seed": seed,
            "offered": {"everywhere": [*types.everywhere], "somewhere": [*types.somewhere]} if types else None,
        }
        body = {"apiVersion": API_VERSION, "kind": "DefaultingRequest", "object": document}
        body |= {name: value for name, value in given.items() if value is not None}
        answer = _read(DefaultingResponse, await self._call("POST", DEFAULTS_PATH, body))
        if beyond := forbidden_changes(document, answer.object):
            raise ForbiddenChange(beyond)
        return answer

    async def version(self) -> Version:
        """What the service runs. Raises `DefaulterUnavailable`."""
        return _read(Version, await self._call("GET", "/version", None))

    async def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        try:
            async with self._open().request(method, self._url + path, json=body, timeout=timeout) as answer:
                status, content = answer.status, await answer.json(content_type=None)
        except TimeoutError:
            raise DefaulterUnavailable(f"no answer from {self._url} within {self._timeout_seconds:g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise DefaulterUnavailable(f"no answer from {self._url}: {error}") from error
        if status == 200:
            return content
        problems = _problems(content) or (Problem(path="", message=f"{self._url}{path} answered {status}"),)
        if status in (400, 413, 422):
            raise InvalidDocument(problems)
        raise DefaulterUnavailable("; ".join(problem.message for problem in problems))

    def _open(self) -> ClientSession:
        if self._session is not None:
            return self._session
        if self._owned is None:
            import ssl

            import aiohttp

            trust = ssl.create_default_context(cafile=str(self._ca)) if self._ca else True
            self._owned = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        return self._owned


def _problems(content: Any) -> tuple[Problem, ...]:
    try:
        return Problems.model_validate(content).problems
    except ValidationError:
        return ()


def _read(model: type[_M], content: Any) -> _M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise DefaulterUnavailable(f"the answer is no {model.__name__}: {error}") from error
