"""Conditions, states and times in words."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from controllers.pool.reasons import PoolReason
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.timestamps import format_duration, known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.conditions import CONDITIONS
from poolhouse.cli.health import holds
from poolhouse.cli.updates import WAITING_REASONS

VMState = Literal["ready", "starting", "failing", "held", "halted", "halting", "deleting"]
STATE_WORDS: dict[VMState, str] = {
    "ready": "ready",
    "starting": "not ready yet",
    "failing": "failing",
    "held": "held by lifecycle hooks",
    "halted": "halted as specified",
    "halting": "being halted",
    "deleting": "being deleted",
}

BY_REASON: dict[tuple[str, str], tuple[str, str]] = {
    ("Progressing", PoolReason.COMPLETE): ("Nothing is left to change", "Nothing is left to change"),
    **{("Progressing", reason): ("The update waits", "The update waits") for reason in WAITING_REASONS},
}
"""words of a condition with a reason"""


def condition_rows(status: Json, now: datetime) -> list[Json]:
    """The conditions in words, first those by which the controller says that the object needs help."""
    conditions = status.get("conditions") or ()
    found = {each["type"]: each for each in conditions}
    problem = found["Stalled"].get("reason") if holds(found, "Stalled") else None
    rows = [_condition(each, problem, now) for each in conditions]
    return sorted(rows, key=lambda each: not each["bad"])


def _condition(condition: Json, problem: str | None, now: datetime) -> Json:
    kind, status = condition["type"], condition.get("status")
    known = CONDITIONS.get(kind)
    words = (known.when_true, known.when_false) if known else (kind, f"not {kind}")
    words = BY_REASON.get((kind, str(condition.get("reason"))), words)
    return {
        "type": kind,
        "status": status,
        "words": words[0] if status == "True" else words[1] if status == "False" else f"{kind} is unknown",
        "reason": condition.get("reason") or "",
        "message": condition.get("message") or "",
        "since": age(condition.get("lastTransitionTime"), now),
        "time": condition.get("lastTransitionTime") or "",
        "bad": problem is not None and condition.get("reason") == problem,
    }


def age(time: str | None, now: datetime) -> str:
    """The time since a moment, such as `5m`; empty without a time."""
    moment = known_time(time or "")
    if moment is None:
        return ""
    return format_duration((now - moment).total_seconds())


def vm_state(vm: VM) -> VMState:
    if vm.deleting:
        return "deleting"
    if vm.held:
        return "held"
    if vm.available:
        return "ready" if vm.should_run else "halted"
    if not vm.should_run:
        return "halting"
    if vm.start_failures or (vm.vmi is not None and vm.vmi.phase == "Failed"):
        return "failing"
    return "starting"


def vmi_state(vmi: VMI) -> VMState:
    if vmi.deleting:
        return "deleting"
    if vmi.phase == "Failed" or vmi.start_failure:
        return "failing"
    if vmi.final:
        return "halted"
    return "ready" if vmi.ready else "starting"
