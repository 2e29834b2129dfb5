"""Resolves aliases of machine types, and finds the type with which this libvirt computes addresses.

Since 1.6 KubeVirt puts the machine types of a node on its labels: those of the QEMU in virt-launcher's image. A client
of the defaulter that watches nodes sends them with each request. For a new VM, an alias is resolved to the first of:

1. the type that the administrator configured;
2. the newest version that all nodes can run, or else the newest that at least one node can run;
3. this libvirt's type, if the machine types of the nodes are unknown.

Only a type that the cluster's KubeVirt accepts is chosen. Otherwise the alias stays. The alias of a VM that may have
run always stays, because only the node knew which type the guest got.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from defaulter.nodes import MachineTypes

UnavailablePolicy = Literal["warn", "refuse"]

ALIASES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
"""KubeVirt's machine type for a VM without one, by architecture"""


FAMILIES: Mapping[str, str] = {
    "q35": "pc-q35-",
    "pc": "pc-i440fx-",
    "virt": "virt-",
    "s390-ccw": "s390-ccw-virtio-",
    "s390-ccw-virtio": "s390-ccw-virtio-",
}
"""What the canonical types of an alias begin with. QEMU gives an alias to the newest version of its family."""


_VERSION = re.compile(r"-(rhel)?[0-9][0-9.]*$")
"""the version of a type of any family"""


def is_canonical(machine: str) -> bool:
    """Whether a machine type has a version, and so always means the same hardware. An alias depends on QEMU.

    The version is a number (`pc-q35-7.2`), one of RHEL (`pc-q35-rhel9.6.0`), or a release of Ubuntu (`pc-q35-noble`).
    """
    return _family(machine) is not None or _VERSION.search(machine) is not None


def is_version_of(alias: str, machine: str) -> bool:
    family = FAMILIES.get(alias)
    return family is not None and _family(machine) == family


def resolve_alias(
    alias: str,
    ours: str | None,
    configured: Mapping[str, str],
    available: MachineTypes | None,
    accepts: Callable[[str], bool] = lambda machine: True,
) -> str | None:
    """The canonical type of an alias for a new VM; None if it is unknown what the nodes would make of the alias.

    `ours` is the type that this libvirt has for the alias, `accepts` whether the cluster's KubeVirt accepts a type."""
    if alias in configured:
        return configured[alias]
    if available is None:
        return ours if ours is not None and accepts(ours) else None
    for types in (available.everywhere, available.somewhere):
        versions = [machine for machine in types if is_version_of(alias, machine) and accepts(machine)]
        if newest := _newest(versions):
            return newest
    return None


def _newest(machines: Iterable[str]) -> str | None:
    """What QEMU's alias of a family stands for. QEMU builds of RHEL have only its own versions. Builds of Ubuntu have
    others beside the numbers, for which Ubuntu has aliases of its own."""
    versions = {machine: _version(machine) for machine in machines}
    numbered = {machine: version for machine, version in versions.items() if version[0] == 0} or {
        machine: version for machine, version in versions.items() if version[0] == 1
    }
    return max(numbered, key=numbered.__getitem__, default=None)


def _family(machine: str) -> str | None:
    """The family of a canonical machine type; None for an alias and for types of other families."""
    return next((prefix for prefix in FAMILIES.values() if machine.startswith(prefix) and machine != prefix), None)


def _version(machine: str) -> tuple[int, tuple[int, ...]]:
    """How the version is written (0: a number, 1: RHEL's, 2: another), and its numbers."""
    text = machine.removeprefix(_family(machine) or "")
    written = 0 if text[:1].isdigit() else 1 if text.startswith("rhel") else 2
    return written, tuple(int(digits) for digits in re.findall(r"\d+", text))


Notation = tuple[str, int]
"""a family, and how its versions are written: only versions of the same notation can be compared"""


def newest_by_notation(machines: Iterable[str]) -> dict[Notation, tuple[tuple[int, ...], str]]:
    """The newest version of each family, with its machine type. Ubuntu's types are left out: the names of its releases
    have no order."""
    found: dict[Notation, tuple[tuple[int, ...], str]] = {}
    for machine in machines:
        family, (written, numbers) = _family(machine), _version(machine)
        if family is not None and written < 2:
            key = family, written
            found[key] = max((numbers, machine), found.get(key, ((), "")))
    return found


def find_substitute(machine: str, known: Collection[str]) -> str | None:
    """The alias that this libvirt knows for the family of a machine type that it does not have. None for a type of an
    unknown family.

    All versions of a family have the same buses and slots, and libvirt chooses addresses by the family. So the
    addresses are those of the VM's own machine type, which stays in the spec."""
    family = _family(machine)
    return next((alias for alias, prefix in FAMILIES.items() if prefix == family and alias in known), None)


def unavailable_message(machine: str, available: MachineTypes | None) -> str | None:
    """A message that no node can run the machine type. None if a node can, or if the nodes are unknown."""
    if available is None or machine in available.somewhere:
        return None
    canonical = filter(is_canonical, available.everywhere)
    newest = sorted(canonical, key=lambda each: (*_version(each), each), reverse=True)[:6]
    alternatives = f"; all of them have {', '.join(newest)}" if newest else ""
    return f"no node of the cluster can run the machine type {machine}{alternatives}"


def limited_message(machine: str, available: MachineTypes | None) -> str | None:
    """A message that only some nodes can run the machine type; None otherwise."""
    if available is None or machine not in available.somewhere or machine in available.everywhere:
        return None
    return f"not every node can run the machine type {machine}: the scheduler skips the other nodes"
