"""What a pool's plan is made from: everything that was observed, frozen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from controllers.pool.machine import Machine
from controllers.pool.naming import ordinal_of
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
    deleting: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class Failure:
    """The last write that the API server refused, and what it said."""

    reason: str
    message: str


@dataclass(frozen=True)
class State:
    pool: Pool
    machines: tuple[Machine, ...] = ()
    """all VMs that the pool owns, those that are being deleted included"""
    taken: frozenset[int] = frozenset()
    """ordinals whose names are given, by VMs of the pool or anybody else's"""
    revision: Revision = NO_REVISION
    """of the pool's present template"""
    saved: bool = True
    """the revision is written down"""
    settled: bool = True
    """the store shows all that we wrote before"""
    failure: Failure | None = None
    burst: int = 250

    @cached_property
    def alive(self) -> tuple[Machine, ...]:
        return tuple(m for m in self.machines if not m.deleting)

    @cached_property
    def leaving(self) -> tuple[Machine, ...]:
        return tuple(m for m in self.machines if m.deleting)

    def ordinals(self) -> Iterator[int]:
        for m in self.alive:
            if (ordinal := ordinal_of(self.pool.name, m.name)) is not None:
                yield ordinal


def pool(document: Json) -> Pool:
    """The view of a VirtualMachinePool. Raises pydantic's ValidationError (a ValueError) where the spec is none: it
    went past admission."""
    metadata = document["metadata"]
    return Pool(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=PoolSpec.model_validate(document.get("spec") or {}),
        status=PoolStatus.model_validate(document.get("status") or {}),
        deleting=metadata.get("deletionTimestamp") is not None,
    )
