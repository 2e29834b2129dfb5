"""Kept disks that no pool is there for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.orphans import OrphanedDisks, orphans
from controllers.pool.retained_disks import RetainedDisk


def pool(uid: str) -> Any:
    return cast(Any, SimpleNamespace(uid=uid))


def disk(name: str, kept_by: str, namespace: str = "a") -> RetainedDisk:
    return RetainedDisk(namespace, name, kept_by, "web-1")


@pytest.mark.parametrize(
    ("pools", "kept", "found"),
    [
        pytest.param([], [], {}, id="nothing at all"),
        pytest.param([pool("1")], [disk("d", "1")], {}, id="its pool may want it back"),
        pytest.param([pool("2")], [disk("d", "1")], {"a": 1}, id="a new pool of the same name is another"),
        pytest.param([], [disk("d", "1"), disk("e", "1"), disk("d", "1", "b")], {"a": 2, "b": 1}, id="by namespace"),
        pytest.param([], [disk("d", "")], {"a": 1}, id="nobody says whose it was"),
    ],
)
def test_orphans(pools: list[Any], kept: list[RetainedDisk], found: dict[str, int]) -> None:
    assert orphans(pools, kept) == found


def test_the_stores_are_asked_at_every_scrape() -> None:
    registry, kept = CollectorRegistry(), [disk("d", "1")]
    registry.register(OrphanedDisks([], kept))
    name, labels = "kubevirt_poolhouse_orphaned_disks", {"namespace": "a"}
    assert registry.get_sample_value(name, labels) == 1
    kept.clear()
    assert registry.get_sample_value(name, labels) is None
