"""Types of fields that hold names."""

from typing import Annotated, Any

from pydantic import Field

from poolhouse.api.kinds.model import expected

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def matching(pattern: str, max_length: int, words: str, *, min_length: int = 1) -> Any:
    """Limits a field to texts that match the pattern. Messages about other texts say the words."""
    return Field(min_length=min_length, max_length=max_length, pattern=pattern, json_schema_extra=expected(words))


ObjectName = Annotated[
    str,
    matching(
        DNS_SUBDOMAIN,
        253,
        "the name of an object: lower case letters, digits, '-' and '.'",
    ),
]
PoolName = Annotated[
    str,
    matching(DNS_LABEL, 56, "the name of a warm pool: lower case letters, digits and '-'"),
]
InstanceType = Annotated[
    str,
    matching(
        "^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$", 253, "the name of an instance type: letters, digits, '-' and '.'"
    ),
]
Image = Annotated[
    str,
    matching("^[A-Za-z0-9][!-~]*$", 1024, "an image: a name or URL without spaces"),
]
