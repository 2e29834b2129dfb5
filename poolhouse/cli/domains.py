"""Asks a defaulter for the hardware of a VM."""

from __future__ import annotations

import json

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.default import fetch
from poolhouse.cli.output import Failed, Unreachable


def request_record(server: str, version: tuple[str, str], document: Json) -> Json:
    """Returns the hardware record that the defaulter at this URL, of this version, makes for the VM."""
    from defaulter import hook, xml

    domain = _request(server, "/apis/vms/defaults", json.dumps(without_record(document)).encode())
    try:
        return hook.read_record(hook.build_record(xml.read(domain.decode()), *version))
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError):
        raise Unreachable(f"{server} is not a defaulter: it answered without a domain") from None


def read_version(server: str) -> tuple[str, str]:
    """The versions of libvirt and QEMU at this URL. Raises Unreachable if no defaulter answers there."""
    content = _request(server, "/version")
    try:
        versions = json.loads(content)
        return versions["libvirt"], next(iter(versions["qemu"].values()), "")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Unreachable(f"{server} is not a defaulter: it answered without its versions") from None


def recorded(document: Json) -> Json | None:
    """The hardware record in the VM; None if it has none. Raises Failed for an invalid one."""
    from defaulter import hook
    from defaulter.vm_paths import locate

    where = locate(document)
    text = at(document, *where.record) if where is not None else None
    try:
        return hook.read_record(str(text)) if text is not None else None
    except hook.InvalidHardwareRecord as error:
        raise Failed(str(error)) from None


def without_record(document: Json) -> Json:
    """Returns the VM without its hardware record and the opt-out label, so that the defaulter sets new addresses."""
    from defaulter.json_paths import DocumentEditor
    from defaulter.vm_paths import OPT_OUT, locate

    where = locate(document)
    draft = DocumentEditor(document)
    for path in (where.record if where is not None else (), ("metadata", "labels", OPT_OUT)):
        if path and at(document, *path) is not None:
            draft.replace(path[:-1], {k: v for k, v in at(document, *path[:-1]).items() if k != path[-1]})
    return draft.document


def _request(server: str, path: str, body: bytes | None = None) -> bytes:
    status, content = fetch(server, path, body, "application/xml", 15)
    if status >= 400:
        raise (Failed if status < 500 else Unreachable)(f"{server}{path}: {content.decode(errors='replace')}")
    return content
