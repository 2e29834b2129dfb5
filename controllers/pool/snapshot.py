"""The snapshot of a pool: the input of its plan and its status."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from controllers.pool.data_volumes import DiskState
from controllers.pool.disk_templates import disks_by_entry, outdated, parse_hashes
from controllers.pool.migration_queue import MigrationQueue
from controllers.pool.pools import Pool
from controllers.pool.revisions import Revision
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot, snapshot_name
from controllers.sets.eviction_budgets import Refusal
from controllers.sets.write_batches import Failure
from controllers.shared.evictions import EvictionBudget
from controllers.shared.replica_limits import Excess
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.pool import UpdateAbort, UpdateProgress
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings

P = ParamSpec("P")
T = TypeVar("T")

NO_REVISION = Revision("", "", 0, "")


@dataclass(frozen=True)
class PoolSnapshot:
    pool: Pool
    """The pool. If its replicas exceed the limit of the namespace, its spec has those that the controller works
    towards."""
    vms: tuple[VM, ...] = ()
    """All VMs that the pool owns, including VMs that are being deleted."""
    taken_ordinals: frozenset[int] = frozenset()
    """Ordinals whose names belong to a VM or a retained disk, of this pool or of another owner."""
    foreign_disks: Mapping[str, str] = field(default_factory=dict)
    """Disks of other owners that could have the names of `disks`, with a description of the owner. Also such disks that
    a VM of the pool has, and another one would get."""
    unowned: tuple[str, ...] = ()
    """Names of VMs with the pool's names and label that nobody controls: detached ones, and those of a backup."""
    foreign_vmis: tuple[str, ...] = ()
    """VMIs with the pool's label whose VMs are not the pool's. Its PodDisruptionBudget leaves out their Pods."""
    awaiting_release: tuple[VM, ...] = ()
    """VMs with the pool's names, of any owner, that are being deleted and wait for the release of their disks."""
    retained_disks: tuple[RetainedDisk, ...] = ()
    revision: Revision = NO_REVISION
    """The revision that VMs should have: that of the pool's template, or after an abort the one before."""
    aborted: tuple[Revision, UpdateAbort] | None = None
    """The revision of the pool's template if its update was aborted, and why."""
    revision_saved: bool = True
    revisions: tuple[Revision, ...] = ()
    waited_for: frozenset[str] = frozenset()
    """Names that no VM gets yet, because disks of an earlier VM of the name exist."""
    recently_deleted: frozenset[str] = frozenset()
    """Names of deleted VMs whose disks may still exist until the garbage collector deletes them."""
    unready_disks: Mapping[str, DiskState] = field(default_factory=dict)
    """Disks that replace others and cannot be used yet, with the states of their DataVolumes."""
    unlisted_disks: bool = False
    """Whether DataVolumes are not listed, so that `foreign_disks` may lack some."""
    disk_conflict: Failure | None = None
    """A conflict with an older pool that has the same disk names. VMs of both pools would write to one disk."""
    vm_snapshots: tuple[VMSnapshot, ...] = ()
    """Snapshots that the pool took of its VMs, of those that are gone too."""
    restores: tuple[VMRestore, ...] = ()
    ended_vmis: tuple[VMI, ...] = ()
    """VMIs of the pool that have ended since the last reconcile, in order. Some no longer exist."""
    serves_snapshots: bool = True
    """Whether the cluster serves VirtualMachineSnapshots, and all of them are listed."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The known zones of VMs, by name of the VM."""
    nodes: Mapping[str, bool] = field(default_factory=dict)
    """Whether the nodes of VMs, and those with an outage in the log of decisions, are ready. Empty if unknown."""
    cluster: ClusterSettings | None = None
    """The settings of the KubeVirt object; None if they are unknown."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why the instance types of revisions are unknown, by label of the revision."""
    targets: frozenset[str] | None = None
    """Nodes that can take VMs: two of them, so that each VM can migrate, or all. None if they are unknown."""
    queue: MigrationQueue = field(default_factory=MigrationQueue)
    """KubeVirt's queue of migrations. Empty unless a VM of this pool may wait in it."""
    leaving: frozenset[str] = frozenset()
    """Those nodes of VMs and of `ended_vmis` that are cordoned or drained."""
    budgets: Sequence[EvictionBudget] | None = None
    """The PodDisruptionBudgets of the namespace, apart from those that KubeVirt makes for single VMIs. None if they are
    unknown."""
    budget_refusal: Refusal | None = None
    """The error of the last write of the pool's PodDisruptionBudget."""
    refused_references: Mapping[str, str] = field(default_factory=dict)
    """Why images of DataSources are not used, by name in dataVolumeTemplates."""
    excess: Excess | None = None
    """The replicas of the stored spec above the limit of the namespace."""
    synced: bool = True
    """Whether the stores show all previous writes."""
    failure: Failure | None = None
    refused: frozenset[str] = frozenset()
    """What the API server refused at the last attempt: names and UIDs of VMs, and updates by their `has_revision`."""
    burst: int = 250
    results: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What functions with `once` have returned. A snapshot that is made by `replace` begins without results."""

    @cached_property
    def active(self) -> tuple[VM, ...]:
        return tuple(vm for vm in self.vms if not vm.deleting)

    @cached_property
    def deleting(self) -> tuple[VM, ...]:
        return tuple(vm for vm in self.vms if vm.deleting)

    @cached_property
    def removed(self) -> tuple[VM, ...]:
        """The VMs that the pool must delete because a client has named them."""
        return tuple(vm for vm in self.active if vm.uid in self.pool.removals)

    @cached_property
    def counted(self) -> tuple[VM, ...]:
        """The VMs that `replicas` counts."""
        return tuple(vm for vm in self.active if vm.uid not in self.pool.removals)

    @cached_property
    def missing(self) -> int:
        return max(0, self.pool.spec.replicas - len(self.counted))

    @cached_property
    def revisions_by_label(self) -> Mapping[str, Revision]:
        return {each.label: each for each in (*self.revisions, self.revision)}

    @cached_property
    def stable_revision(self) -> Revision | None:
        """The last revision that all VMs had; None if it is the pool's own, or is not stored any more."""
        name = self.pool.status.current_revision
        return next((each for each in self.revisions if each.name == name != self.revision.name), None)

    @cached_property
    def disks(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each disk that the pool's VMs can get: those of the template, and those of the former
        template, which VMs also get while an update is held back, and after it was aborted."""
        former = self.stable_revision.disks if self.stable_revision is not None else ()
        return self.pool.disks | {(self.pool.namespace, name) for name, _ in former}

    @property
    def new_disks(self) -> frozenset[tuple[str, str]]:
        """Those of `disks` that the pool may create now: none while another pool has them (`disk_conflict`)."""
        return self.disks if self.disk_conflict is None else frozenset()

    @cached_property
    def progress(self) -> UpdateProgress:
        """The progress of this try of the update: nothing after another template, or a retry of an aborted update."""
        known, revision = self.pool.status.update, self.revision.name
        if known is None or known.revision != revision or known.aborted is not None:
            return UpdateProgress(revision=revision)
        return known

    def outdated(self, vm: VM) -> bool:
        """Whether the VM does not have the pool's template, or an update must replace its disks."""
        has = self.revisions_by_label.get(vm.revision)
        if has is None or has.template_hash != self.revision.template_hash:
            return True
        if self.pool.surges and not vm.protected:
            return bool(self.outdated_disks(vm))
        return bool(self.disks_to_replace(vm))

    def outdated_disks(self, vm: VM) -> tuple[str, ...]:
        """Names in dataVolumeTemplates of the VM's disks that were created from an older template."""
        return outdated(self.created_from(vm), self.revision.disks)

    def disks_to_replace(self, vm: VM) -> tuple[str, ...]:
        """Names in dataVolumeTemplates of the disks that an update replaces. A protected VM keeps its disks."""
        if not self.pool.replaces_disks or vm.protected or not (found := self.outdated_disks(vm)):
            return ()
        names = self.disks_by_entry(vm)
        return tuple(entry for entry in found if entry in names)

    @cached_property
    def retained_by_vm(self) -> Mapping[str, tuple[RetainedDisk, ...]]:
        """The retained disks by name of the VM that they were retained for."""
        found: dict[str, tuple[RetainedDisk, ...]] = {}
        for disk in self.retained_disks:
            found[disk.retained_for] = (*found.get(disk.retained_for, ()), disk)
        return found

    def disks_by_entry(self, vm: VM) -> Mapping[str, str]:
        return disks_by_entry(vm.disks, vm.ordinal, dict(self.revision.disks))

    def created_from(self, vm: VM) -> Mapping[str, str]:
        """The hashes of the entries that the VM's disks were created from. Without the annotation, the VM's
        revision stands for them."""
        if vm.disk_templates:
            return self.parse_hashes(vm.disk_templates)
        has = self.revisions_by_label.get(vm.revision)
        return dict(has.disks) if has is not None else {}

    def parse_hashes(self, text: str) -> dict[str, str]:
        """Parses an annotation with hashes of entries, those of other spellings too."""
        return {name: self.entry_hash(found) for name, found in parse_hashes(text).items()}

    def entry_hash(self, stored: str) -> str:
        """The hash of an entry of dataVolumeTemplates by its meaning, from a hash that an object has."""
        entry, dot, source = stored.partition(".")
        return f"{self._entry_hashes.get(entry, entry)}{dot}{source}"

    @cached_property
    def _entry_hashes(self) -> Mapping[str, str]:
        return {old: new for each in (*self.revisions, self.revision) for old, new in each.disks_by_spelling.items()}

    def unready_disks_of(self, vm: VM) -> dict[str, DiskState]:
        """The states of the VM's disks that cannot be used yet, by their names."""
        return {disk: self.unready_disks[disk] for disk in vm.disks if disk in self.unready_disks}

    @cached_property
    def _snapshots_by_name(self) -> Mapping[str, VMSnapshot]:
        return {each.name: each for each in self.vm_snapshots}

    def next_snapshot(self, vm: VM) -> VMSnapshot | None:
        """The snapshot that was taken before the VM's next update, in any state."""
        found = self._snapshots_by_name.get(snapshot_name(vm)) if self.vm_snapshots else None
        return found if found is not None and found.vm_uid == vm.uid else None

    @cached_property
    def snapshots_by_vm(self) -> Mapping[str, list[VMSnapshot]]:
        """The snapshots by UID of their VM."""
        found: dict[str, list[VMSnapshot]] = {}
        for each in self.vm_snapshots:
            found.setdefault(each.vm_uid, []).append(each)
        return found

    @cached_property
    def restores_by_vm(self) -> Mapping[str, VMRestore]:
        """Restores that have begun and whose VM does not have its run strategy again, by UID of the VM."""
        requests = {vm.uid: vm.restored for vm in self.vms}
        return {each.vm_uid: each for each in self.restores if requests.get(each.vm_uid) != each.request}

    def of_others(self, vm: VM, disks: Iterable[str]) -> list[str]:
        """Those of the disks that are foreign to this VM."""
        known = self.foreign_disks
        return sorted(disk for disk in known.keys() & disks if known[disk] != whose(vm.name))

    @cached_property
    def shared_disks(self) -> Mapping[str, str]:
        """Disks of others that VMs of this pool use, by name of the VM. Users must resolve this conflict."""
        if not self.foreign_disks:
            return {}
        found = {vm.name: self.of_others(vm, vm.disks) for vm in self.active}
        return {name: f"{disks[0]}, {self.foreign_disks[disks[0]]}" for name, disks in found.items() if disks}


def whose(vm: str) -> str:
    """The description of a disk that the VM of this name has."""
    return f"which is VM {vm}'s"


def once(function: Callable[Concatenate[PoolSnapshot, P], T]) -> Callable[Concatenate[PoolSnapshot, P], T]:
    """The pure function, evaluated once for a snapshot and its other arguments. The plan and the status ask the same
    questions about all VMs of a pool. Callers must not change the result."""

    @wraps(function)
    def known(snapshot: PoolSnapshot, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = function, args, *kwargs.items()
        if key not in snapshot.results:
            snapshot.results[key] = function(snapshot, *args, **kwargs)
        found: T = snapshot.results[key]
        return found

    return known
