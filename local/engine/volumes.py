"""What becomes of a DataVolume, from what is known of it, of its claim and of its filling."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from local.engine.conditions import condition, settle
from local.engine.views import Claim, Disk

Json = dict[str, Any]


@dataclass(frozen=True)
class CreateClaim:
    pass


@dataclass(frozen=True)
class Fill:
    """Bring the content into the claim's file, or find that it is being brought."""


@dataclass(frozen=True)
class Bind:
    """Say that the claim is there for use, and what it holds."""

    content: str


Action = CreateClaim | Fill | Bind


@dataclass(frozen=True)
class Filling:
    """How far the making of a claim's file is."""

    state: Literal["none", "running", "done", "failed"] = "none"
    share: float | None = None
    """of the whole, while it is running"""
    content: str = ""
    """image, blank, tiny (the built-in Linux in an image's place)"""
    reason: str = ""
    failures: int = 0
    again_seconds: float | None = None


@dataclass(frozen=True)
class Step:
    status: Json
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None


def step(disk: Disk, claim: Claim | None, filling: Filling, now: datetime) -> Step:
    """A claim that is bound is taken as it is, whoever made it: a disk that was kept is used again. But one of another
    DataVolume, such as one of the same name that was deleted a moment ago, goes with that one; it is waited for."""
    if disk.deleted is not None or (claim is not None and claim.data_volume not in ("", disk.uid)):
        return Step(disk.status)
    if filling.state == "failed":
        return Step(_stopped(disk, claim, filling, now), again_seconds=filling.again_seconds)
    if claim is None:
        return Step(disk.status, (CreateClaim(),))
    if claim.phase == "Bound":
        return Step(_status(disk, claim, "Succeeded", "100.0%", now))
    content = claim.content or (filling.content if filling.state == "done" else "")
    if content:
        return Step(disk.status, (Bind(content),))
    share = "N/A" if filling.share is None else f"{filling.share * 100:.1f}%"
    return Step(_status(disk, claim, _phase(disk), share, now), (Fill(),), again_seconds=filling.again_seconds)


def kind_of(source: Json) -> str:
    """http, pvc, blank, ...: the one that is named."""
    return next(iter(source), "blank")


def _phase(disk: Disk) -> str:
    return "CloneInProgress" if kind_of(disk.source) in ("pvc", "snapshot") else "ImportInProgress"


def _status(disk: Disk, claim: Claim, phase: str, progress: str, now: datetime) -> Json:
    done = phase == "Succeeded"
    conditions = [
        condition("Bound", claim.phase == "Bound" or done, "Bound" if done else "Pending", f"PVC {claim.name}"),
        condition("Running", not done, "Completed" if done else "TransferRunning"),
        condition("Ready", done),
    ]
    return {**_common(disk, claim.name, conditions, now), "phase": phase, "progress": progress}


def _stopped(disk: Disk, claim: Claim | None, filling: Filling, now: datetime) -> Json:
    conditions = [
        condition("Bound", False, "Pending"),
        condition("Running", False, "Error", filling.reason),
        condition("Ready", False, "TransferFailed", filling.reason),
    ]
    said = {"phase": _phase(disk), "progress": "N/A", "restartCount": filling.failures}
    return {**_common(disk, claim.name if claim is not None else disk.name, conditions, now), **said}


def _common(disk: Disk, claim: str, conditions: list[Json], now: datetime) -> Json:
    before = disk.status.get("conditions") or ()
    return {**disk.status, "claimName": claim, "conditions": settle(before, conditions, now)}
