"""Measures the checks of updates: sends queries to Prometheus and looks at Jobs.

The pool controller adds a pool's key to the queue when a check is due. The queue has its own workers, so that a slow
Prometheus delays no pool. All queries share a few slots, fairly by namespace. No
deadline includes the wait for a slot: the query then measures the pool as it is after the wait.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from controllers.pool.analysis import Measurement, checks_of, judge, seconds_until_due
from controllers.pool.pools import InvalidPool
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.sources import JOBS
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json, entries
from poolhouse.api.kinds.pool_analysis import AnalysisCheck, CheckResult
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.runtime.resource import Key
from poolhouse.service.prometheus import Prometheus, PrometheusError

QUERIES = 4
"""Queries in flight, so that analyses do not load Prometheus"""
QUERIES_PER_NAMESPACE = 2
"""Fewer than all, so that a query that takes long delays none of a namespace that has none in flight."""
NO_PROMETHEUS = "the operator of Poolhouse has set no Prometheus (controllers.analysis.prometheus.url of the chart)"


@dataclass(frozen=True)
class _Due:
    snapshot: PoolSnapshot
    check: AnalysisCheck
    job: str
    """name of the Job; empty for a query"""


class _Result(NamedTuple):
    result: CheckResult
    message: str
    answered: bool = True
    """whether the Job could be read"""


@dataclass
class Measurer:
    api: Api
    prometheus: Prometheus | None
    observe: Callable[[Key], PoolSnapshot | InvalidPool | None]
    report: Callable[[PoolSnapshot, Measurement], None]
    now: Callable[[], datetime]
    slots: FairSlots[str] = field(default_factory=lambda: FairSlots(QUERIES, per_key=QUERIES_PER_NAMESPACE))

    async def measure(self, key: Key) -> float | None:
        """Measures the checks that are due, and reports the results. A check that is not due is measured later."""
        for name, due in self._due(key).items():
            asks = due.check.prometheus is not None and self.prometheus is not None
            async with self.slots.slot(key[0]) if asks else nullcontext():
                # The pool may have changed while this or an earlier check waited.
                if (still_due := self._due(key).get(name)) is not None:
                    await self._report(still_due)
        return None

    def _due(self, key: Key) -> dict[str, _Due]:
        """The checks that are due, by their names."""
        snapshot = self.observe(key)
        if not isinstance(snapshot, PoolSnapshot):
            return {}
        jobs = {each.name: each.job for each in snapshot.progress.checks}
        return {
            check.name: _Due(snapshot, check, jobs.get(check.name, ""))
            for check in checks_of(snapshot)
            if seconds_until_due(snapshot, check, self.now()) == 0
        }

    async def _report(self, due: _Due) -> None:
        revision, name = due.snapshot.revision.name, due.check.name
        found = await self._measure(due)
        time, answered = format_time(self.now()), found.answered
        self.report(due.snapshot, Measurement(revision, name, found.result, found.message, time, due.job, answered))

    async def _measure(self, due: _Due) -> _Result:
        namespace, check = due.snapshot.pool.namespace, due.check.prometheus
        if check is None:
            return await self._look_at_job(due.snapshot, due.job)
        if self.prometheus is None:
            return _Result("Error", NO_PROMETHEUS)
        try:
            value = await self.prometheus.query(check.query, namespace)
        except PrometheusError as error:
            return _Result("Error", str(error))
        return _Result(*judge(check, value))

    async def _look_at_job(self, snapshot: PoolSnapshot, name: str) -> _Result:
        try:
            job = await self.api.get(JOBS, snapshot.pool.namespace, name)
        except NotFound:
            return _Result("Error", f"Job {name} was deleted")
        except ApiError as error:
            return _Result("Running", f"Job {name} cannot be read: {error.message}", answered=False)
        if (controller_of(job) or {}).get("uid") != snapshot.pool.uid:
            return _Result("Failed", f"Job {name} is not the pool's")
        return _Result(*result_of(job))


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
