"""Which pool serves a claim."""

from __future__ import annotations

from collections.abc import Collection

from controllers.warm.claim.state import Claim, Failure
from controllers.warm.pools import Misfit, Pool, elected


def chosen(claim: Claim, pools: Collection[Pool | Misfit]) -> Pool | Failure:
    """The one that it names, else the default of its namespace. `pools` are those of the namespace."""
    name = claim.spec.pool_name
    if not name:
        default = elected(pools)
        if default is not None:
            return default
        return Failure(
            "NoDefaultPool",
            f"it names no pool, and namespace {claim.namespace} has no default one: name one in spec.poolName, of:"
            f" {_names(pools)}",
        )
    found = next((p for p in pools if p.name == name), None)
    if found is None:
        return Failure(
            "PoolNotFound",
            f"there is no warm pool {name} in namespace {claim.namespace}, which has: {_names(pools)}; a pool serves"
            " claims of its own namespace only",
        )
    if isinstance(found, Misfit):
        return Failure("PoolInvalid", f"warm pool {name} is not valid: {found.problem}")
    if found.deleting:
        return Failure("PoolNotFound", f"warm pool {name} is being deleted")
    return found


def _names(pools: Collection[Pool | Misfit]) -> str:
    return ", ".join(sorted(p.name for p in pools)) or "none"
