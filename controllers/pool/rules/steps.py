"""The rule of an update's steps and times: it runs the Jobs of an analysis, and is asked again when a pause ends, at
the progress deadline, and when a maintenance window opens or closes."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action
from controllers.pool.analysis import jobs_to_run, seconds_until_overdue
from controllers.pool.progress import count_outdated, seconds_until_deadline, seconds_until_stalled
from controllers.pool.rules.rule import Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.update_limit import update_limit
from controllers.pool.windows import seconds_until_window_if


def _run_jobs(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    yield from jobs_to_run(snapshot, update_limit(snapshot, now).progress)


def _seconds_until_promotion(snapshot: PoolSnapshot, now: datetime) -> float | None:
    return update_limit(snapshot, now).again_seconds


STEPS = Rule(
    steps=(_run_jobs,),
    again=(
        seconds_until_overdue,
        _seconds_until_promotion,
        seconds_until_deadline,
        seconds_until_stalled,
        seconds_until_window_if(count_outdated),
    ),
)
