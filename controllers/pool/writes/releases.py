"""Releases disks without a plan."""

from collections.abc import Iterable
from functools import partial

from controllers.pool.pools import Pool
from controllers.pool.rules.retention import release
from controllers.pool.writes.disks import release_disks
from controllers.sets.write_batches import Outcome, WriteBatches
from controllers.shared.vm import VM
from poolhouse.runtime.api import Api


async def release_left(api: Api, batches: WriteBatches[Pool], namespace: str, vms: Iterable[VM]) -> Outcome:
    """Releases the disks of VMs whose pool is gone or has an invalid spec."""
    releases = [release(vm, "its pool is gone") for vm in vms]
    return await batches.send(None, releases, partial(release_disks, api, namespace), quiet=True)
