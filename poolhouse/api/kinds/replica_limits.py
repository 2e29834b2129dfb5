"""The replica limit: the most `replicas` that one pool, warm pool or replica set may have.

The installation has a limit, and the annotation `poolhouse.dev/max-replicas` of a namespace replaces it there.
Admission refuses to raise `replicas` above the limit, and the controllers create no more VMs than it.
"""

import re
from collections.abc import Mapping

from poolhouse.api.kinds import meta

DEFAULT_MAX_REPLICAS = 10_000
"""Above the largest pools that are measured, and low enough that a number with too many digits exceeds it."""
SETTING = (
    f"Most replicas of a pool, warm pool or replica set. The annotation `{meta.MAX_REPLICAS}` of a namespace replaces"
    " it there."
)
"""The description of the setting `POOLHOUSE_MAX_REPLICAS`, which the webhook and the controllers have."""
UNLIMITED = 2**31 - 1
"""The largest number that the schema allows."""


def annotated_limit(annotations: Mapping[str, object]) -> int | None:
    """The replica limit of a namespace with these annotations; None without the annotation. Raises ValueError for a
    value that is not a whole number."""
    value = annotations.get(meta.MAX_REPLICAS)
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,10}", value):
        raise ValueError(f'metadata.annotations[{meta.MAX_REPLICAS}]: must be a whole number, such as "500"')
    return min(int(value), UNLIMITED)


def effective_replicas(replicas: int, limit: int, reached: int) -> int:
    """The replicas that a controller works towards. An object that has reached more than the limit, because the limit
    was higher or did not exist, keeps them."""
    return min(replicas, max(limit, reached))
