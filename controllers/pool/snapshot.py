"""The pool and everything that its plan is made from, frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import ValidationError

from apimachinery.unstructured import Json
from controllers.pool.revisions import Revision
from controllers.shared.invalid_spec import InvalidSpec, describe, parse_status
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.write_batches import Failure
from kinds.pool import PoolSpec, PoolStatus

InvalidPool = InvalidSpec[PoolStatus]
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
    """spec.maxUnavailable as a number of VMs"""
    deleting: bool = False
    created_at: str = ""
    """creationTimestamp, which sorts as text"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class PoolSnapshot:
    pool: Pool
    vms: tuple[VM, ...] = ()
    """All VMs that the pool owns, including those that are being deleted."""
    taken_ordinals: frozenset[int] = frozenset()
    """Ordinals whose names belong to a VM or a retained disk, of this pool or of another owner."""
    foreign_disks: Mapping[str, str] = field(default_factory=dict)
    """Disks of other owners, with their owners; among them all whose names this pool could give."""
    awaiting_release: tuple[VM, ...] = ()
    """VMs with the pool's names that are being deleted and wait until their disks are released, whoever owns them."""
    retained_disks: tuple[RetainedDisk, ...] = ()
    revision: Revision = NO_REVISION
    """The revision of the pool's present template."""
    revision_saved: bool = True
    revisions: tuple[Revision, ...] = ()
    """All saved revisions of the pool."""
    recently_deleted: frozenset[str] = frozenset()
    """Names of deleted VMs whose disks may still exist until the garbage collector deletes them."""
    disk_conflict: Failure | None = None
    """An older pool gives its disks the same names: VMs of both pools would write to one disk."""
    synced: bool = True
    """The stores show all previous writes."""
    failure: Failure | None = None
    refused: frozenset[str] = frozenset()
    """Names and UIDs of VMs, and `has_revision` of updates, that the API server refused the last time."""
    burst: int = 250

    @cached_property
    def active(self) -> tuple[VM, ...]:
        return tuple(vm for vm in self.vms if not vm.deleting)

    @cached_property
    def deleting(self) -> tuple[VM, ...]:
        return tuple(vm for vm in self.vms if vm.deleting)

    @cached_property
    def missing(self) -> int:
        return max(0, self.pool.spec.replicas - len(self.active))

    @cached_property
    def revisions_by_label(self) -> Mapping[str, Revision]:
        """Revisions by the labels that VMs carry."""
        return {each.label: each for each in (*self.revisions, self.revision)}

    def outdated(self, vm: VM) -> bool:
        """The VM does not have the pool's template."""
        has = self.revisions_by_label.get(vm.revision)
        return has is None or has.template_hash != self.revision.template_hash

    def needs_restart(self, vm: VM) -> bool:
        """The VM's VMI was started from another template than the pool's."""
        if vm.vmi is None:
            return False
        started_from = self.revisions_by_label.get(vm.vmi.revision)
        if started_from is not None and started_from.vmi_hash == self.revision.vmi_hash:
            return False
        return not (vm.vmi.deleting or vm.vmi.succeeded)

    @cached_property
    def shared_disks(self) -> Mapping[str, str]:
        """Names of VMs that use a disk of another owner, with the disk. The controller cannot resolve that."""
        if not self.foreign_disks:
            return {}
        found = {vm.name: sorted(self.foreign_disks.keys() & vm.disks) for vm in self.active}
        return {name: f"{disks[0]}, {self.foreign_disks[disks[0]]}" for name, disks in found.items() if disks}


def resolve_max_unavailable(max_unavailable: int | str, replicas: int) -> int:
    """maxUnavailable as a number of VMs: rounded down, at least 1 (designs/1, MaxUnavailable). Raises ValueError for a
    text that is not a percentage."""
    if isinstance(max_unavailable, int):
        return max(1, max_unavailable)
    if not max_unavailable.endswith("%"):
        raise ValueError(f"maxUnavailable: {max_unavailable!r} is neither a number nor a percentage")
    return max(1, math.floor(int(max_unavailable[:-1]) * replicas / 100))


def parse_pool(document: Json) -> Pool | InvalidPool:
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    status = parse_status(PoolStatus, document)
    try:
        spec = PoolSpec.model_validate(document.get("spec") or {})
        limit = resolve_max_unavailable(spec.max_unavailable, spec.replicas)
    except ValidationError as error:
        return InvalidSpec(*key, status, describe(error))
    except ValueError as error:
        return InvalidSpec(*key, status, f"spec.{error}")
    created_at = metadata.get("creationTimestamp") or ""
    return Pool(*key, spec, status, limit, metadata.get("deletionTimestamp") is not None, created_at)
