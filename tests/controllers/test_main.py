"""Settings of the controllers."""

from __future__ import annotations

import pytest

from controllers.main import Settings


@pytest.mark.parametrize(
    ("environment", "burst"),
    [pytest.param({}, 250, id="the default"), pytest.param({"POOLHOUSE_BURST": "10"}, 10, id="a setting")],
)
@pytest.mark.sentence("1.45")
def test_the_burst_is_a_setting(environment: dict[str, str], burst: int) -> None:
    assert Settings.read(environment).burst == burst
