"""Metrics of objects: at most some series of each namespace, and the sum of the others."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PlainHistogram

from controllers.shared.series import MAX_SERIES, OTHERS, Counter, Gauge, Histogram

LABELS = ("namespace", "vmpool")
REST = {"namespace": "big", "vmpool": OTHERS}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def test_a_namespace_has_a_limited_number_of_series_and_the_sum_of_the_others(registry: CollectorRegistry) -> None:
    gauge = Gauge("replicas", "Replicas.", LABELS, registry=registry)
    for number in range(MAX_SERIES + 10):
        gauge.labels("big", f"web-{number}").set(2)
    gauge.labels("small", "web").set(3)
    assert series(registry) == MAX_SERIES + 2
    assert registry.get_sample_value("replicas", REST) == 20
    assert registry.get_sample_value("replicas", {"namespace": "small", "vmpool": "web"}) == 3
    assert registry.get_sample_value("replicas", {"namespace": "big", "vmpool": "web-0"}) == 2
    assert registry.get_sample_value("replicas", {"namespace": "big", "vmpool": f"web-{MAX_SERIES}"}) is None
    gauge.labels("big", f"web-{MAX_SERIES}").set(7)
    assert registry.get_sample_value("replicas", REST) == 25
    for number in range(10):
        gauge.remove("big", f"web-{number}")
    assert registry.get_sample_value("replicas", REST) is None
    assert registry.get_sample_value("replicas", {"namespace": "big", "vmpool": f"web-{MAX_SERIES}"}) == 7
    gauge.clear()
    assert series(registry) == 0


def test_a_summed_counter_never_becomes_smaller(registry: CollectorRegistry) -> None:
    counter = Counter("starts_total", "Starts.", LABELS, registry=registry)
    for number in range(MAX_SERIES + 3):
        counter.labels("big", f"web-{number}").inc(10)
    assert registry.get_sample_value("starts_total", REST) == 30
    counter.remove("big", "web-0")
    assert registry.get_sample_value("starts_total", REST) == 30, "a smaller value would be a restart to Prometheus"
    for number in range(MAX_SERIES + 1, MAX_SERIES + 3):
        counter.labels("big", f"web-{number}").inc(20)
    assert registry.get_sample_value("starts_total", REST) == 60


def test_a_summed_histogram_never_becomes_smaller(registry: CollectorRegistry) -> None:
    histogram = Histogram("seconds", "Seconds.", LABELS, buckets=(1, 10), registry=registry)
    for number in range(MAX_SERIES + 2):
        histogram.labels("big", f"web-{number}").observe(5)
    assert registry.get_sample_value("seconds_count", REST) == 2
    assert registry.get_sample_value("seconds_bucket", REST | {"le": "1.0"}) == 0
    assert registry.get_sample_value("seconds_bucket", REST | {"le": "10.0"}) == 2
    assert registry.get_sample_value("seconds_sum", REST) == 10
    histogram.remove("big", "web-0")
    assert registry.get_sample_value("seconds_count", REST) == 2


def test_a_histogram_is_that_of_the_client(registry: CollectorRegistry) -> None:
    plain = CollectorRegistry()
    ours = Histogram("seconds", "Seconds.", LABELS, buckets=(0.5, 1, 10), registry=registry).labels("a", "b")
    theirs = PlainHistogram("seconds", "Seconds.", LABELS, buckets=(0.5, 1, 10), registry=plain).labels("a", "b")
    for each in (0, 0.5, 0.7, 1, 2, 11, 10):
        ours.observe(each)
        theirs.observe(each)

    def values(of: CollectorRegistry) -> dict[tuple[str, str], float]:
        samples = [sample for family in of.collect() for sample in family.samples]
        return {(each.name, each.labels.get("le", "")): each.value for each in samples if "_created" not in each.name}

    assert values(registry) == values(plain)


def test_values_that_are_never_removed_are_not_kept_above_the_limit(registry: CollectorRegistry) -> None:
    counter = Counter("claims_total", "Claims.", LABELS, registry=registry, lasting=True)
    for number in range(MAX_SERIES + 1000):
        counter.labels("big", f"unknown-{number}").inc()
    counter.labels("big", "unknown-0").inc()
    assert len(counter._values) == MAX_SERIES + 1
    assert registry.get_sample_value("claims_total", REST) == 1000
    assert registry.get_sample_value("claims_total", {"namespace": "big", "vmpool": "unknown-0"}) == 2


def test_a_counter_begins_with_0_and_a_gauge_with_its_value(registry: CollectorRegistry) -> None:
    Counter("starts_total", "Starts.", LABELS, registry=registry).labels("a", "b")
    Gauge("replicas", "Replicas.", LABELS, registry=registry).labels("a", "b")
    assert registry.get_sample_value("starts_total", {"namespace": "a", "vmpool": "b"}) == 0
    assert registry.get_sample_value("replicas", {"namespace": "a", "vmpool": "b"}) is None


def test_metrics_without_a_namespace_have_no_limit(registry: CollectorRegistry) -> None:
    gauge = Gauge("wins", "Wins.", ("policy",), registry=registry)
    for number in range(MAX_SERIES + 1):
        gauge.labels(f"policy-{number}").set(1)
    assert series(registry) == MAX_SERIES + 1


def test_removing_what_is_not_there_is_an_error(registry: CollectorRegistry) -> None:
    with pytest.raises(KeyError):
        Gauge("replicas", "Replicas.", LABELS, registry=registry).remove("a", "b")
