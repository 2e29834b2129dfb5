"""The part of a warm pool that describes EC2 instances."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import DOMAIN
from poolhouse.api.kinds.model import ATOMIC_LIST, Model, Rule, Tuple, has, list_map
from poolhouse.api.kinds.names import matching

DISPLAY_NAME = "Name"
STATE = "WarmPool"
POD = {"name": "KubernetesPodName", "namespace": "KubernetesPodNamespace", "uid": "KubernetesPodUUID"}
RESERVED_TAGS = frozenset({DISPLAY_NAME, STATE, *POD.values()})
"""Tags of an instance that only the controllers write, in addition to all tags of the project's domain."""

DEFAULT_INSTANCE_TYPE = "mac1.metal"
"""As in the design document of warm pools."""
MAX_USER_DATA = 16384
"""Limit of EC2 for the user data of an instance, in bytes before the encoding."""

Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"format": "int32"})]
PlacementName = Annotated[
    str,
    matching(
        "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        63,
        "at most 63 letters, digits, '-', '_' and '.': it is a label's value on each VM",
    ),
]


def is_reserved_tag(key: str) -> bool:
    """Whether the author of a pool cannot choose the tag, because the controllers or AWS set it."""
    return key in RESERVED_TAGS or key.startswith((f"{DOMAIN}/", "aws:"))


UserData = Annotated[str, Field(min_length=1, max_length=MAX_USER_DATA)]
KeyPair = Annotated[str, Field(min_length=1, max_length=255)]
InstanceProfile = Annotated[
    str,
    matching("^[-A-Za-z0-9+=,.@_:/]+$", 2048, "the name or the ARN of an instance profile"),
]
SecurityGroups = Annotated[
    Tuple[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=16, json_schema_extra=ATOMIC_LIST)
]


class BootstrapAgent(Model):
    """The agent that an instance downloads when it boots, as `BootstrapAgent` of a Virtual Kubelet's configuration."""

    hints: ClassVar[Mapping[str, str]] = {
        "S3Bucket": "s3Bucket",
        "S3Key": "s3Key",
        "InitData": "initData",
        "GRPCPort": "write it in spec.ec2.port",
    }

    s3_bucket: Annotated[
        str,
        matching(
            "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
            63,
            "the name of a bucket: lower case letters, digits, '-' and '.'",
            min_length=3,
        ),
    ]
    """Bucket with the agent. The controllers need the right `s3:GetObject` for the agent."""
    s3_key: Annotated[str, Field(min_length=1, max_length=1024)]
    """Key of the agent in the bucket."""
    init_data: UserData | None = None
    """Instructions that start the agent, as the image's init program expects them."""


