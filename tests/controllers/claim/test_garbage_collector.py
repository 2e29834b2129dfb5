"""Machines whose claim is gone, however late what is read of them is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from controllers.claim.garbage_collector import LATE_SECONDS, GarbageCollector
from controllers.claim.snapshot import Claim, by_uid
from controllers.warmpool.cache import VM_INDEXES
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import Key
from runtime.store import Store
from tests.controllers.claim.builders import a_claim, taken

CLAIM = a_claim()
MACHINE = taken()


class Forgetful:
    """An API server that knows of no claim."""

    async def get(self, *_: Any) -> Any:
        raise NotFound("no such claim")


@dataclass
class Holder:
    answer: WarmVM | None
    ended: list[str] = field(default_factory=list)

    async def read(self, m: WarmVM) -> WarmVM | None:
        return self.answer

    async def terminate(self, m: WarmVM, reason: str) -> bool:
        self.ended.append(m.name)
        return True


def strays(holder: Holder, *claims: Claim) -> GarbageCollector:
    machines: Store[WarmVM] = Store(VM_INDEXES)
    machines.put(MACHINE.key, MACHINE)
    known: Store[Claim] = Store({"uid": by_uid})
    for each in claims:
        known.put(each.key, each)
    pools: Store[WarmPool | InvalidWarmPool] = Store({"uid": lambda p: [p.uid]})

    def enqueue(key: Key, pause: float) -> None: ...

    return GarbageCollector(cast(Api, Forgetful()), known, machines, lambda pool: cast(Any, holder), pools, enqueue)


async def test_a_machine_goes_with_its_claim() -> None:
    holder = Holder(MACHINE)
    assert await strays(holder).reconcile(MACHINE.key) is None
    assert holder.ended == [MACHINE.name]


async def test_a_machine_whose_claim_lives_is_nobody_s_business() -> None:
    holder = Holder(MACHINE)
    assert await strays(holder, CLAIM).reconcile(MACHINE.key) is None
    assert not holder.ended


@pytest.mark.parametrize(
    "read",
    [None, replace(MACHINE, claim_uid=""), replace(MACHINE, deleting=True)],
    ids=["not there", "of no claim", "being deleted"],
)
async def test_what_was_read_late_is_read_again(read: WarmVM | None) -> None:
    """Nothing changes in the store, so no event would bring it back."""
    holder = Holder(read)
    each = strays(holder)
    assert await each.reconcile(MACHINE.key) == LATE_SECONDS
    holder.answer = MACHINE
    await each.reconcile(MACHINE.key)
    assert holder.ended == [MACHINE.name]
