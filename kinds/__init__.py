"""The vocabulary: one module a kind, declared once; CRD, webhooks, roles and reference pages are made from it.

Begin with `pool`, which reads like the documentation of a VirtualMachinePool, then `kind` for what can be asked of a
kind. `model` says how fields are written, `schema` makes a schema of them, `shape` holds a document against it. `meta`
has every label and annotation. `kubevirt` describes kinds that are not ours.

Knows no cluster, no clock and no service: it imports pydantic and nothing of Poolhouse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinds.claim import CLAIM
from kinds.kind import Kind
from kinds.migrationpolicy import MIGRATION_POLICY
from kinds.pool import POOL
from kinds.replicaset import REPLICA_SET
from kinds.warmpool import WARM_POOL

KINDS: tuple[Kind, ...] = (POOL, REPLICA_SET, MIGRATION_POLICY, WARM_POOL, CLAIM)
"""The kinds of ours."""


def by_gvk(api_version: str, kind: str) -> Kind | None:
    """The kind of ours with this name, in any of its versions."""
    return next((found for found in KINDS if found.kind == kind and api_version in found.api_versions), None)


DISABLED_KINDS = "POOLHOUSE_KINDS_OFF"
"""plurals, separated by commas"""


def disabled_kinds(environment: Mapping[str, str], kinds: Iterable[Kind] = KINDS) -> frozenset[str]:
    """Raises ValueError with a sentence that names the variable."""
    found = frozenset(name.strip() for name in environment.get(DISABLED_KINDS, "").split(",") if name.strip())
    known = sorted(kind.plural for kind in kinds)
    if unknown := sorted(found - set(known)):
        raise ValueError(f"{DISABLED_KINDS}: there is no {unknown[0]}; there are {', '.join(known)}")
    return found
