"""Finds VMs with the MAC address of another VM. On one network only one of them can be reached.

On separate networks both are valid, so no VM is refused. The younger one gets a warning event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from controllers.defaulting.observe import VM
from runtime.store import Store

MAX_NAMES = 3


def index_by_mac(vm: VM) -> Iterator[Hashable]:
    yield from vm.macs


def mac_conflicts(vms: Store[VM], vm: VM) -> tuple[str, ...]:
    """A message for each MAC address of the VM that another VM has too."""
    return tuple(
        _message(vm, mac, others)
        for mac in vm.macs
        if (others := [each for each in vms.by("mac", mac) if each.key != vm.key])
    )


def _message(vm: VM, mac: str, others: list[VM]) -> str:
    # The author of this VM may not be allowed to see names of other namespaces.
    names = sorted(each.name for each in others if each.namespace == vm.namespace)
    owners = [f"VM {name}" for name in names[:MAX_NAMES]]
    if left := len(names) - len(owners):
        owners.append(f"{left} more")
    if foreign := len(others) - len(names):
        owners.append("a VM of another namespace" if foreign == 1 else f"{foreign} VMs of other namespaces")
    return (
        f"MAC address {mac} is also that of {', '.join(owners)}: on one network only one of them can be reached."
        " Remove macAddress to get a unique address"
    )
