"""What the stores say about the disks of a pool, and about the disks of others that have its names."""

from collections.abc import Iterable, Iterator

from controllers.pool.data_volumes import DiskState
from controllers.pool.pools import Pool
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot, whose
from controllers.pool.sources import age_of
from controllers.pool.stores import Stores
from controllers.sets.write_batches import Failure
from controllers.shared.names import name_of, parent_and_ordinal
from controllers.shared.vm import DATA_VOLUME_ERROR, VM
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.runtime.resource import Key

CREATE_AT_ONCE = "kubevirt.io/immediate-data-volume-creation"
"""KubeVirt's annotation of VMs whose DataVolumes are created at once (the default) or at the first start."""
MAX_USERS = 10
"""When another VM gets or loses a disk, the pools of so many VMs with the disk are reconciled, and so many pools whose
former templates name it: a tenant may give all VMs one disk. The condition DisksShared of a pool changes only if all
other VMs with the disk are of this pool."""


def oldest_with(stores: Stores, disk: Key) -> Pool | None:
    """The oldest pool whose template has a disk of this name, in this namespace. Only this pool creates VMs with such
    disks."""
    oldest = stores.pools.first("disk", disk)
    return oldest if isinstance(oldest, Pool) else None


def waiting_for_disks_of(stores: Stores, pool: Pool) -> Iterable[Key]:
    """The pools with a disk name of this pool, for each name with which no other pool is older. They wait for the pool,
    or have waited for it. With many such names, these are all pools of the namespace, which are found sooner."""
    names = [disk for disk in pool.disks if (first := oldest_with(stores, disk)) and age_of(pool) <= age_of(first)]
    if sum(stores.pools.count("disk", disk) for disk in names) > stores.pools.count("namespace", pool.namespace):
        return [other.key for other in stores.pools.by("namespace", pool.namespace)]
    return {other.key for disk in names for other in stores.pools.by("disk", disk)}


def others_with_disks(stores: Stores, disks: Iterable[Key], owner_uid: str = "") -> Iterator[Key]:
    """Pools without this UID that could create VMs with these disks, or whose VMs have them."""
    for namespace, disk in disks:
        name, ordinal = parent_and_ordinal(disk)
        if ordinal is not None:
            former = stores.former_disks.first_of("disk", (namespace, name), MAX_USERS)
            for pool in (oldest_with(stores, (namespace, name)), *(stores.pools.get(each.pool) for each in former)):
                if pool is not None and pool.uid != owner_uid:
                    yield pool.key
        for vm in stores.vms.first_of("disk_if_owned", (namespace, disk), MAX_USERS):
            if vm.owner_uid != owner_uid:
                yield vm.namespace, vm.pool_name


def disk_conflict(stores: Stores, pool: Pool) -> Failure | None:
    for disk in sorted(pool.disks):
        other = oldest_with(stores, disk)
        if other is not None and other.uid != pool.uid and age_of(other) < age_of(pool):
            return Failure(
                PoolReason.DISK_CONFLICT,
                f"dataVolumeTemplate {disk[1]} is also pool {other.name}'s, and VMs of both would write to one disk: "
                "give it another name in this pool, no VM is created until then",
            )
    return None


def unready_disks(stores: Stores, pool: Pool) -> dict[str, DiskState]:
    # KubeVirt may create the disks only when it starts the VM. Then a disk counts as not ready only if its error
    # prevents the start.
    at_start = at(pool.spec.template, "metadata", "annotations", CREATE_AT_ONCE) == "false"
    found = (
        (disk, state)
        for vm in stores.waiting_for_disks(pool.key)
        if vm.owner_uid == pool.uid and (vm.printable_status == DATA_VOLUME_ERROR or not at_start)
        for disk in vm.disks
        if (state := stores.disk_state((vm.namespace, disk))) is not None and not state.starts_vm
        if not state.unseen or not (at_start or (vm.namespace, disk) in stores.collected)
    )
    return dict(found)


Owned = list[tuple[DiskState, VM | None]]
"""DataVolumes and claims with the VMs that own them; None without an owner, and if the owner is gone"""


def owned_disks(stores: Stores, snapshot: PoolSnapshot) -> Owned:
    """The DataVolumes and claims with names that VMs of the pool can get."""
    states = (state for disk in _names(snapshot) for state in stores.owned_disks(disk))
    return [(state, _owner_of(stores, state)) for state in states]


