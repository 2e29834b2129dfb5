"""What is not as it should be among warm machines and claims, and what would put it right.

The controllers end all of this by themselves within seconds. What a person finds here, twice, means that they don't
run, or that somebody wrote labels and owners who should not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from controllers.claim.snapshot import Claim
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM, seconds_since
from kinds.warm_states import WarmState

LOCKED_SECONDS = 60.0
"""A machine is not longer than this on its way to a claim that nobody works on."""

Ailment = Literal["Orphan", "Stray", "StuckLock", "TwoMachines", "Drift", "StuckDeletion"]


@dataclass(frozen=True)
class Finding:
    ailment: Ailment
    name: str
    """of the machine, or of the claim where it has none"""
    says: str
    delete: WarmVM | None = None
    """to delete this machine puts it right, and nothing that anybody uses is lost"""


def findings(
    machines: Iterable[WarmVM], claims: Collection[Claim], pools: Collection[WarmPool | InvalidWarmPool], now: datetime
) -> Iterator[Finding]:
    by_uid = {c.uid: c for c in claims}
    owners = by_uid.keys() | {p.uid for p in pools}
    given: dict[str, list[WarmVM]] = defaultdict(list)
    for m in machines:
        if m.deleting:
            if seconds_since(m.state_since, now) > 10 * LOCKED_SECONDS:
                yield Finding("StuckDeletion", m.name, "it is being deleted; see its finalizers")
            continue
        if m.claim_uid:
            given[m.claim_uid].append(m)
        yield from _machine(m, by_uid, owners, now)
    for uid, found in given.items():
        if uid in by_uid:
            yield from _doubles(by_uid[uid], found)
    for c in claims:
        yield from _claim(c, given.get(c.uid, []), now)


def _machine(m: WarmVM, claims: Mapping[str, Claim], owners: Collection[str], now: datetime) -> Iterator[Finding]:
    if m.orphaned:
        yield Finding("Orphan", m.name, f"no pool takes care of it ({m.orphaned}); delete it if nobody needs it")
        return
    if m.claim_uid and m.claim_uid not in claims:
        yield Finding("Stray", m.name, "its claim is gone, and nobody else will get it", m)
    elif not m.claim_uid and m.owner.uid not in owners:
        yield Finding("Orphan", m.name, "neither a pool nor a claim owns it", m)
    elif m.claim_uid and m.owner.uid != m.claim_uid:
        yield Finding("Drift", m.name, f"its label names claim {claims[m.claim_uid].name}, its owner is {m.owner.name}")
    elif (m.claim_uid and m.unclaimed) or (m.claim_uid and m.state is WarmState.READY):
        yield Finding("Drift", m.name, f"it is {m.state} and has claim {claims[m.claim_uid].name}", m)
    elif m.state is WarmState.ALLOCATING and not m.claim_uid:
        yield Finding("Drift", m.name, "it is being given to a claim, and its label names none", m)
    elif m.state is WarmState.ALLOCATING and not claims[m.claim_uid].vm_uid and _old(m, now):
        age = seconds_since(m.state_since, now)
        said = f"taken for claim {claims[m.claim_uid].name} {age:.0f} s ago, and not written there"
        yield Finding("StuckLock", m.name, f"{said}: do the controllers run?")


def _doubles(c: Claim, machines: list[WarmVM]) -> Iterator[Finding]:
    if len(machines) > 1:
        names = ", ".join(sorted(m.name for m in machines))
        for m in machines:
            if c.vm_uid and m.uid != c.vm_uid:
                yield Finding("TwoMachines", m.name, f"claim {c.name} has {names}; another one is written in it", m)
        if not c.vm_uid:
            yield Finding("TwoMachines", c.name, f"it has {names}, and none is written in it yet")


def _claim(c: Claim, machines: list[WarmVM], now: datetime) -> Iterator[Finding]:
    if c.status.phase != "Ready" or c.status.instance_ref is not None:
        return
    mine = next((m for m in machines if m.uid == c.vm_uid), None)
    if mine is None:
        yield Finding("Drift", c.name, "it is Ready, and its machine is gone or is not its own")
    elif mine.state is WarmState.ALLOCATING and not _old(mine, now):
        return  # its label follows in a moment
    elif mine.state is not WarmState.IN_USE:
        yield Finding("Drift", c.name, f"it is Ready, and its machine {mine.name} is {mine.state or 'in no state'}")


def _old(m: WarmVM, now: datetime) -> bool:
    return seconds_since(m.state_since, now) > LOCKED_SECONDS
