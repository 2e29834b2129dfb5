"""The part of a warm pool that describes EC2 instances."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kinds.kind import ResourceType
from kinds.model import ATOMIC_LIST, Model, Tuple, expected

EC2_INSTANCES = ResourceType("poolhouse.dev", ("v1alpha1",), "ec2instances", "EC2Instance")
"""A virtual resource for RBAC. A user with the right to create it may start instances with an instance profile."""

Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"format": "int32"})]
PlacementName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        json_schema_extra=expected("at most 63 letters, digits, '-', '_' and '.': it is a label's value on each VM"),
    ),
]


class EC2(Model):
    """EC2 instances instead of VMs. The controllers need the setting of an AWS region."""

    hints: ClassVar[Mapping[str, str]] = {
        "KeyPair": "keyPair",
        "ImageID": "imageID",
        "imageId": "imageID",
        "ImageId": "imageID",
        "InstanceType": "instanceType",
        "Subnets": "subnets",
        "IamInstanceProfile": "iamInstanceProfile",
        "SecurityGroups": "securityGroups",
        "securityGroup": "securityGroups",
    }

    image_id: Annotated[str, Field(alias="imageID", min_length=1, max_length=255)]
    """AMI of the instances."""
    instance_type: Annotated[str, Field(min_length=1, max_length=64)] = "mac1.metal"
    """Type of the instances."""
    key_pair: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Key pair that grants login."""
    subnets: Annotated[Tuple[PlacementName], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """Subnets of the VPC. Each instance gets a random one. Defaults to the subnet in the controllers' settings."""
    iam_instance_profile: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """Name or ARN of the instance profile."""
    security_groups: Annotated[
        Tuple[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=16, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """IDs of the security groups. They must let the controllers reach `port`. Defaults to the VPC's default group."""
    port: Port | None = None
    """Port of the agent in the instance. Without a port, an instance is healthy as soon as EC2 reports it as running,
    and no application is launched in it."""
    protocol: Literal["TCP", "GRPC"] = "TCP"
    """Protocol of the agent. TCP: the instance is healthy when the agent accepts a connection. GRPC: it is healthy when
    the standard health service answers SERVING, and the agent launches and terminates a claim's application."""
    secure: bool = False
    """Whether the agent serves TLS, verified with the system's certificate authorities. GRPC only."""
