"""Warnings of admission about settings that this cluster's KubeVirt does not have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.kinds.policies import policy
from tests.webhook.builders import request
from webhook.migration_settings import MigrationSettings

Json = dict[str, Any]

OLD, CURRENT = ClusterSettings(("v1.8.4",)), ClusterSettings(("v1.9.0",), frozenset({"MigrationStallDetection"}))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def until(time: str) -> Json:
    return policy("p", {"app": "web"}, expiresAt=time)


ASKED = policy("p", {"app": "web"}, maxDowntimeMs=500, allowWorkloadDisruption=True)


@pytest.mark.parametrize(
    ("cluster", "document", "paths"),
    [
        pytest.param(OLD, ASKED, ["spec.maxDowntimeMs"], id="an older KubeVirt"),
        pytest.param(CURRENT, ASKED, [], id="a KubeVirt that has all"),
        pytest.param(None, ASKED, [], id="a KubeVirt that is not known"),
        pytest.param(None, until("2026-01-01T00:00:00Z"), ["spec.expiresAt"], id="a policy that has expired"),
        pytest.param(None, until("2026-01-01T00:00:01Z"), [], id="a policy that will expire"),
        pytest.param(OLD, {**ASKED, "kind": "VirtualMachinePool"}, [], id="another kind"),
    ],
)
async def test_what_the_cluster_ignores(cluster: ClusterSettings | None, document, paths: list[str]) -> None:
    answer = await MigrationSettings(lambda: cluster, lambda: NOW).handle(request(document))
    assert not answer.problems
    assert [warning.partition(":")[0] for warning in answer.warnings] == paths
