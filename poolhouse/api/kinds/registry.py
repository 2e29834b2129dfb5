"""The list of the kinds of Poolhouse. Other packages import its names from `poolhouse.api.kinds`."""

from collections.abc import Mapping

from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL

KINDS: tuple[Kind, ...] = (POOL, REPLICA_SET, MIGRATION_POLICY, WARM_POOL, CLAIM)
"""all kinds of Poolhouse"""


def by_gvk(api_version: str, kind: str) -> Kind | None:
    """The kind with this API version and name; None if there is none."""
    return next((found for found in KINDS if found.kind == kind and api_version in found.api_versions), None)


DISABLED_KINDS = "POOLHOUSE_KINDS_OFF"
"""environment variable with the plurals of disabled kinds, separated by commas"""


def disabled_kinds(environment: Mapping[str, str]) -> frozenset[str]:
    """The plurals of the disabled kinds. Raises ValueError for an unknown plural."""
    found = frozenset(name.strip() for name in environment.get(DISABLED_KINDS, "").split(",") if name.strip())
    known = sorted(kind.plural for kind in KINDS)
    if unknown := sorted(found - set(known)):
        raise ValueError(f"{DISABLED_KINDS}: there is no {unknown[0]}; there are {', '.join(known)}")
    return found
