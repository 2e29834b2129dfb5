"""The annotations that make a pool a node group of the Kubernetes cluster-autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass

from poolhouse.api.kinds.meta import NODE_GROUP_MAX_SIZE, NODE_GROUP_MIN_SIZE


@dataclass(frozen=True)
class Limits:
    min_size: int
    max_size: int


def read_limits(annotations: Mapping[str, str], max_replicas: int | None) -> Limits | str | None:
    """The limits of a node group, why they cannot be used, or None for a pool that is not meant to be one. A group
    never becomes empty: the autoscaler learns from a node how large a new one is."""
    texts = [annotations.get(name) for name in (NODE_GROUP_MIN_SIZE, NODE_GROUP_MAX_SIZE)]
    if texts == [None, None]:
        return None
    for name, text in zip((NODE_GROUP_MIN_SIZE, NODE_GROUP_MAX_SIZE), texts, strict=True):
        if text is None:
            return f"the annotation {name} is missing"
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:7]) <= 999_999:
            return f"the annotation {name} must be a number from 1 to 999999, not {text[:20]!r}"
    least, most = (int(text) for text in texts if text is not None)
    if least > most:
        return f"the annotation {NODE_GROUP_MIN_SIZE} is {least}, which is more than the maximum of {most}"
    return Limits(least, most if max_replicas is None else min(most, max_replicas))
