"""The parameters of RunInstances, from the pool's `spec.ec2` with the overrides of a claim."""

import base64
import json
from typing import Any

from controllers.warmpool.ec2.settings import SUBNET, EC2Settings
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.ec2 import DEFAULT_INSTANCE_TYPE, MAX_USER_DATA
from poolhouse.runtime.errors import Invalid

DEDICATED_HOST_TYPES = "mac"
"""prefix of instance types that run only on dedicated hosts"""


def launch_parameters(template: Json, subnet: str, settings: EC2Settings, user_data: str) -> Json:
    """`subnet` is the drawn placement. The settings have the subnet for pools that name none. The template has no field
    whose value is the default."""
    if subnet not in (template.get("subnets") or ()):
        subnet = settings.subnet
    if not subnet:
        raise Invalid(f"spec.ec2.subnets: Required value: give a subnet, or set {SUBNET} for the controllers")
    instance_type = str(template.get("instanceType") or DEFAULT_INSTANCE_TYPE)
    profile = str(template.get("iamInstanceProfile") or "")
    return _without_empty(
        {
            "ImageId": template.get("imageID"),
            "InstanceType": instance_type,
            "SubnetId": subnet,
            "KeyName": template.get("keyPair"),
            "SecurityGroupIds": list(template.get("securityGroups") or ()),
            "IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile} if profile else None,
            "Placement": _placement(template, instance_type),
            "MetadataOptions": _without_empty(
                {
                    "HttpTokens": at(template, "metadataOptions", "httpTokens"),
                    "HttpPutResponseHopLimit": at(template, "metadataOptions", "httpPutResponseHopLimit"),
                }
            ),
            "BlockDeviceMappings": [_block_device(device) for device in template.get("blockDevices") or ()],
            "UserData": user_data,
        }
    )


def plain_user_data(template: Json, download_url: str) -> str:
    """The user data before the encoding for RunInstances, or "". With `bootstrapAgent` or `initData` it is what a
    Virtual Kubelet passes: a JSON object, encoded as base64."""
    if text := str(template.get("userData") or ""):
        return _limited(text, "userData")
    agent = template.get("bootstrapAgent") or {}
    if not agent and not template.get("initData"):
        return ""
    document = {
        "vm-init-config": template.get("initData") or "",
        "bootstrap-agent-config": agent.get("initData") or "",
        "bootstrap-agent-download-url": download_url,
    }
    return _limited(base64.b64encode(json.dumps(document).encode()).decode(), "bootstrapAgent")


def _limited(text: str, field: str) -> str:
    if len(text.encode()) > MAX_USER_DATA:
        raise Invalid(
            f"spec.ec2.{field}: Too long: the user data has {len(text.encode())} bytes, and EC2 takes {MAX_USER_DATA};"
            " let the instance download a part of it"
        )
    return text


def _placement(template: Json, instance_type: str) -> Json:
    host = instance_type.startswith(DEDICATED_HOST_TYPES) or at(template, "placement", "hostID")
    return _without_empty(
        {
            "Tenancy": at(template, "placement", "tenancy") or ("host" if host else None),
            "HostId": at(template, "placement", "hostID"),
            "HostResourceGroupArn": at(template, "placement", "hostResourceGroupARN"),
        }
    )


def _block_device(device: Json) -> Json:
    fields = {
        "VolumeSize": "sizeGiB",
        "VolumeType": "type",
        "Iops": "iops",
        "Throughput": "throughput",
        "Encrypted": "encrypted",
        "KmsKeyId": "kmsKeyID",
        "SnapshotId": "snapshotID",
        "DeleteOnTermination": "deleteOnTermination",
    }
    volume: dict[str, Any] = {aws: device[ours] for aws, ours in fields.items() if device.get(ours) is not None}
    return {"DeviceName": device.get("deviceName"), "Ebs": {"DeleteOnTermination": True, **volume}}


def _without_empty(parameters: Json) -> Json:
    """Without empty values, which EC2 refuses."""
    return {key: value for key, value in parameters.items() if value not in (None, "", [], {})}
