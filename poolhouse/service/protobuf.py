"""Builds the classes of protobuf messages from tables, so that no code is generated and committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Field = tuple[str, int, str]
"""name, number and type of a field. The type is one of protobuf, such as `TYPE_BYTES`, the name of another message, or
`MAP`; `[]` before it makes the field a list"""

MAP = "map<string, string>"


def message_classes(package: str, messages: Mapping[str, tuple[Field, ...]], syntax: str) -> dict[str, Any]:
    """Returns the classes of protobuf messages. On the wire, only the numbers and types of their fields count."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            one, label = kind.removeprefix("[]"), "LABEL_REPEATED" if kind.startswith("[]") else "LABEL_OPTIONAL"
            added = message.field.add(name=field, number=number, label=label)
            if one in messages:
                added.type, added.type_name = added.Type.Value("TYPE_MESSAGE"), f".{package}.{one}"
            elif one == MAP:
                added.label, added.type = added.Label.Value("LABEL_REPEATED"), added.Type.Value("TYPE_MESSAGE")
                added.type_name = f".{package}.{name}.{_add_entry(message, field)}"
            else:
                added.type = added.Type.Value(one)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: _message_class(pool, f"{package}.{name}") for name in messages}


def _add_entry(message: Any, field: str) -> str:
    """Adds the message that protobuf uses for an entry of a map, and returns its name."""
    name = f"{field[0].upper()}{field[1:]}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=number, label="LABEL_OPTIONAL", type="TYPE_STRING")
    return name


def _message_class(pool: Any, name: str) -> Any:
    from google.protobuf import message_factory

    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)  # the protobuf 3 of Debian 12
