"""What a pool's plan is made from: everything that was observed, frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from controllers.pool.machine import VM
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.revisions import Revision
from kinds.pool import PoolSpec, PoolStatus

Json = dict[str, Any]

NO_REVISION = Revision("", "", 0, "")


@dataclass(frozen=True)
class Pool:
    namespace: str
    name: str
    uid: str
    generation: int
    spec: PoolSpec
    status: PoolStatus
    max_unavailable: int = 1
    """VMs that may be unavailable at a time"""
    deleting: bool = False
    born: str = ""
    """creationTimestamp, which sorts as text"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class InvalidSpec:
    """A pool whose spec is none: it went past admission, or past another release's. Nothing is done to its VMs."""

    namespace: str
    name: str
    uid: str
    generation: int
    status: PoolStatus
    problem: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class Failure:
    """The last write that the API server refused, and what it said."""

    reason: str
    message: str


@dataclass(frozen=True)
class PoolSnapshot:
    pool: Pool
    machines: tuple[VM, ...] = ()
    """all VMs that the pool owns, those that are being deleted included"""
    taken: frozenset[int] = frozenset()
    """ordinals whose names are given, to VMs or to kept disks, the pool's or anybody else's"""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """disks of somebody else's, among them all whose names this pool could give, and whose they are"""
    waiting: tuple[VM, ...] = ()
    """VMs that are being deleted and wait until their disks are released, whoever owns them by now"""
    kept: tuple[RetainedDisk, ...] = ()
    """disks that this pool has kept"""
    revision: Revision = NO_REVISION
    """of the pool's present template"""
    saved: bool = True
    """the revision is written down"""
    revisions: tuple[Revision, ...] = ()
    """all that are written down for this pool"""
    gone: frozenset[str] = frozenset()
    """names of VMs that went away a moment ago: their disks may still be there, about to be collected"""
    shared: Failure | None = None
    """an older pool gives its VMs' disks the same names: VMs of both would write to one disk"""
    settled: bool = True
    """the store shows all that we wrote before"""
    failure: Failure | None = None
    unwanted: frozenset[str] = frozenset()
    """what the API server refused the last time: names and UIDs of VMs, and `has_revision` of updates"""
    burst: int = 250

    @cached_property
    def alive(self) -> tuple[VM, ...]:
        return tuple(m for m in self.machines if not m.deleting)

    @cached_property
    def known(self) -> Mapping[str, Revision]:
        """Revisions by the labels that VMs carry."""
        return {each.label: each for each in (*self.revisions, self.revision)}

    def outdated(self, m: VM) -> bool:
        """It has another template than it should."""
        has = self.known.get(m.revision)
        return has is None or has.meaning != self.revision.meaning

    def stale(self, m: VM) -> bool:
        """It runs, and what it runs was started from another template than it should be."""
        if m.guest is None or m.guest.deleting or m.guest.shut_down:
            return False
        started_from = self.known.get(m.guest.revision)
        return started_from is None or started_from.guest != self.revision.guest

    @cached_property
    def overlapping(self) -> Mapping[str, str]:
        """VMs that write to a disk of somebody else's, and which. Nobody meant that, and it can't be undone here."""
        if not self.strangers:
            return {}
        found = {m.name: sorted(self.strangers.keys() & m.disks) for m in self.alive}
        return {name: f"{disks[0]}, {self.strangers[disks[0]]}" for name, disks in found.items() if disks}

    @cached_property
    def missing(self) -> int:
        return max(0, self.pool.spec.replicas - len(self.alive))

    @cached_property
    def leaving(self) -> tuple[VM, ...]:
        return tuple(m for m in self.machines if m.deleting)


def resolve_max_unavailable(max_unavailable: int | str, replicas: int) -> int:
    """How many VMs may be unavailable at a time: rounded down, at least one (designs/1, MaxUnavailable). Raises
    ValueError for what is neither a number nor a percentage."""
    if isinstance(max_unavailable, int):
        return max(1, max_unavailable)
    if not max_unavailable.endswith("%"):
        raise ValueError(f"maxUnavailable: {max_unavailable!r} is neither a number nor a percentage")
    return max(1, math.floor(int(max_unavailable[:-1]) * replicas / 100))


def parse_pool(document: Json) -> Pool | InvalidSpec:
    """The view of a VirtualMachinePool."""
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    try:
        status = PoolStatus.model_validate(document.get("status") or {})
    except ValidationError:
        status = PoolStatus()  # ours alone to write, and about to be written
    try:
        spec = PoolSpec.model_validate(document.get("spec") or {})
        limit = resolve_max_unavailable(spec.max_unavailable, spec.replicas)
    except ValidationError as error:
        said = "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return InvalidSpec(*key, status, said)
    except ValueError as error:
        return InvalidSpec(*key, status, f"spec.{error}")
    born = metadata.get("creationTimestamp") or ""
    return Pool(*key, spec, status, limit, metadata.get("deletionTimestamp") is not None, born)
