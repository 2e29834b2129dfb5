"""Replays claims in virtual time against a policy for the number of waiting VMs."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from controllers.warmpool.autoscaling.decision import Demand, Recommendation, decide, remember, window_seconds
from controllers.warmpool.autoscaling.history import HOUR, DemandHistory
from poolhouse.api.kinds.warm_autoscaling import Autoscaling
from poolhouse.api.kinds.warm_claim_policy import OnEmpty

DECISION_SECONDS = 60.0
"""Time between two decisions without a claim."""


@dataclass(frozen=True)
class Pool:
    """The properties of a pool that a simulation needs."""

    boot_seconds: float
    """Time from the creation of a VM until it can be claimed."""
    handover_seconds: float = 0.1
    """Time from the claim to the handover of a waiting VM. For stopped VMs, this is a boot."""
    on_empty: OnEmpty = "ColdStart"


class Policy(Protocol):
    """Decides how many VMs wait."""

    def arrived(self, time: float) -> None: ...

    def served(self, wait_seconds: float) -> None: ...

    def replicas(self, time: float, waiting: int, claimed: int) -> int: ...


@dataclass(frozen=True)
class FixedSize:
    size: int

    def arrived(self, time: float) -> None:
        pass

    def served(self, wait_seconds: float) -> None:
        pass

    def replicas(self, time: float, waiting: int, claimed: int) -> int:
        return self.size


@dataclass
class AutoscaledSize:
    """The autoscaling of a warm pool, with the same history and decision as in the controller."""

    spec: Autoscaling
    pool: Pool
    history: DemandHistory = field(default_factory=DemandHistory)
    recommendations: tuple[Recommendation, ...] = ()

    def __post_init__(self) -> None:
        self.history.booted(self.pool.boot_seconds)
        self.history.compete_within(window_seconds(self.spec, self.pool.on_empty, self.pool.boot_seconds))

    def arrived(self, time: float) -> None:
        self.history.arrived(time)

    def served(self, wait_seconds: float) -> None:
        self.history.served(late=wait_seconds > (self.spec.target.wait_seconds or 0))

    def replicas(self, time: float, waiting: int, claimed: int) -> int:
        now = datetime.fromtimestamp(time, UTC)
        self.history.waited(time, waiting)
        self.history.observe(time)
        decided = decide(self.spec, Demand(self.history, claimed, self.recommendations), now)
        self.recommendations = remember(self.recommendations, decided, self.spec, now)
        return decided.replicas


@dataclass(frozen=True)
class Result:
    waits: tuple[float, ...]
    """Seconds that each claim waited, in ascending order. Infinite for a claim that failed."""
    cold_starts: int
    """Claims that found no VM."""
    idle_hours: float
    """Sum of the hours that VMs existed without a claim, booting or waiting."""
    booted: int
    """VMs that the pool created in advance."""

    def wait(self, percentile: float) -> float:
        """The wait that this percentage of the claims did not exceed."""
        rank = math.ceil(percentile / 100 * len(self.waits))
        return self.waits[max(0, rank - 1)] if self.waits else 0.0

    def late(self, seconds: float) -> float:
        """The share of the claims that waited longer."""
        return sum(each > seconds for each in self.waits) / len(self.waits) if self.waits else 0.0


@dataclass
class _Run:
    pool: Pool
    policy: Policy
    begin: float
    end: float
    claim_seconds: float
    size: int = 0
    ready: int = 0
    claimed: list[float] = field(default_factory=list)
    """Times at which the claims end, as a heap."""
    booting: deque[float] = field(default_factory=deque)
    """Times at which the VMs are ready, in ascending order: all boots take the same time."""
    queue: deque[float] = field(default_factory=deque)
    waits: list[float] = field(default_factory=list)
    cold_starts: int = 0
    idle_seconds: float = 0.0
    booted: int = 0
    at: float = 0.0

    def advance(self, time: float) -> None:
        counted = min(time, self.end) - max(self.at, self.begin)
        if counted > 0:
            self.idle_seconds += counted * (self.ready + len(self.booting))
        self.at = time
        while self.claimed and self.claimed[0] <= time:
            heapq.heappop(self.claimed)

    def arrive(self, time: float) -> None:
        self.policy.arrived(time)
        if self.ready:
            self.ready -= 1
            self._serve(time, self.pool.handover_seconds)
            return
        self.cold_starts += time >= self.begin
        if self.pool.on_empty == "Queue":
            self.queue.append(time)
        elif self.pool.on_empty == "Fail":
            self._served(time, math.inf)
        else:
            self._serve(time, self.pool.boot_seconds)

    def boot(self, time: float) -> None:
        self.booting.popleft()
        if self.queue:
            arrived = self.queue.popleft()
            self._serve(arrived, time - arrived + self.pool.handover_seconds)
        else:
            self.ready += 1

    def resize(self, time: float) -> None:
        """Creates and deletes VMs as the controller does: VMs that boot are deleted first, the youngest first."""
        self.size = self.policy.replicas(time, self.ready + len(self.booting), len(self.claimed))
        missing = self.size + len(self.queue) - self.ready - len(self.booting)
        for _ in range(missing):
            self.booting.append(time + self.pool.boot_seconds)
            self.booted += time >= self.begin
        for _ in range(-missing):
            if self.booting:
                self.booting.pop()
            else:
                self.ready -= 1

    def _serve(self, arrived: float, wait: float) -> None:
        heapq.heappush(self.claimed, arrived + wait + self.claim_seconds)
        self._served(arrived, wait)

    def _served(self, arrived: float, wait: float) -> None:
        self.policy.served(wait)
        if arrived >= self.begin:
            self.waits.append(wait)


def simulate(
    arrivals: Sequence[float],
    pool: Pool,
    policy: Policy,
    *,
    begin: float,
    end: float,
    claim_seconds: float = HOUR,
) -> Result:
    """Runs from the first claim until `end`. A policy learns from all arrivals, and the result has only the claims
    and hours from `begin` on. `arrivals` are seconds since 1970 in ascending order."""
    first = min(begin, arrivals[0]) if arrivals else begin
    run = _Run(pool, policy, begin, end, claim_seconds, at=first)
    run.size = run.ready = policy.replicas(first, 0, 0)  # the pool exists since before the first claim
    next_decision, claims = first, 0
    while True:
        arrival = arrivals[claims] if claims < len(arrivals) else math.inf
        boot = run.booting[0] if run.booting else math.inf
        time = min(arrival, boot, next_decision)
        if time >= end:
            break
        run.advance(time)
        if time == boot:
            run.boot(time)
            continue
        if time == arrival:
            claims += 1
            run.arrive(time)
        else:
            next_decision = time + (math.inf if isinstance(policy, FixedSize) else DECISION_SECONDS)
        run.resize(time)
    run.advance(end)
    # A claim that still waits has waited until now at least.
    waits = run.waits + [end - each for each in run.queue if each >= begin]
    return Result(tuple(sorted(waits)), run.cold_starts, run.idle_seconds / HOUR, run.booted)


def best_fixed_size(
    arrivals: Sequence[float], pool: Pool, *, wait_seconds: float, percentile: float, begin: float, end: float
) -> int:
    """The smallest size for these claims with which the percentile of the waits is within `wait_seconds`.

    Returns 0 if no size achieves that, because the handover alone takes longer."""
    if pool.handover_seconds > wait_seconds:
        return 0

    def enough(size: int) -> bool:
        return simulate(arrivals, pool, FixedSize(size), begin=begin, end=end).wait(percentile) <= wait_seconds

    low, high = -1, 1
    # With a VM for each claim, all claims are in time.
    while high < len(arrivals) and not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
