"""Which VM comes first: by the pool's ordered policies, then by its base policy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from apimachinery.label_selectors import matches
from controllers.pool.machine import VM
from kinds.pool_strategies import BasePolicy, SelectionPolicy


def disruption_cost(m: VM) -> int:
    """How much is lost when the VM is stopped, the least first."""
    if m.halted or not m.exists:
        return 0
    if not m.ready:
        return 1
    # To stop what is just being moved wastes the move and may leave it half done.
    return 3 if m.migrating else 2


def random_rank(m: VM) -> str:
    """Chance that falls the same way when it is tried again, so that a retry takes the same victim."""
    return hashlib.sha256(m.uid.encode()).hexdigest()


ORDERS: dict[BasePolicy, Callable[[VM], Any]] = {
    "Oldest": lambda m: (m.born, m.name),
    "Newest": lambda m: (_reversed(m.born), m.name),
    "Random": lambda m: (disruption_cost(m), random_rank(m)),
}


def _reversed(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def sort_victims(machines: Iterable[VM], policy: SelectionPolicy) -> list[VM]:
    """All the machines, those that are to be taken first at the front. The ordered policies never leave one out."""
    order = ORDERS[policy.base_policy]
    return sorted(machines, key=lambda m: (_rank(m, policy), order(m)))


def _rank(m: VM, policy: SelectionPolicy) -> int:
    for rank, each in enumerate(policy.ordered_policies):
        if matches(each.label_selector.json(), m.labels):
            return rank
    return len(policy.ordered_policies)
