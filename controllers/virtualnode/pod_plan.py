"""Decides the next step for a Pod of the virtual node, from the Pod, its claim and the warm pools.

    no claim --- CreateClaim ---> claim without a VM --- VM ---> the Pod's status follows the claim's
                                       |                              |
                     DropClaim, if it has failed             the application, the VM or the claim has ended
                                                                      v
    RemovePod <--- claim is Released or gone <--- ReleaseClaim or DropClaim <--- the Pod is deleted, or has ended

No claim of a Pod follows another one, and no Pod is removed, while the VM of the claim exists: the application would
run twice, in a VM that is still being deleted and in that of the next claim or of a later Pod of the name.

A claim that gave the Pod no VM may fail: then the Pod stays Pending and later gets another claim, because a controller
would replace a Failed Pod at once, for ever. Once the VM was handed over, the Pod ends with its VM.

The Pod names its claim from the time at which the claim has a VM until the claim has failed. Only meanwhile the claim's
controller launches the application (`controllers/claim/pod_notes.py`). So a Pod that names a claim that does not exist
may have run, and gets no other claim.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.shared.pod_claims import claim_name
from controllers.virtualnode.limits import excess
from controllers.virtualnode.pod import NOTES, TERMINAL, Pod, PodClaim, PodPool
from controllers.virtualnode.pod_status import Waiting, deadline, failed_status, running_status, waiting_status
from controllers.virtualnode.reasons import PodReason
from controllers.virtualnode.translate import listed
from poolhouse.api.apimachinery.containers import waiting_containers
from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.validation import quoted
from poolhouse.api.kinds.warm_states import WarmState

LONGEST_NAME = 63
"""characters of an annotation that a message repeats"""
RETRY_SECONDS = 60.0
"""pause after a claim that failed without a VM, and after one that the API server refused"""
PASSING = frozenset(
    (
        "Queued",
        "PoolEmpty",
        "OverrideMismatch",
        "MaxTotalReached",
        "QuotaExceeded",
        "BackendUnavailable",
        "FailedReserve",
        "Activating",
    )
)
"""reasons of waiting claims that pass by themselves, for example when other claims end. A person must see to others."""


@dataclass(frozen=True)
class CreateClaim:
    """Creates the claim of the Pod, or says what no VM can do."""


@dataclass(frozen=True)
class ReleaseClaim:
    """Ends the application of the claim within its grace period, and then its VM."""

    claim: PodClaim


@dataclass(frozen=True)
class DropClaim:
    """Lets the controller of claims delete a claim that has failed or expired, once its VM is gone."""

    claim: PodClaim


@dataclass(frozen=True)
class RemovePod:
    """Removes a deleted Pod whose VM is gone."""


@dataclass(frozen=True)
class WriteStatus:
    """A merge patch of the Pod's status and of our annotations, and the events of the change."""

    patch: Json
    events: tuple[tuple[str, str, str], ...] = ()
    """types, reasons and messages"""


@dataclass(frozen=True)
class Wait:
    """Until an event, or for some seconds."""

    seconds: float | None = None


Step = CreateClaim | ReleaseClaim | DropClaim | RemovePod | WriteStatus | Wait


def plan(pod: Pod, claim: PodClaim | None, pools: Iterable[PodPool], refused: Waiting | None, now: datetime) -> Step:
    """`pools` are those of the Pod's namespace. `refused` is set if the API server has refused the Pod's claim."""
    if pod.phase not in TERMINAL and (too_much := excess(pod)) is not None:
        return _fail(pod, *too_much, now)
    if pod.deleting:
        return _plan_deleting(pod, claim, now)
    if pod.phase in TERMINAL:
        return ReleaseClaim(claim) if claim is not None and not (claim.finished or claim.released) else Wait()
    if (end := _plan_end(pod, claim, now)) is not None:
        return end
    if claim is None:
        obstacle = pool_obstacle(pod, pools) or refused
        return CreateClaim() if obstacle is None else _write(pod, waiting_status(pod, obstacle, now), event="Warning")
    if claim.vm and not claim.finished:
        event = "Normal" if claim.handed_over else ""
        step = _write(pod, running_status(pod, claim, now), _notes(claim), event=event)
        return step if isinstance(step, WriteStatus) else Wait(_seconds_until(deadline(pod), now))
    return _plan_waiting(pod, claim, now)


def names_claim(pod: Pod) -> bool:
    """Whether the Pod names its claim in an annotation. Its application is launched only after that."""
    return pod.notes.get(meta.CLAIM_NAME) == claim_name(pod.name, pod.uid)


def pool_obstacle(pod: Pod, pools: Iterable[PodPool]) -> Waiting | None:
    """Why the Pod gets no claim: without a pool that takes Pods, a claim would serve nobody."""
    alive = [pool for pool in pools if not pool.deleting]
    named = [pool for pool in alive if pool.name == pod.pool or (not pod.pool and pool.default)]
    if not named:
        names = listed(sorted(pool.name for pool in alive)) or "none"
        name = pod.pool if len(pod.pool) <= LONGEST_NAME else quoted(pod.pool)
        wanted = (
            f"there is no warm pool {name}" if pod.pool else f"the Pod has no annotation {meta.WARM_POOL}, and"
        ) + ("" if pod.pool else " there is no default pool")
        return Waiting(PodReason.NO_WARM_POOL, f"{wanted} in namespace {pod.namespace}; its warm pools are: {names}")
    pool = min(named, key=lambda each: (each.created_at, each.uid))
    if not pool.allows_pods:
        message = f"warm pool {pool.name} takes no Pods: its claimPolicy.allowPods is not true"
        return Waiting(PodReason.PODS_NOT_ALLOWED, message)
    return None


