"""Decides the phase of a VMI and the next actions, from the VMI and its domain.

Phases, conditions and their reasons are those of KubeVirt's virt-controller and virt-handler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from defaulter.contract import MachineTypes, resolve_alias
from poolhouse.api.apimachinery import timestamps
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine import objects
from poolhouse.stack.engine.hypervisor import Domain
from poolhouse.stack.engine.objects import VMI, Node
from poolhouse.stack.engine.resources import VMI_FINALIZER, condition, find_condition, has_condition, merge_conditions
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.vmi.devices import DeviceReport, device_status, interface_status, needs_sync
from poolhouse.stack.engine.vmi.probes import UNPROBED, ProbeResults

SYNC_REASON = "Synchronizing with the Domain failed."
PHASES = ("Pending", "Scheduling", "Scheduled", "Running")
POWER_BUTTON_SECONDS = 5.0
"""interval of power button events, because a guest that still boots ignores them"""

UNKNOWN_REQUEUE_SECONDS = 1.0

POD_MISSING = condition("Ready", False, "PodNotExists", "virt-launcher pod has not yet been scheduled")
NOT_RUNNING = condition("Ready", False, "GuestNotRunning", "Guest VM is not reported as running")
PAUSED_POD = condition(
    "Ready",
    False,
    "ReadinessGatesNotReady",
    'corresponding condition of pod readiness gate "kubevirt.io/virtual-machine-unpaused" is not "True".',
)
UNREADY_POD = condition("Ready", False, "ContainersNotReady", "containers with unready status: [compute]")
EVICTED_POD = condition("Ready", False, "PodTerminating", "virt-launcher pod is terminating")
SHUT_DOWN = condition("Ready", False, "PodTerminating", "the guest has shut down")


@dataclass(frozen=True)
class Launch:
    """Start the domain on this node unless it runs already."""

    node: str


@dataclass(frozen=True)
class PressPower:
    """Send a power button event, which asks the guest to shut down."""


@dataclass(frozen=True)
class Destroy:
    """Destroy and undefine the domain."""


@dataclass(frozen=True)
class SyncDevices:
    """Plug and unplug devices of the domain until it has those of the VMI."""


Action = Launch | PressPower | Destroy | SyncDevices


@dataclass(frozen=True)
class VMISnapshot:
    vmi: VMI
    domain: Domain
    node: Node | None = None
    """the node of the VMI, or the node that the scheduler chose"""
    target: str | None = None
    """name of the node that the scheduler chose"""
    unschedulable: str = ""
    """scheduler's message if it found no node"""
    missing: str | None = None
    """message about a volume that is not ready"""
    probes: ProbeResults = UNPROBED
    shut_down_at: datetime | None = None
    """when the guest must have shut down because its launcher Pod is being deleted"""


@dataclass(frozen=True)
class VMIPlan:
    status: Json
    actions: tuple[Action, ...] = ()
    finalizer: bool = True
    """whether the engine keeps its finalizer on the VMI"""
    requeue_seconds: float | None = None


def plan_vmi(
    snapshot: VMISnapshot, now: datetime, *, settle_seconds: float = 0.0, lost_seconds: float = 30.0
) -> VMIPlan:
    """Returns the plan of a VMI. A start that takes at most `settle_seconds` is written only at its end. A VMI fails if
    its node is not ready for `lost_seconds`."""
    vmi = snapshot.vmi
    if vmi.final:
        return _final(snapshot)
    if _is_away(snapshot.node):
        return _lost(snapshot, now, lost_seconds)
    if snapshot.domain.state == "unknown":
        return VMIPlan(vmi.status, requeue_seconds=UNKNOWN_REQUEUE_SECONDS)
    if vmi.deleted is not None:
        return _deleted(snapshot, now)
    if snapshot.shut_down_at is not None and snapshot.domain.alive:
        return _evicted(snapshot, snapshot.shut_down_at, now)
    if vmi.phase == "Running":
        return _running(snapshot, now)
    if vmi.phase == "Scheduled":
        return _scheduled(snapshot, now)
    return _unscheduled(snapshot, now, settle_seconds)


