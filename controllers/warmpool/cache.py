"""The caches of all warm VMs of both backends, and the demand of claims for VMs of a pool."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from controllers.shared.image_sources import ImageSources
from controllers.shared.replica_limits import unknown_limit
from controllers.shared.sources import Source
from controllers.shared.vmi import VMI, parse_vmi_with_pods
from controllers.warmpool.autoscaling.autoscaler import ClaimEvents
from controllers.warmpool.backends import Backend
from controllers.warmpool.snapshot import EvictionFacts
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, pool_of
from controllers.warmpool.warm_vm import Node, WarmVM, parse_node, parse_warm_vm
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.decisions import Decision
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import Forbidden, Invalid
from poolhouse.runtime.events import ObjectMeta
from poolhouse.runtime.resource import NODES, VMIS, VMS, Key
from poolhouse.runtime.store import Store

V = TypeVar("V")

WARM_VMS = Source(
    VMS,
    parse_warm_vm,
    # With the namespace: without the admission policies, a VM of another namespace may have any UID in its labels.
    {
        "pool": lambda vm: [(vm.namespace, vm.pool_uid)] if vm.pool_uid else [],
        "counted": lambda vm: [(vm.namespace, vm.pool_uid)] if vm.pool_uid and not vm.orphaned else [],
        "state": lambda vm: [(vm.namespace, vm.pool_uid, vm.state)] if vm.pool_uid and not vm.deleting else [],
        "claim": lambda vm: [(vm.namespace, vm.claim_uid)] if vm.claim_uid else [],
        "name": lambda vm: [(vm.namespace, vm.pool)] if vm.pool else [],
    },
    label_selector=meta.WARM_STATE,
)
WARM_VMIS = Source(
    VMIS,
    parse_vmi_with_pods,
    {"node": lambda vmi: [vmi.node] if vmi.node else []},
    label_selector=meta.WARM_POOL,
)
WARM_NODES = Source(NODES, parse_node)

MAX_STALE_JOINS = 100
DELETED_NODE = Node("(deleted)", ready=False)


@dataclass(frozen=True)
class WarmVMCache:
    """Joins cached VMs with their VMIs and nodes."""

    vms: Store[WarmVM] = field(default_factory=WARM_VMS.store)
    vmis: Store[VMI] = field(default_factory=WARM_VMIS.store)
    nodes: Store[Node] = field(default_factory=WARM_NODES.store)
    _joins: dict[Key, tuple[WarmVM, VMI | None, Node | None, WarmVM]] = field(default_factory=dict)
    """The last result of `join` for each VM. Most VMs do not change between two reconciles."""

    def in_state(self, pool: ObjectMeta, state: WarmState) -> list[WarmVM]:
        """VMs of the pool in this state. VMs with a deletionTimestamp are not included."""
        return [self.join(vm) for vm in self.vms.by("state", (pool.namespace, pool.uid, state))]

    def of_pool(self, pool: ObjectMeta) -> list[WarmVM]:
        """All VMs with the pool's UID, including claimed, orphaned and terminating VMs."""
        return [self.join(vm) for vm in self.vms.by("pool", (pool.namespace, pool.uid))]

    def count(self, pool: ObjectMeta) -> int:
        """The number of VMs that count towards `maxTotal`: all VMs except orphans."""
        return len(self.vms.by("counted", (pool.namespace, pool.uid)))

    def of_claim(self, claim: ObjectMeta) -> list[WarmVM]:
        """All VMs with the claim's UID, without their VMIs and nodes."""
        return self.vms.by("claim", (claim.namespace, claim.uid))

    def with_pool_name(self, pool: Key) -> list[WarmVM]:
        """VMs with the label of this pool name, including VMs of a deleted pool of the same name."""
        return self.vms.by("name", pool)

    def get(self, key: Key) -> WarmVM | None:
        found = self.vms.get(key)
        return self.join(found) if found is not None else None

    def on_node(self, node: str) -> list[WarmVM]:
        found = (self.vms.get(vmi.key) for vmi in self.vmis.by("node", node))
        return [vm for vm in found if vm is not None]

    def join(self, vm: WarmVM) -> WarmVM:
        vmi = self.vmis.get(vm.key)
        if vmi is None or vmi.owner_uid != vm.uid:
            return vm
        node = self._node(vmi.node) if vmi.node else None
        last = self._joins.get(vm.key)
        if last is not None and last[0] is vm and last[1] is vmi and last[2] is node:
            return last[3]
        if len(self._joins) > 2 * len(self.vms) + MAX_STALE_JOINS:
            self._joins.clear()  # most of the entries are of deleted VMs
        joined = replace(vm, vmi=vmi, node=node)
        self._joins[vm.key] = vm, vmi, node, joined
        return joined

    def _node(self, name: str) -> Node | None:
        """Returns DELETED_NODE, which is not ready, for a node that no longer exists."""
        found = self.nodes.get(("", name))
        return DELETED_NODE if found is None and len(self.nodes) else found


class MergedStore(Store[V]):
    """A read-only union of two stores."""

    def __init__(self, first: Store[V], second: Store[V]) -> None:
        super().__init__()
        self._first, self._second = first, second

    def get(self, key: Key) -> V | None:
        found = self._first.get(key)
        return found if found is not None else self._second.get(key)

    def by(self, index: str, value: Hashable) -> list[V]:
        return self._first.by(index, value) + self._second.by(index, value)

    def all(self) -> list[V]:
        return self._first.all() + self._second.all()

    def __len__(self) -> int:
        return len(self._first) + len(self._second)


