"""What is kept of a VirtualMachine: a few facts instead of a document."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.pool.guest import VMI
from controllers.pool.naming import parent_and_ordinal
from kinds import meta
from kinds.vm_documents import run_strategy

Json = dict[str, Any]

ALWAYS_RUN = frozenset({"Always", "RerunOnFailure", "Once"})
# KubeVirt leaves their run where it is when it is over.
LEFT_ENDED = frozenset({"Once", "Manual"})


@dataclass(frozen=True, slots=True)
class VM:
    """A VM, as far as a pool is concerned."""

    namespace: str
    name: str
    uid: str
    stem: str = ""
    """the pool's name in `NAME-3`, whoever owns it"""
    ordinal: int | None = None
    resource_version: str = ""
    owner: str = ""
    """UID of its controller"""
    owner_name: str = ""
    """the pool's name, where a pool of ours is its controller"""
    born: str = ""
    """creationTimestamp, which sorts as text"""
    labels: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    deleted_at: str = ""
    """deletionTimestamp: it is on its way out since then"""
    keeping: bool = False
    """carries our finalizer: its disks are to outlive it"""
    kept_by: str = ""
    """UID of the pool that put it there"""
    meant_to_run: bool = True
    exists: bool = False
    """it has an instance, running or on its way"""
    ready: bool = False
    migrating: bool = False
    failures: int = 0
    """starts in a row that failed"""
    state: str = ""
    """printableStatus"""
    scale_in: str = ""
    """what its owner wishes (`Protect` or `First`), or wrote instead"""
    disks: tuple[str, ...] = ()
    """names of the DataVolumes made from its templates, and of their PersistentVolumeClaims"""
    strategy: str = ""
    """runStrategy, or what `running` says in its words"""
    guest: VMI | None = None
    """its present run; joined to it from a store of its own"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def deleting(self) -> bool:
        return bool(self.deleted_at)

    @property
    def halted(self) -> bool:
        return not self.meant_to_run and not self.exists

    @property
    def available(self) -> bool:
        """It is as it is meant to be."""
        if not self.meant_to_run:
            return not self.exists
        # The VM says that it's ready for a moment longer than its run lives.
        return self.ready and self.guest is not None and not self.guest.deleting


def parse_vm(document: Json) -> VM:
    """The view of a VirtualMachine. Whatever is missing in it counts as nothing."""
    metadata = document["metadata"]
    spec = document.get("spec") or {}
    status = document.get("status") or {}
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    labels = metadata.get("labels") or {}
    ours = owner.get("kind") == "VirtualMachinePool" and owner.get("apiVersion", "").startswith("kubevirt.io/")
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    annotations = metadata.get("annotations") or {}
    stem, ordinal = parent_and_ordinal(metadata["name"])
    strategy, created = run_strategy(spec), bool(status.get("created"))
    ended = _has_ended(strategy, status)
    return VM(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        stem=stem,
        ordinal=ordinal,
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        owner=owner.get("uid", ""),
        owner_name=owner.get("name", "") if ours else "",
        born=metadata.get("creationTimestamp") or "",
        labels=labels,
        revision=labels.get(meta.REVISION, ""),
        deleted_at=metadata.get("deletionTimestamp") or "",
        keeping=meta.KEEP_DISKS in (metadata.get("finalizers") or ()),
        kept_by=annotations.get(meta.KEPT_BY, ""),
        # A VM that is started by hand is meant to run when somebody has started it.
        meant_to_run=not ended and (strategy in ALWAYS_RUN or (strategy == "Manual" and created)),
        strategy=strategy,
        exists=created and not ended,
        ready=bool(status.get("ready")) or conditions.get("Ready") == "True",
        migrating=status.get("printableStatus") == "Migrating",
        failures=int((status.get("startFailure") or {}).get("consecutiveFailCount") or 0),
        state=status.get("printableStatus") or "",
        scale_in=annotations.get(meta.SCALE_IN) or labels.get(meta.SCALE_IN) or "",
        disks=tuple(
            name for each in spec.get("dataVolumeTemplates") or () if (name := (each.get("metadata") or {}).get("name"))
        ),
    )


def _has_ended(strategy: str, status: Json) -> bool:
    """It has run, and KubeVirt starts it no more until somebody asks."""
    asked = any(each.get("action") == "Start" for each in status.get("stateChangeRequests") or ())
    if status.get("printableStatus") != "Stopped" or status.get("startFailure") or asked:
        return False
    if strategy == "RerunOnFailure":
        # One that was not started under this strategy yet, or has failed, is started without anybody's asking.
        return bool(status.get("runStrategy") == strategy)
    # Without a run, one that runs once is about to start.
    return strategy in LEFT_ENDED and bool(status.get("created"))


def join_vmi(m: VM, run: VMI) -> VM:
    """The VM with its present run. One whose run has failed is down: the VM says no more of it than that it is stopped,
    as of one that was shut down."""
    if run.phase != "Failed" or run.deleting or m.strategy not in LEFT_ENDED:
        return replace(m, guest=run)
    return replace(m, guest=run, meant_to_run=True, exists=True)


def by_owner(m: VM) -> Iterator[Hashable]:
    """Index of a pool's members."""
    if m.owner_name:
        yield m.owner


def by_disk(m: VM) -> Iterator[Hashable]:
    """Index of who has disks that a pool could name: (namespace, `root`) for `root-3`."""
    for stem, ordinal in map(parent_and_ordinal, m.disks):
        if ordinal is not None:
            yield m.namespace, stem


def by_stem(m: VM) -> Iterator[Hashable]:
    """Index of the names that a pool could give: (namespace, `web`) for `web-3`, whoever owns it."""
    if m.ordinal is not None:
        yield m.namespace, m.stem