def _is_away(node: Node | None) -> bool:
    return node is not None and (node.lost or not node.ready)


def _final(snapshot: VMISnapshot) -> VMIPlan:
    """Returns the plan of a finished VMI: clear its domain, if the node is ready."""
    clear = snapshot.domain.state not in ("absent", "unknown") and not _is_away(snapshot.node)
    actions: tuple[Action, ...] = (Destroy(),) if clear else ()
    return VMIPlan(snapshot.vmi.status, actions, finalizer=snapshot.vmi.deleted is None or clear)


def _lost(snapshot: VMISnapshot, now: datetime, lost_seconds: float) -> VMIPlan:
    vmi, node = snapshot.vmi, snapshot.node
    assert node is not None
    since = node.unready_since or now
    left = objects.seconds_until(since + timedelta(seconds=lost_seconds), now)
    if left > 0:
        unready = condition("Ready", False, "NodeNotReady", f"node {node.name} is not ready")
        return VMIPlan(_status(snapshot, now, vmi.phase, _replace_condition(vmi, unready)), requeue_seconds=left)
    why = f"virt-handler on node {node.name} is not responsive"
    return VMIPlan(_failed(snapshot, now, "NodeUnresponsive", why))


def _deleted(snapshot: VMISnapshot, now: datetime) -> VMIPlan:
    vmi, domain = snapshot.vmi, snapshot.domain
    if domain.state == "absent":
        return VMIPlan(vmi.status, finalizer=False)
    assert vmi.deleted is not None
    left = objects.seconds_until(vmi.deleted + timedelta(seconds=vmi.grace_seconds), now)
    if domain.alive and left > 0:
        wait = min(left, POWER_BUTTON_SECONDS, domain.change_seconds or POWER_BUTTON_SECONDS)
        return VMIPlan(vmi.status, (PressPower(),), requeue_seconds=wait)
    return VMIPlan(vmi.status, (Destroy(),))


def _evicted(snapshot: VMISnapshot, shut_down_at: datetime, now: datetime) -> VMIPlan:
    """Returns the plan of a VMI whose launcher Pod has been evicted or deleted: the guest is shut down."""
    domain, left = snapshot.domain, objects.seconds_until(shut_down_at, now)
    if left <= 0:
        return VMIPlan(_failed(snapshot, now, "Destroyed", "the guest did not shut down in time"), (Destroy(),))
    conditions = _replace_condition(snapshot.vmi, EVICTED_POD)
    wait = min(left, POWER_BUTTON_SECONDS, domain.change_seconds or POWER_BUTTON_SECONDS)
    return VMIPlan(_status(snapshot, now, snapshot.vmi.phase, conditions), (PressPower(),), requeue_seconds=wait)


def _running(snapshot: VMISnapshot, now: datetime) -> VMIPlan:
    domain = snapshot.domain
    match domain.state:
        case "off":
            return VMIPlan(_status(snapshot, now, "Succeeded", [SHUT_DOWN]))
        case "crashed":
            return VMIPlan(_failed(snapshot, now, "Crashed", domain.reason or "the guest crashed"))
        case "absent":
            return VMIPlan(_failed(snapshot, now, "DomainGone", "the domain no longer exists"))
        case "starting":
            return VMIPlan(snapshot.vmi.status, requeue_seconds=domain.change_seconds)
        case _:
            if not snapshot.probes.alive:
                why = f"the liveness probe failed: {snapshot.probes.problem}"
                return VMIPlan(_failed(snapshot, now, "LivenessProbeFailed", why))
            # A migration may have moved the domain to another node.
            here = replace(snapshot, vmi=_on_node(snapshot.vmi, domain.node or snapshot.vmi.node))
            conditions = [
                *_running_conditions(domain, snapshot.probes),
                *unsynchronized(snapshot.vmi),
                *live_updates.conditions(snapshot.vmi),
            ]
            actions = (SyncDevices(),) if needs_sync(snapshot.vmi) else ()
            return VMIPlan(_status(here, now, "Running", conditions), actions, requeue_seconds=domain.change_seconds)