class BlockDevice(Model):
    """A volume of an instance, instead of the AMI's volume of the same device or in addition."""

    device_name: Annotated[str, Field(min_length=1, max_length=64)]
    """Device of the volume, such as `/dev/sda1`."""
    size_gib: Annotated[int, Field(ge=1, le=65536, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, alias="sizeGiB"
    )
    """Size in GiB. Defaults to the size of the snapshot."""
    type: Literal["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"] | None = None
    """Type of the volume. Defaults to the AMI's."""
    iops: Annotated[int, Field(ge=100, le=256000, json_schema_extra={"format": "int32"})] | None = None
    """Input and output operations per second."""
    throughput: Annotated[int, Field(ge=125, le=2000, json_schema_extra={"format": "int32"})] | None = None
    """Throughput in MiB per second. gp3 only."""
    encrypted: bool | None = None
    """Whether the volume is encrypted. Defaults to the snapshot's and the account's setting."""
    kms_key_id: Annotated[str, Field(min_length=1, max_length=2048)] | None = Field(default=None, alias="kmsKeyID")
    """Key that encrypts the volume. Defaults to the account's key."""
    snapshot_id: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(default=None, alias="snapshotID")
    """Snapshot from which the volume is created. Defaults to the AMI's."""
    delete_on_termination: bool = True
    """Whether the volume is deleted with its instance."""


class MetadataOptions(Model):
    """Access to the instance metadata service."""

    http_tokens: Literal["required", "optional"] | None = None
    """Whether requests need a session token (IMDSv2). Defaults to the AMI's or the account's setting."""
    http_put_response_hop_limit: Annotated[int, Field(ge=1, le=64, json_schema_extra={"format": "int32"})] | None = None
    """Number of network hops that a token may travel. Containers need 2."""


class HostPlacement(Model):
    """Hardware that the instances run on."""

    tenancy: Literal["default", "dedicated", "host"] | None = None
    """Tenancy of the instances. Defaults to host for Macs, and to the VPC's setting otherwise."""
    host_id: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(default=None, alias="hostID")
    """Dedicated host. Defaults to any host with automatic placement."""
    host_resource_group_arn: Annotated[str, Field(min_length=1, max_length=2048)] | None = Field(
        default=None, alias="hostResourceGroupARN"
    )
    """Host resource group in which the instances are launched."""


def _user_data_is_given_once(value: Json) -> bool:
    return not has(value, "userData") or not (has(value, "bootstrapAgent") or has(value, "initData"))


class EC2(Model):
    """EC2 instances instead of VMs. The controllers need the setting of an AWS region."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.userData) || !(has(self.bootstrapAgent) || has(self.initData))",
            message="cannot be combined with bootstrapAgent and initData, which make the user data; keep one",
            holds=_user_data_is_given_once,
            field=".userData",
        ),
    )

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
        "UserData": "userData",
        "InitData": "initData",
        "BootstrapAgent": "bootstrapAgent",
        "blockDeviceMappings": "blockDevices",
        "BlockDeviceMappings": "blockDevices",
        "tenancy": "write it in spec.ec2.placement.tenancy",
        "hostID": "write it in spec.ec2.placement.hostID",
    }

    image_id: Annotated[str, Field(alias="imageID", min_length=1, max_length=255)]
    """AMI of the instances."""
    instance_type: Annotated[str, Field(min_length=1, max_length=64)] = DEFAULT_INSTANCE_TYPE
    """Type of the instances."""
    key_pair: KeyPair | None = None
    """Key pair that grants login."""
    subnets: Annotated[Tuple[PlacementName], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """Subnets of the VPC. Each instance gets a random one. Defaults to the subnet in the controllers' settings."""
    iam_instance_profile: InstanceProfile | None = None
    """Name or ARN of the instance profile."""
    security_groups: SecurityGroups = ()
    """IDs of the security groups. They must let the controllers reach `port`. Defaults to the VPC's default group."""
    user_data: UserData | None = None
    """User data of the instances, as text, such as a script or a cloud-config. The controllers encode it."""
    init_data: UserData | None = None
    """`VMConfig.InitData` of a Virtual Kubelet: instructions for the image's init program, which downloads and starts
    the agent. The user data is then the JSON object of a Virtual Kubelet."""
    bootstrap_agent: BootstrapAgent | None = None
    """Agent that the instances download. The user data is then the JSON object of a Virtual Kubelet, with a URL that
    allows the download for an hour after the launch."""
    block_devices: Annotated[Tuple[BlockDevice], Field(max_length=40, json_schema_extra=list_map("deviceName"))] = ()
    """Volumes of the instances. Defaults to the AMI's."""
    metadata_options: MetadataOptions | None = None
    """Access to the instance metadata service."""
    placement: HostPlacement | None = None
    """Hardware that the instances run on."""
    tags: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=128)],
            Annotated[str, Field(max_length=256)],
        ],
        Field(max_length=20, default_factory=dict),
    ]
    """Tags that the instances get, in addition to those of Poolhouse."""
    port: Port | None = None
    """Port of the agent in the instance. Without a port, an instance is healthy as soon as EC2 reports it as running,
    and no application is launched in it."""
    protocol: Literal["TCP", "GRPC"] = "TCP"
    """Protocol of the agent. TCP: the instance is healthy when the agent accepts a connection. GRPC: it is healthy when
    the standard health service answers SERVING, and the agent launches and terminates a claim's application."""
    secure: bool = False
    """Whether the agent serves TLS, verified with the system's certificate authorities. GRPC only."""
