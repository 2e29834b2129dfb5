"""The queries of users, whom one Prometheus must answer although others' queries are slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from poolhouse.portal.queries import NO_ANSWER, QUERIES_PER_USER, Queries
from poolhouse.service.prometheus import PrometheusError
from tests.waiting import PATIENCE_SECONDS, eventually

POINTS = [(1.0, 2.0)]


@dataclass
class Slow:
    """A Prometheus that never answers queries about the namespace `slow`."""

    asked: list[tuple[str, str]] = field(default_factory=list)

    async def query_range(
        self, query: str, namespace: str, *, start: float, end: float, step_seconds: int
    ) -> Sequence[tuple[float, float]]:
        self.asked.append((query, namespace))
        if namespace == "slow":
            await asyncio.Event().wait()
        if namespace == "away":
            raise PrometheusError("Prometheus cannot be reached: prometheus.monitoring.svc:9090")
        return POINTS


def ask(queries: Queries, user: str, namespace: str) -> asyncio.Task[Sequence[tuple[float, float]]]:
    asking = queries.of(user).query_range("up", namespace, start=0, end=60, step_seconds=60)
    return asyncio.ensure_future(asking)


async def test_the_slow_queries_of_one_user_delay_no_other() -> None:
    server = Slow()
    queries = Queries(server, deadline_seconds=PATIENCE_SECONDS)
    waiting = [ask(queries, "ann", "slow") for _ in range(50)]
    await eventually(lambda: len(server.asked) == QUERIES_PER_USER)
    assert await ask(queries, "bob", "shop") == POINTS
    assert (queries.slots.held("ann"), queries.slots.waiting("ann")) == (QUERIES_PER_USER, 50 - QUERIES_PER_USER)
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert (queries.slots.held("ann"), queries.slots.waiting("ann")) == (0, 0)


@pytest.mark.parametrize(
    ("namespace", "reason"),
    [
        pytest.param("away", "cannot be reached: prometheus.monitoring.svc:9090", id="an error"),
        pytest.param("slow", "no slot and answer within 0.01 s", id="no answer"),
    ],
)
async def test_only_the_log_says_where_prometheus_is(
    namespace: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    queries = Queries(Slow(), deadline_seconds=0.01)
    with caplog.at_level(logging.WARNING), pytest.raises(PrometheusError) as error:
        await ask(queries, "ann", namespace)
    assert str(error.value) == NO_ANSWER
    assert reason in caplog.text
    assert f"in namespace {namespace} for ann" in caplog.text
