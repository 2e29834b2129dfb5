"""VMs that have the MAC address of another: on one network only one of the two can be reached.

Nobody is refused for it (on networks of their own, both are right), and the webhook, which would have to hold every VM
to know, says nothing. Whoever comes second is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from controllers.defaulting.observe import Machine
from runtime.store import Store

Json = dict[str, Any]

NAMES_SAID = 3


def by_mac(m: Machine) -> Iterator[Hashable]:
    yield from m.macs


def doubles(machines: Store[Machine], m: Machine) -> tuple[str, ...]:
    """A sentence for each address that is another VM's too."""
    return tuple(
        _sentence(m, mac, others)
        for mac in m.macs
        if (others := [each for each in machines.by("mac", mac) if each.key != m.key])
    )


def _sentence(m: Machine, mac: str, others: list[Machine]) -> str:
    # Names of other namespaces are not everybody's to read.
    names = sorted(each.name for each in others if each.namespace == m.namespace)
    said = [f"VM {name}" for name in names[:NAMES_SAID]]
    if left := len(names) - len(said):
        said.append(f"{left} more")
    if away := len(others) - len(names):
        said.append("a VM of another namespace" if away == 1 else f"{away} VMs of other namespaces")
    return (
        f"MAC address {mac} is also that of {', '.join(said)}: on one network only one of them can be reached."
        " Leave macAddress out, and each gets its own"
    )
