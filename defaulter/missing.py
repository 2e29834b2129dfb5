"""What a document still leaves to chance, found by looking at it alone.

Asks the same rules that fill it, so that what is waited for and what is filled cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator

from defaulter.kubevirt import Cluster, Macs, decide, device_kind, emulated, holds_addresses
from defaulter.machines import canonical
from defaulter.paths import Draft, Json, Path, empty, get, objects, text
from defaulter.places import Where, locate, opted_out

LOCAL = Cluster(binding="leave", video="leave")
"""what holds whatever a cluster is set to"""


def missing(document: Json, *, macs: Macs = "deterministic") -> list[str]:
    """Paths in the document that defaulting would fill. Empty: complete, opted out, or of a kind with no VM in it."""
    where = locate(document)
    if where is None or opted_out(document) or not isinstance(get(document, where.spec), dict):
        return []
    draft = Draft(document)
    decide(draft, where, LOCAL)
    found = [path for path, _ in draft.filled]
    found += undecided(draft.document, where, macs)
    return [text(path) for path in found]


def undecided(document: Json, where: Where, macs: Macs) -> Iterator[Path]:
    """What is open once KubeVirt's own rules have been applied: the machine, the VM's identity, its addresses."""
    spec = get(document, where.spec)
    domain = (*where.spec, "domain")
    machine = get(spec, ("domain", "machine", "type"))
    if (empty(machine) and not where.preferred) or (isinstance(machine, str) and machine and not canonical(machine)):
        yield (*domain, "machine", "type")
    if not where.shared:
        yield from (p for k in ("uuid", "serial") if empty(get(document, p := (*domain, "firmware", k))))
    yield from anonymous(document, where, macs)
    panics = (*domain, "devices", "panicDevices")
    yield from ((*panics, i, "model") for i, panic in objects(get(document, panics)) if empty(panic.get("model")))
    if holds_addresses(spec, where):
        yield from unaddressed(document, where)


def anonymous(document: Json, where: Where, macs: Macs) -> Iterator[Path]:
    """NICs that need a MAC address."""
    if where.shared or macs == "leave":
        return
    interfaces = (*where.spec, "domain", "devices", "interfaces")
    for index, interface in objects(get(document, interfaces)):
        if emulated(interface) and empty(interface.get("macAddress")):
            yield (*interfaces, index, "macAddress")


def unaddressed(document: Json, where: Where) -> Iterator[Path]:
    """Virtio disks and NICs, the only devices whose PCI address a spec can hold, that have none."""
    devices = (*where.spec, "domain", "devices")
    for index, disk in objects(get(document, (*devices, "disks"))):
        target = disk.get("disk") if device_kind(disk) == "disk" else None
        if isinstance(target, dict) and target.get("bus") == "virtio" and empty(target.get("pciAddress")):
            yield (*devices, "disks", index, "disk", "pciAddress")
    for index, interface in objects(get(document, (*devices, "interfaces"))):
        if emulated(interface) and not empty(interface.get("model")) and empty(interface.get("pciAddress")):
            yield (*devices, "interfaces", index, "pciAddress")
