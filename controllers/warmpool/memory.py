"""What a process remembers of warm pools between reconciles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controllers.sets.budget_writes import RefusedWrites
from controllers.sets.records import Memory, Records
from controllers.shared.status_writer import View
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.autoscaling.autoscaler import PoolAutoscaler
from controllers.warmpool.cache import WarmPoolStores
from controllers.warmpool.decisions import deleted_by_other
from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff, TokenBucket
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.decisions import LoggedStatus
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.runtime.events import ObjectMeta


@dataclass
class PoolMemory(Memory):
    failures: FailureBackoff = NO_FAILURES
    refused_budget: RefusedWrites = field(default_factory=RefusedWrites)
    template_hash: str = ""
    """The hash of the template that `failures` belong to."""
    bucket: TokenBucket | None = None
    status: WarmPoolStatus | None = None
    """The last written status, which the cache may not show yet."""
    unavailable_since: float | None = None
    autoscaler: PoolAutoscaler = field(default_factory=lambda: PoolAutoscaler.from_status(WarmPoolStatus()))
    refused_references: Mapping[str, str] = field(default_factory=dict)
    """Why images of DataSources are not used, by name in dataVolumeTemplates."""
    counted: bool = False
    """Whether the metric `recovered` counts the VMs that existed when this process started."""

    @classmethod
    def of(cls, pool: WarmPool | InvalidWarmPool) -> "PoolMemory":
        """The memory after a restart, which starts with the failures in the pool's status."""
        status, autoscaler = pool.status, PoolAutoscaler.from_status(pool.status)
        written = status.template_hash or template_hash_of(pool)
        return cls(failures=FailureBackoff.from_status(status), template_hash=written, autoscaler=autoscaler)


class WarmPoolRecords(Records[WarmVM, PoolMemory]):
    def __init__(self, writer: WarmPoolWriter, stores: WarmPoolStores, now: Callable[[], datetime]) -> None:
        super().__init__("warm pool", writer.batches, PoolMemory.of, lambda vm: vm.pool_uid, self._pool_of, now)
        self._writer, self._stores = writer, stores

    def begin(self) -> None:
        super().begin()
        for memory in self.memories.values():
            memory.autoscaler.begin()

    def set_changed(self, old: ObjectMeta | None, new: ObjectMeta | None) -> None:
        super().set_changed(old, new)
        if old is not None and (new is None or new.uid != old.uid):
            self._writer.forget(old.uid)
            self._stores.demand.forget(old.uid)

    def _pool_of(self, vm: WarmVM) -> WarmPool | InvalidWarmPool | None:
        return None if vm.orphaned else self._stores.pool_of(vm)

    def begins_deletion(self, old: WarmVM, new: WarmVM | None) -> bool:
        # The claim controller reports its deletions only after the answer of the API server.
        if old.claim_uid:
            return new is None or new.uid != old.uid
        return super().begins_deletion(old, new)

    def record_deletion(self, owner: View[LoggedStatus], old: WarmVM) -> None:
        # A memory that begins before this process leads would not have the failures that the leader counts.
        if (memory := self.memories.get(owner.uid)) is not None:
            memory.last_status_write.record(self._stores.demand.take_deletions(owner.uid))
            memory.last_status_write.record_deletion(deleted_by_other(old, self.now()), owner.status)


def template_hash_of(pool: WarmPool | InvalidWarmPool) -> str:
    return pool.template_hash if isinstance(pool, WarmPool) else ""
