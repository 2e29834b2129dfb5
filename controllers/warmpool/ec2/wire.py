"""Messages of the agent in an instance, as far as they are used: `vkvmagent.v0.ApplicationLifecycle`, of the Virtual
Kubelet. The numbers are its, and those of a Pod in Kubernetes, so that an agent that is there already understands."""

from __future__ import annotations

from typing import Any

PACKAGE = "vkvmagent.v0"
SERVICE = f"{PACKAGE}.ApplicationLifecycle"

FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "ObjectMeta": {"name": (1, ""), "namespace": (3, ""), "uid": (5, "")},
    "PodStatus": {"phase": (1, ""), "message": (3, ""), "reason": (4, "")},
    "Pod": {"metadata": (1, "ObjectMeta"), "status": (3, "PodStatus")},
    "LaunchApplicationRequest": {"pod": (1, "Pod")},
    "LaunchApplicationResponse": {},
    "TerminateApplicationRequest": {},
    "TerminateApplicationResponse": {},
    "ApplicationHealthRequest": {},
    "ApplicationHealthResponse": {"podStatus": (1, "PodStatus")},
}
"""number, and the message that it holds; text where none is named"""

METHODS = {
    "LaunchApplication": ("LaunchApplicationRequest", "LaunchApplicationResponse"),
    "TerminateApplication": ("TerminateApplicationRequest", "TerminateApplicationResponse"),
    "CheckApplicationHealth": ("ApplicationHealthRequest", "ApplicationHealthResponse"),
}


def message_classes() -> dict[str, Any]:
    """A class for each message."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="vkvmagent.proto", package=PACKAGE, syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, holds) in fields.items():
            kind = FieldDescriptorProto.TYPE_MESSAGE if holds else FieldDescriptorProto.TYPE_STRING
            label = FieldDescriptorProto.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if holds:
                added.type_name = f".{PACKAGE}.{holds}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}
