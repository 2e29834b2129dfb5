"""What the DataVolume of a disk says about its data, by the rules of CDI, and who has a DataVolume or a claim."""

from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from sys import intern
from typing import NamedTuple

from controllers.shared.names import parent_and_ordinal
from controllers.shared.sources import DATA_VOLUMES, Source, key_of
from controllers.shared.vmi import text
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import PVCS, VMS, Key, object_key

PRE_POPULATED = "cdi.kubevirt.io/storage.prePopulated"
"""CDI's annotation of a DataVolume whose claim has its data.

CDI asks at each write of a clone whether the writer may clone from the source's namespace. It does not ask about a
DataVolume with this annotation (AuthorizeUser in CDI's authorize.go), and writes it itself on clones that it did not
make."""

MAX_MESSAGE = 300
_BEFORE_DATA = frozenset(
    {
        "Pending",
        "PVCBound",
        "ImportScheduled",
        "ImportInProgress",
        "CloneScheduled",
        "CloneInProgress",
        "CloneFromSnapshotSourceInProgress",
        "CSICloneInProgress",
        "NamespaceTransferInProgress",
        "PendingPopulation",
        "PrepClaimInProgress",
        "RebindInProgress",
        "SmartClonePVCInProgress",
        "SnapshotForSmartCloneInProgress",
        "UploadReady",
        "UploadScheduled",
        "WaitForFirstConsumer",
    }
)
"""Phases before the first data is complete. A DataVolume never returns to one of them. In the phase Paused, an import
in several stages has data. A DataVolume without a phase may be restored from a backup, with its claim."""


NOBODY = False, "", ""


class DiskState(NamedTuple):
    """The view of a DataVolume, or of a claim without its state."""

    phase: str = ""
    """empty if it does not exist, or if CDI has not looked at it"""
    message: str = ""
    """why it does not proceed, in the words of CDI or its importer"""
    left: bool = False
    """whether it is `is_left`"""
    key: Key = ("", "")
    vm: str = ""
    """the name of the VM that owns it, which may no longer have it in its spec"""
    vm_uid: str = ""
    kept_by: str = ""
    """the UID of the pool that retains it"""

    @property
    def belongs_to(self) -> tuple[bool, str, str]:
        """Whether a VM has left it, the VM that owns it, and the pool that retains it."""
        return self.left, self.vm_uid, self.kept_by

    @property
    def unseen(self) -> bool:
        """Whether it does not exist, or CDI has not looked at it."""
        return not (self.phase or self.message or self.left)

    @property
    def starts_vm(self) -> bool:
        """Whether KubeVirt starts a VM with the disk."""
        return self.phase in ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")

    def __str__(self) -> str:
        if not self.phase:
            return "its DataVolume does not exist yet"
        return f"{self.phase}: {self.message}" if self.message else self.phase

    def describe(self, disk: str) -> str:
        """Why the disk of this name cannot be used."""
        return f"{disk} is not ready: {self}"


def parse_disk_state(volume: Json) -> DiskState:
    found = {each.get("type"): each for _, each in entries(volume, "status", "conditions")}
    stopped = (found[kind] for kind in ("Running", "Bound") if kind in found and found[kind].get("status") == "False")
    message = next((text(each, "message") for each in stopped if each.get("message")), "")
    phase = text(volume, "status", "phase")
    message = intern(message[:MAX_MESSAGE]) if phase != "Succeeded" else ""
    return parse_claim(volume)._replace(phase=intern(phase), message=message)


def parse_claim(document: Json) -> DiskState:
    left, key, owner = is_left(document.get("metadata") or {}), object_key(document), controller_of(document) or {}
    vm, uid = (owner["name"], owner["uid"]) if owner.get("kind") == VMS.kind else ("", "")
    kept_by = intern(text(document, "metadata", "labels", meta.KEPT_BY))
    return DiskState(left=left, key=key, vm=vm, vm_uid=uid, kept_by=kept_by)


