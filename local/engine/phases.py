"""What becomes of a VirtualMachineInstance, from what is known of it and of its domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from local.engine import times
from local.engine.conditions import condition, holds, settle
from local.engine.domain import Domain
from local.engine.resources import INSTANCE_FINALIZER
from local.engine.views import Instance, Node

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
class Seen:
    instance: Instance
    domain: Domain
    node: Node | None = None
    """the one that it is on"""
    target: str | None = None
    """where it would be placed now"""
    unplaceable: str = ""
    """why there is no target"""
    missing: str | None = None
    """a volume that is not there yet"""


@dataclass(frozen=True)
class Step:
    status: Json
    """the whole status as it should be"""
    actions: tuple[Action, ...] = ()
    finalizer: bool = True
    """whether ours stays on it"""
    again_seconds: float | None = None


def step(seen: Seen, now: datetime, *, settle_seconds: float = 0.0, lost_seconds: float = 30.0) -> Step:
    """`settle_seconds`: a start that takes no longer is written down when it is over, as one change."""
    instance = seen.instance
    if instance.final:
        return _final(seen)
    if _away(seen.node):
        return _lost(seen, now, lost_seconds)
    if seen.domain.state == "unknown":
        return Step(instance.status, again_seconds=UNKNOWN_SECONDS)
    if instance.deleted is not None:
        return _deleted(seen, now)
    if instance.phase == "Running":
        return _running(seen, now)
    if instance.phase == "Scheduled":
        return _scheduled(seen, now)
    return _unscheduled(seen, now, settle_seconds)


def _away(node: Node | None) -> bool:
    return node is not None and (node.lost or not node.ready)


def _final(seen: Seen) -> Step:
    """Only clearing away is left. A domain on a node that is away is cleared when that comes back."""
    clear = seen.domain.state not in ("absent", "unknown") and not _away(seen.node)
    actions: tuple[Action, ...] = (Destroy(),) if clear else ()
    return Step(seen.instance.status, actions, finalizer=seen.instance.deleted is None or clear)


def _lost(seen: Seen, now: datetime, lost_seconds: float) -> Step:
    instance, node = seen.instance, seen.node
    assert node is not None
    since = node.unready_since or now
    left = times.seconds_until(since + timedelta(seconds=lost_seconds), now)
    if left > 0:
        unready = condition("Ready", False, "NodeNotReady", f"node {node.name} is not ready")
        return Step(_status(seen, now, instance.phase, _with(instance, unready)), again_seconds=left)
    why = f"virt-handler on node {node.name} is not responsive"
    return Step(_failed(seen, now, "NodeUnresponsive", why))


def _deleted(seen: Seen, now: datetime) -> Step:
    instance, domain = seen.instance, seen.domain
    if domain.state == "absent":
        return Step(instance.status, finalizer=False)
    assert instance.deleted is not None
    left = times.seconds_until(instance.deleted + timedelta(seconds=instance.grace_seconds), now)
    if domain.alive and left > 0:
        again = min(left, ACPI_SECONDS, domain.change_seconds or ACPI_SECONDS)
        return Step(instance.status, (PressPower(),), again_seconds=again)
    return Step(instance.status, (Destroy(),))


def _running(seen: Seen, now: datetime) -> Step:
    domain = seen.domain
    match domain.state:
        case "off":
            return Step(_status(seen, now, "Succeeded", [_ended()]))
        case "crashed":
            return Step(_failed(seen, now, domain.reason or "Crashed", domain.reason or "the guest crashed"))
        case "absent":
            return Step(_failed(seen, now, "DomainGone", "its domain is no longer there"))
        case "starting":
            return Step(seen.instance.status, again_seconds=domain.change_seconds)
        case _:
            # Its domain may have moved to another node.
            here = replace(seen, instance=_placed(seen.instance, domain.node or seen.instance.node))
            return Step(_status(here, now, "Running", _alive(domain)), again_seconds=domain.change_seconds)


def _scheduled(seen: Seen, now: datetime) -> Step:
    instance, domain = seen.instance, seen.domain
    waiting = [_not_running(), condition("LiveMigratable", True)]
    match domain.state:
        case "running" | "paused":
            return Step(_status(seen, now, "Running", _alive(domain)), again_seconds=domain.change_seconds)
        case "off" | "crashed":
            reason = domain.reason or "the guest ended before it ran"
            return Step(_failed(seen, now, "Crashed", reason))
        case "starting":
            return Step(_status(seen, now, "Scheduled", waiting), again_seconds=domain.change_seconds)
        case _:
            return Step(_status(seen, now, "Scheduled", waiting), (Launch(instance.node),))


def _unscheduled(seen: Seen, now: datetime, settle_seconds: float) -> Step:
    instance, domain = seen.instance, seen.domain
    if seen.missing is not None:
        conditions = [_no_pod(), condition("Synchronized", False, "FailedPvcNotFound", seen.missing)]
        return Step(_status(seen, now, "Pending", conditions))
    if domain.trouble == "Unschedulable" or seen.target is None:
        why = domain.reason if domain.trouble else seen.unplaceable
        conditions = [_no_pod(), condition("PodScheduled", False, "Unschedulable", why)]
        return Step(_status(seen, now, "Scheduling", conditions), again_seconds=domain.change_seconds)
    if domain.trouble:
        conditions = [_not_running(), condition("Synchronized", False, domain.trouble, domain.reason)]
        return Step(_status(seen, now, "Scheduling", conditions), again_seconds=domain.change_seconds)
    if domain.state == "starting" and domain.change_seconds is not None and domain.change_seconds <= settle_seconds:
        return Step(instance.status, again_seconds=domain.change_seconds)
    # A domain that is found is where it is, whatever the placement of a new one would be.
    placed = Seen(_placed(instance, domain.node or seen.target), domain, seen.node, seen.target)
    return _scheduled(placed, now) if domain.state != "absent" else Step(_status(placed, now, "Scheduled", [_no_pod()]))


def _placed(instance: Instance, node: str) -> Instance:
    return replace(instance, status={**instance.status, "nodeName": node})


def _status(seen: Seen, now: datetime, phase: str, conditions: list[Json]) -> Json:
    instance = seen.instance
    status = {**instance.status, "phase": phase}
    status["conditions"] = settle(instance.conditions, conditions, now)
    status["phaseTransitionTimestamps"] = _transitions(instance, phase, now)
    if phase == "Running" and instance.phase != "Running":
        status["interfaces"] = [_interface(name, mac) for name, mac in instance.interfaces]
        status["guestOSInfo"] = {}
    if phase in PHASES:
        status.pop("reason", None)
    return status


def _failed(seen: Seen, now: datetime, reason: str, message: str) -> Json:
    ended = condition("Ready", False, "PodTerminating", message)
    return {**_status(seen, now, "Failed", [ended]), "reason": reason}


def launch_refused(seen: Seen, now: datetime, why: str) -> Step:
    """What is said of a VMI that cannot be started as it is."""
    status = _status(seen, now, "Failed", [_not_running(), condition("Synchronized", False, "FailedCreate", why)])
    return Step({**status, "reason": "SyncFailed"})


def _transitions(instance: Instance, phase: str, now: datetime) -> list[Json]:
    """When each phase was reached. Phases that were passed through without a write are among them."""
    listed = list(instance.status.get("phaseTransitionTimestamps") or ())
    if instance.phase == phase:
        return listed
    done = {each.get("phase") for each in listed}
    passed = PHASES[: PHASES.index(phase)] if phase in PHASES else ()
    new = [each for each in (*passed, phase) if each not in done]
    return listed + [{"phase": each, "phaseTransitionTimestamp": times.stamp(now)} for each in new]


def _interface(name: str, mac: str) -> Json:
    given = {"name": name, "mac": mac, "ipAddress": "10.0.2.15", "infoSource": "domain"}
    return {key: value for key, value in given.items() if value}


def _with(instance: Instance, changed: Json) -> list[Json]:
    """Its conditions with this one in the place of its type."""
    kept = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in instance.conditions]
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


def finalizers(instance: Instance, wanted: bool) -> tuple[str, ...]:
    """Its finalizers with or without ours, never anyone else's touched."""
    others = tuple(each for each in instance.finalizers if each != INSTANCE_FINALIZER)
    if wanted and INSTANCE_FINALIZER in instance.finalizers:
        return instance.finalizers
    # The API server refuses new finalizers on what is being deleted.
    return (*others, INSTANCE_FINALIZER) if wanted and instance.deleted is None else others


def paused(instance: Instance) -> bool:
    return holds(instance.conditions, "Paused")
