"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from controllers.replicaset.snapshot import Failure, InvalidSpec, ReplicaSetSnapshot
from controllers.replicaset.stores import Stores
from runtime.resource import Key


def observe(
    stores: Stores, key: Key, *, settled: bool, failure: Failure | None, burst: int
) -> ReplicaSetSnapshot | InvalidSpec | None:
    """What is known of the set at this moment, at the cost of its own size and of the orphans beside it; None where
    there is no such set."""
    found = stores.sets.get(key)
    if found is None or isinstance(found, InvalidSpec):
        return found
    orphans = stores.instances.by("orphanage", found.namespace)
    return ReplicaSetSnapshot(
        replica_set=found,
        owned=tuple(stores.instances.by("owner", found.uid)),
        orphans=tuple(i for i in orphans if found.selects(i)),
        taken=frozenset(i.name for i in stores.instances.by("stem", (found.namespace, found.stem))),
        settled=settled,
        failure=failure,
        burst=burst,
    )
