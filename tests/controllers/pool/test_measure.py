"""What a Job says about an update, and whose queries wait for whose. tests/cluster has Jobs and a Prometheus."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from controllers.pool.analysis import Measurement
from controllers.pool.measure import QUERIES, QUERIES_PER_NAMESPACE, Measurer, result_of
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.resource import Key
from tests.controllers.pool.builders import NOW, ago
from tests.controllers.pool.test_analysis import ERRORS, GOOD, errors, smoke, update

Json = dict[str, Any]


def job(*conditions: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": "j", **metadata}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("of", "result", "words"),
    [
        pytest.param({"metadata": {"name": "j"}}, "Running", "is running", id="a new Job"),
        pytest.param(job({"type": "Complete", "status": "True"}), "Successful", "is complete", id="complete"),
        pytest.param(job({"type": "Complete", "status": "False"}), "Running", "is running", id="not complete yet"),
        pytest.param(job({"type": "SuccessCriteriaMet", "status": "True"}), "Running", "", id="its Pods still end"),
        pytest.param(
            job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}),
            "Failed",
            "Job j failed: DeadlineExceeded: too long",
            id="failed",
        ),
        pytest.param(
            job({"type": "Complete", "status": "True"}, deletionTimestamp="2026-01-01T00:00:00Z"),
            "Error",
            "is being deleted",
            id="deleted",
        ),
    ],
)
def test_the_result_of_a_job(of: Json, result: str, words: str) -> None:
    found, message = result_of(of)
    assert found == result
    assert words in message


QUERY = {"checks": [{**ERRORS, "name": name} for name in ("errors", "latency")]}
DUE = update(analysis=QUERY, checks=[errors(undecidedSince=ago(60)), {"name": "latency", "undecidedSince": ago(60)}])


@dataclass
class SlowPrometheus:
    """Answers no query before the test says so. The queries in flight are counted by namespace."""

    in_flight: Counter[str] = field(default_factory=Counter)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def query(self, query: str, namespace: str) -> float:
        self.in_flight[namespace] += 1
        if namespace == "slow":
            await self.answers.wait()
        self.in_flight[namespace] -= 1
        return 0.0


@dataclass
class Pools:
    """Pools whose checks are due until they are measured."""

    prometheus: SlowPrometheus = field(default_factory=SlowPrometheus)
    pools: dict[Key, PoolSnapshot] = field(default_factory=dict)
    reported: list[tuple[Key, str, str]] = field(default_factory=list)
    time: datetime = NOW

    def add(self, namespace: str, name: str, of: PoolSnapshot = DUE) -> Key:
        key = (namespace, name)
        self.pools[key] = replace(of, pool=replace(of.pool, namespace=namespace, name=name))
        return key

    def report(self, snapshot: PoolSnapshot, found: Measurement) -> None:
        self.reported.append((snapshot.pool.key, found.check, found.result))
        known = snapshot.progress
        checks = (
            each.model_copy(update={"measured_at": found.time}) if each.name == found.check else each
            for each in self.pools[snapshot.pool.key].progress.checks
        )
        status = snapshot.pool.status.model_copy(update={"update": known.model_copy(update={"checks": tuple(checks)})})
        self.pools[snapshot.pool.key] = replace(snapshot, pool=replace(snapshot.pool, status=status))

    def measurer(self, api: Any = None) -> Measurer:
        prometheus = self.prometheus
        return Measurer(api, prometheus, self.pools.get, self.report, lambda: self.time)

    @asynccontextmanager
    async def measuring(self, *keys: Key) -> AsyncIterator[None]:
        """Measures these pools, with the queue of the controllers. The block begins when nothing more happens."""
        controller: Controller[Key] = Controller("test", self.measurer().measure, workers=None, deadline_seconds=None)
        task = asyncio.create_task(controller.run())
        for key in keys:
            controller.enqueue(key)
        await turns()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turns() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


async def test_slow_queries_of_one_namespace_delay_no_measurement_of_another() -> None:
    pools = Pools()
    slow = [pools.add("slow", f"web-{number}") for number in range(20)]
    async with pools.measuring(*slow, victim := pools.add("team-a", "web")):
        assert pools.prometheus.in_flight == {"slow": QUERIES_PER_NAMESPACE, "team-a": 0}
        assert pools.reported == [(victim, "errors", "Successful"), (victim, "latency", "Successful")]
        pools.prometheus.answers.set()
        await turns()
        assert len(pools.reported) == 2 * 21, "those that waited are measured too"


async def test_all_namespaces_together_send_a_few_queries_at_once() -> None:
    pools = Pools()
    keys = [pools.add("slow", "web"), *(pools.add(f"team-{number}", "web") for number in range(20))]
    measurer = pools.measurer()
    async with measurer.slots.slot("x"), measurer.slots.slot("y"), measurer.slots.slot("z"):
        assert QUERIES == 4
        tasks = [asyncio.create_task(measurer.measure(key)) for key in keys]
        await turns()
        assert pools.reported == [], "the only slot is that of a slow query"
    pools.prometheus.answers.set()
    await asyncio.gather(*tasks)
    assert len(pools.reported) == 2 * 21


async def test_a_query_is_not_sent_if_the_pool_does_not_need_it_any_more_after_the_wait() -> None:
    pools = Pools()
    key = pools.add("slow", "web")
    async with pools.measuring(*(pools.add("slow", f"other-{number}") for number in range(2)), key):
        pools.pools[key] = replace(DUE, pool=replace(DUE.pool, namespace="slow", name="web", deleting=True))
        pools.prometheus.answers.set()
        await turns()
        assert {name for (_, name), _, _ in pools.reported} == {"other-0", "other-1"}


async def test_the_time_of_a_measurement_is_that_of_its_answer() -> None:
    pools, found = Pools(), []
    key = pools.add("slow", "web")
    measurer = pools.measurer()
    measurer.report = lambda snapshot, measurement: found.append(measurement.time)
    task = asyncio.create_task(measurer.measure(key))
    await turns()
    pools.time += timedelta(seconds=500)
    pools.prometheus.answers.set()
    await task
    assert set(found) == {ago(-500)}


async def test_a_job_that_cannot_be_read_says_nothing_about_the_template() -> None:
    class Refusing:
        async def get(self, *_: Any) -> Json:
            raise Forbidden("no right")

    pools, found = Pools(), []
    key = pools.add("team-a", "web", update(done=1, since=9, checks=[GOOD, smoke(result="Running")]))
    measurer = pools.measurer(Refusing())
    measurer.report = lambda snapshot, measurement: found.append(measurement)
    await measurer.measure(key)
    assert [(each.result, each.answered) for each in found] == [("Running", False)]