def _plan_deleting(pod: Pod, claim: PodClaim | None, now: datetime) -> Step:
    """The Pod must not be removed before its VM: another Pod of this name may need to be the only one."""
    if claim is None or claim.phase == "Released":
        return RemovePod()
    if claim.finished:  # its VM may still be terminating
        return _drop(claim)
    if not claim.released:
        return ReleaseClaim(claim)
    if claim.vm and pod.phase not in TERMINAL:
        return _write(pod, running_status(pod, claim, now), _notes(claim))
    return Wait()


def _plan_end(pod: Pod, claim: PodClaim | None, now: datetime) -> Step | None:
    """The last status of a Pod that has lost its claim or its VM, or whose deadline has passed; None for another."""
    if claim is None and names_claim(pod):
        why = PodReason.CLAIM_LOST, "the claim of the Pod was deleted, and with it the VM in which the Pod ran"
        return _fail(pod, *why, now)
    if claim is None or not claim.handed_over:
        return _end_late(pod, now)
    if claim.finished and claim.application.get("phase") not in TERMINAL:
        return _fail(pod, *claim.obstacle, now)
    if (late := _end_late(pod, now)) is not None:
        return late
    return _write(pod, running_status(pod, claim, now), _notes(claim)) if claim.finished else None


def _end_late(pod: Pod, now: datetime) -> Step | None:
    """The last status of a Pod whose deadline has passed; None for another Pod."""
    if (end := deadline(pod)) is None or now < end:
        return None
    message = "Pod was active on the node longer than the specified deadline"
    return _fail(pod, PodReason.DEADLINE_EXCEEDED, message, now)


def _plan_waiting(pod: Pod, claim: PodClaim, now: datetime) -> Step:
    """The step for a claim that has given the Pod no VM. The Pod of a failed claim does not name it any more."""
    if pod.phase == "Running":  # the claim has given the Pod a VM, and this view of the claim is older
        return Wait()
    if claim.reason or claim.finished:
        kind = "Warning" if claim.finished or claim.reason not in PASSING else "Normal"
        kept = () if claim.finished else (meta.CLAIM_NAME,)
        step = _write(pod, waiting_status(pod, Waiting(*claim.obstacle), now), _without_notes(*kept), event=kind)
        if isinstance(step, WriteStatus):
            return step
    if not claim.finished:
        return Wait(_seconds_until(deadline(pod), now))
    finished = known_time(claim.finished_at) or now
    left = RETRY_SECONDS - (now - finished).total_seconds()
    return _drop(claim) if left <= 0 else Wait(left)


def _drop(claim: PodClaim) -> Step:
    return Wait() if claim.dropped else DropClaim(claim)


def _fail(pod: Pod, reason: str, message: str, now: datetime) -> Step:
    return _write(pod, failed_status(pod, reason, message, now), _without_notes(meta.CLAIM_NAME), event="Warning")


def _without_notes(*kept: str) -> Json:
    return {key: None for key in NOTES if key not in kept}


def _notes(claim: PodClaim) -> Json:
    """Our annotations."""
    state = WarmState.TERMINATING if claim.released or claim.finished else WarmState.IN_USE
    if not claim.handed_over:
        state = WarmState.ALLOCATING
    return {meta.CLAIM_NAME: claim.name, meta.VM: claim.vm, meta.WARM_STATE: state.value}


def _write(pod: Pod, status: Json, notes: Json | None = None, *, event: str = "") -> Step:
    """The patch, if it changes something. The API server refuses it for a Pod that has changed since."""
    change = merge_patch(pod.status, {**pod.status, **status})
    noted = merge_patch(dict(pod.notes), {**pod.notes, **(notes or {})})
    if not change and not noted:
        return Wait()
    metadata: Json = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    if noted:
        metadata["annotations"] = noted
    return WriteStatus(
        {"metadata": metadata, **({"status": change} if change else {})}, tuple(_events(pod, status, event))
    )


def _events(pod: Pod, status: Json, kind: str) -> Iterator[tuple[str, str, str]]:
    """The events of a change of why the Pod waits, of its VM, of its failure, and of why containers wait."""
    told = {each["type"]: each for each in (pod.status.get("conditions") or ())}.get(meta.WARM_VM) or {}
    new = next(each for each in status["conditions"] if each["type"] == meta.WARM_VM)
    if kind and (told.get("reason"), told.get("message")) != (new.get("reason"), new.get("message")):
        yield kind, str(new["reason"]), str(new["message"])
    before = dict(waiting_containers(pod.status))
    for name, why in waiting_containers(status):
        if before.get(name) != why:
            yield "Warning", PodReason.CONTAINER_WAITING, f"container {name}: {why}"


def _seconds_until(end: datetime | None, now: datetime) -> float | None:
    return None if end is None else max(0.0, (end - now).total_seconds())
