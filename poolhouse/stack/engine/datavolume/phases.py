"""Decides the phase of a DataVolume and the next actions, from its PVC and the progress of its import."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.resources import condition, merge_conditions


@dataclass(frozen=True)
class CreatePVC:
    pass


@dataclass(frozen=True)
class StartImport:
    """Start the import into the PVC's file, unless it runs already."""


@dataclass(frozen=True)
class BindPVC:
    content: str


Action = CreatePVC | StartImport | BindPVC


@dataclass(frozen=True)
class ImportProgress:
    state: Literal["none", "running", "done", "failed"] = "none"
    share: float | None = None
    """progress of the running import, from 0 to 1"""
    content: str = ""
    """content of the imported disk: image, blank, or tiny (the built-in Linux)"""
    reason: str = ""
    failures: int = 0
    requeue_seconds: float | None = None


@dataclass(frozen=True)
class DataVolumePlan:
    status: Json
    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None


def plan_data_volume(
    data_volume: DataVolume, pvc: PVC | None, progress: ImportProgress, now: datetime
) -> DataVolumePlan:
    """Plans the next step of an import. A bound PVC without another controller is used unchanged, so that a retained
    disk is used again. If another DataVolume controls the PVC, the plan waits for the PVC's deletion."""
    if data_volume.deleted is not None or (pvc is not None and pvc.data_volume_uid not in ("", data_volume.uid)):
        return DataVolumePlan(data_volume.status)
    if progress.state == "failed":
        return DataVolumePlan(_failed(data_volume, pvc, progress, now), requeue_seconds=progress.requeue_seconds)
    if pvc is None:
        return DataVolumePlan(data_volume.status, (CreatePVC(),))
    if pvc.phase == "Bound":
        return DataVolumePlan(_status(data_volume, pvc, "Succeeded", "100.0%", now))
    content = pvc.content or (progress.content if progress.state == "done" else "")
    if content:
        return DataVolumePlan(data_volume.status, (BindPVC(content),))
    share = "N/A" if progress.share is None else f"{progress.share * 100:.1f}%"
    status = _status(data_volume, pvc, _phase(data_volume), share, now)
    return DataVolumePlan(status, (StartImport(),), requeue_seconds=progress.requeue_seconds)


def source_type(source: Json) -> str:
    """Returns the only field of a DataVolume's source that is set, such as http, pvc or blank."""
    return next((kind for kind, value in source.items() if value is not None), "blank")


def _phase(data_volume: DataVolume) -> str:
    return "CloneInProgress" if source_type(data_volume.source) in ("pvc", "snapshot") else "ImportInProgress"


def _status(data_volume: DataVolume, pvc: PVC, phase: str, progress: str, now: datetime) -> Json:
    done = phase == "Succeeded"
    conditions = [
        condition("Bound", pvc.phase == "Bound" or done, "Bound" if done else "Pending", f"PVC {pvc.name}"),
        condition("Running", not done, "Completed" if done else "TransferRunning"),
        condition("Ready", done),
    ]
    return {**_with_conditions(data_volume, pvc.name, conditions, now), "phase": phase, "progress": progress}


def http_failure(status: int, reason: str) -> str:
    """CDI's message for the answer of an image's server."""
    return f"Unable to connect to http data source: expected status code 200, got {status}. Status: {status} {reason}"


def _failed(data_volume: DataVolume, pvc: PVC | None, progress: ImportProgress, now: datetime) -> Json:
    conditions = [
        condition("Bound", False, "Pending"),
        condition("Running", False, "Error", progress.reason),
        condition("Ready", False, "TransferFailed", progress.reason),
    ]
    status = _with_conditions(data_volume, pvc.name if pvc is not None else data_volume.name, conditions, now)
    return {**status, "phase": _phase(data_volume), "progress": "N/A", "restartCount": progress.failures}


def _with_conditions(data_volume: DataVolume, pvc: str, conditions: list[Json], now: datetime) -> Json:
    before = data_volume.status.get("conditions") or ()
    return {**data_volume.status, "claimName": pvc, "conditions": merge_conditions(before, conditions, now)}
