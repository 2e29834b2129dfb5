"""Warnings of admission about settings that this cluster's KubeVirt does not have."""

from __future__ import annotations

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.kinds.policies import policy
from tests.webhook.builders import request
from webhook.migration_settings import MigrationSettings

OLD, CURRENT = ClusterSettings(("v1.8.4",)), ClusterSettings(("v1.9.0",), frozenset({"MigrationStallDetection"}))
ASKED = policy("p", {"app": "web"}, maxDowntimeMs=500, allowWorkloadDisruption=True)


@pytest.mark.parametrize(
    ("cluster", "document", "paths"),
    [
        pytest.param(OLD, ASKED, ["spec.maxDowntimeMs"], id="an older KubeVirt"),
        pytest.param(CURRENT, ASKED, [], id="a KubeVirt that has all"),
        pytest.param(None, ASKED, [], id="a KubeVirt that is not known"),
        pytest.param(OLD, {**ASKED, "kind": "VirtualMachinePool"}, [], id="another kind"),
    ],
)
async def test_what_the_cluster_ignores(cluster: ClusterSettings | None, document, paths: list[str]) -> None:
    answer = await MigrationSettings(lambda: cluster).handle(request(document))
    assert not answer.problems
    assert [warning.partition(":")[0] for warning in answer.warnings] == paths
