"""What the engine keeps of every object of the API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import Key, Resource

Pairs = tuple[tuple[str, str], ...]

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class ApiObject:
    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False, default="")
    created: datetime = EPOCH
    deleted: datetime | None = None
    """the deletion timestamp"""
    finalizers: tuple[str, ...] = ()
    controller_uid: str = ""
    """UID of the owner that controls the object"""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def reference(self, resource: Resource) -> Json:
        """The object reference of an Event."""
        identity = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": resource.api_version, "kind": resource.kind, **identity}


@dataclass(frozen=True)
class PhasedObject(ApiObject):
    status: Json = field(default_factory=dict, hash=False)

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def final(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def read_time(text: str | None) -> datetime | None:
    """Parses a time. Returns None for an absent or invalid time."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def common_fields(document: Json) -> Json:
    metadata = document["metadata"]
    return {
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata.get("resourceVersion") or "",
        "created": read_time(metadata.get("creationTimestamp")) or EPOCH,
        "deleted": read_time(metadata.get("deletionTimestamp")),
        "finalizers": tuple(metadata.get("finalizers") or ()),
        "controller_uid": (controller_of(document) or {}).get("uid", ""),
    }


def pairs(labels: Mapping[str, Any] | None) -> Pairs:
    return tuple(sorted((str(key), str(value)) for key, value in (labels or {}).items()))
