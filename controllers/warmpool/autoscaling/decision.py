"""Decides how many VMs of an autoscaled pool wait. The decision is a pure function of the spec, the history and the
time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from controllers.warmpool.autoscaling.history import DAY, HOUR, DemandHistory
from controllers.warmpool.reasons import WarmPoolReason as Reason
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.cron import CronSchedule, is_valid
from poolhouse.api.kinds.warm_autoscaling import Autoscaling, SizeSchedule
from poolhouse.api.kinds.warm_claim_policy import OnEmpty

LEARNING_SECONDS = HOUR
"""For this time after the first record, the pool has at least `spec.replicas` VMs."""


@dataclass(frozen=True)
class Change:
    at: datetime
    replicas: int
    reason: Reason


@dataclass(frozen=True)
class Decision:
    replicas: int
    reason: Reason
    message: str
    wanted: int
    """The number without the scale-down delay."""
    next_change: Change | None = None


@dataclass(frozen=True)
class Recommendation:
    """A number of VMs that was decided, with the time. The scale-down delay keeps the highest one."""

    at: datetime
    replicas: int


@dataclass(frozen=True)
class Demand:
    """The inputs of a decision beside the spec."""

    history: DemandHistory
    claimed: int = 0
    recommendations: tuple[Recommendation, ...] = ()
    initial_replicas: int = 0
    """The pool's `spec.replicas`."""


def decide(spec: Autoscaling, demand: Demand, now: datetime) -> Decision:
    reason, wanted, message = _wanted(spec, demand, now)
    needed = Decision(wanted, reason, message, wanted)
    decided = _ceiling(spec, demand, now, _bounded(spec, demand, now, needed))
    decided = replace(decided, wanted=decided.replicas)
    if decided.reason != Reason.IDLE_CEILING:
        decided = _delayed(spec, demand, now, decided)
    return replace(decided, next_change=_next_change(spec, demand, now, needed, decided))


def window_seconds(spec: Autoscaling | None, on_empty: OnEmpty, boot_seconds: float) -> float:
    """The part of a boot time in which claims compete for the waiting VMs.

    A queued claim may wait `waitSeconds` for a VM that is booting. A cold start boots its own VM, so it is late unless
    the whole boot is within the target."""
    allowed = float((spec.target.wait_seconds if spec is not None else None) or 0)
    if on_empty == "Fail":
        return boot_seconds
    if on_empty == "Queue":
        return max(0.0, boot_seconds - allowed)
    return boot_seconds if allowed < boot_seconds else 0.0


