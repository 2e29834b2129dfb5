"""The messages of the autoscaler's service `CloudProvider`, as tables.

Names, numbers and types are those of `externalgrpc.proto` in cluster-autoscaler, from release 1.26 to 1.36. Prices, GPU
types, templates of nodes and options of groups are missing: the autoscaler takes UNIMPLEMENTED for an answer, and an
unknown field of an answer as unset.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from poolhouse.service.protobuf import Field, message_classes

PACKAGE = "clusterautoscaler.cloudprovider.v1.externalgrpc"
SERVICE = f"{PACKAGE}.CloudProvider"

TEXT, NUMBER = "TYPE_STRING", "TYPE_INT32"
ID: Field = ("id", 1, TEXT)
OF_GROUP: Field = ("id", 2, TEXT)

RUNNING, CREATING, DELETING = 1, 2, 3
"""values of `instanceState`, an enum that is a number on the wire"""

MESSAGES: dict[str, tuple[Field, ...]] = {
    "NodeGroup": (ID, ("minSize", 2, NUMBER), ("maxSize", 3, NUMBER), ("debug", 4, TEXT)),
    "ExternalGrpcNode": (("providerID", 1, TEXT), ("name", 2, TEXT)),
    "InstanceStatus": (("instanceState", 1, NUMBER),),
    "Instance": (ID, ("status", 2, "InstanceStatus")),
    "NodeGroupsRequest": (),
    "NodeGroupsResponse": (("nodeGroups", 1, "[]NodeGroup"),),
    "NodeGroupForNodeRequest": (("node", 1, "ExternalGrpcNode"),),
    "NodeGroupForNodeResponse": (("nodeGroup", 1, "NodeGroup"),),
    "GPULabelRequest": (),
    "GPULabelResponse": (("label", 1, TEXT),),
    "GetAvailableGPUTypesRequest": (),
    "GetAvailableGPUTypesResponse": (),
    "CleanupRequest": (),
    "CleanupResponse": (),
    "RefreshRequest": (),
    "RefreshResponse": (),
    "NodeGroupTargetSizeRequest": (ID,),
    "NodeGroupTargetSizeResponse": (("targetSize", 1, NUMBER),),
    "NodeGroupIncreaseSizeRequest": (("delta", 1, NUMBER), OF_GROUP),
    "NodeGroupIncreaseSizeResponse": (),
    "NodeGroupDeleteNodesRequest": (("nodes", 1, "[]ExternalGrpcNode"), OF_GROUP),
    "NodeGroupDeleteNodesResponse": (),
    "NodeGroupDecreaseTargetSizeRequest": (("delta", 1, NUMBER), OF_GROUP),
    "NodeGroupDecreaseTargetSizeResponse": (),
    "NodeGroupNodesRequest": (ID,),
    "NodeGroupNodesResponse": (("instances", 1, "[]Instance"),),
}
METHODS = tuple(name.removesuffix("Request") for name in MESSAGES if name.endswith("Request"))


@cache
def messages() -> dict[str, Any]:
    return message_classes(PACKAGE, MESSAGES, "proto3")
