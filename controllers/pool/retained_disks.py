"""What is known of a disk that scale-in has kept: whose it is, and for which VM."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from kinds import meta

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RetainedDisk:
    """A PersistentVolumeClaim (and the DataVolume of the same name, where there is one) that outlived its VM."""

    namespace: str
    name: str
    kept_by: str
    """UID of the pool"""
    kept_for: str
    """name of the VM that it comes back to"""


def parse_retained_disk(document: Json) -> RetainedDisk:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    return RetainedDisk(
        metadata.get("namespace", ""), metadata["name"], labels.get(meta.KEPT_BY, ""), labels.get(meta.KEPT_FOR, "")
    )


def by_namespace(disk: RetainedDisk) -> Iterator[Hashable]:
    yield disk.namespace