def merge_caches(first: WarmVMCache, second: WarmVMCache) -> WarmVMCache:
    return WarmVMCache(
        MergedStore(first.vms, second.vms), MergedStore(first.vmis, second.vmis), MergedStore(first.nodes, second.nodes)
    )


MAX_DELETIONS = 1000
"""Limit for a pool that is not reconciled, such as one whose plan is too expensive."""


class Demand:
    """The VMs that claims need and have used, by UID of the pool. The claim controller writes it, the pool controller
    reads it."""

    def __init__(self) -> None:
        self._queued: dict[str, int] = {}
        self._creating: dict[str, set[str]] = {}
        self._arrived: dict[str, list[float]] = {}
        self._waits: dict[str, list[float]] = {}
        self._deletions: dict[str, list[Decision]] = {}
        self._subscribers: list[Callable[[str], None]] = []
        self.reserved: Callable[[str], int] = lambda pool_uid: 0
        """The number of VMs that claims have taken and that the cache still shows as the pool's, by UID of the pool."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Calls `changed(pool_uid)` when the number of queued claims changes."""
        self._subscribers.append(changed)

    def queued(self, pool_uid: str) -> int:
        """The number of claims that wait for a VM. The pool scales out to `replicas` plus this number."""
        return self._queued.get(pool_uid, 0)

    def arrived(self, pool_uid: str, created: float) -> None:
        """Records a new claim of the pool, with its creation time in seconds since 1970."""
        self._arrived.setdefault(pool_uid, []).append(created)

    def forget_arrivals(self) -> None:
        """Forgets the claims that no pool has read, because a new leader records each claim again."""
        self._arrived.clear()

    def served(self, pool_uid: str, wait_seconds: float) -> None:
        """Records that a claim was handed over after this time, or got no VM in time if the time is infinite."""
        self._waits.setdefault(pool_uid, []).append(wait_seconds)

    def take_events(self, pool_uid: str) -> ClaimEvents:
        """The events of the pool's claims since the last call."""
        return ClaimEvents(tuple(self._arrived.pop(pool_uid, ())), tuple(self._waits.pop(pool_uid, ())))

    def deleted(self, pool_uid: str, decision: Decision) -> None:
        """Records that the claim controller deleted a VM, for the log of the pool."""
        deletions = self._deletions.setdefault(pool_uid, [])
        deletions.append(decision)
        del deletions[:-MAX_DELETIONS]

    def take_deletions(self, pool_uid: str) -> list[Decision]:
        """The deletions since the last call."""
        return self._deletions.pop(pool_uid, [])

    def forget(self, pool_uid: str) -> None:
        """Forgets what a deleted pool has not read."""
        for events in (self._arrived, self._waits, self._deletions):
            events.pop(pool_uid, None)

    def creating(self, pool_uid: str) -> int:
        """VMs that are being created for claims and that no cache shows yet. These VMs count towards `maxTotal`."""
        return len(self._creating.get(pool_uid, ()))

    def set_queued(self, pool_uid: str, claims: int) -> None:
        if self._queued.get(pool_uid, 0) == claims:
            return
        self._queued[pool_uid] = claims
        if not claims:
            del self._queued[pool_uid]
        for changed in self._subscribers:
            changed(pool_uid)

    def expect_creation(self, pool_uid: str, name: str) -> None:
        """Counts a VM before the cache shows it. Callers must call this method before they send the create request."""
        self._creating.setdefault(pool_uid, set()).add(name)

    def creation_over(self, pool_uid: str, name: str) -> None:
        """Ends the expectation: the cache shows the VM, or the server refused the creation."""
        names = self._creating.get(pool_uid, set())
        names.discard(name)
        if not names:
            self._creating.pop(pool_uid, None)


class HasProblem(Protocol):
    """An informer, or the poller of EC2 instances."""

    @property
    def problem(self) -> str | None: ...

    @property
    def error(self) -> Exception | None:
        """The error of `problem`; None also before the first answer."""


@dataclass(frozen=True)
class BackendView:
    """A backend with the cache of its VMs."""

    backend: Backend
    cache: WarmVMCache
    sources: tuple[HasProblem, ...] = ()

    @property
    def problem(self) -> str:
        """Why the cache may be stale or empty; an empty string if it is current.

        The controller does not plan from a stale cache."""
        return next((source.problem for source in self.sources if source.problem), "")

    @property
    def refused(self) -> bool:
        """Whether the listing was refused, for example without rights or credentials. It fails until somebody acts;
        without an answer, it may succeed at any time."""
        found = next((source for source in self.sources if source.problem), None)
        return found is not None and isinstance(found.error, (Forbidden, Invalid))


@dataclass(frozen=True)
class WarmPoolStores:
    pools: Store[WarmPool | InvalidWarmPool]
    demand: Demand
    images: ImageSources = field(default_factory=ImageSources)
    replica_limit: Callable[[str], int | None] = unknown_limit
    """The replica limit of a namespace; None if it is unknown."""
    evictions: Callable[[WarmPool, Iterable[WarmVM]], EvictionFacts] = lambda pool, vms: EvictionFacts()
    """Returns the evictions and budgets that concern these VMs of the pool."""

    def pool_of(self, vm: WarmVM) -> WarmPool | InvalidWarmPool | None:
        return pool_of(self.pools, vm)
