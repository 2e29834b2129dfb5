"""Measures the checks of updates: sends queries to Prometheus and looks at Jobs.

The pool controller adds a pool's key to the queue when a check is due. The queue has its own workers, so that a slow
Prometheus delays no pool.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from controllers.pool.analysis import Measurement, checks_of, judge, seconds_until_due
from controllers.pool.prometheus import Prometheus, PrometheusError
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.sources import JOBS
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json, entries
from poolhouse.api.kinds.pool_analysis import AnalysisCheck, CheckResult
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import Key

NO_PROMETHEUS = "the operator of Poolhouse has set no Prometheus (controllers.analysis.prometheus.url of the chart)"


@dataclass
class Measurer:
    api: Api
    prometheus: Prometheus | None
    observe: Callable[[Key], PoolSnapshot | None]
    report: Callable[[PoolSnapshot, Measurement], None]
    now: Callable[[], datetime]

    async def measure(self, key: Key) -> float | None:
        """Measures the checks that are due, and reports the results. A check that is not due is measured later."""
        snapshot = self.observe(key)
        for check in checks_of(snapshot) if snapshot is not None else ():
            assert snapshot is not None
            if seconds_until_due(snapshot, check, self.now()) == 0:
                job = next((each.job for each in snapshot.progress.checks if each.name == check.name), "")
                result, message = await self._measure(snapshot, check, job)
                time = format_time(self.now())
                self.report(snapshot, Measurement(snapshot.revision.name, check.name, result, message, time, job))
        return None

    async def _measure(self, snapshot: PoolSnapshot, check: AnalysisCheck, job: str) -> tuple[CheckResult, str]:
        if check.prometheus is None:
            return await self._look_at_job(snapshot, job)
        if self.prometheus is None:
            return "Error", NO_PROMETHEUS
        try:
            value = await self.prometheus.query(check.prometheus.query, snapshot.pool.namespace)
        except PrometheusError as error:
            return "Error", str(error)
        return judge(check.prometheus, value)

    async def _look_at_job(self, snapshot: PoolSnapshot, name: str) -> tuple[CheckResult, str]:
        try:
            job = await self.api.get(JOBS, snapshot.pool.namespace, name)
        except NotFound:
            return "Error", f"Job {name} was deleted"
        except ApiError as error:
            return "Running", f"Job {name} cannot be read: {error.message}"
        if (controller_of(job) or {}).get("uid") != snapshot.pool.uid:
            return "Failed", f"Job {name} is not the pool's"
        return result_of(job)


def result_of(job: Json) -> tuple[CheckResult, str]:
    """The result of a Job by its conditions."""
    name = job["metadata"]["name"]
    if "deletionTimestamp" in job["metadata"]:
        return "Error", f"Job {name} is being deleted"
    conditions = {
        each.get("type"): each for _, each in entries(job, "status", "conditions") if each["status"] == "True"
    }
    if "Complete" in conditions:
        return "Successful", f"Job {name} is complete"
    if failed := conditions.get("Failed"):
        return "Failed", f"Job {name} failed: {failed.get('reason')}: {failed.get('message')}"
    return "Running", f"Job {name} is running"
