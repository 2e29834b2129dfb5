"""The vocabulary: one module a kind, declared once; CRD, webhooks, roles and reference pages are made from it.

Begin with `pool`, which reads like the documentation of a VirtualMachinePool, then `kind` for what can be asked of a
kind. `model` says how fields are written, `schema` makes a schema of them, `shape` holds a document against it. `meta`
has every label and annotation. `kubevirt` describes kinds that are not ours.

Knows no cluster, no clock and no service: it imports pydantic and nothing of Poolhouse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinds.claim import CLAIM
from kinds.crd import crd
from kinds.kind import Kind
from kinds.policy import POLICY
from kinds.pool import POOL
from kinds.replicaset import REPLICA_SET
from kinds.warmpool import WARM_POOL

KINDS: tuple[Kind, ...] = (POOL, REPLICA_SET, POLICY, WARM_POOL, CLAIM)
"""The kinds of ours."""


def by_gvk(api_version: str, kind: str) -> Kind | None:
    """The kind of ours with this name, in any of its versions."""
    return next((found for found in KINDS if found.kind == kind and api_version in found.api_versions), None)


def crds(kinds: Iterable[Kind] = KINDS) -> list[dict[str, Any]]:
    """The CRDs of ours."""
    return [crd(kind) for kind in kinds]