def _wanted(spec: Autoscaling, demand: Demand, now: datetime) -> tuple[Reason, int, str]:
    target, history = spec.target, demand.history
    if target.spare_ratio is not None:
        share = int(target.spare_ratio[:-1])
        # Whole numbers: 7 * 0.1 is more than 0.7 in floating point, and would be rounded up.
        count = -(-demand.claimed * share // 100)
        return Reason.SPARE_RATIO, count, f"{target.spare_ratio} of {demand.claimed} claimed VMs are {count}"
    if history.boot_seconds is None:
        return Reason.LEARNING, demand.initial_replicas, "no VM was ready yet, so the boot time is unknown"
    time = now.timestamp()
    late_share = (100 - target.percentile) / 100
    enough = history.window_seconds <= 0
    count = 0 if enough else history.replicas(time, late_share)
    rate, boot = history.claims_per_hour, history.boot_seconds
    said = f"{rate:.1f} claims per hour, {boot:.0f} s to boot: "
    if enough:
        said += f"a claim that finds no VM has one within {target.wait_seconds} s"
    else:
        said += (
            f"with {count_noun(count, 'VM')}, {target.percentile} % of the claims wait at most {target.wait_seconds} s"
        )
    if _learning(history, time) and demand.initial_replicas > count:
        return Reason.LEARNING, demand.initial_replicas, "the demand is known for less than an hour"
    return Reason.WAIT_TARGET, count, said


def _learning(history: DemandHistory, time: float) -> bool:
    return history.since is None or time - history.since < LEARNING_SECONDS


def _bounded(spec: Autoscaling, demand: Demand, now: datetime, decided: Decision) -> Decision:
    return _most(spec, _least(spec, demand, now, decided))


def _least(spec: Autoscaling, demand: Demand, now: datetime, decided: Decision) -> Decision:
    period, least = _active_minimum(spec, demand.history.boot_seconds or 0.0, now)
    if decided.replicas >= least:
        return decided
    if period is None:
        return replace(decided, replicas=least, reason=Reason.MIN_REPLICAS, message=_but(decided, "minReplicas", least))
    what = f"minReplicas of the schedule {period.schedule} ({period.time_zone})"
    return replace(decided, replicas=least, reason=Reason.SCHEDULE, message=_but(decided, what, least))


def _active_minimum(spec: Autoscaling, boot_seconds: float, now: datetime) -> tuple[SizeSchedule | None, int]:
    """The highest minimum now, with its schedule. None for `minReplicas`. A period begins a boot time early."""
    soon = now + timedelta(seconds=boot_seconds)
    found: tuple[SizeSchedule | None, int] = (None, spec.min_replicas)
    for period in _periods(spec):
        begun = CronSchedule(period.schedule, period.time_zone).last_before(soon + timedelta(seconds=1))
        if begun is not None and now < begun + timedelta(seconds=period.duration_seconds):
            found = max(found, (period, period.min_replicas), key=lambda each: each[1])
    return found


def _periods(spec: Autoscaling) -> list[SizeSchedule]:
    """The schedules, without those that are not valid."""
    return [each for each in spec.schedules if is_valid(each.schedule, each.time_zone)]


def _most(spec: Autoscaling, decided: Decision) -> Decision:
    most = spec.max_replicas
    if decided.replicas <= most:
        return decided
    return replace(decided, replicas=most, reason=Reason.MAX_REPLICAS, message=_but(decided, "maxReplicas", most))


def _ceiling(spec: Autoscaling, demand: Demand, now: datetime, decided: Decision) -> Decision:
    """Reserves the hours of `minReplicas` for the rest of the day, and limits what exceeds them."""
    hours = spec.max_idle_vm_hours_per_day
    if hours is None or decided.replicas <= spec.min_replicas:
        return decided
    time = now.timestamp()
    left = (DAY - time % DAY) / HOUR
    used = demand.history.idle_hours(time)
    if used + spec.min_replicas * left < hours:
        return decided
    message = f"{decided.message}; VMs waited {used:.1f} hours today, maxIdleVMHoursPerDay is {hours}"
    return replace(decided, replicas=spec.min_replicas, reason=Reason.IDLE_CEILING, message=message)


def _delayed(spec: Autoscaling, demand: Demand, now: datetime, decided: Decision) -> Decision:
    """The highest number of the last `scaleDownDelaySeconds`."""
    delay = timedelta(seconds=spec.scale_down_delay_seconds)
    recent = [each for each in demand.recommendations if each.at + delay > now and each.replicas <= spec.max_replicas]
    highest = max(recent, key=lambda each: (each.replicas, each.at), default=None)
    if highest is None or highest.replicas <= decided.replicas:
        return decided
    message = (
        f"{decided.message}; {count_noun(highest.replicas, 'VM', 'was', 'were')} needed until {highest.at:%H:%M:%S} UTC"
    )
    return replace(decided, replicas=highest.replicas, reason=Reason.SCALE_DOWN_DELAYED, message=message)


def _next_change(
    spec: Autoscaling, demand: Demand, now: datetime, needed: Decision, decided: Decision
) -> Change | None:
    """The first change of the size that is known, if the demand stays the same."""
    if decided.reason == Reason.IDLE_CEILING:
        tomorrow = datetime.fromtimestamp((now.timestamp() // DAY + 1) * DAY, UTC)
        after = _bounded(spec, demand, tomorrow, needed)
        return Change(tomorrow, after.replicas, after.reason) if after.replicas != decided.replicas else None
    delay = timedelta(seconds=spec.scale_down_delay_seconds)
    held = [(each.at + delay, each.replicas) for each in demand.recommendations if each.replicas <= spec.max_replicas]
    moments = {until for until, _ in held}
    for moment in _schedule_moments(spec, demand, now, needed, decided):
        moments |= {moment, moment + delay}
    before = decided.wanted
    for moment in sorted(each for each in moments if each > now):
        after = _bounded(spec, demand, moment, needed)
        held.append((moment + delay, before))
        before = after.replicas
        replicas = max([after.replicas, *(size for until, size in held if until > moment)])
        if replicas != decided.replicas:
            reason = after.reason if replicas == after.replicas else Reason.SCALE_DOWN_DELAYED
            return Change(moment, replicas, reason)
    return None


def _schedule_moments(
    spec: Autoscaling, demand: Demand, now: datetime, needed: Decision, decided: Decision
) -> Iterator[datetime]:
    """When the next period begins to count of each schedule that makes the pool larger, and when the one that counts
    ends."""
    boot = timedelta(seconds=demand.history.boot_seconds or 0.0)
    for period in _periods(spec):
        cron = CronSchedule(period.schedule, period.time_zone)
        begins = cron.next_after(now + boot) if period.min_replicas > decided.replicas else None
        if begins is not None:
            yield begins - boot
        begun = cron.last_before(now + boot + timedelta(seconds=1)) if period.min_replicas > needed.replicas else None
        if begun is not None:
            yield begun + timedelta(seconds=period.duration_seconds)


def _but(decided: Decision, what: str, limit: int) -> str:
    return f"{decided.message}; {what} is {limit}"


def remember(
    recommendations: Iterable[Recommendation], decided: Decision, spec: Autoscaling, now: datetime
) -> tuple[Recommendation, ...]:
    """The recommendations with this decision, without those that can no longer be the highest one."""
    oldest = now - timedelta(seconds=spec.scale_down_delay_seconds)
    past = (replace(each, at=min(each.at, now)) for each in recommendations)  # a clock may have been set back
    kept = (each for each in past if each.at > oldest and each.replicas > decided.wanted)
    return (*kept, Recommendation(now, decided.wanted))
