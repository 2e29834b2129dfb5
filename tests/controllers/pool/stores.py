"""Stores with the objects of a test, and the snapshot that the controller makes of them."""

from dataclasses import replace

from controllers.pool.observe import observe
from controllers.pool.pools import Pool
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.shared.vm import VM, RetainedDisk


def put(stores: Stores, *objects: Pool | VM | RetainedDisk | Revision) -> Stores:
    """Adds or replaces the objects, and the VMIs of VMs."""
    for each in objects:
        match each:
            case Pool():
                stores.pools.put(each.key, each)
            case RetainedDisk():
                stores.retained_disks.put((each.namespace, each.name), each)
            case Revision():
                stores.revisions.stored.put(("default", each.name), each)
            case VM():
                stores.vms.put(each.key, replace(each, vmi=None))
                if each.vmi is not None:
                    stores.vmis.put(each.key, replace(each.vmi, namespace=each.namespace))
    return stores


def stored(*objects: Pool | VM | RetainedDisk | Revision) -> Stores:
    return put(Stores(), *objects)


def observe_pool(stores: Stores, pool: Pool) -> PoolSnapshot:
    found = observe(stores, pool.key, synced=True, failure=None, burst=250)
    assert isinstance(found, PoolSnapshot)
    return found
