"""The parameters of RunInstances."""

import base64
import json
from typing import Any

import pytest

from controllers.warmpool.ec2.launch import launch_parameters, plain_user_data
from controllers.warmpool.ec2.settings import EC2Settings
from poolhouse.runtime.errors import Invalid

SETTINGS = EC2Settings.read({"POOLHOUSE_EC2_REGION": "us-west-2", "POOLHOUSE_EC2_SUBNET": "subnet-m"})
PLAIN = {"imageID": "ami-1", "instanceType": "m5.large", "subnets": ["subnet-a"]}
MAC = {**PLAIN, "instanceType": "mac1.metal"}


def parameters(template: dict[str, Any], subnet: str = "subnet-a") -> dict[str, Any]:
    return launch_parameters(template, subnet, SETTINGS, "")


@pytest.mark.parametrize(
    ("template", "field", "expected"),
    [
        pytest.param(PLAIN, "SubnetId", "subnet-a", id="the drawn subnet", marks=pytest.mark.sentence("5.3")),
        pytest.param(
            {**PLAIN, "subnets": []},
            "SubnetId",
            "subnet-m",
            id="the subnet of the settings",
            marks=pytest.mark.sentence("5.53"),
        ),
        pytest.param(PLAIN, "Placement", None, id="no placement"),
        pytest.param(
            {"imageID": "ami-1"},
            "InstanceType",
            "mac1.metal",
            id="the default type",
            marks=pytest.mark.sentence("5.52"),
        ),
        pytest.param(MAC, "Placement", {"Tenancy": "host"}, id="a Mac is on a host"),
        pytest.param(
            {**MAC, "placement": {"hostID": "h-1"}}, "Placement", {"Tenancy": "host", "HostId": "h-1"}, id="one host"
        ),
        pytest.param(
            {**PLAIN, "placement": {"tenancy": "dedicated"}}, "Placement", {"Tenancy": "dedicated"}, id="dedicated"
        ),
        pytest.param(
            {**PLAIN, "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
            "MetadataOptions",
            {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            id="metadata service",
        ),
        pytest.param(
            {**PLAIN, "blockDevices": [{"deviceName": "/dev/sda1", "sizeGiB": 200, "type": "gp3", "encrypted": False}]},
            "BlockDeviceMappings",
            [
                {
                    "DeviceName": "/dev/sda1",
                    "Ebs": {"DeleteOnTermination": True, "VolumeSize": 200, "VolumeType": "gp3", "Encrypted": False},
                }
            ],
            id="a volume",
        ),
    ],
)
def test_parameters(template: dict[str, Any], field: str, expected: Any) -> None:
    assert parameters(template).get(field) == expected


def test_plain_user_data() -> None:
    assert plain_user_data(PLAIN, "") == ""
    assert plain_user_data({**PLAIN, "userData": "#!/bin/sh\n"}, "") == "#!/bin/sh\n"


def test_the_user_data_of_a_virtual_kubelet() -> None:
    """The names of the fields are those that the Virtual Kubelet's images read."""
    agent = {"s3Bucket": "agents", "s3Key": "agent-1", "initData": "YWdlbnQ="}
    text = plain_user_data({**PLAIN, "initData": "dm0=", "bootstrapAgent": agent}, "https://agents.example/agent-1?a&b")
    assert json.loads(base64.b64decode(text)) == {
        "vm-init-config": "dm0=",
        "bootstrap-agent-config": "YWdlbnQ=",
        "bootstrap-agent-download-url": "https://agents.example/agent-1?a&b",
    }


def test_user_data_has_a_limit() -> None:
    with pytest.raises(Invalid, match="the user data has 16386 bytes"):
        plain_user_data({**PLAIN, "userData": "é" * 8193}, "")


@pytest.mark.sentence("5.10")
def test_properties_that_a_pool_leaves_out_are_not_sent() -> None:
    """RunInstances has its own defaults for them."""
    assert parameters({"imageID": "ami-1", "instanceType": "m5.large"}) == {
        "ImageId": "ami-1",
        "InstanceType": "m5.large",
        "SubnetId": "subnet-m",
    }
