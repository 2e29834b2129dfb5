"""Machines whose claim is gone. The garbage collector takes them too; but a machine that somebody has had must not
depend on it, nor on an owner reference that a person can remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controllers.claim.snapshot import CLAIMS, Claim
from controllers.warmpool.backends import Backend, OutcomeUnknown
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import CLAIM_KIND, WarmVM
from runtime.api import Api
from runtime.controller import RetryWithBackoff
from runtime.errors import NotFound
from runtime.resource import Key
from runtime.store import Store

LATE_SECONDS = 2.0
"""Events of machines may be seen before those of claims: what seems to be a stray mostly is not one."""

Enqueue = Callable[[Key, float], None]


@dataclass
class GarbageCollector:
    api: Api
    claims: Store[Claim]
    """indexed `uid`"""
    machines: Store[WarmVM]
    """indexed `claim`"""
    holders: Callable[[WarmPool | None], Backend]
    pools: Store[WarmPool | InvalidWarmPool]
    """indexed `uid`"""
    enqueue: Enqueue

    async def reconcile(self, key: Key) -> float | None:
        m = self.machines.get(key)
        if m is None or not m.claim_uid or m.deleting or self.claims.by("uid", m.claim_uid):
            return None
        if await self._lives(m):
            return LATE_SECONDS
        holder = self.holders(next((p for p in self.pools.by("uid", m.pool_uid) if isinstance(p, WarmPool)), None))
        try:
            live = await holder.read(m)
            if live is None or live.deleting or live.claim_uid != m.claim_uid:
                return LATE_SECONDS  # the store will show it, or what was read was late
            done = await holder.terminate(live, "its claim is gone")
        except OutcomeUnknown as error:
            raise RetryWithBackoff(str(error)) from error
        if not done:
            raise RetryWithBackoff("it changed while it was being deleted")
        return None

    async def _lives(self, m: WarmVM) -> bool:
        """Asked of the API: to delete somebody's machine because a store was late could not be taken back."""
        if m.owner.kind == CLAIM_KIND and m.owner.uid == m.claim_uid:
            try:
                found = await self.api.get(CLAIMS, m.namespace, m.owner.name)
            except NotFound:
                return False
            return bool(found["metadata"]["uid"] == m.claim_uid)
        living, _ = await self.api.list(CLAIMS, m.namespace)
        return any(each["metadata"]["uid"] == m.claim_uid for each in living)

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            for m in self.machines.by("claim", old.uid):
                self.enqueue(m.key, 0.0)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        if new is not None and new.claim_uid and not new.deleting and not self.claims.by("uid", new.claim_uid):
            self.enqueue(new.key, LATE_SECONDS)
