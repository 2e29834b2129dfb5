"""Whether EC2 is on, and what is said of settings that can't be."""

from __future__ import annotations

import pytest

from controllers.warmpool.ec2.settings import EC2Settings, read_settings


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        pytest.param({}, None, id="off by default"),
        pytest.param({"REGION": ""}, None, id="an empty region is none"),
        pytest.param({"REGION": "us-west-2"}, EC2Settings("us-west-2"), id="a region is enough"),
        pytest.param(
            {"REGION": "us-gov-east-1", "ENDPOINT": "http://127.0.0.1:5000", "SUBNET": "s", "PERIOD_SECONDS": "0.5"},
            EC2Settings("us-gov-east-1", "http://127.0.0.1:5000", "s", 0.5),
            id="everything",
        ),
    ],
)
def test_settings_are_read(environment: dict[str, str], found: EC2Settings | None) -> None:
    assert read_settings({f"POOLHOUSE_EC2_{key}": value for key, value in environment.items()}) == found


@pytest.mark.parametrize(
    ("environment", "blamed"),
    [
        pytest.param({"SUBNET": "s"}, "SUBNET", id="a subnet of no region"),
        pytest.param({"ENDPOINT": "http://x"}, "ENDPOINT", id="an endpoint of no region"),
        pytest.param({"REGION": "Oregon"}, "REGION", id="a region's name"),
        pytest.param({"REGION": "us-west-2", "ENDPOINT": "127.0.0.1:5000"}, "ENDPOINT", id="an address without scheme"),
        pytest.param({"REGION": "us-west-2", "PERIOD_SECONDS": "0"}, "PERIOD_SECONDS", id="no pause at all"),
        pytest.param({"REGION": "us-west-2", "PERIOD_SECONDS": "5s"}, "PERIOD_SECONDS", id="a number with a unit"),
    ],
)
def test_what_cannot_be_ends_the_process_with_the_variables_name(environment: dict[str, str], blamed: str) -> None:
    with pytest.raises(ValueError, match=f"POOLHOUSE_EC2_{blamed}: "):
        read_settings({f"POOLHOUSE_EC2_{key}": value for key, value in environment.items()})
