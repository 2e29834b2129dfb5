"""The controller's memory of a pool between reconciles. A restart of the process loses the memory."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.pool.analysis import Measurement, with_measurements
from controllers.pool.apply import PoolOutcome
from controllers.pool.gone_disks import GoneDisks
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets.budget_writes import RefusedWrites
from controllers.sets.records import Memory, Records
from controllers.sets.write_batches import Failure, WriteBatches
from controllers.shared.names import has_revision, ordinal_of
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.pool import Healing, PoolStatus, UpdateProgress
from poolhouse.runtime.resource import Key

CHECK_SECONDS = 300.0
"""For this time after the deletion of a VM, the controller checks that its disks are gone before it reuses the name."""
RETRY_SECONDS = 300.0
"""If disks block a name for this time, the pool uses another name. At this interval it tries one of these names again:
all of them would come due before another name whenever the pool needs a VM, and it would never get one."""


@dataclass
class _Name:
    deleted_at: float
    blocked_since: float | None = None
    """the time of the first failed creation of a VM with this name"""
    tried_at: float = 0.0


@dataclass
class DeletedVMs:
    """Names of deleted VMs whose disks may still exist.

    The garbage collector is asynchronous, and a finalizer may block a disk forever. A new VM of the same name would use
    a disk that is about to be deleted."""

    _names: dict[str, _Name] = field(default_factory=dict)

    def deleted(self, name: str, now: float) -> None:
        self._names[name] = _Name(now)

    def created(self, name: str) -> None:
        self._names.pop(name, None)

    def blocked(self, name: str, now: float) -> None:
        """Records that a disk of an earlier VM of this name blocked a creation."""
        known = self._names.setdefault(name, _Name(now))
        known.blocked_since = known.blocked_since if known.blocked_since is not None else now
        known.tried_at = now

    def waited_for(self) -> frozenset[str]:
        """Names that wait for the deletion of disks."""
        return frozenset(name for name, each in self._names.items() if each.blocked_since is not None)

    def to_check(self, now: float) -> frozenset[str]:
        """Names whose disks must be checked before a VM is created."""
        names = self._names
        for name in [n for n, e in names.items() if e.blocked_since is None and now - e.deleted_at >= CHECK_SECONDS]:
            del names[name]
        return frozenset(names)

    def to_skip(self, now: float) -> frozenset[str]:
        """Names that are blocked, so that the pool uses other names for now."""
        names = self._names.items()
        tried = {name: each.tried_at for name, each in names if _is_blocked_long(each, now)}
        if tried and now - max(tried.values()) >= RETRY_SECONDS:
            del tried[min(tried, key=tried.__getitem__)]
        return frozenset(tried)


def _is_blocked_long(name: _Name, now: float) -> bool:
    return name.blocked_since is not None and now - name.blocked_since >= RETRY_SECONDS


@dataclass
class PoolMemory(Memory):
    failure: Failure | None = None
    refused_budget: RefusedWrites = field(default_factory=RefusedWrites)
    healing: Healing | None = None
    """the last status.healing, which may not be written yet, or which the store may not show yet"""
    update: UpdateProgress | None = None
    """the last status.update, like `healing`"""
    measurements: list[Measurement] = field(default_factory=list)
    """measurements that `update` does not contain yet"""
    ended_vmis: list[VMI] = field(default_factory=list)
    """VMIs that have ended since the last reconcile. KubeVirt may delete them before the next one."""
    deleted_vms: DeletedVMs = field(default_factory=DeletedVMs)
    reported_scale_in: frozenset[tuple[str, str]] = frozenset()
    """(UID of the VM, value) of invalid poolhouse.dev/scale-in annotations that have an event"""
    membership_changes: dict[str, tuple[bool, float, str]] = field(default_factory=dict)
    """VMs that were attached (True) or detached (False), with the time and the VM's UID, until an event reports it"""

    def added_to(self, snapshot: PoolSnapshot, now: float) -> PoolSnapshot:
        """The snapshot with what the stores do not show."""
        pool, names = snapshot.pool, self.deleted_vms
        skipped = (ordinal_of(pool.name, name) for name in names.to_skip(now))
        snapshot = replace(
            snapshot,
            budget_refusal=self.refused_budget.seen(now),
            recently_deleted=snapshot.recently_deleted | names.to_check(now),
            waited_for=frozenset(
                name for name in names.waited_for() if ordinal_of(pool.name, name) not in snapshot.taken_ordinals
            ),
            taken_ordinals=snapshot.taken_ordinals | {ordinal for ordinal in skipped if ordinal is not None},
            ended_vmis=tuple(self.ended_vmis),
        )
        fresh = dict[str, object]()
        if (update := self.update or pool.status.update) is not None:
            fresh["update"] = with_measurements(update, self.measurements)
        if pool.spec.autohealing is None:
            self.healing = None
        # The last status may be written by a later leader, or not be in the store yet.
        if self.healing is not None and (pool.status.healing or Healing()).replaced <= self.healing.replaced:
            fresh["healing"] = self.healing
        return replace(snapshot, pool=replace(pool, status=pool.status.model_copy(update=fresh))) if fresh else snapshot

    def adopt(self, before: PoolStatus, new: Pool | InvalidPool) -> None:
        """Drops what the process remembers of the status in favor of what another leader has written."""
        written = new.status
        if not self.last_status_write.is_foreign(new.resource_version):
            return
        # A late event from before a replacement must not undo its record.
        stale = self.healing is not None and (written.healing or Healing()).replaced < self.healing.replaced
        if written.healing != before.healing and not stale:
            self.healing = None
        if written.update != before.update:
            self.update = None

    def written(self, snapshot: PoolSnapshot, outcome: PoolOutcome, now: float) -> None:
        """Remembers the outcome of the writes of a plan."""
        if outcome.failure or snapshot.synced:
            self.failure = outcome.failure
        self.refused_budget.follow(snapshot.pool.uid, snapshot.budget_refusal, outcome.budget, now)
        for name in outcome.blocked_names:
            self.deleted_vms.blocked(name, now)


@dataclass
class PoolRecords(Records[VM, PoolMemory]):
    gone_disks: GoneDisks = field(default_factory=lambda: GoneDisks(CHECK_SECONDS))


def pool_records(
    batches: WriteBatches[Pool], owner: Callable[[VM], Pool | InvalidPool | None], now: Callable[[], datetime]
) -> PoolRecords:
    def owner_uid(vm: VM) -> str:
        return vm.owner_uid if vm.pool_name else ""

    def shown(vm: VM) -> tuple[str, ...]:
        return vm.name, has_revision(vm.name, vm.revision)

    return PoolRecords("pool", batches, lambda _: PoolMemory(), owner_uid, owner, now, shown)


def remember_measurement(
    records: PoolRecords, enqueue: Callable[[Key, float], None], snapshot: PoolSnapshot, found: Measurement
) -> None:
    if (memory := records.memories.get(snapshot.pool.uid)) is not None:
        memory.measurements.append(found)
        enqueue(snapshot.pool.key, 0.0)
