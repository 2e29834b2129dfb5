"""Builds the classes of protobuf messages from tables, so that no code is generated and committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Field = tuple[str, int, str]
"""name, number and type of a field. The type is one of protobuf, such as `TYPE_BYTES`, or the name of another message;
`[]` before it makes the field a list"""


def message_classes(package: str, messages: Mapping[str, tuple[Field, ...]], syntax: str) -> dict[str, Any]:
    """Returns the classes of protobuf messages. On the wire, only the numbers and types of their fields count."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            one, label = kind.removeprefix("[]"), "LABEL_REPEATED" if kind.startswith("[]") else "LABEL_OPTIONAL"
            added = message.field.add(name=field, number=number, label=label)
            if one in messages:
                added.type, added.type_name = added.Type.Value("TYPE_MESSAGE"), f".{package}.{one}"
            else:
                added.type = added.Type.Value(one)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
