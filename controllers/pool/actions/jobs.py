"""Actions of analyses."""

from dataclasses import dataclass

from controllers.pool.actions.base import Action


@dataclass(frozen=True)
class RunJob(Action, past="created Job"):
    """Creates a Job of an analysis from a CronJob."""

    name: str
    check: str
    cron_job: str
    revision: str
    reason: str
