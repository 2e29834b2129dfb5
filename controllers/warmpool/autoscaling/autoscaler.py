"""The autoscaling of one pool: records its demand, decides, and writes both into values of the pool's status."""

from dataclasses import dataclass, field
from datetime import datetime

from controllers.warmpool.autoscaling.decision import (
    Decision,
    Demand,
    Recommendation,
    decide,
    remember,
    window_seconds,
)
from controllers.warmpool.autoscaling.history import DemandHistory
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.warm_pool import WarmPool
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.warm_autoscaling import AutoscalingStatus, SizeChange
from poolhouse.api.kinds.warmpool import WarmPoolStatus

SAVE_SECONDS = 300.0
"""Least time between two writes of the history. The first claim is written at once."""

MAX_CLOCK_DIFFERENCE = 60.0
"""Seconds by which the clock of the API server may be ahead of that of this process."""

SAME_SIZE_REASONS = frozenset({Reason.WAIT_TARGET, Reason.MIN_REPLICAS, Reason.SPARE_RATIO})
"""Reasons that may alternate while the size stays the same. The status keeps the first one, because a pool at rest must
cause no writes."""


@dataclass(frozen=True)
class ClaimEvents:
    """What happened to claims of a pool since the last reconcile."""

    arrived: tuple[float, ...] = ()
    """Creation times of new claims, in seconds since 1970."""
    wait_seconds: tuple[float, ...] = ()
    """For each claim that was handed over, the time since its creation. Infinite for a claim that got no VM in time."""


@dataclass
class PoolAutoscaler:
    """The memory of one pool's autoscaling. A new process starts with the history and the size in the status."""

    history: DemandHistory
    saved: str
    """The history as it was last encoded or read."""
    status: AutoscalingStatus | None
    recommendations: tuple[Recommendation, ...] = ()
    decision: Decision | None = None
    _counted_until: float = 0.0
    """Claims that were created until this time are in the history, and may be seen again by a new leader."""
    _newest: float = 0.0
    """Creation time of the newest claim that was counted."""
    _boots: list[float] = field(default_factory=list)

    @classmethod
    def from_status(cls, status: WarmPoolStatus) -> "PoolAutoscaler":
        history, decided = DemandHistory.decode(status.demand_history), status.autoscaling
        found = cls(history, status.demand_history, decided, _counted_until=history.saved_at)
        if decided is not None:  # as a HorizontalPodAutoscaler, which keeps the size it finds for its delay
            found.recommendations = (Recommendation(parse_time(decided.decided_time), decided.desired_replicas),)
        return found

    def begin(self) -> None:
        """Begins to lead, maybe again: all claims that exist are seen again."""
        self._counted_until = max(self._counted_until, self._newest)

    def booted(self, seconds: float) -> None:
        self._boots.append(seconds)

    def update(self, pool: WarmPool, events: ClaimEvents, waiting: int, claimed: int, now: datetime) -> None:
        """Records the events and decides anew. `waiting` is the number of VMs that wait or boot now."""
        self._adopt_newer(pool.status.demand_history)
        spec, history, time = pool.spec.autoscaling, self.history, now.timestamp()
        claimed_before = bool(history.slots)
        self._count(events, spec.target.wait_seconds if spec is not None else None, time)
        if history.since is None and not history.changed and spec is None:
            return  # nothing is known, and nothing asks for it
        if history.boot_seconds is not None:
            on_empty = pool.spec.claim_policy.on_empty
            history.compete_within(window_seconds(spec, on_empty, history.boot_seconds))
        history.waited(time, waiting)
        history.observe(time)
        first_claim = not claimed_before and bool(history.slots)
        save = history.changed and (first_claim or time - history.saved_at >= SAVE_SECONDS)
        if save:
            self.saved = history.encode(time)
        if spec is None:
            self.status, self.decision, self.recommendations = None, None, ()
            return
        demand = Demand(history, claimed, self.recommendations, pool.spec.replicas)
        self.decision = decide(spec, demand, now)
        self.recommendations = remember(self.recommendations, self.decision, spec, now)
        if save or _outdated(self.status, self.decision, now):
            self.status = decision_status(self.decision, history, now)

    def _count(self, events: ClaimEvents, limit_seconds: float | None, time: float) -> None:
        """Adds the events and the boots to the history. A claim that waited longer than the limit is late."""
        for created in sorted(events.arrived):
            if created > self._counted_until:
                self.history.arrived(min(created, time + MAX_CLOCK_DIFFERENCE))
                self._newest = max(self._newest, created)
        for seconds in events.wait_seconds:
            if limit_seconds is not None:
                self.history.served(late=seconds > limit_seconds)
        for seconds in self._boots:
            self.history.booted(seconds)
        self._boots.clear()

    def _adopt_newer(self, text: str) -> None:
        """Continues with the history that another process wrote while it was the leader."""
        if text and text != self.saved:
            found = DemandHistory.decode(text)
            if found.saved_at > self.history.saved_at:
                self.history, self.saved, self._counted_until = found, text, found.saved_at


def _outdated(written: AutoscalingStatus | None, decided: Decision, now: datetime) -> bool:
    """Whether the status must be written: its message has the inputs of its time, so that no write is needed when only
    they change."""
    if written is None or written.desired_replicas != decided.replicas:
        return True
    if written.reason != decided.reason and not {written.reason, str(decided.reason)} <= SAME_SIZE_REASONS:
        return True
    change = written.next_change
    if change is None or decided.next_change is None:
        return (change is None) != (decided.next_change is None)
    return change.replicas != decided.next_change.replicas or parse_time(change.time) <= now


def decision_status(decided: Decision, history: DemandHistory, now: datetime) -> AutoscalingStatus:
    time, change = now.timestamp(), decided.next_change
    return AutoscalingStatus(
        desired_replicas=decided.replicas,
        reason=str(decided.reason),
        message=decided.message,
        decided_time=format_time(now),
        claims_per_hour=f"{history.claims_per_hour:.1f}",
        boot_seconds=None if history.boot_seconds is None else round(history.boot_seconds),
        late_claims_percent=f"{100 * history.late_share:.1f}",
        idle_hours_today=f"{history.idle_hours(time):.1f}",
        next_change=SizeChange(time=format_time(change.at), replicas=change.replicas, reason=change.reason)
        if change
        else None,
    )
