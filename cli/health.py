"""What an object's status says to a person in one line: what is wrong, else what goes on.

Pure: documents in, words out. Reasons and messages are the controllers' own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kinds.kind import Phases

Json = dict[str, Any]
Mood = Literal["well", "going", "wrong"]

COLOURS: dict[Mood, str | None] = {"well": None, "going": "yellow", "wrong": "red"}

BAD_WHILE_TRUE = frozenset({"ReplicaFailure", "ScaleInBlocked", "DisksShared", "Degraded"})
BAD_WHILE_FALSE = frozenset({"Available", "Valid", "Active", "Enforced"})
BAD_REASONS = frozenset({"TooManyFailing", "ProgressDeadlineExceeded", "CircuitBreakerOpen", "InvalidSpec"})
"""of conditions that may be False without harm"""


@dataclass(frozen=True)
class Health:
    mood: Mood
    says: str = ""


def assess(document: Json) -> Health:
    """Of a pool, replica set, warm pool or migration policy."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Health("going", "it is being deleted")
    if wrong := next(_wrongs(status), None):
        return Health("wrong", wrong)
    if int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 1):
        return Health("going", "its last change has not been looked at yet")
    if spec.get("paused"):
        return Health("going", "paused")
    progress = next((each for each in status.get("conditions") or () if each["type"] == "Progressing"), None)
    if progress and progress.get("reason") != "Complete":
        return Health("going", _said(progress))
    wanted, ready = int(spec.get("replicas", 0)), int(status.get("readyReplicas") or 0)
    if progress is None and ready < wanted:
        return Health("going", f"{ready} of {wanted} are ready")
    return Health("well")


def assess_phase(document: Json, phases: Phases) -> Health:
    """The health of an object whose status has a phase."""
    status = document.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    bound = next((each for each in status.get("conditions") or () if each["type"] == "Bound"), None)
    why = f": {bound.get('message') or bound.get('reason')}" if bound and bound["status"] == "False" else ""
    if phase == phases.ready:
        return Health("well", phase)
    return Health("wrong" if phase == phases.failed else "going", f"{phase}{why}")


def format_age(document: Json, now: datetime) -> str:
    """As kubectl says it: one unit, two where the first is small."""
    born = document["metadata"].get("creationTimestamp")
    if not born:
        return "<unknown>"
    seconds = max(int((now - datetime.fromisoformat(born)).total_seconds()), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    return f"{days}d"


def _wrongs(status: Json) -> Iterator[str]:
    """The causes first: that it is not available is what comes of them."""
    for each in sorted(status.get("conditions") or (), key=lambda each: each["type"] == "Available"):
        bad = each["type"] in (BAD_WHILE_TRUE if each["status"] == "True" else BAD_WHILE_FALSE)
        if bad or (each["status"] == "False" and each.get("reason") in BAD_REASONS):
            yield _said(each)


def _said(condition: Json) -> str:
    reason, message = condition.get("reason"), condition.get("message")
    return f"{reason}: {message}" if message else str(reason)
