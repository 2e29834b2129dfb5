"""The spec of KubeVirt's policy that enforces one of ours."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations
from poolhouse.api.migrationpolicies.upstream import upstream_spec


@pytest.mark.parametrize(
    ("given", "written"),
    [
        *[pytest.param(each, "1", id=f"{each}: less than a byte") for each in ("100m", "1n", "999u", "0.5", "5e-1")],
        pytest.param("1500m", "2", id="a byte and a half"),
        pytest.param("1.5Ki", "1.5Ki", id="whole bytes"),
        pytest.param("217Ki", "217Ki", id="less than a MiB"),
        pytest.param("2000m", "2000m", id="whole bytes in thousandths"),
        pytest.param("0", "0", id="no limit"),
        pytest.param(5, 5, id="a number"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_a_fraction_of_a_byte_is_never_no_limit(given: Any, written: Any) -> None:
    found = upstream_spec("p", {"bandwidthPerMigration": given}, ClusterMigrations())
    assert found.get("bandwidthPerMigration") == written
