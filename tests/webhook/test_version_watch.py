"""The webhook warns of a defaulter that is newer than the nodes."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from defaulter.contract import DefaulterUnavailable, Node, Version
from webhook.metrics import Metrics
from webhook.version_watch import VersionWatch


@pytest.mark.sentence("4.38")
async def test_the_metric_and_the_log_say_what_is_newer(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, ())
    answers: list[Version | None] = []

    async def read() -> Version:
        if (answer := answers.pop(0)) is None:
            raise DefaulterUnavailable("no answer")
        return answer

    def shown() -> tuple[float | None, ...]:
        name = "kubevirt_poolhouse_admission_defaulter_newer_than_nodes"
        return tuple(registry.get_sample_value(name, {"component": each}) for each in ("libvirt", "qemu"))

    nodes = [Node("a", "amd64", frozenset({"pc-q35-9.2"}))]
    watch = VersionWatch(read, lambda: nodes, lambda: (1, 9), metrics.versions)
    newer = Version(poolhouse="1", libvirt="9.0.0", qemu={"amd64": "10.0.0"}, machines={"amd64": ("pc-q35-10.0",)})
    older = newer.model_copy(update={"machines": {"amd64": ("pc-q35-7.2",)}})
    assert shown() == (-1, -1)
    answers += [newer, newer, None, older]
    with caplog.at_level(logging.WARNING):
        await watch.check()
        assert shown() == (0, 1)
        await watch.check()
        assert [each.message for each in caplog.records] == [
            "the defaulter's QEMU is newer than that of the nodes: pc-q35-10.0, but node a has pc-q35-9.2 at most"
        ]
        await watch.check()
        assert shown() == (-1, -1)
        await watch.check()
        assert shown() == (0, 0)
