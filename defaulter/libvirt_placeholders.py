"""Placeholders for what a libvirt-shaped `VM` says of its host. libvirt opens none of them when it defines a domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from defaulter import xml
from defaulter.xml import Element
from poolhouse.api.apimachinery.unstructured import Json

_PORT = {"service": "1", "host": "127.0.0.1"}
_SOURCES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("interface", "network"): {"network": "default"},
    ("interface", "bridge"): {"bridge": "bridge"},
    ("interface", "direct"): {"dev": "device", "mode": "vepa"},
    ("interface", "internal"): {"name": "network"},
    ("interface", "vdpa"): {"dev": "/source"},
    ("interface", "vhostuser"): {"type": "unix", "path": "/source", "mode": "client"},
    **{
        (element, kind): source
        for element in ("serial", "console", "channel", "redirdev")
        for kind, source in {
            **{kind: {"path": "/source"} for kind in ("dev", "file", "pipe")},
            "unix": {"mode": "bind", "path": "/source"},
            "tcp": {"mode": "bind", **_PORT},
            "udp": {"mode": "connect", **_PORT},
            "spiceport": {"channel": "source"},
        }.items()
    },
}
"""attributes of the source of a device, by its element and type; other types need no source"""


def complete(element: Element, given: Json) -> None:
    """Adds the placeholders that libvirt needs in this element, which was written from this part of the spec."""
    _COMPLETE.get(element.tag, _nothing)(element, given)


def _nothing(element: Element, given: Json) -> None:
    pass


def _source(element: Element, given: Json) -> None:
    attributes = _SOURCES.get((element.tag, element.get("type", "")))
    if attributes is not None and given.get("source") is not None:
        xml.add(element, "source", **attributes)


def _disk(element: Element, given: Json) -> None:
    attribute, kind = ("dev", "block") if element.get("device") == "lun" else ("file", "file")
    element.set("type", kind)
    if given.get("source") is not None or element.get("device", "disk") in ("disk", "lun"):
        xml.add(element, "source", **{attribute: "/source"})


def _interface(element: Element, given: Json) -> None:
    if element.get("type") == "hostdev" and given.get("source") is not None:
        _function(element)
    else:
        _source(element, given)


def _hostdev(element: Element, given: Json) -> None:
    if element.get("type") == "usb":
        xml.add(xml.add(element, "source"), "address", bus="1", device=str(_number(element) + 1))
    else:
        _function(element)


def _function(element: Element) -> None:
    """Adds the source of a PCI function. libvirt assumes PCI Express, because no host has this PCI domain."""
    slot, function = divmod(_number(element), 8)
    bus = {"interface": "0x00", "hostdev": "0x01"}[element.tag]
    place = {"domain": "0xffff", "bus": bus, "slot": f"0x{slot:02x}", "function": f"0x{function}"}
    xml.add(xml.add(element, "source"), "address", type="pci", **place)


def _number(element: Element) -> int:
    """How many devices of the same kind are before this one."""
    return sum(1 for _ in element.itersiblings(element.tag, preceding=True))


def _filesystem(element: Element, given: Json) -> None:
    shared = element.find("driver[@type='virtiofs']") is not None
    xml.add(element, "source", **{"socket" if shared else "dir": "/source"})


def _rng(element: Element, given: Json) -> None:
    xml.add(element, "backend", "/dev/urandom", model="random")


def _tpm(element: Element, given: Json) -> None:
    """Adds a backend that needs no emulator on this host. Guests see no difference."""
    xml.add(xml.add(element, "backend", type="passthrough"), "device", path="/tpm")


def _vsock(element: Element, given: Json) -> None:
    if element.find("cid") is None:
        xml.add(element, "cid", auto="yes")


def _clock(element: Element, given: Json) -> None:
    if element.get("offset") == "timezone":
        element.set("timezone", "UTC")


def _loader(element: Element, given: Json) -> None:
    element.text = "/loader"


def _os(element: Element, given: Json) -> None:
    for name in ("kernel", "initrd"):
        if given.get(name) is not None:
            xml.add(element, name, f"/{name}")


def _domain(element: Element, given: Json) -> None:
    """Shares the memory of the guest, if a file system needs it. libvirt checks this."""
    if element.find("devices/filesystem/driver[@type='virtiofs']") is not None:
        backing = xml.add(element, "memoryBacking")
        xml.add(backing, "source", type="memfd")
        xml.add(backing, "access", mode="shared")


_COMPLETE: Mapping[str, Callable[[Element, Json], None]] = {
    "domain": _domain,
    "os": _os,
    "loader": _loader,
    "clock": _clock,
    "disk": _disk,
    "interface": _interface,
    "hostdev": _hostdev,
    "filesystem": _filesystem,
    "rng": _rng,
    "tpm": _tpm,
    "vsock": _vsock,
    **dict.fromkeys(("serial", "console", "channel", "redirdev"), _source),
}
