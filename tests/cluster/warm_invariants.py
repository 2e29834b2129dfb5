"""Checks the documented invariants of warm pools (I1 to I9) against every object that the API server has stored.

The checker needs all watch events of VMs and claims from the beginning. The resourceVersions of one etcd order events
of both watches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from poolhouse.api.kinds import meta

Json = dict[str, Any]

OVER = frozenset({"Released", "Expired", "Failed"})


@dataclass
class VMHistory:
    """The history of a VM."""

    name: str
    pool_uid: str
    created_at: int
    claims: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    activated_at: int | None = None
    """When the VM was marked or handed over; for a VM created for a claim, when it was handed over."""
    cold: bool = False
    """The VM was created for a claim."""
    ending: bool = False
    orphaned: bool = False


@dataclass
class InvariantChecker:
    violations: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    """UIDs of VMs that users deleted."""
    max_total: dict[str, int] = field(default_factory=dict)
    """By UID of the pool."""
    leaders: int = 1
    """Controllers that run at the same time. Each has not seen what the other is creating."""
    excess: bool = False
    """A controller has just started or stopped. VMs that the last one was creating may still appear."""
    late: Callable[[], bool] = lambda: False
    """Whether a delayed request is still in flight."""
    lives: dict[str, VMHistory] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    """The last state of each claim, by UID."""
    bound_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a claim's status first had a VM, by UIDs of claim and VM."""
    handed: dict[str, str] = field(default_factory=dict)
    """The VM with which a claim was Ready."""
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """All VMs that were InUse for a claim."""

    def vm_event(self, kind: str, document: Json) -> None:
        metadata = document["metadata"]
        labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
        at, uid, state = int(metadata["resourceVersion"]), metadata["uid"], labels.get(meta.WARM_STATE, "")
        claim = labels.get(meta.CLAIM_UID, "")
        if uid not in self.lives:
            self.lives[uid] = VMHistory(metadata["name"], labels.get(meta.POOL_UID, ""), at, cold=bool(claim))
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
            self._wrong(f"I4: {life.name} is Ready after it was reserved: {life.states}")
        marked = meta.ACTIVATED_AT in notes and not life.cold
        if life.activated_at is None and (marked or state == "InUse"):
            life.activated_at = at
        if state == "InUse":
            # A claim that was never Ready has given no VM to its user, so it tries once more after a user has deleted
            # its VM in the moment before.
            lost = {each for each in self.used[claim] & self.killed if self.lives[each].ending}
            self.used[claim] = {uid} | (self.used[claim] if claim in self.handed else self.used[claim] - lost)
            if len(self.used[claim]) > 1:
                self._wrong(f"I2: claim {claim} has used {[self.lives[each].name for each in self.used[claim]]}")
        active = [each for each in self._of(claim) if each.activated_at is not None and not each.ending]
        if claim and len(active) > 1:
            self._wrong(f"I2: {[each.name for each in active]} are activated for claim {claim} at once")
        self._count(life.pool_uid)

    def claim_event(self, kind: str, document: Json) -> None:
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
            self._wrong(f"I3: the VM {vm} of claim {metadata['name']} was deleted, and not by a user")

    def at_rest(self, machines: list[Json], owners: set[str]) -> None:
        """Checks what must hold at rest. `owners` are the UIDs of all pools and claims."""
        for (claim, vm), bound in self.bound_at.items():
            life = self.lives.get(vm)
            if life is not None and life.activated_at is not None and life.activated_at < bound:
                self._wrong(f"I9: {life.name} was activated at {life.activated_at}, bound to {claim} at {bound}")
        for uid, life in self.lives.items():
            if life.activated_at is not None and not any((claim, uid) in self.bound_at for claim in life.claims):
                self._wrong(f"I9: {life.name} was activated and never bound to {life.claims}")
        for each in self.claims.values():
            phase = (each.get("status") or {}).get("phase")
            if not each["gone"] and phase != "Ready" and phase not in OVER:
                self._wrong(f"I7: claim {each['metadata']['name']} is still {phase}")
        for each in machines:
            labels = each["metadata"].get("labels") or {}
            reached = {o["uid"] for o in each["metadata"].get("ownerReferences") or ()} & owners
            if not reached and meta.ORPHANED not in labels:
                self._wrong(f"I6: {each['metadata']['name']} has no owner")
        users = {labels_of(m).get(meta.CLAIM_UID): m["metadata"]["uid"] for m in machines if claimed(m)}
        for uid, each in self.claims.items():
            status = each.get("status") or {}
            if not each["gone"] and status.get("phase") == "Ready" and users.pop(uid, "") != status["vmRef"]["uid"]:
                self._wrong(f"I8: claim {each['metadata']['name']} is Ready and its VM does not match")
        for claim_uid, vm_uid in users.items():
            self._wrong(f"I8: VM {vm_uid} is still claim {claim_uid}'s, which has no VM")

    def _count(self, pool_uid: str) -> None:
        """With two controllers a pool has at most twice `maxTotal` VMs."""
        most = self.max_total.get(pool_uid)
        if most is None:
            return
        there = (each for each in self.lives.values() if each.pool_uid == pool_uid)
        total = sum(not each.ending and not each.orphaned for each in there)
        if total <= most and self.leaders == 1 and not self.late():
            self.excess = False
        if total > (2 * most if self.excess else most):
            self._wrong(f"I5: {total} VMs, maxTotal is {most}, {self.leaders} controllers")

    def _of(self, claim: str) -> Iterator[VMHistory]:
        return (each for each in self.lives.values() if claim in each.claims)

    def _wrong(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


def labels_of(machine: Json) -> dict[str, str]:
    return machine["metadata"].get("labels") or {}


def claimed(machine: Json) -> bool:
    return meta.CLAIM_UID in labels_of(machine) and not machine["metadata"].get("deletionTimestamp")
