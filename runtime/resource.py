"""Names of resources, and where the API server serves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import quote

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name: who, never what happened."""


class ServedKind(Protocol):
    """A kind, as far as it says where its objects are."""

    @property
    def group(self) -> str: ...

    @property
    def versions(self) -> tuple[str, ...]:
        """The first is the one that is stored."""

    @property
    def plural(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def namespaced(self) -> bool: ...


@dataclass(frozen=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @classmethod
    def of(cls, kind: ServedKind) -> Self:
        return cls(kind.group, kind.versions[0], kind.plural, kind.kind, namespaced=kind.namespaced)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of one object, or of all in a namespace, or (no namespace) of all there are."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.kind} {name!r} is namespaced and no namespace was given")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        # A name comes from users' objects: an empty one or one with a slash must not become the path of something else.
        if not all(parts):
            raise ValueError(f"an empty name in the path of {self.kind}: {parts}")
        return "/" + "/".join(quote(part, safe=":") for part in parts)


VMS = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")


def object_key(document: dict[str, object]) -> Key:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return metadata.get("namespace") or "", metadata["name"]


def resource_of_path(path: str) -> str:
    """Which resource a path is about, for counting: never a name, of which there is no end."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:] if parts[0] == "api" else parts[:1]
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    return rest[0] if rest else parts[0]
