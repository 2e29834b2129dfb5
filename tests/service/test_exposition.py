"""The page of metrics: rendered once for all who ask, in a thread, as the Prometheus client would render it."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from poolhouse.service.exposition import PAGE_SECONDS, REST, Exposition, render


class Collector:
    """Counts its renderings, and waits in each until the test lets it end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.renderings, self.may_end, self.threads = 0, threading.Event(), set[int]()
        self.fails = False
        self.may_end.set()
        registry.register(self)
        self.renderings = 0

    def collect(self) -> Iterator[Metric]:
        self.renderings += 1
        self.threads.add(threading.get_ident())
        self.may_end.wait(10)
        if self.fails:
            raise RuntimeError("no metrics")
        yield GaugeMetricFamily("number", "Of renderings.", value=self.renderings)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_all_who_ask_within_a_second_get_one_page() -> None:
    registry, time = CollectorRegistry(), Time()
    collector, exposition = Collector(registry), Exposition(registry, time)
    pages = await asyncio.gather(*(exposition.page() for _ in range(24)))
    time.now += PAGE_SECONDS - 0.01
    pages.append(await exposition.page())
    assert (collector.renderings, {each.text for each in pages}) == (1, {pages[0].text})
    assert b"\nnumber 1.0\n" in pages[0].text
    assert gzip.decompress(pages[0].compressed) == pages[0].text
    time.now += 0.02
    assert b"\nnumber 2.0\n" in (await exposition.page()).text


async def test_the_event_loop_goes_on_while_a_page_is_rendered() -> None:
    registry = CollectorRegistry()
    collector, exposition = Collector(registry), Exposition(registry)
    collector.may_end.clear()
    task = asyncio.create_task(exposition.page())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    collector.may_end.set()
    await task
    assert threading.get_ident() not in collector.threads


async def test_a_page_that_took_long_is_kept_for_longer() -> None:
    registry, time = CollectorRegistry(), Time()

    class Slow:
        def collect(self) -> Iterator[Metric]:
            time.now += 3
            return iter(())

    registry.register(Slow())
    exposition = Exposition(registry, time)
    page = await exposition.page()
    assert page.until == time.now + 3 * REST


async def test_a_caller_that_leaves_does_not_end_the_rendering_of_others() -> None:
    registry = CollectorRegistry()
    collector, exposition = Collector(registry), Exposition(registry)
    collector.may_end.clear()
    leaving, staying = asyncio.create_task(exposition.page()), asyncio.create_task(exposition.page())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    collector.may_end.set()
    assert b"number 1.0" in (await staying).text


async def test_a_rendering_that_fails_is_an_error_of_its_callers_only() -> None:
    registry, time = CollectorRegistry(), Time()
    collector, exposition = Collector(registry), Exposition(registry, time)
    collector.fails = True
    with pytest.raises(RuntimeError):
        await exposition.page()
    collector.fails = False
    assert b"number 2.0" in (await exposition.page()).text


def test_the_text_is_that_of_the_client() -> None:
    registry = CollectorRegistry()
    Gauge("plain", "A gauge\nwith \\ lines.", registry=registry).set(1e9)
    labelled = Gauge("labelled", "With labels.", ("b", "a"), registry=registry)
    for text in ('a"quote', "a\\backslash", "a\nline", "ä"):
        labelled.labels(b=text, a="1").set(0.1)
    labelled.labels(b="nan", a="").set(float("nan"))
    labelled.labels(b="inf", a="").set(float("-inf"))
    Counter("done", "Counted.", registry=registry).inc(3)
    Summary("sizes", "A summary.", registry=registry).observe(2)
    Histogram("seconds", "A histogram.", ("of",), registry=registry).labels("x").observe(0.3)
    Info("build", "An info.", registry=registry).info({"version": "1"})
    Enum("state", "A state.", states=["on", "off"], registry=registry).state("off")

    def families(text: bytes) -> set[str]:
        lines = [line for line in text.decode().splitlines() if "_created" not in line]
        return {",".join(sorted(line.replace("{", ",").replace("}", ",").split(","))) for line in lines}

    found = b"".join(render(registry))
    expected = families(generate_latest(registry))
    assert {line.replace("1e+09", "1000000000.0") for line in expected} == families(found)


def test_other_threads_run_after_each_piece() -> None:
    registry, pieces = CollectorRegistry(), []
    gauge = Gauge("many", "Many.", ("number",), registry=registry)
    for number in range(5000):
        gauge.labels(str(number)).set(number)
    text = b"".join(render(registry, lambda: pieces.append(1)))
    assert text.count(b"\n") == 5002
    assert len(pieces) >= 9
