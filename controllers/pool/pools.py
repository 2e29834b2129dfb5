"""The view of a pool: what the controllers read from a VirtualMachinePool."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import intern

from pydantic import ValidationError

from controllers.shared.decisions import last_manager
from controllers.shared.invalid_spec import InvalidSpec, describe, parse_status
from controllers.shared.names import FIRST_ORDINAL
from controllers.shared.vm import disk_names
from controllers.shared.vmi import ObjectView, text
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL, PoolSpec, PoolStatus
from poolhouse.api.kinds.pool_strategies import LiveUpdate, UpdateProactive
from poolhouse.api.kinds.reference_authors import Author, read_record
from poolhouse.api.kubevirt.data_source_references import references
from poolhouse.runtime.resource import Key, Resource

POOLS = Resource.of(POOL)

InvalidPool = InvalidSpec[PoolStatus]


@dataclass(frozen=True)
class Pool(ObjectView):
    generation: int
    spec: PoolSpec
    status: PoolStatus
    max_unavailable: int = 1
    deleting: bool = False
    created_at: str = ""
    resource_version: str = field(default="", compare=False)
    promote: str = ""
    """the annotation poolhouse.dev/promote"""
    abort: str = ""
    """the annotation poolhouse.dev/abort"""
    retry: str = ""
    """the annotation poolhouse.dev/retry"""
    restore: str = ""
    """the annotation poolhouse.dev/restore-snapshots"""
    replicas_by: str = ""
    """the client that last set `spec.replicas`"""
    template_by: str = ""
    """the client that last set `spec.template`"""
    first_ordinal: int = field(default=FIRST_ORDINAL, kw_only=True)
    """the lowest number of a VM: 0 with the annotation poolhouse.dev/first-ordinal"""
    removals: frozenset[str] = field(default=frozenset(), kw_only=True)
    """UIDs of the VMs in the annotation poolhouse.dev/remove-vms"""
    authors: Mapping[str, Author] = field(default_factory=dict, kw_only=True, hash=False)
    """who wrote the references of the spec, by reference"""

    @cached_property
    def replaces_disks(self) -> bool:
        strategy = self.spec.update_strategy.chosen
        return isinstance(strategy, UpdateProactive) and strategy.replace_policy == "Recreate"

    @cached_property
    def surges(self) -> bool:
        """Whether updates create new VMs before they delete old ones."""
        strategy = self.spec.update_strategy.chosen
        return isinstance(strategy, UpdateProactive) and strategy.max_surge is not None

    @cached_property
    def takes_snapshots(self) -> bool:
        """Whether the pool takes a snapshot of each VM before its update."""
        strategy = self.spec.update_strategy.chosen
        return isinstance(strategy, UpdateProactive) and strategy.snapshot_before_update

    @cached_property
    def disk_names(self) -> frozenset[str]:
        """The names of the disks in the template."""
        return frozenset(disk_names(self.spec.template))

    @cached_property
    def disks(self) -> frozenset[Key]:
        """Namespace and name of each disk in the template."""
        return frozenset((self.namespace, name) for name in self.disk_names)

    @cached_property
    def tracked(self) -> Mapping[str, Key]:
        """The DataSources that the pool tracks, by name in dataVolumeTemplates."""
        strategy = self.spec.update_strategy.chosen
        tracks = isinstance(strategy, UpdateProactive) and strategy.track_data_sources
        return references(self.spec.template, self.namespace) if tracks else {}

    @cached_property
    def live_update(self) -> LiveUpdate:
        """KubeVirt also changes the running VMs into which an opportunistic update has written the template."""
        strategy = self.spec.update_strategy
        if isinstance(strategy.chosen, UpdateProactive):
            return strategy.chosen.live_update
        return "Prefer" if strategy.unmanaged is None else "Never"


def parse_pool(document: Json) -> Pool | InvalidPool:
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    status = parse_status(PoolStatus, document)
    try:
        spec = PoolSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        return InvalidSpec(*key, status, describe(error))
    limit = spec.most_unavailable
    created_at = metadata.get("creationTimestamp") or ""
    asked = (text(metadata, "annotations", name) for name in (meta.PROMOTE, meta.ABORT, meta.RETRY, meta.RESTORE))
    clients = (intern(last_manager(metadata, "spec", field)) for field in ("replicas", "template"))
    deleting = metadata.get("deletionTimestamp") is not None
    version = text(metadata, "resourceVersion")
    authors = read_record(text(metadata, "annotations", meta.REFERENCE_AUTHORS))
    found = Pool(*key, spec, status, limit, deleting, created_at, version, *asked, *clients, authors=authors)
    if removals := parse_removals(text(metadata, "annotations", meta.REMOVE_VMS)):
        found = replace(found, removals=frozenset(removals.values()))
    return replace(found, first_ordinal=0) if text(metadata, "annotations", meta.FIRST_ORDINAL) == "0" else found


def parse_removals(annotation: str) -> dict[str, str]:
    """The UIDs of the VMs that a pool removes, by name. A later VM of the same name has another UID, and stays."""
    pairs = (each.partition("=") for each in annotation.split(","))
    return {name.strip(): uid.strip() for name, _, uid in pairs if uid}


def format_removals(vms: Mapping[str, str]) -> str:
    return ",".join(f"{name}={uid}" for name, uid in sorted(vms.items()))
