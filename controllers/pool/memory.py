"""The controller's memory of a pool between reconciles. A restart of the process loses the memory."""

from dataclasses import dataclass, field

from controllers.pool.analysis import Measurement
from controllers.sets.budget_writes import RefusedWrites
from controllers.sets.records import Memory
from controllers.sets.write_batches import Failure
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.pool import Healing, UpdateProgress

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
    plans: int = 0
    """number of plans with actions since this process leads"""
    membership_changes: dict[str, tuple[bool, float, str]] = field(default_factory=dict)
    """VMs that were attached (True) or detached (False), with the time and the VM's UID, until an event reports it"""
