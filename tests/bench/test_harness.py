"""Writes of a service are counted in its metrics, in whatever order the labels are."""

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from poolhouse.runtime.metrics import Metrics
from poolhouse.service.exposition import render
from tests.bench.harness import writes_in


@pytest.mark.parametrize("rendered", [lambda registry: b"".join(render(registry)), generate_latest])
def test_successful_writes_are_counted_without_leases(rendered: Callable[[CollectorRegistry], bytes]) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for verb, resource, code in (
        ("create", "virtualmachines", "201"),
        ("create", "virtualmachines", "201"),
        ("create", "virtualmachines", "409"),
        ("patch", "virtualmachinepools", "200"),
        ("list", "virtualmachines", "200"),
        ("update", "leases", "200"),
    ):
        metrics.requests.labels(verb, resource, code).inc()
    counted = writes_in(rendered(registry).decode())
    assert counted == {("create", "virtualmachines"): 2, ("patch", "virtualmachinepools"): 1}
