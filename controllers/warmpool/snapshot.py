"""The snapshot of a warm pool, the input of its plan and its status."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from controllers.sets.eviction_budgets import Refusal
from controllers.shared.evictions import EvictionBudget
from controllers.shared.readiness import exceeds_quota
from controllers.shared.replica_limits import Excess
from controllers.warmpool.autoscaling.decision import Decision
from controllers.warmpool.backends import Health
from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM, seconds_since, why_unavailable
from poolhouse.api.kinds.warm_autoscaling import AutoscalingStatus
from poolhouse.api.kinds.warm_states import COUNTED, WarmState
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.backoff import hash_fraction

NOT_CHECKED = Health("Unable", "NotChecked", "the VM was not checked yet")
SCHEDULING_REASONS = frozenset({"Unschedulable", "SchedulingGated"})
"""Reasons why a VM is not scheduled. A replacement would wait too."""
FAILING_STATUSES = frozenset(
    {"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "DataVolumeError", "ErrorPvcNotFound"}
)


@dataclass(frozen=True)
class VMHealth:
    running: Health = NOT_CHECKED
    """The health by the rules for a running VM."""
    in_standby: Health = NOT_CHECKED
    """The health by the rules for the VM's standby mode."""
    failed_periods: int = 0
    """The number of consecutive periods in which `in_standby` failed."""
    period_over: bool = False
    """Whether one of these periods ended with this check."""
    healthy_seconds: float = 0.0
    """How long `running` has been healthy, in seconds."""
    unscheduled_ago: float = math.inf
    """Seconds since the VM last waited for scheduling."""


@dataclass(frozen=True)
class EvictionFacts:
    """What decides how evictions treat the claimed VMs of a pool."""

    budgets: Sequence[EvictionBudget] | None = None
    """The PodDisruptionBudgets of the namespace. None if they cannot be listed."""
    cluster: ClusterSettings | None = None
    begun: Mapping[str, str] = field(default_factory=dict)
    """Since when claimed VMs should leave their nodes, as their claims say, by UID of the VM."""
    refusal: Refusal | None = None
    """The error of the last write of the pool's PodDisruptionBudget."""