def _by_name_in_template(state: DiskState) -> Iterator[Hashable]:
    """Indexes a DataVolume or claim that a new VM must not get, such as `root-3`, by (namespace, `root`)."""
    name, ordinal = parent_and_ordinal(state.key[1])
    if ordinal is not None and state.belongs_to != NOBODY:
        yield state.key[0], name


def frees_name(old: DiskState | None, new: DiskState | None) -> bool:
    """Whether a disk of this name may be free after the change."""
    return old is not None and old.belongs_to not in (NOBODY, new.belongs_to if new is not None else NOBODY)


DATA_VOLUME_SOURCE = Source(DATA_VOLUMES, parse_disk_state, {"name": _by_name_in_template})
CLAIM_SOURCE = Source(PVCS, parse_claim, {"name": _by_name_in_template}, label_selector=meta.KUBEVIRT_CREATED_BY)
"""The claims of VMs' DataVolumes, which have the labels of these. Before CDI 1.62, CDI may collect the DataVolume: then
the VM owns the claim itself."""


class DiskInformers:
    """The informers of DataVolumes, which the cluster may not serve, and of the claims of VMs."""

    def __init__(self, api: Api) -> None:
        self.data_volumes, self.claims = DATA_VOLUME_SOURCE.optional_informer(api), CLAIM_SOURCE.informer(api)

    def state(self, key: Key) -> DiskState | None:
        """The state of a DataVolume; None if the cluster does not serve DataVolumes."""
        volumes = self.data_volumes
        if not volumes.known:
            return DiskState("DataVolumes are not listed yet")
        return (volumes.get(key[1], key[0]) or DiskState()) if volumes.served else None

    def owned(self, disk: Key) -> Iterator[DiskState]:
        """The DataVolumes and claims that a new VM must not get. `disk` is a namespace and a name in a template."""
        yield from self.data_volumes.by("name", disk)
        yield from self.claims.store.by("name", disk)

    def lists_data_volumes(self) -> bool:
        """Whether `owned` has all DataVolumes."""
        return self.data_volumes.known

    def subscribe(self, changed: Callable[[Key, bool], None]) -> None:
        """Calls `changed` with the key of a disk that has changed, and whether its name may be free now."""

        def handle(old: DiskState | None, new: DiskState | None) -> None:
            changed(key_of(old, new), frees_name(old, new))

        self.data_volumes.subscribe_objects(handle)
        self.claims.subscribe(handle)


async def disk_states(api: Api, namespace: str) -> AsyncIterator[tuple[Key, DiskState]]:
    """The DataVolumes that the namespace has now. Raises the API server's error."""
    async for items, _ in api.pages(DATA_VOLUMES, namespace):
        for document in items:
            yield object_key(document), parse_disk_state(document)


def is_left(metadata: Json) -> bool:
    """Whether KubeVirt made the DataVolume or claim for a VM, and nobody owns or retains it now: the VM was deleted
    without its dependents, or the disk is restored from a backup. virt-controller makes the next VM of the name the
    owner of the DataVolume (ClaimMatchedDataVolumes in KubeVirt's controller_ref_manager.go), and so would delete it
    with that VM. A claim without a DataVolume is used as it is."""
    labels = metadata.get("labels") or {}
    return meta.KUBEVIRT_CREATED_BY in labels and meta.KEPT_BY not in labels and not metadata.get("ownerReferences")


def has_held_data(volume: Json) -> bool:
    """Whether the disk has, or may have, data that a guest has seen."""
    populated = PRE_POPULATED in (at(volume, "metadata", "annotations") or {})
    return populated or at(volume, "status", "phase") not in _BEFORE_DATA


def is_clone(volume: Json) -> bool:
    source = at(volume, "spec", "source") or {}
    return any(source.get(kind) is not None for kind in ("pvc", "snapshot")) or bool(at(volume, "spec", "sourceRef"))
