"""Which pool serves a claim."""

from __future__ import annotations

from collections.abc import Collection

from controllers.claim.snapshot import Claim, Failure
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, default_pool


def select_pool(claim: Claim, pools: Collection[WarmPool | InvalidWarmPool]) -> WarmPool | Failure:
    """The one that it names, else the default of its namespace. `pools` are those of the namespace."""
    name, namespace = claim.spec.pool_name, claim.namespace
    if not name:
        default = default_pool(pools)
        return default if default is not None else Failure("NoDefaultPool", _no_default(pools, namespace))
    found = next((p for p in pools if p.name == name), None)
    if found is None:
        return Failure(
            "PoolNotFound",
            f"there is no warm pool {name} in namespace {namespace}, which has {_names(pools)}; a pool serves claims of"
            " its own namespace only",
        )
    if isinstance(found, InvalidWarmPool):
        return Failure("PoolInvalid", f"warm pool {name} is not valid: {found.problem}")
    if found.deleting:
        return Failure("PoolNotFound", f"warm pool {name} is being deleted")
    return found


def _no_default(pools: Collection[WarmPool | InvalidWarmPool], namespace: str) -> str:
    if not pools:
        return f"it names no pool, and there is no warm pool in namespace {namespace}"
    there = f"name one in spec.poolName, of: {_names(pools)}"
    return f"it names no pool, and namespace {namespace} has no default one: {there}"


def _names(pools: Collection[WarmPool | InvalidWarmPool]) -> str:
    return ", ".join(sorted(p.name for p in pools)) or "none"
