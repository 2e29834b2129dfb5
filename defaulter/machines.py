"""Which canonical machine type an alias is made, and whether the cluster's nodes can run it.

An alias means whatever the QEMU that meets it takes it for. What it is made once must be a type that the nodes have:
the administrator's word comes first, then what our own libvirt says if all nodes have that, then the newest of its
family that all of them have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

from defaulter.offer import Offer

Unoffered = Literal["warn", "refuse"]

ALIASES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
"""what KubeVirt asks for where a spec names none"""


def canonical(machine: str) -> bool:
    """A versioned machine type means the same hardware for ever, an alias what the next QEMU makes of it."""
    return any(part[:1].isdigit() or part.startswith("rhel") for part in machine.split("-")[1:])


def means(alias: str, machine: str) -> bool:
    """Whether the machine is a version of what the alias stands for."""
    same = machine.removeprefix("pc-").startswith(f"{alias.removeprefix('pc-')}-")
    return bool(alias) and not canonical(alias) and canonical(machine) and same


def resolved(alias: str, ours: str, configured: Mapping[str, str], offer: Offer | None) -> str:
    """What an alias is made, where our own libvirt has made it `ours`."""
    if alias in configured:
        return configured[alias]
    if offer is None or ours in offer.everywhere:
        return ours
    for offered in (offer.everywhere, offer.somewhere):
        family = [machine for machine in offered if means(alias, machine)]
        if family:
            return max(family, key=_version)
    return ours


def _version(machine: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d+", machine.rpartition("-")[2])), machine


def stand_in(machine: str, known: Collection[str], configured: Mapping[str, str], offer: Offer | None) -> str | None:
    """A machine of our own QEMU's to ask libvirt about instead of one that only the nodes have: the same family, whose
    slots are the same. None where the machine is nobody's."""
    if machine in configured.values():
        return next((a for a, real in configured.items() if real == machine and a in known), None)
    if offer is None or machine not in offer.somewhere:
        return None
    return next((alias for alias in ALIASES.values() if alias in known and means(alias, machine)), None)


def unoffered(machine: str, offer: Offer | None) -> str | None:
    """A sentence about a machine that no node can run; None where one can, or where nothing is known."""
    if offer is None or machine in offer.somewhere:
        return None
    family = sorted((m for m in offer.everywhere if canonical(m)), key=_version, reverse=True)[:6]
    has = f"; all of them have {', '.join(family)}" if family else ""
    return f"no node of the cluster can run the machine type {machine}{has}"


def scarce(machine: str, offer: Offer | None) -> str | None:
    """A sentence about a machine that some nodes cannot run."""
    if offer is None or machine not in offer.somewhere or machine in offer.everywhere:
        return None
    return f"not every node can run the machine type {machine}: the VM cannot go to those that can't"
