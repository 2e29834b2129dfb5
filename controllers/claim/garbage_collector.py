"""Deletes VMs whose claim no longer exists.

The garbage collector of Kubernetes deletes such a VM only by its owner reference, which a user can remove. A VM that
was handed to a user must be deleted in any case.
"""

from collections.abc import Callable
from dataclasses import dataclass

from controllers.claim.allocator import Stores
from controllers.claim.snapshot import CLAIMS, Claim, claim_of
from controllers.warmpool.backends import Backend, OutcomeUnknown
from controllers.warmpool.warm_pool import WarmPool, pool_of
from controllers.warmpool.warm_vm import CLAIM_KIND, WarmVM
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.resource import Key

RECHECK_SECONDS = 2.0
"""Delay before a VM is checked. The event of a VM may arrive before the event of its claim."""

Enqueue = Callable[[Key, float], None]


@dataclass
class GarbageCollector:
    api: Api
    stores: Stores
    backend: Callable[[WarmPool | None], Backend]
    enqueue: Enqueue

    async def reconcile(self, key: Key) -> float | None:
        vm = self.stores.vms.vms.get(key)
        if vm is None or vm.deleting or not self._lacks_claim(vm):
            return None
        if await self._claim_exists(vm):
            return RECHECK_SECONDS
        pool = pool_of(self.stores.pools, vm)
        backend = self.backend(pool if isinstance(pool, WarmPool) else None)
        try:
            live = await backend.read(vm)
            if live is None or live.deleting or live.claim_uid != vm.claim_uid:
                return RECHECK_SECONDS  # the store shows the change soon, or the read was stale
            deleted = await backend.terminate(live, "its claim is gone")
        except OutcomeUnknown as error:
            raise RetryWithBackoff(str(error)) from error
        if not deleted:
            raise RetryWithBackoff(f"{vm.name} changed while it was being deleted")
        return None

    def _lacks_claim(self, vm: WarmVM) -> bool:
        return bool(vm.claim_uid) and claim_of(self.stores.claims, vm) is None

    async def _claim_exists(self, vm: WarmVM) -> bool:
        """Reads the claim from the API, because a deletion that is based on a stale store could not be undone."""
        if vm.owner.kind == CLAIM_KIND and vm.owner.uid == vm.claim_uid:
            found = await find(self.api, CLAIMS, vm.namespace, vm.owner.name)
            return found is not None and bool(found["metadata"]["uid"] == vm.claim_uid)
        claims, _ = await self.api.list(CLAIMS, vm.namespace)
        return any(claim["metadata"]["uid"] == vm.claim_uid for claim in claims)

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            for vm in self.stores.vms.of_claim(old):
                self.enqueue(vm.key, 0.0)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        if new is not None and not new.deleting and self._lacks_claim(new):
            self.enqueue(new.key, RECHECK_SECONDS)
