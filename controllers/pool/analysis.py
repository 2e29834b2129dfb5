"""Analysis of an update: which checks are due, what their measurements mean, and when an analysis has ended.

Each measurement changes the state of its check in `status.update.checks`. From this state alone follow the decisions:
a check that fails too often aborts the update, a check whose last result is not successful stops it, and an analysis
ends when all checks are successful. A restart of the controllers therefore repeats no measurement.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.pool.actions import RunJob
from controllers.pool.counts import count_vms
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.api.apimachinery.timestamps import format_time, parse_time, seconds_until_next
from poolhouse.api.kinds.pool import UpdateProgress
from poolhouse.api.kinds.pool_analysis import (
    Analysis,
    AnalysisCheck,
    CheckResult,
    CheckStatus,
    PrometheusCheck,
    parse_condition,
)
from poolhouse.api.kinds.pool_strategies import UpdateProactive

MAX_MESSAGE = 300
JOB_SECONDS = 5.0
"""Seconds between two looks at a Job."""


@dataclass(frozen=True)
class Measurement:
    """The result of a check at a time."""

    revision: str
    """name of the revision that was measured"""
    check: str
    result: CheckResult
    message: str
    time: str
    job: str = ""
    """name of the Job; empty for a query"""
    answered: bool = True
    """False if the Job could not be read. It may have ended."""


def judge(check: PrometheusCheck, value: float | None) -> tuple[CheckResult, str]:
    """The result of a query, and a message. A query without a result, or with NaN, is inconclusive."""
    if value is None or math.isnan(value):
        return "Inconclusive", "the query has no result" if value is None else "result is NaN"
    success = check.success_condition is not None and parse_condition(check.success_condition).holds(value)
    failed = check.failure_condition is not None and parse_condition(check.failure_condition).holds(value)
    if failed:
        return "Failed", f"result is {value:g}, failureCondition is {check.failure_condition}"
    if success or check.success_condition is None:
        return "Successful", f"result is {value:g}"
    message = f"result is {value:g}, successCondition is {check.success_condition}"
    return ("Failed" if check.failure_condition is None else "Inconclusive"), message


def checks_of(snapshot: PoolSnapshot) -> tuple[AnalysisCheck, ...]:
    """The checks while an update is analysed; otherwise none."""
    pool, strategy = snapshot.pool, snapshot.pool.spec.update_strategy.chosen
    if not isinstance(strategy, UpdateProactive) or strategy.analysis is None or snapshot.aborted is not None:
        return ()
    known = pool.status.update is not None and pool.status.update.revision == snapshot.revision.name
    ended = snapshot.progress.steps_done >= len(strategy.all_steps)
    return () if pool.deleting or pool.spec.paused or ended or not known else strategy.analysis.checks


def with_measurements(update: UpdateProgress, measurements: Iterable[Measurement]) -> UpdateProgress:
    """The progress with the measurements of its revision. Measurements of an earlier Job do not count."""
    found = {each.name: each for each in update.checks}
    for each in measurements:
        known = found.get(each.check)
        if each.revision == update.revision and known is not None and known.job == each.job:
            found[each.check] = _measured(known, each)
    return update.model_copy(update={"checks": tuple(found.values())})


def _measured(status: CheckStatus, found: Measurement) -> CheckStatus:
    successful, answered = found.result == "Successful", found.answered and found.result != "Error"
    return status.model_copy(
        update={
            "result": found.result,
            "message": found.message[:MAX_MESSAGE],
            "measured_at": found.time,
            "successful": status.successful + successful,
            "failed": status.failed + (found.result == "Failed"),
            "undecided_since": None if successful else status.undecided_since or found.time,
            "unsuccessful_since": None if successful or not answered else status.unsuccessful_since or found.time,
        }
    )


def followed(snapshot: PoolSnapshot, analysis: Analysis | None, now: datetime) -> tuple[CheckStatus, ...]:
    """The states of all checks. Queries begin with the first available VM that has the new template. No deadline runs
    while the pool is paused."""
    if analysis is None:
        return ()
    known = {each.name: each for each in snapshot.progress.checks}
    begins = format_time(now) if count_vms(snapshot).new_and_available else None
    found = []
    for check in analysis.checks:
        status = known.get(check.name) or CheckStatus(name=check.name)
        if check.prometheus is not None and status.measured_at is None and status.undecided_since is None:
            status = status.model_copy(update={"undecided_since": begins})
        if snapshot.pool.spec.paused:
            status = status.model_copy(update={"undecided_since": None, "unsuccessful_since": None})
        found.append(status)
    return tuple(found)


def begun(checks: Iterable[CheckStatus], analysis: Analysis, now: datetime) -> tuple[CheckStatus, ...]:
    """The states at the beginning of an analysis, which counts its own measurements and has its own Jobs."""
    jobs = {check.name for check in analysis.checks if check.job is not None}
    fresh = {"successful": 0, "job": ""}
    unmeasured = {"result": None, "message": "", "measured_at": None, "unsuccessful_since": None}
    again = {**fresh, **unmeasured, "undecided_since": format_time(now)}
    return tuple(each.model_copy(update=again if each.name in jobs else fresh) for each in checks)


def has_passed(checks: Iterable[CheckStatus], analysis: Analysis) -> bool:
    known = {each.name: each.successful for each in checks}
    return all(known.get(check.name, 0) >= _count(check) for check in analysis.checks)


def describe(checks: Iterable[CheckStatus], analysis: Analysis) -> str:
    """The checks that an analysis waits for, such as `error-rate (1 of 3 successful: result is 0.01)`."""
    known = {each.name: each for each in checks}
    left = []
    for check in analysis.checks:
        status = known.get(check.name) or CheckStatus(name=check.name)
        if status.successful < _count(check):
            count = f"{status.successful} of {_count(check)} successful" if check.prometheus else "Job"
            what = status.message or (f"Job {status.job}" if status.job else "not measured yet")
            left.append(f"{check.name} ({count}: {what})" if check.prometheus else f"{check.name} ({what})")
    return ", ".join(left)


def _count(check: AnalysisCheck) -> int:
    return check.prometheus.count if check.prometheus is not None else 1


def _state(snapshot: PoolSnapshot, check: AnalysisCheck) -> CheckStatus:
    found = (each for each in snapshot.progress.checks if each.name == check.name)
    return next(found, CheckStatus(name=check.name))


def failure(snapshot: PoolSnapshot) -> str:
    """Why the analysis has failed, or ""."""
    for check in checks_of(snapshot):
        status, limit = _state(snapshot, check), check.prometheus.failure_limit if check.prometheus else 0
        if status.failed > limit:
            times = f"failed {status.failed} times, failureLimit is {limit}" if check.prometheus else "failed"
            return f"check {check.name} {times}: {status.message}"
    return ""


def obstacle(snapshot: PoolSnapshot) -> str:
    """Why no more VMs get the template: the last measurement of a query was not successful. Otherwise ""."""
    for check in checks_of(snapshot):
        status = _state(snapshot, check)
        if check.prometheus is not None and status.result not in (None, "Successful"):
            return f"check {check.name}: {status.result}: {status.message}"
    return ""


def overdue(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why a check exceeds the deadline: it was not successful for progressDeadlineSeconds. Otherwise ""."""
    for check in checks_of(snapshot):
        end = _deadline(snapshot, check)
        if end is not None and now >= end:
            seconds, status = snapshot.pool.spec.progress_deadline_seconds, _state(snapshot, check)
            return f"check {check.name} was not successful for {seconds} s: {status.message or 'it has no result'}"
    return ""


