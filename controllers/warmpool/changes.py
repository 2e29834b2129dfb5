"""Maps changes of objects to the warm pools that they concern, and remembers what only the change tells."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.shared.data_sources import DataSource
from controllers.shared.evictions import EvictionBudget
from controllers.shared.planner import Planner
from controllers.shared.sources import key_of
from controllers.shared.subresources import Subresources
from controllers.shared.vmi import VMI
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.cache import BackendView, WarmPoolStores, WarmVMCache
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.memory import WarmPoolRecords
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import waits_for_scheduling
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import Node, WarmVM, seconds_since
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.resource import Key

BATCH_SECONDS = 0.1
"""The controller collects changes of a pool's VMs at least for this time before a reconcile."""
CLAIMED_SECONDS = 0.5
"""The same for a VM that has a claim, which changes its VM several times. The pool only counts such a VM."""
BATCH_FACTOR = 20.0
"""Further delay, as a multiple of the processor time of the last plan or status, so that large pools do not delay
claims."""


@dataclass
class WarmPoolChanges:
    stores: WarmPoolStores
    cache: WarmVMCache
    backend_of: Callable[[WarmPool], BackendView]
    records: WarmPoolRecords
    writer: WarmPoolWriter
    health: HealthTracker
    subresources: Subresources
    metrics: WarmPoolMetrics
    planner: Planner
    now: Callable[[], datetime]
    enqueue: Callable[[Key, float], None]

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        self.records.set_changed(old, new)
        if old is not None and new is not None:
            self._adopt_failures(old, new)
        changed = [each for each in (old, new) if each is not None]
        for each in changed:
            self.enqueue(each.key, self._batch_seconds(each.key) if _is_status_change(old, new) else 0)
        if _default_candidate(old) != _default_candidate(new):
            for other in self.stores.pools.by("namespace", changed[0].namespace):
                self.enqueue(other.key, 0)

    def _adopt_failures(self, old: WarmPool | InvalidWarmPool, new: WarmPool | InvalidWarmPool) -> None:
        memory = self.records.memories.get(new.uid)
        if memory is None or not memory.last_status_write.is_foreign(new.resource_version):
            return
        if new.status.failures != old.status.failures:
            memory.failures = FailureBackoff.from_status(new.status)
            memory.template_hash = new.status.template_hash or memory.template_hash

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        at_once = self.records.changed(old, new)
        if new is not None:
            self._record_refill(old, new)
        if old is not None and (new is None or new.uid != old.uid):
            self.health.forget(old.uid)
            self.subresources.forget(old.uid)
            self.writer.vm_gone(old)
            self._restart_backoff(old)
        least = CLAIMED_SECONDS if new is not None and new.claim_uid else BATCH_SECONDS
        for key in {(vm.namespace, vm.pool) for vm in (old, new) if vm is not None and vm.pool}:
            self.enqueue(key, 0 if at_once else self._batch_seconds(key, least))

    def _restart_backoff(self, gone: WarmVM) -> None:
        """Restarts the pause after a NoRoom deletion once the deleted VM is gone: a VM that waits for scheduling can
        only start then."""
        pool, memory = self.stores.pool_of(gone), self.records.memories.get(gone.pool_uid)
        made_room = memory is not None and memory.failures.reason == Reason.NO_ROOM and not gone.claim_uid
        if memory is None or not made_room or not isinstance(pool, WarmPool):
            return
        if any(waits_for_scheduling(vm) for vm in self.backend_of(pool).cache.of_pool(pool)):
            memory.failures = memory.failures.tested(self.now(), pool.spec.refill, pool.uid)

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        key = key_of(old, new)
        self._enqueue_pool_of(self.cache.vms.get(key))

    def budget_changed(self, old: EvictionBudget | None, new: EvictionBudget | None) -> None:
        """Enqueues the pools whose VMs a PodDisruptionBudget may concern. Its status changes with every Pod."""
        found = next(each for each in (new, old) if each is not None)
        if old != new and not found.of_vmi:
            for pool in self.stores.pools.by("namespace", found.namespace):
                self.enqueue(pool.key, BATCH_SECONDS)

    def data_source_changed(self, old: DataSource | None, new: DataSource | None) -> None:
        for pool in self.stores.pools.by("tracking", key_of(old, new)):
            self.enqueue(pool.key, BATCH_SECONDS)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        name = next(each.name for each in (new, old) if each is not None)
        for vm in self.cache.on_node(name):
            self._enqueue_pool_of(vm)

    def demand_changed(self, pool_uid: str) -> None:
        """Enqueues the pool at once for the first queued claim, and with a delay for further claims."""
        if (pool := self.stores.pools.first("uid", pool_uid)) is not None:
            first = self.stores.demand.queued(pool_uid) <= 1
            self.enqueue(pool.key, 0.0 if first else self._batch_seconds(pool.key))

    def _enqueue_pool_of(self, vm: WarmVM | None) -> None:
        if vm is not None and vm.pool:
            key = vm.namespace, vm.pool
            self.enqueue(key, self._batch_seconds(key, CLAIMED_SECONDS if vm.claim_uid else BATCH_SECONDS))

    def _batch_seconds(self, key: Key, least: float = BATCH_SECONDS) -> float:
        return max(least, BATCH_FACTOR * self.planner.seconds(("warm pool", key)))

    def _record_refill(self, old: WarmVM | None, new: WarmVM) -> None:
        waiting = old is not None and old.state in (WarmState.PROVISIONING, WarmState.STANDING_BY)
        if waiting and new.state is WarmState.READY:
            seconds = max(0.0, seconds_since(new.created_at, self.now()))
            self.metrics.refill.labels(new.namespace, new.pool).observe(seconds)
            if (memory := self.records.memories.get(new.pool_uid)) and self.stores.pool_of(new) is not None:
                memory.autoscaler.booted(seconds)


def _is_status_change(old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> bool:
    """Whether only the status has changed, which the controllers write themselves."""
    if not isinstance(old, WarmPool) or not isinstance(new, WarmPool):
        return False
    return replace(old, status=new.status, resource_version=new.resource_version) == new


def _default_candidate(pool: WarmPool | InvalidWarmPool | None) -> tuple[str, bool]:
    return (pool.uid, pool.spec.default and not pool.deleting) if isinstance(pool, WarmPool) else ("", False)
