"""Describes the update of a pool to users: its steps, its partition, its analysis, and what rolls it back."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.selection import is_behind
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.update_limit import resolve, update_limit
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.pool_analysis import AnalysisCheck, PrometheusCheck
from poolhouse.api.kinds.pool_strategies import PauseStep, UpdateProactive, UpdateStep


def describe_update(snapshot: PoolSnapshot, now: datetime) -> Json | None:
    """The parts of a proactive update as texts, and the number of steps that are done. None if no VM is updated."""
    strategy, replicas = snapshot.pool.spec.update_strategy.chosen, snapshot.pool.spec.replicas
    if snapshot.aborted is not None:
        revision, abort = snapshot.aborted
        return {"aborted": f"the update to {revision.name} is aborted: {abort.message}"}
    if not isinstance(strategy, UpdateProactive) or not any(is_behind(snapshot, vm) for vm in snapshot.active):
        return None
    returns = snapshot.pool.status.current_revision == snapshot.revision.name
    steps = () if returns else strategy.all_steps
    progress = update_limit(snapshot, now).progress
    kept = resolve(strategy.partition, replicas) if strategy.partition is not None and not returns else 0
    return {
        "steps": [_step(step, replicas) for step in steps],
        "stepsDone": progress.steps_done if progress is not None else 0,
        "partition": kept,
        "analysis": [] if returns or strategy.analysis is None else [_check(each) for each in strategy.analysis.checks],
        "rollback": list(_triggers(snapshot, strategy)) if snapshot.stable_revision is not None else [],
        "deadlineSeconds": snapshot.pool.spec.progress_deadline_seconds,
    }


def _step(step: UpdateStep, replicas: int) -> str:
    if step.set_replicas is not None:
        return f"{count_noun(resolve(step.set_replicas, replicas), 'VM', 'gets', 'get')} the template"
    return _pause(step.pause) if step.pause is not None else "the analysis must be successful"


def _pause(pause: PauseStep) -> str:
    seconds = pause.duration_seconds
    return f"pause of {seconds} s" if seconds is not None else "pause until a user promotes the update"


def _check(check: AnalysisCheck) -> str:
    if check.job is not None:
        return f"{check.name}: a Job of CronJob {check.job.cron_job} completes"
    assert check.prometheus is not None
    times = f"{check.prometheus.count} times " if check.prometheus.count > 1 else ""
    return f"{check.name}: {times}{_condition(check.prometheus)}, measured every {check.prometheus.interval_seconds} s"


def _condition(check: PrometheusCheck) -> str:
    success, failure = check.success_condition, check.failure_condition
    both = [*([success] if success else []), *([f"not {failure}"] if failure else [])]
    return ", and ".join(both)


def _triggers(snapshot: PoolSnapshot, strategy: UpdateProactive) -> Iterator[str]:
    for check in strategy.analysis.checks if strategy.analysis is not None else ():
        limit = check.prometheus.failure_limit if check.prometheus is not None else 0
        yield f"check {check.name} fails" + (f" {limit + 1} times" if limit else "")
    if strategy.rollback is None:
        return
    if (threshold := strategy.rollback.failure_threshold) is not None:
        yield f"{count_noun(threshold, 'VM', 'fails', 'fail')} with the new template"
    yield f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s"