def _scheduled(snapshot: VMISnapshot, now: datetime) -> VMIPlan:
    vmi, domain = snapshot.vmi, snapshot.domain
    waiting = [NOT_RUNNING, condition("LiveMigratable", True)]
    match domain.state:
        case "running" | "paused":
            return VMIPlan(
                _status(snapshot, now, "Running", _running_conditions(domain, snapshot.probes)),
                requeue_seconds=domain.change_seconds,
            )
        case "off" | "crashed":
            reason = domain.reason or "the guest ended before it was running"
            return VMIPlan(_failed(snapshot, now, "Crashed", reason))
        case "starting":
            return VMIPlan(_status(snapshot, now, "Scheduled", waiting), requeue_seconds=domain.change_seconds)
        case _:
            return VMIPlan(_status(snapshot, now, "Scheduled", waiting), (Launch(vmi.node),))


def _unscheduled(snapshot: VMISnapshot, now: datetime, settle_seconds: float) -> VMIPlan:
    vmi, domain = snapshot.vmi, snapshot.domain
    if snapshot.missing is not None:
        conditions = [POD_MISSING, condition("Synchronized", False, "FailedPvcNotFound", snapshot.missing)]
        return VMIPlan(_status(snapshot, now, "Pending", conditions))
    if domain.start_problem == "Unschedulable" or snapshot.target is None:
        why = domain.reason if domain.start_problem else snapshot.unschedulable
        conditions = [POD_MISSING, condition("PodScheduled", False, "Unschedulable", why)]
        return VMIPlan(_status(snapshot, now, "Scheduling", conditions), requeue_seconds=domain.change_seconds)
    if domain.start_problem:
        conditions = [NOT_RUNNING, condition("Synchronized", False, domain.start_problem, domain.reason)]
        return VMIPlan(_status(snapshot, now, "Scheduling", conditions), requeue_seconds=domain.change_seconds)
    if domain.state == "starting" and domain.change_seconds is not None and domain.change_seconds <= settle_seconds:
        return VMIPlan(vmi.status, requeue_seconds=domain.change_seconds)
    # The node of an existing domain takes precedence over the scheduler's choice.
    placed = VMISnapshot(_on_node(vmi, domain.node or snapshot.target), domain, snapshot.node, snapshot.target)
    return (
        _scheduled(placed, now)
        if domain.state != "absent"
        else VMIPlan(_status(placed, now, "Scheduled", [POD_MISSING]))
    )


def _on_node(vmi: VMI, node: str) -> VMI:
    return replace(vmi, status={**vmi.status, "nodeName": node})


def _status(snapshot: VMISnapshot, now: datetime, phase: str, conditions: list[Json]) -> Json:
    vmi = snapshot.vmi
    status = {**vmi.status, "phase": phase}
    status["conditions"] = merge_conditions(vmi.conditions, conditions, now)
    status["phaseTransitionTimestamps"] = _phase_transitions(vmi, phase, now)
    if phase == "Running" and vmi.phase != "Running":
        status["interfaces"] = [
            interface_status(name, mac, snapshot.domain.addresses.get(name, ""))
            for name, mac in vmi.interfaces
            if name not in vmi.absent
        ]
        status["guestOSInfo"] = {}
    if phase == "Running" and "machine" not in status and (machine := _machine_type(vmi, snapshot.node)):
        status["machine"] = {"type": machine}
    if phase in PHASES:
        status.pop("reason", None)
    return status


