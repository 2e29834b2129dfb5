"""What other rooms may use of the defaulter: its requests and responses, its client, and checks that need no libvirt.

Importing this module loads neither libvirt nor lxml; `Defaulter` loads aiohttp when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apimachinery.problem import Problem
from apimachinery.unstructured import Json
from defaulter.allowed_changes import defaulted_fields, forbidden_changes
from defaulter.errors import InvalidDocument
from defaulter.hook import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.kubevirt_defaults import MACPolicy
from defaulter.machine_types import SCHEDULABLE_LABEL, MachineTypeIndex, MachineTypes, Node, read_node
from defaulter.stored_values import preserve_stored_values
from defaulter.undefaulted import undefaulted_fields

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = [
    "API_VERSION",
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
    "preserve_stored_values",
    "read_node",
    "restore_hardware",
    "undefaulted_fields",
]

API_VERSION: Literal["poolhouse.dev/v1alpha1"] = "poolhouse.dev/v1alpha1"
DEFAULTS_PATH = "/apis/vms/defaults"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, use_attribute_docstrings=True)


class Problems(_Message):
    """The body of every response whose status is not 200."""

    problems: tuple[Problem, ...]


class DefaultingRequest(_Message):
    """A document with what admission knows about it."""

    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingRequest"] = "DefaultingRequest"
    object: Json
    """The document: a VM, a VMI, a replica set or a pool."""
    old_object: Json | None = Field(default=None, alias="oldObject")
    """The stored document, on UPDATE. Its values are kept where `object` leaves a field unset."""
    namespace: str | None = None
    """The namespace of the document where its metadata has none."""
    seed: str | None = None
    """Seed of MAC addresses, firmware UUIDs and serials, instead of the service's own."""
    offered: MachineTypes | None = None
    """Machine types that the nodes can run; absent where the client does not watch nodes."""


class DefaultingResponse(_Message):
    api_version: Literal["poolhouse.dev/v1alpha1"] = Field(default=API_VERSION, alias="apiVersion")
    kind: Literal["DefaultingResponse"] = "DefaultingResponse"
    object: Json
    """The document with its defaults."""
    warnings: tuple[str, ...] = ()
    """Messages for the user, such as the machine type that an alias was resolved to."""


class Version(_Message):
    """The versions that decide, and their machine types by architecture."""

    poolhouse: str
    libvirt: str
    qemu: dict[str, str]
    """By architecture."""
    machines: dict[str, tuple[str, ...]]
    """Canonical machine types."""
    aliases: dict[str, dict[str, str]] = {}
    """The canonical machine type of each alias."""


class DefaulterUnavailable(Exception):
    """No response in time, or the service cannot work now. The document may be valid: fail open, or try again later."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ForbiddenChange(DefaulterUnavailable):
    """The service changed a field that it must not change; the client discards the whole response."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        super().__init__(f"the answer changed {paths[0]}, which the defaulter must not change")


class Defaulter:
    """A client of the service: `async with Defaulter(url) as defaulter: await defaulter.complete(vm)`.

    Each call ends within `timeout_seconds`: with a response, `InvalidDocument` or `DefaulterUnavailable`. A session
    that is given stays open. Without one the client opens and closes its own. Each request carries the machine types
    that `machine_types` returns.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 2.0,
        session: ClientSession | None = None,
        *,
        machine_types: Callable[[], MachineTypes | None] = lambda: None,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._session = session
        self._owns_session = session is None
        self._machine_types = machine_types

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    async def complete(
        self, document: Json, *, old: Json | None = None, namespace: str | None = None, seed: str | None = None
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
        response = await self._post(body)
        if paths := forbidden_changes(document, response.object):
            raise ForbiddenChange(paths)
        return response

    async def _post(self, body: Json) -> DefaultingResponse:
        import aiohttp

        self._session = self._session or aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        try:
            async with self._session.post(self._url + DEFAULTS_PATH, json=body, timeout=timeout) as response:
                status, content = response.status, await response.json(content_type=None)
        except TimeoutError:
            raise DefaulterUnavailable(f"no answer from {self._url} within {self._timeout_seconds:g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise DefaulterUnavailable(f"no answer from {self._url}: {error}") from error
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
        raise DefaulterUnavailable("; ".join(problem.message for problem in problems))
