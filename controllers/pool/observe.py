"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from controllers.pool.machine import Machine
from controllers.pool.naming import split
from controllers.pool.revisions import Revision, current
from controllers.pool.state import Failure, Pool, State
from runtime.informer import Key, Store
from runtime.resource import Resource

POOLS = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")
MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")


def by_owner(r: Revision) -> Iterator[Hashable]:
    if r.owner:
        yield r.owner


@dataclass(frozen=True)
class Stores:
    pools: Store[Pool]
    machines: Store[Machine]
    """indexed `owner` and `stem`"""
    revisions: Store[Revision]
    """indexed `owner`"""


def observe(stores: Stores, key: Key, *, settled: bool, failure: Failure | None, burst: int) -> State | None:
    """What is known of the pool at this moment, at the cost of its own size; None where there is no such pool."""
    pool = stores.pools.get(key)
    if pool is None:
        return None
    revision, saved = current(pool.name, pool.uid, pool.spec.template, stores.revisions.by("owner", pool.uid))
    named = stores.machines.by("stem", (pool.namespace, pool.name))
    return State(
        pool=pool,
        machines=tuple(sorted(stores.machines.by("owner", pool.uid), key=lambda m: m.name)),
        taken=frozenset(ordinal for m in named if (ordinal := split(m.name)[1]) is not None),
        revision=revision,
        saved=saved,
        settled=settled,
        failure=failure,
        burst=burst,
    )
