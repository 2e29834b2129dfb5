"""What the DataVolume of a disk says about its data, by the rules of CDI."""

from apimachinery.unstructured import Json, at

PRE_POPULATED = "cdi.kubevirt.io/storage.prePopulated"
"""CDI's annotation of a DataVolume whose claim has its data.

CDI asks at each write of a clone whether the writer may clone from the source's namespace. It does not ask about a
DataVolume with this annotation (AuthorizeUser in CDI's authorize.go), and writes it itself on clones that it did not
make."""

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


def has_held_data(volume: Json) -> bool:
    """Whether the disk has, or may have, data that a guest has seen."""
    populated = PRE_POPULATED in (at(volume, "metadata", "annotations") or {})
    return populated or at(volume, "status", "phase") not in _BEFORE_DATA


def is_clone(volume: Json) -> bool:
    source = at(volume, "spec", "source") or {}
    return any(source.get(kind) is not None for kind in ("pvc", "snapshot")) or bool(at(volume, "spec", "sourceRef"))