def _machine_type(vmi: VMI, node: Node | None) -> str | None:
    """The canonical machine type of the domain. QEMU resolves an alias to the newest version of its family."""
    known = node.machine_types if node is not None else frozenset()
    found = resolve_alias(vmi.machine, None, {}, MachineTypes(known, known))
    return found or (vmi.machine if vmi.machine in known else None)


def _failed(snapshot: VMISnapshot, now: datetime, reason: str, message: str) -> Json:
    ended = condition("Ready", False, "PodTerminating", message)
    return {**_status(snapshot, now, "Failed", [ended]), "reason": reason}


def failed_launch(snapshot: VMISnapshot, now: datetime, why: str) -> VMIPlan:
    """Returns the plan for a VMI that the hypervisor refused to start."""
    status = _status(snapshot, now, "Failed", [NOT_RUNNING, condition("Synchronized", False, "FailedCreate", why)])
    return VMIPlan({**status, "reason": "SyncFailed"})


def _phase_transitions(vmi: VMI, phase: str, now: datetime) -> list[Json]:
    """Returns phaseTransitionTimestamps that include phases between the old and the new phase."""
    listed = list(vmi.status.get("phaseTransitionTimestamps") or ())
    if vmi.phase == phase:
        return listed
    done = {each.get("phase") for each in listed}
    passed = PHASES[: PHASES.index(phase)] if phase in PHASES else ()
    new = [each for each in (*passed, phase) if each not in done]
    return listed + [{"phase": each, "phaseTransitionTimestamp": timestamps.format_time(now)} for each in new]


def _replace_condition(vmi: VMI, changed: Json) -> list[Json]:
    """Returns the VMI's conditions, with the condition of the same type replaced."""
    kept = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in vmi.conditions]
    return [changed, *(each for each in kept if each["type"] != changed["type"])]


def _running_conditions(domain: Domain, probes: ProbeResults) -> list[Json]:
    """Returns the conditions of a running VMI. A paused VMI is not Ready, because its pod has a readiness gate."""
    paused = domain.state == "paused"
    ready = condition("Ready", True) if probes.ready else UNREADY_POD
    found = [PAUSED_POD if paused else ready, condition("LiveMigratable", True)]
    if paused:
        found.append(condition("Paused", True, "PausedByUser", "VMI was paused by user"))
    if domain.agent:
        found.append(condition("AgentConnected", True))
    return found


def wanted_finalizers(vmi: VMI, wanted: bool) -> tuple[str, ...]:
    """Adds or removes the engine's finalizer, and keeps other finalizers."""
    others = tuple(each for each in vmi.finalizers if each != VMI_FINALIZER)
    if wanted and VMI_FINALIZER in vmi.finalizers:
        return vmi.finalizers
    # The API server refuses new finalizers on an object that is being deleted.
    return (*others, VMI_FINALIZER) if wanted and vmi.deleted is None else others


def unsynchronized(vmi: VMI) -> list[Json]:
    """Returns the condition of a failed hotplug, without its time."""
    found = find_condition(vmi.conditions, "Synchronized")
    if found is None or found.get("reason") != SYNC_REASON:
        return []
    return [{key: value for key, value in found.items() if key != "lastTransitionTime"}]


def synced_devices(vmi: VMI, now: datetime, report: DeviceReport, pending: Mapping[str, str]) -> Json:
    """Returns the status of a running VMI whose devices have been plugged and unplugged."""
    others = [each for each in vmi.conditions if each.get("type") != "Synchronized"]
    conditions = [{key: value for key, value in each.items() if key != "lastTransitionTime"} for each in others]
    if report.problem:
        conditions.append(condition("Synchronized", False, SYNC_REASON, report.problem))
    merged = merge_conditions(vmi.conditions, conditions, now)
    return {**vmi.status, **device_status(vmi, report, pending), "conditions": merged}


def is_paused(vmi: VMI) -> bool:
    return has_condition(vmi.conditions, "Paused")
