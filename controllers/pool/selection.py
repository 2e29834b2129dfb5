"""Sorts VMs by a selection policy: first the ordered policies, then the base policy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from apimachinery.label_selectors import matches
from controllers.shared.vm import VM
from kinds.pool_strategies import BasePolicy, SelectionPolicy


def disruption_cost(vm: VM) -> int:
    """How much stopping the VM interrupts, the least first."""
    if vm.halted or not vm.vmi_exists:
        return 0
    if not vm.ready:
        return 1
    # To stop a VM during its migration wastes the migration.
    return 3 if vm.migrating else 2


def random_rank(vm: VM) -> str:
    """A random order that is the same at each retry, so that a retry selects the same VMs."""
    return hashlib.sha256(vm.uid.encode()).hexdigest()


ORDERS: dict[BasePolicy, Callable[[VM], Any]] = {
    "Oldest": lambda vm: (vm.created_at, vm.name),
    "Newest": lambda vm: (_descending(vm.created_at), vm.name),
    "Random": lambda vm: (disruption_cost(vm), random_rank(vm)),
}


def sort_victims(vms: Iterable[VM], policy: SelectionPolicy) -> list[VM]:
    """All the VMs, the first to be stopped at the front. Ordered policies never leave out a VM."""
    order = ORDERS[policy.base_policy]
    return sorted(vms, key=lambda vm: (_rank(vm, policy), order(vm)))


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def _rank(vm: VM, policy: SelectionPolicy) -> int:
    for rank, each in enumerate(policy.ordered_policies):
        if matches(each.label_selector.json(), vm.labels):
            return rank
    return len(policy.ordered_policies)