def _names(snapshot: PoolSnapshot) -> frozenset[Key]:
    """The names in templates of the disks that the pool can create, or has. A tenant may have thousands of pools with
    one name, for which thousands of disks exist: all but the oldest pool create none."""
    if snapshot.disk_conflict is None:
        return snapshot.disks
    own = ((snapshot.pool.namespace, parent_and_ordinal(disk)[0]) for vm in snapshot.vms for disk in vm.disks)
    return snapshot.disks.intersection(own)


def _owner_of(stores: Stores, state: DiskState) -> VM | None:
    vm = stores.vms.get((state.key[0], state.vm)) if state.vm_uid else None
    return vm if vm is not None and vm.uid == state.vm_uid else None


def foreign_disks(stores: Stores, snapshot: PoolSnapshot, owned: Owned) -> dict[str, str]:
    """Disks that another pool has retained, disks of VMs outside this pool, and disks that deleted VMs have left and no
    VM uses. The other pool may be an earlier pool of the same name. Also disks with the number of another VM, which a
    user has given to a VM of this pool.

    A VM owns a disk also after an update has taken the disk out of its spec: its guest has it until the next start, and
    it is deleted with the VM."""
    pool, used, found = snapshot.pool, set[str](), _retained_for_others(stores, snapshot)
    for vm in {vm.key: vm for disk in _names(snapshot) for vm in stores.vms.by("disk", disk)}.values():
        used.update(vm.disks)
        own = vm.owner_uid == pool.uid
        others = (each for each in vm.disks if not own or _has_other_number(snapshot, vm.name, each))
        found |= dict.fromkeys(others, whose(vm.name))
    for state, owner in owned:
        name = state.key[1]
        if state.left and name not in used:
            found[name] = "which a deleted VM has left"
        elif state.kept_by not in ("", pool.uid):
            found.setdefault(name, "retained by another pool")
        elif owner is not None and owner.owner_uid == pool.uid:
            if _has_other_number(snapshot, owner.name, name):
                found.setdefault(name, whose(owner.name))
        elif state.vm_uid and (owner is not None or _former_pool(state) != pool.name):
            found.setdefault(name, whose(state.vm))
    return found


def _retained_for_others(stores: Stores, snapshot: PoolSnapshot) -> dict[str, str]:
    retained, namespace, found = stores.retained_disks, snapshot.pool.namespace, dict[str, str]()
    used = (retained.get((namespace, disk)) for vm in snapshot.vms for disk in vm.disks)
    named = (each for disk in _names(snapshot) for each in retained.by("disk", disk))
    for disk in (*filter(None, used), *named):
        if disk.retained_by != snapshot.pool.uid:
            found[disk.name] = f"retained for VM {disk.retained_for} of another pool"
        elif _has_other_number(snapshot, disk.retained_for, disk.name):
            found[disk.name] = whose(disk.retained_for)
    return found


def _has_other_number(snapshot: PoolSnapshot, vm: str, disk: str) -> bool:
    """Whether a VM of the pool with another name would get the disk: `web-5` gets `root-5`."""
    if vm.startswith(f"{snapshot.pool.name}-") and disk.endswith(vm.removeprefix(snapshot.pool.name)):
        return False
    return bool(taken_by_disks(snapshot, [disk]))


def waiting_for_deletion(pool: Pool, owned: Owned) -> frozenset[str]:
    """Names of the pool's VMs that get no disk yet: a VM of the pool that is gone still owns a disk with their ordinal,
    until the garbage collector deletes the disk."""
    gone = (state for state, owner in owned if state.vm_uid and owner is None and _former_pool(state) == pool.name)
    ordinals = (parent_and_ordinal(state.key[1])[1] for state in gone)
    return frozenset(name_of(pool.name, ordinal) for ordinal in ordinals if ordinal is not None)


def _former_pool(state: DiskState) -> str:
    """The pool of a VM that is gone, by the VM's name: `web` for `web-3`."""
    return parent_and_ordinal(state.vm)[0]


def taken_by_disks(snapshot: PoolSnapshot, disks: Iterable[str]) -> frozenset[int]:
    """Ordinals whose VMs would get a disk with one of these names."""
    namespace, found = snapshot.pool.namespace, map(parent_and_ordinal, disks)
    return frozenset(ordinal for name, ordinal in found if ordinal is not None and (namespace, name) in snapshot.disks)
