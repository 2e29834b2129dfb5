"""How much a requester, or all of a namespace, may have of a pool at once."""

from __future__ import annotations

from collections import Counter

from controllers.claim.snapshot import Claim, Failure
from controllers.warmpool.warm_pool import WarmPool
from runtime.resource import Key


class QuotaTracker:
    """Who has machines of which pool, those included that are being given this moment: counted by the only one who
    gives them, so that two claims at once can't both be the last that is allowed."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Key, str]] = {}
        """pool and requester, by UID of the claim"""
        self._all: Counter[Key] = Counter()
        self._own: Counter[tuple[Key, str]] = Counter()

    def hold(self, claim: str, pool: Key, requester: str) -> None:
        if self._held.get(claim) == (pool, requester):
            return
        self.free(claim)
        self._held[claim] = (pool, requester)
        self._all[pool] += 1
        self._own[pool, requester] += 1

    def free(self, claim: str) -> None:
        if claim not in self._held:
            return
        pool, requester = self._held.pop(claim)
        self._all[pool] -= 1
        self._own[pool, requester] -= 1
        if not self._all[pool]:
            del self._all[pool]
        if not self._own[pool, requester]:
            del self._own[pool, requester]

    def over(self, claim: Claim, pool: WarmPool) -> Failure | None:
        """Why it may have none now."""
        if claim.uid in self._held:
            return None
        policy, has = pool.spec.claim_policy, self._own[pool.key, claim.requester]
        if policy.max_per_user is not None and has >= policy.max_per_user:
            who = claim.requester or "who made it"
            return _enough(f"{who} has {has} machines of the pool, maxPerUser is {policy.max_per_user}")
        total = self._all[pool.key]
        if policy.max_per_namespace is not None and total >= policy.max_per_namespace:
            return _enough(f"{total} machines of the pool are claimed, maxPerNamespace is {policy.max_per_namespace}")
        return None


def _enough(message: str) -> Failure:
    return Failure("QuotaExceeded", message)
