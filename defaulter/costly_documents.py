"""Remembers documents that have cost a worker, so that the next one of the same shape costs none.

Two documents have the same shape if libvirt gets the same structure and values from them. Their names, addresses,
labels and other texts that a guest only displays may differ, because a client could change them in each request.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from defaulter.json_paths import Path
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at

MAX_DOCUMENTS = 256
REMEMBERED_SECONDS = 600.0
"""A shape is tried again after this time, because the cause may have been a busy machine."""

_IGNORED = frozenset({"metadata", "status", "accessCredentials", "dataVolumeTemplates"})
_SOURCES = frozenset({"volumes", "networks"})
_IDENTITY = frozenset(
    {"name", "macAddress", "serial", "uuid", "hostname", "subdomain", "kernelArgs", "deviceName", "tag"}
)
_NAMED_BY_LIBVIRT = frozenset({"features", "model"})
"""objects whose name libvirt knows, of a CPU"""
_ANNOTATIONS = ("kubevirt.io/", "poolhouse.dev/hardware")
_MAX_WORD = 64


@dataclass(frozen=True)
class _Entry:
    until: float
    path: str
    certain: bool


class CostlyDocuments:
    """At most `MAX_DOCUMENTS` shapes; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def remember(self, body: bytes, now: float, *, certain: bool) -> None:
        """Remembers the document of a request that has cost a worker. If the cause is uncertain, the shape is refused
        from the second time on."""
        if (documents := _parse(body)) is None:
            return
        key = shape(documents)
        before = self._entries.pop(key, None)
        again = before is not None and before.until > now
        self._entries[key] = _Entry(now + REMEMBERED_SECONDS, heaviest_path(documents[0]), certain or again)
        while len(self._entries) > MAX_DOCUMENTS:
            self._entries.popitem(last=False)

    def find(self, body: bytes, now: float) -> str | None:
        """The path of the largest part of a document whose shape has cost a worker; None for other documents."""
        if not self._entries or (documents := _parse(body)) is None:
            return None
        entry = self._entries.get(shape(documents))
        return entry.path if entry is not None and entry.certain and entry.until > now else None


def _parse(body: bytes) -> tuple[Json, Any, Any] | None:
    """The documents of a request: the new, the old and the VMI's."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    document = message["object"] if isinstance(message.get("object"), dict) else message
    return document, message.get("oldObject"), message.get("vmi")


def shape(documents: tuple[Any, ...]) -> str:
    reduced = [(_reduce(each), list(_annotations(each))) for each in documents]
    return hashlib.sha256(json.dumps(reduced, sort_keys=True).encode()).hexdigest()


def _reduce(value: Any, key: str = "", parent: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _reduce(inner, name, key) for name, inner in value.items() if name not in _IGNORED}
    if isinstance(value, list):
        # libvirt gets no source of a volume or network, only a placeholder for each.
        return len(value) if key in _SOURCES else [_reduce(item, key, parent) for item in value]
    is_identity = key in _IDENTITY and parent not in _NAMED_BY_LIBVIRT
    if isinstance(value, str) and (is_identity or len(value) > _MAX_WORD):
        return len(value).bit_length()
    return value


def _annotations(document: Any) -> Iterator[tuple[str, str]]:
    for path in (("metadata",), ("spec", "template", "metadata"), ("spec", "template", "spec", "template", "metadata")):
        found = at(document, *path, "annotations")
        for name, text in found.items() if isinstance(found, dict) else ():
            if name.startswith(_ANNOTATIONS):
                yield name, str(text)


def heaviest_path(document: Json) -> str:
    """The path of the largest number or the longest list of a document: what most likely has cost the worker."""
    sizes = list(_sizes(document, ()))
    return format_path(max(sizes, key=lambda size: size[0])[1]) if sizes else ""


def _sizes(value: Any, path: Path) -> Iterator[tuple[int, Path]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _IGNORED:
                yield from _sizes(inner, (*path, name))
    elif isinstance(value, list):
        yield len(value), path
        for index, item in enumerate(value):
            yield from _sizes(item, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield abs(value), path