@dataclass(frozen=True)
class WarmPoolSnapshot:
    pool: WarmPool
    vms: tuple[WarmVM, ...] = ()
    """All VMs with the pool's UID, including claimed and orphaned VMs."""
    health: Mapping[str, VMHealth] = field(default_factory=dict)
    """The key is the VM's UID."""
    queued_claims: int = 0
    creating_for_claims: int = 0
    """The number of VMs that are being created for claims and that the cache does not show yet."""
    reserved: int = 0
    """The number of waiting VMs that claims have taken, and that the cache does not show as claimed yet."""
    expectations_met: bool = True
    """Whether the cache shows all creations and deletions of the controller."""
    failures: FailureBackoff = NO_FAILURES
    tokens: float = math.inf
    """The number of VMs that the rate limit allows to create now."""
    seed: str = ""
    """The seed of the names of new VMs."""
    default_pool: WarmPool | None = None
    """The pool for claims in this namespace that name no pool."""
    last_error: str = ""
    """The error that interrupted the last plan."""
    autoscaled: Decision | None = None
    """The decision of the autoscaling. None for a pool without autoscaling."""
    autoscaling_status: AutoscalingStatus | None = None
    """The decision as the status shows it."""
    refused_references: Mapping[str, str] = field(default_factory=dict)
    """Why images of DataSources are not used, by name in dataVolumeTemplates."""
    excess: Excess | None = None
    """The wanted VMs above the replica limit of the namespace."""
    demand_history: str = ""
    """The encoded history of the demand."""
    refusal: str = ""
    """KubeVirt's answer to a request to pause, stop or start a VM that it refuses repeatedly."""
    created: frozenset[str] = frozenset()
    """UIDs of VMs that this process has created for the pool, which its stored status may lack."""
    unowned: tuple[str, ...] = ()
    """Names of waiting VMs with the pool's label that nobody owns, also of an earlier pool of the same name."""
    evictions: EvictionFacts = EvictionFacts()

    # VMs by ownership

    @cached_property
    def members(self) -> tuple[WarmVM, ...]:
        """Unclaimed VMs that the pool owns. The controller may change and delete only these VMs."""
        return tuple(vm for vm in self.vms if vm.unclaimed and self._owns(vm) and not vm.deleting)

    @cached_property
    def claimed(self) -> tuple[WarmVM, ...]:
        return tuple(vm for vm in self.vms if vm.state in (WarmState.ALLOCATING, WarmState.IN_USE) and not vm.deleting)

    @cached_property
    def deleting(self) -> tuple[WarmVM, ...]:
        return tuple(vm for vm in self.vms if vm.deleting or vm.state is WarmState.TERMINATING)

    @cached_property
    def orphaned(self) -> tuple[WarmVM, ...]:
        return tuple(vm for vm in self.vms if vm.orphaned and not vm.deleting)

    @cached_property
    def marked(self) -> tuple[WarmVM, ...]:
        """VMs that an earlier process marked for termination and did not delete."""
        return tuple(vm for vm in self.vms if vm.state is WarmState.TERMINATING and self._owns(vm) and not vm.deleting)

    @cached_property
    def contradictory(self) -> tuple[WarmVM, ...]:
        """VMs whose labels contradict each other or the owner reference."""
        return tuple(vm for vm in self.vms if not vm.deleting and not vm.orphaned and self._contradicts(vm))

    def recorded(self, vm: WarmVM) -> bool:
        """Whether the controllers have created the VM. Claims get it when the stored status says so too."""
        return vm.uid in self.created or self.pool.recorded(vm)

    @cached_property
    def unrecorded(self) -> tuple[WarmVM, ...]:
        """Members that the controllers have not created, as far as this process knows."""
        return tuple(vm for vm in self.members if not self.recorded(vm))

    def _owns(self, vm: WarmVM) -> bool:
        return vm.owned_by(self.pool.uid) and not vm.orphaned

    def _contradicts(self, vm: WarmVM) -> bool:
        if vm.state is None:
            return True
        if vm.owned_by(self.pool.uid):
            return bool(vm.claim_uid) or vm.state in (WarmState.ALLOCATING, WarmState.IN_USE)
        return vm.unclaimed

    # VMs by state and health

    def health_of(self, vm: WarmVM) -> VMHealth:
        return self.health.get(vm.uid, VMHealth())

    def in_state(self, *states: WarmState) -> tuple[WarmVM, ...]:
        return tuple(vm for vm in self.members if vm.state in states)

    @cached_property
    def depth(self) -> tuple[WarmVM, ...]:
        """VMs that are Ready or will become Ready, except VMs on a cordoned or drained node."""
        return tuple(vm for vm in self.members if vm.state in COUNTED and not on_leaving_node(vm))

    @cached_property
    def available(self) -> tuple[WarmVM, ...]:
        """VMs that a claim can get now."""
        return tuple(vm for vm in self.members if not why_unavailable(vm))

    @cached_property
    def failing(self) -> tuple[WarmVM, ...]:
        """VMs of the current template that fail to start."""
        provisioning = self.in_state(WarmState.PROVISIONING)
        return tuple(vm for vm in provisioning if self.pool.current(vm) and fails_to_start(vm))

    @cached_property
    def unscheduled(self) -> tuple[WarmVM, ...]:
        return tuple(vm for vm in self.members if waits_for_scheduling(vm))

    # Numbers

    @property
    def replicas(self) -> int:
        """The desired number of waiting VMs."""
        return self.wanted if self.excess is None else self.excess.replicas

    @property
    def wanted(self) -> int:
        """The number of waiting VMs that the spec or the autoscaling asks for, also above the limit."""
        return self.pool.spec.replicas if self.autoscaled is None else self.autoscaled.replicas

    @cached_property
    def target(self) -> int:
        return self.replicas + self.queued_claims

    @cached_property
    def capacity_left(self) -> int:
        """How many VMs `maxTotal` still allows. Orphans do not count; claimed VMs and VMs that are being deleted do."""
        if self.pool.spec.max_total is None:
            return self.target
        existing = sum(not vm.orphaned for vm in self.vms)
        return max(0, self.pool.spec.max_total - existing - self.creating_for_claims)

    def outdated(self, vm: WarmVM) -> bool:
        return vm.uid in self._outdated

    @cached_property
    def _outdated(self) -> frozenset[str]:
        return frozenset(vm.uid for vm in self.vms if not self.pool.current(vm))

    @cached_property
    def replaces_none(self) -> bool:
        """Whether no VM is outdated or can expire, as in most reconciles."""
        return not self._outdated and (self.pool.spec.expiry is None or not self.pool.spec.expiry.max_age_seconds)

    def expired(self, vm: WarmVM, now: datetime) -> bool:
        seconds = max_age(self.pool, vm)
        return seconds is not None and seconds_since(vm.created_at, now) >= seconds

    @cached_property
    def breaker_open(self) -> bool:
        """Whether at least `breakerThreshold` VMs in a row failed."""
        threshold = self.pool.spec.refill.breaker_threshold
        return threshold > 0 and max(self.failures.consecutive, len(self.failing)) >= threshold

    @property
    def lacks_capacity(self) -> bool:
        """Whether creations were refused for want of capacity, which returns without a change of the pool."""
        return bool(self.failures.consecutive) and self.failures.reason == Reason.INSUFFICIENT_CAPACITY

    @property
    def keeps_failing(self) -> bool:
        """Whether the breaker is open for another cause than a shortage."""
        threshold = self.pool.spec.refill.breaker_threshold
        return self.breaker_open and (not self.lacks_capacity or len(self.failing) >= threshold)


def on_leaving_node(vm: WarmVM) -> bool:
    """Whether the VM's node is cordoned or drained. No claim gets such a VM, and the controller replaces it."""
    return vm.node is not None and vm.node.leaving


def waits_for_scheduling(vm: WarmVM) -> bool:
    """Whether the VM waits for a node, or for a quota that has no room for its VMI."""
    unschedulable = vm.vmi is not None and vm.vmi.start_failure in SCHEDULING_REASONS
    waits = unschedulable or vm.printable_status == "ErrorUnschedulable" or exceeds_quota(vm.start_refusal)
    return vm.state is WarmState.PROVISIONING and waits


def fails_to_start(vm: WarmVM) -> bool:
    if waits_for_scheduling(vm):
        return False
    has_error = bool(vm.start_refusal) or (vm.vmi is not None and bool(vm.vmi.start_failure))
    return has_error or vm.start_failures > 0 or vm.printable_status in FAILING_STATUSES


def max_age(pool: WarmPool, vm: WarmVM) -> float | None:
    """The maximum age in seconds, up to 10 % below the spec's, so that VMs do not expire together."""
    if pool.spec.expiry is None or not pool.spec.expiry.max_age_seconds:
        return None
    return pool.spec.expiry.max_age_seconds * (1 - 0.1 * hash_fraction(vm.uid))
