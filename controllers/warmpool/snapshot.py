"""What a warm pool's plan is made from: everything that was observed, frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from controllers.warmpool.backends import Health
from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM, seconds_since, why_unavailable
from kinds.warm_states import COUNTED, WarmState
from runtime.backoff import hash_fraction

NOT_CHECKED = Health("Unable", "NotChecked", "it was not checked yet")
SCHEDULING_REASONS = frozenset({"Unschedulable", "SchedulingGated"})
"""What is no fault of the machine and is not made better by another one: the cluster is full, or somebody gates it."""
FAILING_WORDS = frozenset(
    {"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "DataVolumeError", "ErrorPvcNotFound"}
)


@dataclass(frozen=True)
class VMHealth:
    """What is known of a machine's health."""

    awake: Health = NOT_CHECKED
    """as a machine that runs"""
    waiting: Health = NOT_CHECKED
    """as one that waits in its standby"""
    failing: int = 0
    """periods in a row in which it was not as its state says"""
    period_over: bool = False
    """one of them has just ended"""
    well_seconds: float = 0.0
    """for how long it has been well as a machine that runs"""
    held_ago: float = math.inf
    """seconds since the cluster had no room for it, or somebody gated it"""


@dataclass(frozen=True)
class WarmPoolSnapshot:
    pool: WarmPool
    machines: tuple[WarmVM, ...] = ()
    """all that carry the pool's UID, whoever has them by now"""
    vitals: Mapping[str, VMHealth] = field(default_factory=dict)
    """by UID"""
    demand: int = 0
    """claims that wait for a machine of this pool"""
    making: int = 0
    """machines that are being made for claims, and that no store shows yet"""
    settled: bool = True
    """the store shows all that we created and deleted before"""
    failures: FailureBackoff = NO_FAILURES
    tokens: float = math.inf
    """creations that the rate allows now"""
    seed: str = ""
    """makes new names"""
    default: WarmPool | None = None
    """the pool of this namespace that claims without a name get"""
    hindrance: str = ""
    """what came between the pool and its last plan"""

    # Whose a machine is

    @cached_property
    def members(self) -> tuple[WarmVM, ...]:
        """Unclaimed machines that the pool owns: those it may do something to."""
        return tuple(m for m in self.machines if m.unclaimed and self._ours(m) and not m.deleting)

    @cached_property
    def claimed(self) -> tuple[WarmVM, ...]:
        return tuple(m for m in self.machines if m.state in (WarmState.ALLOCATING, WarmState.IN_USE) and not m.deleting)

    @cached_property
    def leaving(self) -> tuple[WarmVM, ...]:
        return tuple(m for m in self.machines if m.deleting or m.state is WarmState.TERMINATING)

    @cached_property
    def orphaned(self) -> tuple[WarmVM, ...]:
        return tuple(m for m in self.machines if m.orphaned and not m.deleting)

    @cached_property
    def left_behind(self) -> tuple[WarmVM, ...]:
        """Ours, and to be deleted whatever happens: somebody marked them and was killed."""
        return tuple(m for m in self.machines if m.state is WarmState.TERMINATING and self._ours(m) and not m.deleting)

    @cached_property
    def impossible(self) -> tuple[WarmVM, ...]:
        """Machines whose labels contradict each other or their owner: somebody wrote them who should not."""
        return tuple(m for m in self.machines if not m.deleting and not m.orphaned and self._contradicts(m))

    def _ours(self, m: WarmVM) -> bool:
        return m.owned_by(self.pool.uid) and not m.orphaned

    def _contradicts(self, m: WarmVM) -> bool:
        if m.state is None:
            return True
        if m.owned_by(self.pool.uid):
            return bool(m.claim_uid) or m.state in (WarmState.ALLOCATING, WarmState.IN_USE)
        return m.unclaimed

    # What the pool has

    def vital(self, m: WarmVM) -> VMHealth:
        return self.vitals.get(m.uid, VMHealth())

    def in_state(self, *states: WarmState) -> tuple[WarmVM, ...]:
        return tuple(m for m in self.members if m.state in states)

    @cached_property
    def depth(self) -> tuple[WarmVM, ...]:
        """The document's depth: what is, or is to be, there for claims. Not those on a node that is being emptied."""
        return tuple(m for m in self.members if m.state in COUNTED and not on_leaving_node(m))

    @cached_property
    def available(self) -> tuple[WarmVM, ...]:
        """Those that a claim would get now."""
        return tuple(m for m in self.members if not why_unavailable(m))

    @cached_property
    def failing(self) -> tuple[WarmVM, ...]:
        """Of today's template, and they keep failing to start."""
        found = self.in_state(WarmState.PROVISIONING)
        return tuple(m for m in found if self.pool.current(m) and fails_to_start(m))

    @cached_property
    def held(self) -> tuple[WarmVM, ...]:
        """Those for which the cluster has no room, or that somebody gates."""
        return tuple(m for m in self.members if waits_for_scheduling(m))

    @cached_property
    def target(self) -> int:
        return self.pool.spec.replicas + self.demand

    @cached_property
    def room(self) -> int:
        """Machines that may still be made below `maxTotal`; claimed and leaving ones count, orphans don't."""
        if self.pool.spec.max_total is None:
            return self.target
        there = sum(not m.orphaned for m in self.machines)
        return max(0, self.pool.spec.max_total - there - self.making)

    def outdated(self, m: WarmVM) -> bool:
        return m.uid in self._outdated

    @cached_property
    def _outdated(self) -> frozenset[str]:
        return frozenset(m.uid for m in self.machines if not self.pool.current(m))

    def expired(self, m: WarmVM, now: datetime) -> bool:
        most = max_age(self.pool, m)
        return most is not None and seconds_since(m.created_at, now) >= most

    @cached_property
    def breaker_open(self) -> bool:
        """So many fail that more would fail too."""
        threshold = self.pool.spec.refill.breaker_threshold
        return threshold > 0 and max(self.failures.consecutive, len(self.failing)) >= threshold


def on_leaving_node(m: WarmVM) -> bool:
    """It is on a node that is being emptied: it can't be given away, and will have to go."""
    return m.node is not None and m.node.leaving


def waits_for_scheduling(m: WarmVM) -> bool:
    return m.state is WarmState.PROVISIONING and (
        (m.vmi is not None and m.vmi.trouble in SCHEDULING_REASONS) or m.printable_status == "ErrorUnschedulable"
    )


def fails_to_start(m: WarmVM) -> bool:
    if waits_for_scheduling(m):
        return False
    trouble = m.vmi is not None and bool(m.vmi.trouble)
    return trouble or m.start_failures > 0 or m.printable_status in FAILING_WORDS


def max_age(pool: WarmPool, m: WarmVM) -> float | None:
    """Seconds that it may live. Up to a tenth less, or all that were made together would go together."""
    if pool.spec.expiry is None or not pool.spec.expiry.max_age_seconds:
        return None
    return pool.spec.expiry.max_age_seconds * (1 - 0.1 * hash_fraction(m.uid))


def scaled_value(limit: int | str, replicas: int, *, up: bool = False) -> int:
    """What a number or a percentage of the replicas comes to."""
    if isinstance(limit, int):
        return limit
    exact = int(limit[:-1]) * replicas / 100
    return math.ceil(exact) if up else math.floor(exact)
