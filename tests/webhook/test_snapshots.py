"""Warnings of admission about pools that take snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.errors import NotFound, Unreachable
from tests.builders import manifest
from tests.webhook.builders import request
from webhook.snapshots import SnapshotSupport, describe_support

OLD = ClusterSettings(versions=("v1.5.3",), feature_gates=frozenset({"Snapshot"}))
CURRENT = ClusterSettings(versions=("v1.9.0",))


@pytest.mark.parametrize(
    ("served", "settings", "expected"),
    [
        pytest.param(True, CURRENT, "", id="nothing to say"),
        pytest.param(True, None, "", id="a KubeVirt that is not known"),
        pytest.param(False, CURRENT, "the cluster does not serve virtualmachinesnapshots", id="not served"),
        pytest.param(
            True,
            ClusterSettings(versions=("v1.8.4",)),
            "KubeVirt's feature gate Snapshot is off",
            id="the gate is off before 1.9",
        ),
        pytest.param(
            True,
            ClusterSettings(versions=("v1.9.0",), disabled_feature_gates=frozenset({"Snapshot"})),
            "KubeVirt's feature gate Snapshot is off",
            id="the gate is switched off",
        ),
        pytest.param(True, OLD, "`rollout undo --restore-snapshots` needs KubeVirt 1.6", id="no restore in place"),
    ],
)
def test_support(served: bool, settings: ClusterSettings | None, expected: str) -> None:
    found = describe_support(served, settings)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


class ApiServer:
    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    async def request(self, method: str, path: str) -> Any:
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def pool(taking: bool) -> dict[str, Any]:
    return manifest(POOLS, "web", {"updateStrategy": {"proactive": {"snapshotBeforeUpdate": taking}}})


SERVED = {"resources": [{"name": "virtualmachinesnapshots"}]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(SERVED, "", id="served"),
        pytest.param(NotFound("no such group", status=404), "the cluster does not serve", id="no such group"),
        pytest.param({"resources": []}, "the cluster does not serve", id="another version of the group"),
        pytest.param(Unreachable("reset"), "cannot find out about snapshots: reset", id="no answer"),
    ],
)
async def test_a_pool_that_takes_snapshots(answer: Any, expected: str) -> None:
    check = SnapshotSupport(ApiServer(answer), lambda: CURRENT, budget_seconds=1)
    found = await check.handle(request(pool(True)))
    assert not found.problems
    assert [each for each in found.warnings if expected in each and each.startswith("spec.updateStrategy")] == list(
        found.warnings
    )
    assert bool(found.warnings) == bool(expected)


async def test_other_pools_cost_no_request() -> None:
    server = ApiServer(SERVED)
    check = SnapshotSupport(server, lambda: CURRENT, budget_seconds=1)
    await check.handle(request(pool(False)))
    assert server.asked == []
