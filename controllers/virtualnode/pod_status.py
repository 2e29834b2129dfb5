"""The status of a Pod, from what is known of its claim. Conditions, reasons and messages are those of the kubelet.

The kubelet's `status/generate.go` and `kubelet_pods.go` are the model. A Pod whose VM is its host has one address for
both, as a Pod with `hostNetwork` has. `qosClass`, conditions of others, and what no VM knows stay as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from controllers.shared.pod_claims import LOST_EXIT_CODE
from controllers.virtualnode.pod import TERMINAL, Pod, PodClaim
from controllers.warmpool.probe_address import parse_address
from poolhouse.api.apimachinery.timestamps import format_time, known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

WARM_VM_CONDITION = meta.WARM_VM
"""the type of the condition that says whether the Pod has a VM, and why not"""
INITIALIZING = "PodInitializing"


@dataclass(frozen=True)
class Waiting:
    """Why a Pod has no VM yet."""

    reason: str
    message: str


ADDRESSES = ("podIP", "podIPs", "hostIP", "hostIPs")
OF_A_VM = ("initContainerStatuses", "containerStatuses", *ADDRESSES)
"""fields of the status that a Pod without a VM does not have"""


def waiting_status(pod: Pod, why: Waiting, now: datetime) -> Json:
    """The status of a Pod without a VM. `kubectl get pods` shows the reason."""
    found: Json = {"phase": "Pending", "reason": why.reason, "message": why.message, **dict.fromkeys(OF_A_VM)}
    return {**found, "conditions": _conditions(pod, found, now, (WARM_VM_CONDITION, "False", why.reason, why.message))}


def running_status(pod: Pod, claim: PodClaim, now: datetime) -> Json:
    """The status of a Pod whose claim has a VM."""
    report = claim.application
    phase = _phase(pod, report.get("phase") or "")
    found: Json = {
        "phase": phase,
        "reason": report.get("reason") or None if phase in TERMINAL else None,
        "message": report.get("message") or None if phase in TERMINAL else None,
        "startTime": pod.status.get("startTime") or format_time(known_time(claim.bound_at) or now),
        **_addresses(claim),
        **_ephemeral(pod, now),
    }
    first = _containers(
        pod, "initContainerStatuses", pod.init_containers, report.get("initContainers") or (), INITIALIZING
    )
    reason = "ContainerCreating" if all(_succeeded(each.get("state", {})) for each in first) else INITIALIZING
    if first:
        found["initContainerStatuses"] = first
    found["containerStatuses"] = _containers(
        pod, "containerStatuses", pod.containers, report.get("containers") or (), reason
    )
    warm = (WARM_VM_CONDITION, "True", "VMBound", f"{claim.vm} belongs to this Pod alone")
    if not claim.handed_over:  # another VM may take its place
        why = claim.reason or claim.phase, claim.message or f"{claim.vm} is not handed over yet"
        warm = (WARM_VM_CONDITION, "False", *why)
    return {**found, "conditions": _conditions(pod, found, now, warm, not_ready=claim.not_ready)}


def failed_status(pod: Pod, reason: str, message: str, now: datetime) -> Json:
    """The last status of a Pod that has lost its VM, or whose time is over."""
    found: Json = {"phase": "Failed", "reason": reason, "message": message}
    for field in ("initContainerStatuses", "containerStatuses"):
        if statuses := pod.status.get(field):
            found[field] = [_lost(each, reason, message, now) for each in statuses]
    return {**found, "conditions": _conditions(pod, found, now, (WARM_VM_CONDITION, "False", reason, message))}


def deadline(pod: Pod) -> datetime | None:
    """The time at which a Pod with `activeDeadlineSeconds` fails. It counts from the time at which it has a VM."""
    started = known_time(pod.status.get("startTime") or "")
    if started is None or pod.active_deadline_seconds is None:
        return None
    return started + timedelta(seconds=pod.active_deadline_seconds)


def _phase(pod: Pod, reported: str) -> str:
    """A Pod that has run is never Pending again. An agent that says nothing or Unknown changes nothing."""
    if reported in (*TERMINAL, "Running"):
        return reported
    return "Running" if pod.phase == "Running" else "Pending"


def _addresses(claim: PodClaim) -> Json:
    """The first address of each family. The API server accepts no more. EC2 itself says those of its instances. A Pod
    loses an address that its VM has lost, because it may be that of another Pod now."""
    if claim.addresses is None:
        return {}
    families: dict[int, str] = {}
    for each in claim.addresses:
        text = each.partition("/")[0]
        if (address := ip_address(text) if claim.on_ec2 else parse_address(text)) is not None:
            families.setdefault(address.version, str(address))
    found = [{"ip": each} for each in families.values()]
    if not found:
        return dict.fromkeys(ADDRESSES)
    return {"podIP": found[0]["ip"], "podIPs": found, "hostIP": found[0]["ip"], "hostIPs": found}


# Containers


def _containers(
    pod: Pod, field: str, declared: Mapping[str, str], reports: Iterable[Json], waiting_reason: str
) -> list[Json]:
    """The statuses in the order of the spec. A container of which the agent says nothing keeps its status."""
    reported = {each["name"]: each for each in reports}
    before = {each["name"]: each for each in pod.status.get(field) or ()}
    found, waiting = [], {"waiting": {"reason": waiting_reason}}
    for name, image in declared.items():
        if (report := reported.get(name)) is None:
            known = before.get(name) or {"ready": False, "restartCount": 0, "state": waiting}
            found.append({**known, "name": name, "image": image, "imageID": ""})
            continue
        state = _state(report.get("state") or waiting)
        ended = (before.get(name) or {}).get("state", {}).get("terminated")
        # The API server refuses to start a container again that must not start again.
        if ended is not None and "terminated" not in state and not _may_restart(pod, field, ended):
            state = {"terminated": ended}
        first = field == "initContainerStatuses"  # for these, ready means that they have succeeded
        found.append(
            {
                "name": name,
                "image": image,
                "imageID": "",
                "ready": _succeeded(state) if first else bool(report.get("ready")),
                "started": bool(report.get("started", "running" in state)),
                "restartCount": report.get("restartCount") or 0,
                "state": state,
                "lastState": _state(report.get("lastState") or {}),
            }
        )
    return found


def _ephemeral(pod: Pod, now: datetime) -> Json:
    """Ephemeral containers have ended before they ran, so that `kubectl debug` waits for none and says why."""
    if not pod.ephemeral_containers:
        return {}
    known = {each["name"]: each for each in pod.status.get("ephemeralContainerStatuses") or ()}
    ended = {
        "exitCode": LOST_EXIT_CODE,
        "reason": "EphemeralContainersNotSupported",
        "message": "the virtual node adds no container to a Pod; use kubectl logs, or the console of the VM",
        "startedAt": None,
        "finishedAt": format_time(now),
    }
    never = {"imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    found = (
        known.get(name) or {"name": name, "image": image, **never} for name, image in pod.ephemeral_containers.items()
    )
    return {"ephemeralContainerStatuses": list(found)}


def _state(report: Json) -> Json:
    """A state with the fields that the API server requires."""
    for kind in ("terminated", "running", "waiting"):
        if (given := report.get(kind)) is not None:
            state = {key: _time(value) if key.endswith("At") else value for key, value in given.items() if value}
            if kind == "terminated":
                code = state["exitCode"] = given.get("exitCode") or 0
                state.setdefault("reason", "Error" if code else "Completed")
                state.setdefault("startedAt", None)
                state.setdefault("finishedAt", None)
            return {kind: state}
    return {}


def _time(text: str) -> str | None:
    """The time as the API server stores it, so that it is the same in the next comparison."""
    time = known_time(text)
    return format_time(time) if time is not None else None


def _may_restart(pod: Pod, field: str, ended: Json) -> bool:
    if pod.restart_policy == "Never":
        return False
    on_failure = pod.restart_policy == "OnFailure" or field == "initContainerStatuses"
    return not on_failure or ended.get("exitCode") != 0


def _succeeded(state: Json) -> bool:
    return (state.get("terminated") or {}).get("exitCode") == 0


def _lost(status: Json, reason: str, message: str, now: datetime) -> Json:
    """The status of a container whose end nobody has seen, with the kubelet's exit code. It has the reason of the Pod,
    because `kubectl get pods` prefers the reason of a container."""
    if (status.get("state") or {}).get("terminated"):
        return {**status, "ready": False}
    ended = {
        "exitCode": LOST_EXIT_CODE,
        "reason": reason,
        "message": message,
        "startedAt": (status.get("state") or {}).get("running", {}).get("startedAt"),
        "finishedAt": format_time(now),
    }
    return {**status, "ready": False, "started": False, "state": {"terminated": ended}}


# Conditions

Told = tuple[str, str, str, str]
"""type, status, reason and message of a condition"""


def _conditions(pod: Pod, status: Json, now: datetime, warm: Told, *, not_ready: Told | None = None) -> list[Json]:
    ready = _containers_ready(pod, status)
    told = [
        ("PodReadyToStartContainers", "True" if status.get("containerStatuses") else "False", "", ""),
        _initialized(pod, status),
        ready,
        not_ready or _ready(pod, ready),
        ("PodScheduled", "True", "", ""),
        warm,
    ]
    before = {each["type"]: each for each in pod.status.get("conditions") or ()}
    mine = {type: _condition(each, before.get(type), now) for each in told for type in (each[0],)}
    return [*{**before, **mine}.values()]


def _condition(told: Told, before: Json | None, now: datetime) -> Json:
    type, status, reason, message = told
    wanted = {"type": type, "status": status}
    wanted |= {"reason": reason} if reason else {}
    wanted |= {"message": message} if message else {}
    before = before or {}
    if all(before.get(key, "") == wanted.get(key, "") for key in ("status", "reason", "message")):
        return before
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {**wanted, "lastProbeTime": None, "lastTransitionTime": since or format_time(now)}


def _initialized(pod: Pod, status: Json) -> Told:
    first = {each["name"]: each for each in status.get("initContainerStatuses") or ()}
    started = any((each.get("state") or {}).keys() & {"running", "terminated"} for each in _regular(status))
    if status["phase"] == "Succeeded" and pod.init_containers.keys() <= first.keys():
        return "Initialized", "True", "PodCompleted", ""
    message = _unready(pod.init_containers, first, "incomplete")
    if started or not message:
        return "Initialized", "True", "", ""
    return "Initialized", "False", "ContainersNotInitialized", message


def _containers_ready(pod: Pod, status: Json) -> Told:
    if status["phase"] in TERMINAL:
        reason = "PodCompleted" if status["phase"] == "Succeeded" else "PodFailed"
        return "ContainersReady", "False", reason, ""
    message = _unready(pod.containers, {each["name"]: each for each in _regular(status)}, "unready")
    if not message:
        return "ContainersReady", "True", "", ""
    return "ContainersReady", "False", "ContainersNotReady", message


def _ready(pod: Pod, containers_ready: Told) -> Told:
    if containers_ready[1] != "True":
        return "Ready", *containers_ready[1:]
    stated = {each["type"]: each["status"] for each in pod.status.get("conditions") or ()}
    unready = [
        f'the status of pod readiness gate "{gate}" is not "True", but {stated[gate]}'
        if gate in stated
        else f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        for gate in pod.readiness_gates
        if stated.get(gate) != "True"
    ]
    return ("Ready", "False", "ReadinessGatesNotReady", ", ".join(unready)) if unready else ("Ready", "True", "", "")


def _regular(status: Json) -> Iterable[Json]:
    found: Iterable[Json] = status.get("containerStatuses") or ()
    return found


def _unready(declared: Iterable[str], statuses: Mapping[str, Json], word: str) -> str:
    """The kubelet's message about the containers that are not ready; empty if all are. Go prints lists so."""
    groups: dict[str, list[str]] = {"unknown": [], word: []}
    for name in declared:
        if not statuses.get(name, {}).get("ready"):
            groups[word if name in statuses else "unknown"].append(name)
    return ", ".join(f"containers with {state} status: [{' '.join(names)}]" for state, names in groups.items() if names)
