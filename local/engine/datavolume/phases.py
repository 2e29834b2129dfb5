"""What becomes of a DataVolume, from what is known of it, of its pvc and of its progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from local.engine.conditions import condition, merge_conditions
from local.engine.objects import PVC, DataVolume

Json = dict[str, Any]


@dataclass(frozen=True)
class CreatePVC:
    pass


@dataclass(frozen=True)
class StartImport:
    """Bring the content into the pvc's file, or find that it is being brought."""


@dataclass(frozen=True)
class BindPVC:
    """Say that the pvc is there for use, and what it holds."""

    content: str


Action = CreatePVC | StartImport | BindPVC


@dataclass(frozen=True)
class ImportProgress:
    """How far the making of a pvc's file is."""

    state: Literal["none", "running", "done", "failed"] = "none"
    share: float | None = None
    """of the whole, while it is running"""
    content: str = ""
    """image, blank, tiny (the built-in Linux in an image's place)"""
    reason: str = ""
    failures: int = 0
    requeue_seconds: float | None = None


@dataclass(frozen=True)
class DataVolumePlan:
    status: Json
    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None


def plan_data_volume(disk: DataVolume, pvc: PVC | None, progress: ImportProgress, now: datetime) -> DataVolumePlan:
    """A pvc that is bound is taken as it is, whoever made it: a disk that was kept is used again. But one of another
    DataVolume, such as one of the same name that was deleted a moment ago, goes with that one; it is waited for."""
    if disk.deleted is not None or (pvc is not None and pvc.data_volume not in ("", disk.uid)):
        return DataVolumePlan(disk.status)
    if progress.state == "failed":
        return DataVolumePlan(_stopped(disk, pvc, progress, now), requeue_seconds=progress.requeue_seconds)
    if pvc is None:
        return DataVolumePlan(disk.status, (CreatePVC(),))
    if pvc.phase == "Bound":
        return DataVolumePlan(_status(disk, pvc, "Succeeded", "100.0%", now))
    content = pvc.content or (progress.content if progress.state == "done" else "")
    if content:
        return DataVolumePlan(disk.status, (BindPVC(content),))
    share = "N/A" if progress.share is None else f"{progress.share * 100:.1f}%"
    return DataVolumePlan(
        _status(disk, pvc, _phase(disk), share, now), (StartImport(),), requeue_seconds=progress.requeue_seconds
    )


def source_type(source: Json) -> str:
    """http, pvc, blank, ...: the one that is named."""
    return next(iter(source), "blank")


def _phase(disk: DataVolume) -> str:
    return "CloneInProgress" if source_type(disk.source) in ("pvc", "snapshot") else "ImportInProgress"


def _status(disk: DataVolume, pvc: PVC, phase: str, progress: str, now: datetime) -> Json:
    done = phase == "Succeeded"
    conditions = [
        condition("Bound", pvc.phase == "Bound" or done, "Bound" if done else "Pending", f"PVC {pvc.name}"),
        condition("Running", not done, "Completed" if done else "TransferRunning"),
        condition("Ready", done),
    ]
    return {**_common(disk, pvc.name, conditions, now), "phase": phase, "progress": progress}


def _stopped(disk: DataVolume, pvc: PVC | None, progress: ImportProgress, now: datetime) -> Json:
    conditions = [
        condition("Bound", False, "Pending"),
        condition("Running", False, "Error", progress.reason),
        condition("Ready", False, "TransferFailed", progress.reason),
    ]
    said = {"phase": _phase(disk), "progress": "N/A", "restartCount": progress.failures}
    return {**_common(disk, pvc.name if pvc is not None else disk.name, conditions, now), **said}


def _common(disk: DataVolume, pvc: str, conditions: list[Json], now: datetime) -> Json:
    before = disk.status.get("conditions") or ()
    return {**disk.status, "claimName": pvc, "conditions": merge_conditions(before, conditions, now)}
