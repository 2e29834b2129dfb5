"""VMs whose claim is gone, however late the reads are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from controllers.claim.allocator import Stores
from controllers.claim.garbage_collector import RECHECK_SECONDS, GarbageCollector
from controllers.claim.snapshot import SOURCE, Claim
from controllers.warmpool.cache import WARM_VMS, WarmVMCache
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import a_claim, claimed_vm

CLAIM = a_claim()
VM = claimed_vm()


class ApiWithoutClaims:
    async def get(self, *_: Any) -> Any:
        raise NotFound("no such claim")


@dataclass
class FakeBackend:
    answer: WarmVM | None
    deleted: list[str] = field(default_factory=list)

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return self.answer

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        self.deleted.append(vm.name)
        return True


def garbage_collector(backend: FakeBackend, *claims: Claim) -> GarbageCollector:
    vms = WARM_VMS.store()
    vms.put(VM.key, VM)
    known = SOURCE.store()
    for claim in claims:
        known.put(claim.key, claim)
    pools: Store[WarmPool | InvalidWarmPool] = Store({"uid": lambda pool: [pool.uid]})
    stores = Stores(known, pools, WarmVMCache(vms, Store(), Store()))
    return GarbageCollector(ApiWithoutClaims(), stores, lambda pool: backend, lambda key, seconds: None)


async def test_a_vm_is_deleted_after_its_claim() -> None:
    backend = FakeBackend(VM)
    assert await garbage_collector(backend).reconcile(VM.key) is None
    assert backend.deleted == [VM.name]


async def test_a_vm_whose_claim_exists_stays() -> None:
    backend = FakeBackend(VM)
    assert await garbage_collector(backend, CLAIM).reconcile(VM.key) is None
    assert not backend.deleted


@pytest.mark.parametrize(
    "read",
    [None, replace(VM, claim_uid=""), replace(VM, deleting=True)],
    ids=["not there", "of no claim", "being deleted"],
)
async def test_a_late_read_is_repeated(read: WarmVM | None) -> None:
    """The store does not change, so no event would repeat it."""
    backend = FakeBackend(read)
    found = garbage_collector(backend)
    assert await found.reconcile(VM.key) == RECHECK_SECONDS
    backend.answer = VM
    await found.reconcile(VM.key)
    assert backend.deleted == [VM.name]
