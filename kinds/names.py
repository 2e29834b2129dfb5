"""Types of fields that hold names."""

from typing import Annotated

from pydantic import Field

from kinds.model import expected

ObjectName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        json_schema_extra=expected("the name of an object: lower case letters, digits, '-' and '.'"),
    ),
]
PoolName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        json_schema_extra=expected("the name of a warm pool: lower case letters, digits and '-'"),
    ),
]
InstanceType = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$",
        json_schema_extra=expected("the name of an instance type: letters, digits, '-' and '.'"),
    ),
]
Image = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern="^[A-Za-z0-9][!-~]*$",
        json_schema_extra=expected("an image: a name or URL without spaces"),
    ),
]
