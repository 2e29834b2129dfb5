"""Settings of EC2, and messages about invalid ones."""

from __future__ import annotations

import pytest

from controllers.warmpool.ec2.settings import EC2Settings, read_ec2_settings


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        pytest.param({}, None, id="disabled by default", marks=pytest.mark.sentence("5.40")),
        pytest.param({"REGION": ""}, None, id="an empty region disables EC2"),
        pytest.param({"REGION": "us-west-2"}, EC2Settings(region="us-west-2"), id="only a region"),
        pytest.param(
            {"REGION": "us-gov-east-1", "ENDPOINT": "http://127.0.0.1:5000", "SUBNET": "s", "PERIOD_SECONDS": "0.5"},
            EC2Settings(region="us-gov-east-1", endpoint="http://127.0.0.1:5000", subnet="s", period_seconds=0.5),
            id="everything",
        ),
    ],
)
def test_read_settings(environment: dict[str, str], found: EC2Settings | None) -> None:
    assert read_ec2_settings({f"POOLHOUSE_EC2_{key}": value for key, value in environment.items()}) == found


@pytest.mark.parametrize(
    ("environment", "blamed"),
    [
        pytest.param({"SUBNET": "s"}, "SUBNET", id="a subnet without region"),
        pytest.param({"ENDPOINT": "http://x"}, "ENDPOINT", id="an endpoint without region"),
        pytest.param({"REGION": "Oregon"}, "REGION", id="the name of a region"),
        pytest.param({"REGION": "us-west-2", "ENDPOINT": "127.0.0.1:5000"}, "ENDPOINT", id="an address without scheme"),
        pytest.param({"REGION": "us-west-2", "PERIOD_SECONDS": "0"}, "PERIOD_SECONDS", id="no pause at all"),
        pytest.param({"REGION": "us-west-2", "PERIOD_SECONDS": "5s"}, "PERIOD_SECONDS", id="a number with a unit"),
    ],
)
@pytest.mark.sentence("5.61")
def test_invalid_settings_name_the_variable(environment: dict[str, str], blamed: str) -> None:
    with pytest.raises(ValueError, match=f"POOLHOUSE_EC2_{blamed}: "):
        read_ec2_settings({f"POOLHOUSE_EC2_{key}": value for key, value in environment.items()})