def unsuccessful(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why a check rolls the update back at the deadline: for progressDeadlineSeconds each measurement had an answer,
    and none was successful. Otherwise "". A measurement that is due may still be successful, so it is waited for."""
    for check in checks_of(snapshot):
        end = _end_of_patience(snapshot, check)
        if end is not None and now >= end and seconds_until_due(snapshot, check, now) != 0:
            seconds = snapshot.pool.spec.progress_deadline_seconds
            return f"check {check.name} was not successful for {seconds} s: {_state(snapshot, check).message}"
    return ""


def seconds_until_overdue(snapshot: PoolSnapshot, now: datetime) -> float | None:
    ends = (each(snapshot, check) for check in checks_of(snapshot) for each in (_deadline, _end_of_patience))
    return seconds_until_next(ends, now)


def _end_of_patience(snapshot: PoolSnapshot, check: AnalysisCheck) -> datetime | None:
    since = _state(snapshot, check).unsuccessful_since
    return _after(since, snapshot.pool.spec.progress_deadline_seconds)


def _deadline(snapshot: PoolSnapshot, check: AnalysisCheck) -> datetime | None:
    status = _state(snapshot, check)
    if status.undecided_since is None:
        return None
    delay = check.prometheus.initial_delay_seconds if check.prometheus and status.measured_at is None else 0
    seconds = delay + snapshot.pool.spec.progress_deadline_seconds
    return parse_time(status.undecided_since) + timedelta(seconds=seconds)


def seconds_until_due(snapshot: PoolSnapshot, check: AnalysisCheck, now: datetime) -> float | None:
    """Seconds until the next measurement of the check, at least 0. None if it is not measured now."""
    status = _state(snapshot, check)
    if check.job is not None:
        ended = status.result in ("Successful", "Failed", "Error")
        due = None if not status.job or ended else _after(status.measured_at, JOB_SECONDS) or now
    elif check.prometheus is not None and status.measured_at is None:
        due = _after(status.undecided_since, check.prometheus.initial_delay_seconds)
    else:
        assert check.prometheus is not None
        due = _after(status.measured_at, check.prometheus.interval_seconds)
    return None if due is None else max(0.0, (due - now).total_seconds())


def _after(time: str | None, seconds: float) -> datetime | None:
    return parse_time(time) + timedelta(seconds=seconds) if time is not None else None


def jobs_to_run(snapshot: PoolSnapshot, progress: UpdateProgress | None) -> Iterator[RunJob]:
    """Jobs of the present analysis that do not exist. `progress` is the new status.update."""
    strategy = snapshot.pool.spec.update_strategy.chosen
    if progress is None or progress.paused_since is None or not isinstance(strategy, UpdateProactive):
        return
    steps = strategy.all_steps
    if strategy.analysis is None or progress.steps_done >= len(steps) or steps[progress.steps_done].analysis is None:
        return
    known = {each.name: each for each in progress.checks}
    for check in strategy.analysis.checks:
        status = known.get(check.name)
        if check.job is not None and (status is None or not status.job or status.result == "Error"):
            name = job_name(snapshot.pool.name, check.name, f"{progress.revision} {progress.paused_since}")
            reason = f"check {check.name} of the update to {progress.revision}"
            yield RunJob(name, check.name, check.job.cron_job, progress.revision, reason)


def with_jobs(progress: UpdateProgress | None, jobs: Iterable[RunJob]) -> UpdateProgress | None:
    """The progress after these Jobs were created."""
    names = {each.check: each.name for each in jobs}
    if progress is None or not names:
        return progress
    changed = (
        each.model_copy(update={"job": names[each.name], "result": "Running", "measured_at": None})
        if each.name in names
        else each
        for each in progress.checks
    )
    return progress.model_copy(update={"checks": tuple(changed)})


def job_name(pool: str, check: str, analysis: str) -> str:
    """The name of a Job, which a repeated attempt to create it uses again. It has at most 63 characters."""
    digest = hashlib.sha256(f"{pool} {check} {analysis}".encode()).hexdigest()[:10]
    return f"{pool[:20].rstrip('-')}-{check}-{digest}"
