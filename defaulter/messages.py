"""The defaulter's requests and responses, and the errors of its client."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from defaulter.nodes import CPUs, MachineTypes
from poolhouse.api.apimachinery.docstrings import docstrings_of
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json

API_VERSION: Literal["poolhouse.dev/v1alpha1"] = "poolhouse.dev/v1alpha1"
DEFAULTS_PATH = "/apis/vms/defaults"
TENANT_HEADER = "Poolhouse-Tenant"
"""names the namespace of a request, before its body is parsed: the service shares its workers between namespaces"""


class _Message(BaseModel):
    # Every service and most commands import the messages, and few use them: what costs time is done at the first use.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in docstrings_of(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


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
