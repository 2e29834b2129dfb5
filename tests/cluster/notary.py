"""The published invariants of warm pools, held against everything that the API server has ever stored.

It is fed every event of machines and claims from before anything happens, without a gap. All of them are of one store,
so their resourceVersions put them into one order, whichever watch they came by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kinds import meta

Json = dict[str, Any]

OVER = frozenset({"Released", "Expired", "Failed"})


@dataclass
class Life:
    """What a machine has been through."""

    name: str
    pool_uid: str
    born_at: int
    claims: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    activated_at: int | None = None
    """when it was marked, or handed over; for one that was made for a claim, when it was handed over"""
    cold: bool = False
    """it was made for a claim"""
    ending: bool = False
    orphaned: bool = False


@dataclass
class Notary:
    wrong: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    """UIDs of machines that people have deleted"""
    max_total: dict[str, int] = field(default_factory=dict)
    """by UID of the pool"""
    leaders: int = 1
    """Controllers that work at the same time. What each of two makes, the other has not seen."""
    excess: bool = False
    """A controller has just come or gone, and what the one before was about to make may still appear."""
    late: Callable[[], bool] = lambda: False
    """whether something that it asked for is still on its way"""
    lives: dict[str, Life] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    """the last of each, by UID"""
    bound_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """when a machine was first written into a claim: (claim, machine)"""
    handed: dict[str, str] = field(default_factory=dict)
    """the machine with which a claim was Ready"""
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """machines that were in use for a claim, ever"""

    def machine(self, kind: str, document: Json) -> None:
        metadata = document["metadata"]
        labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
        at, uid, state = int(metadata["resourceVersion"]), metadata["uid"], labels.get(meta.WARM_STATE, "")
        claim = labels.get(meta.CLAIM_UID, "")
        if uid not in self.lives:
            self.lives[uid] = Life(metadata["name"], labels.get(meta.POOL_UID, ""), at, cold=bool(claim))
        life = self.lives[uid]
        life.ending = kind == "DELETED" or bool(metadata.get("deletionTimestamp"))
        life.orphaned = meta.ORPHANED in labels
        if kind == "DELETED":
            return
        if claim and claim not in life.claims:
            life.claims.append(claim)
        if len(life.claims) > 1:
            self._wrong(f"I1: {life.name} had the claims {life.claims}")
        if not life.states or life.states[-1] != state:
            life.states.append(state)
        if state == "Ready" and (life.activated_at is not None or claim):
            self._wrong(f"I4: {life.name} is Ready after it was given away: {life.states}")
        marked = meta.ACTIVATED_AT in notes and not life.cold
        if life.activated_at is None and (marked or state == "InUse"):
            life.activated_at = at
        if state == "InUse":
            self.used[claim].add(uid)
            if len(self.used[claim]) > 1:
                self._wrong(f"I2: claim {claim} has used {[self.lives[each].name for each in self.used[claim]]}")
        awake = [each for each in self._of(claim) if each.activated_at is not None and not each.ending]
        if claim and len(awake) > 1:
            self._wrong(f"I2: {[each.name for each in awake]} are awake for claim {claim} at once")
        self._count(life.pool_uid)

    def claim(self, kind: str, document: Json) -> None:
        metadata, status = document["metadata"], document.get("status") or {}
        uid, at = metadata["uid"], int(metadata["resourceVersion"])
        self.claims[uid] = {**document, "gone": kind == "DELETED"}
        vm = (status.get("vmRef") or {}).get("uid", "")
        if vm:
            self.bound_at.setdefault((uid, vm), at)
        if status.get("readyAt") and vm and self.handed.setdefault(uid, vm) != vm:
            self._wrong(f"I2: claim {metadata['name']} was Ready with {self.handed[uid]} and then had {vm}")
        reasons = {c["reason"] for c in status.get("conditions") or () if c["type"] == "Ready"}
        if status.get("phase") == "Failed" and "VMLost" in reasons and vm not in self.killed:
            self._wrong(f"I3: the machine {vm} of claim {metadata['name']} was deleted, and by nobody here")

    def at_rest(self, machines: list[Json], owners: set[str]) -> None:
        """What must be when nothing happens any more. `owners` are the UIDs of all pools and claims."""
        for (claim, vm), bound in self.bound_at.items():
            life = self.lives.get(vm)
            if life is not None and life.activated_at is not None and life.activated_at < bound:
                self._wrong(f"I9: {life.name} was touched at {life.activated_at}, bound to {claim} at {bound}")
        for uid, life in self.lives.items():
            if life.activated_at is not None and not any((claim, uid) in self.bound_at for claim in life.claims):
                self._wrong(f"I9: {life.name} was touched and never bound to {life.claims}")
        for each in self.claims.values():
            phase = (each.get("status") or {}).get("phase")
            if not each["gone"] and phase != "Ready" and phase not in OVER:
                self._wrong(f"I7: claim {each['metadata']['name']} is still {phase}")
        for each in machines:
            labels = each["metadata"].get("labels") or {}
            reached = {o["uid"] for o in each["metadata"].get("ownerReferences") or ()} & owners
            if not reached and meta.ORPHANED not in labels:
                self._wrong(f"I6: {each['metadata']['name']} belongs to nobody")
        users = {labels_of(m).get(meta.CLAIM_UID): m["metadata"]["uid"] for m in machines if claimed(m)}
        for uid, each in self.claims.items():
            status = each.get("status") or {}
            if not each["gone"] and status.get("phase") == "Ready" and users.pop(uid, "") != status["vmRef"]["uid"]:
                self._wrong(f"I8: claim {each['metadata']['name']} is Ready and its machine says otherwise")
        for claim, vm in users.items():
            self._wrong(f"I8: machine {vm} is still claim {claim}'s, which has none")

    def _count(self, pool_uid: str) -> None:
        """Of a pool that one controller fills; two make at most as many more as there may be."""
        most = self.max_total.get(pool_uid)
        if most is None:
            return
        there = (each for each in self.lives.values() if each.pool_uid == pool_uid)
        total = sum(not each.ending and not each.orphaned for each in there)
        if total <= most and self.leaders == 1 and not self.late():
            self.excess = False
        if total > (2 * most if self.excess else most):
            self._wrong(f"I5: {total} machines, maxTotal is {most}, {self.leaders} controllers")

    def _of(self, claim: str) -> Iterator[Life]:
        return (each for each in self.lives.values() if claim in each.claims)

    def _wrong(self, what: str) -> None:
        if what not in self.wrong:
            self.wrong.append(what)


def labels_of(machine: Json) -> dict[str, str]:
    return machine["metadata"].get("labels") or {}


def claimed(machine: Json) -> bool:
    return meta.CLAIM_UID in labels_of(machine) and not machine["metadata"].get("deletionTimestamp")
