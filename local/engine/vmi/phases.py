"""What becomes of a VirtualMachineInstance, from what is known of it and of its domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from apimachinery import timestamps
from local.engine import objects
from local.engine.conditions import condition, has_condition, merge_conditions
from local.engine.hypervisor import Domain
from local.engine.objects import VMI, Node
from local.engine.resources import VMI_FINALIZER

Json = dict[str, Any]

PHASES = ("Pending", "Scheduling", "Scheduled", "Running")
ACPI_SECONDS = 5.0
"""A guest that is still booting does not hear its power button: it is pressed again this often."""

UNKNOWN_SECONDS = 1.0


@dataclass(frozen=True)
class Launch:
    """Start its domain there, or find that it is started."""

    node: str


@dataclass(frozen=True)
class PressPower:
    """Ask the guest to end."""


@dataclass(frozen=True)
class Destroy:
    """End the domain, whatever the guest does, and clear it away."""


Action = Launch | PressPower | Destroy


@dataclass(frozen=True)
class VMISnapshot:
    vmi: VMI
    domain: Domain
    node: Node | None = None
    """the one that it is on"""
    target: str | None = None
    """where it would be placed now"""
    unschedulable: str = ""
    """why there is no target"""
    missing: str | None = None
    """a volume that is not there yet"""


@dataclass(frozen=True)
class VMIPlan:
    status: Json
    """the whole status as it should be"""
    actions: tuple[Action, ...] = ()
    finalizer: bool = True
    """whether ours stays on it"""
    requeue_seconds: float | None = None


def plan_vmi(seen: VMISnapshot, now: datetime, *, settle_seconds: float = 0.0, lost_seconds: float = 30.0) -> VMIPlan:
    """`settle_seconds`: a start that takes no longer is written down when it is over, as one change."""
    vmi = seen.vmi
    if vmi.final:
        return _final(seen)
    if _away(seen.node):
        return _lost(seen, now, lost_seconds)
    if seen.domain.state == "unknown":
        return VMIPlan(vmi.status, requeue_seconds=UNKNOWN_SECONDS)
    if vmi.deleted is not None:
        return _deleted(seen, now)
    if vmi.phase == "Running":
        return _running(seen, now)
    if vmi.phase == "Scheduled":
        return _scheduled(seen, now)
    return _unscheduled(seen, now, settle_seconds)


def _away(node: Node | None) -> bool:
    return node is not None and (node.lost or not node.ready)


def _final(seen: VMISnapshot) -> VMIPlan:
    """Only clearing away is left. A domain on a node that is away is cleared when that comes back."""
    clear = seen.domain.state not in ("absent", "unknown") and not _away(seen.node)
    actions: tuple[Action, ...] = (Destroy(),) if clear else ()
    return VMIPlan(seen.vmi.status, actions, finalizer=seen.vmi.deleted is None or clear)


def _lost(seen: VMISnapshot, now: datetime, lost_seconds: float) -> VMIPlan:
    vmi, node = seen.vmi, seen.node
    assert node is not None
    since = node.unready_since or now
    left = objects.seconds_until(since + timedelta(seconds=lost_seconds), now)
    if left > 0:
        unready = condition("Ready", False, "NodeNotReady", f"node {node.name} is not ready")
        return VMIPlan(_status(seen, now, vmi.phase, _with(vmi, unready)), requeue_seconds=left)
    why = f"virt-handler on node {node.name} is not responsive"
    return VMIPlan(_failed(seen, now, "NodeUnresponsive", why))


def _deleted(seen: VMISnapshot, now: datetime) -> VMIPlan:
    vmi, domain = seen.vmi, seen.domain
    if domain.state == "absent":
        return VMIPlan(vmi.status, finalizer=False)
    assert vmi.deleted is not None
    left = objects.seconds_until(vmi.deleted + timedelta(seconds=vmi.grace_seconds), now)
    if domain.alive and left > 0:
        again = min(left, ACPI_SECONDS, domain.change_seconds or ACPI_SECONDS)
        return VMIPlan(vmi.status, (PressPower(),), requeue_seconds=again)
    return VMIPlan(vmi.status, (Destroy(),))


def _running(seen: VMISnapshot, now: datetime) -> VMIPlan:
    domain = seen.domain
    match domain.state:
        case "off":
            return VMIPlan(_status(seen, now, "Succeeded", [_ended()]))
        case "crashed":
            return VMIPlan(_failed(seen, now, domain.reason or "Crashed", domain.reason or "the guest crashed"))
        case "absent":
            return VMIPlan(_failed(seen, now, "DomainGone", "its domain is no longer there"))
        case "starting":
            return VMIPlan(seen.vmi.status, requeue_seconds=domain.change_seconds)
        case _:
            # Its domain may have moved to another node.
            here = replace(seen, vmi=_placed(seen.vmi, domain.node or seen.vmi.node))
            return VMIPlan(_status(here, now, "Running", _alive(domain)), requeue_seconds=domain.change_seconds)


def _scheduled(seen: VMISnapshot, now: datetime) -> VMIPlan:
    vmi, domain = seen.vmi, seen.domain
    waiting = [_not_running(), condition("LiveMigratable", True)]
    match domain.state:
        case "running" | "paused":
            return VMIPlan(_status(seen, now, "Running", _alive(domain)), requeue_seconds=domain.change_seconds)
        case "off" | "crashed":
            reason = domain.reason or "the guest ended before it ran"
            return VMIPlan(_failed(seen, now, "Crashed", reason))
        case "starting":
            return VMIPlan(_status(seen, now, "Scheduled", waiting), requeue_seconds=domain.change_seconds)
        case _:
            return VMIPlan(_status(seen, now, "Scheduled", waiting), (Launch(vmi.node),))


def _unscheduled(seen: VMISnapshot, now: datetime, settle_seconds: float) -> VMIPlan:
    vmi, domain = seen.vmi, seen.domain
    if seen.missing is not None:
        conditions = [_no_pod(), condition("Synchronized", False, "FailedPvcNotFound", seen.missing)]
        return VMIPlan(_status(seen, now, "Pending", conditions))
    if domain.start_problem == "Unschedulable" or seen.target is None:
        why = domain.reason if domain.start_problem else seen.unschedulable
        conditions = [_no_pod(), condition("PodScheduled", False, "Unschedulable", why)]
        return VMIPlan(_status(seen, now, "Scheduling", conditions), requeue_seconds=domain.change_seconds)
    if domain.start_problem:
        conditions = [_not_running(), condition("Synchronized", False, domain.start_problem, domain.reason)]
        return VMIPlan(_status(seen, now, "Scheduling", conditions), requeue_seconds=domain.change_seconds)
    if domain.state == "starting" and domain.change_seconds is not None and domain.change_seconds <= settle_seconds:
        return VMIPlan(vmi.status, requeue_seconds=domain.change_seconds)
    # A domain that is found is where it is, whatever the placement of a new one would be.
    placed = VMISnapshot(_placed(vmi, domain.node or seen.target), domain, seen.node, seen.target)
    return (
        _scheduled(placed, now) if domain.state != "absent" else VMIPlan(_status(placed, now, "Scheduled", [_no_pod()]))
    )


def _placed(vmi: VMI, node: str) -> VMI:
    return replace(vmi, status={**vmi.status, "nodeName": node})


def _status(seen: VMISnapshot, now: datetime, phase: str, conditions: list[Json]) -> Json:
    vmi = seen.vmi
    status = {**vmi.status, "phase": phase}
    status["conditions"] = merge_conditions(vmi.conditions, conditions, now)
    status["phaseTransitionTimestamps"] = _transitions(vmi, phase, now)
    if phase == "Running" and vmi.phase != "Running":
        status["interfaces"] = [_interface(name, mac) for name, mac in vmi.interfaces]
        status["guestOSInfo"] = {}
    if phase in PHASES:
        status.pop("reason", None)
    return status


def _failed(seen: VMISnapshot, now: datetime, reason: str, message: str) -> Json:
    ended = condition("Ready", False, "PodTerminating", message)
    return {**_status(seen, now, "Failed", [ended]), "reason": reason}


def failed_launch(seen: VMISnapshot, now: datetime, why: str) -> VMIPlan:
    """What is said of a VMI that cannot be started as it is."""
    status = _status(seen, now, "Failed", [_not_running(), condition("Synchronized", False, "FailedCreate", why)])
    return VMIPlan({**status, "reason": "SyncFailed"})


def _transitions(vmi: VMI, phase: str, now: datetime) -> list[Json]:
    """When each phase was reached. Phases that were passed through without a write are among them."""
    listed = list(vmi.status.get("phaseTransitionTimestamps") or ())
    if vmi.phase == phase:
        return listed
    done = {each.get("phase") for each in listed}
    passed = PHASES[: PHASES.index(phase)] if phase in PHASES else ()
    new = [each for each in (*passed, phase) if each not in done]
    return listed + [{"phase": each, "phaseTransitionTimestamp": timestamps.format_time(now)} for each in new]


def _interface(name: str, mac: str) -> Json:
    given = {"name": name, "mac": mac, "ipAddress": "10.0.2.15", "infoSource": "domain"}
    return {key: value for key, value in given.items() if value}


def _with(vmi: VMI, changed: Json) -> list[Json]:
    """Its conditions with this one in the place of its type."""
    kept = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in vmi.conditions]
    return [changed, *(each for each in kept if each["type"] != changed["type"])]


def _alive(domain: Domain) -> list[Json]:
    """A paused guest stays ready, as KubeVirt has it: its launcher pod is."""
    found = [condition("Ready", True), condition("LiveMigratable", True)]
    if domain.state == "paused":
        found.append(condition("Paused", True, "PausedByUser", "VMI was paused by user"))
    if domain.agent:
        found.append(condition("AgentConnected", True))
    return found


def _no_pod() -> Json:
    return condition("Ready", False, "PodNotExists", "virt-launcher pod has not yet been scheduled")


def _not_running() -> Json:
    return condition("Ready", False, "GuestNotRunning", "Guest VM is not reported as running")


def _ended() -> Json:
    return condition("Ready", False, "PodTerminating", "the guest has shut down")


def wanted_finalizers(vmi: VMI, wanted: bool) -> tuple[str, ...]:
    """Its finalizers with or without ours, never anyone else's touched."""
    others = tuple(each for each in vmi.finalizers if each != VMI_FINALIZER)
    if wanted and VMI_FINALIZER in vmi.finalizers:
        return vmi.finalizers
    # The API server refuses new finalizers on what is being deleted.
    return (*others, VMI_FINALIZER) if wanted and vmi.deleted is None else others


def is_paused(vmi: VMI) -> bool:
    return has_condition(vmi.conditions, "Paused")
