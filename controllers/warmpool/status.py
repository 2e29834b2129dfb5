"""Computes the status of a warm pool from the snapshot that its plan used."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from controllers.shared.conditions import condition, find_condition, join_names, merge, set_times
from controllers.shared.data_sources import Sources
from controllers.shared.readiness import Readiness, Rule, decide
from controllers.shared.reference_rights import references_refused
from controllers.shared.replica_limits import SCALING_LIMITED, scaling_limited
from controllers.warmpool.evictions import WarmPoolBudget, budget_condition
from controllers.warmpool.heal import mass_failure
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.rollout import count_outdated, disruption_budget, why_stalled
from controllers.warmpool.scale import missing
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, short_uid
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from poolhouse.api.apimachinery.counting import count_noun, count_of
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.warm_states import COUNTED, WarmState
from poolhouse.api.kinds.warmpool import WARM_POOL, PlacementStatus, PoolFailures, TrackedImage, WarmPoolStatus
from poolhouse.runtime.resource import Key


def status(snapshot: WarmPoolSnapshot, now: datetime, budget: WarmPoolBudget | None = None) -> WarmPoolStatus:
    """`budget` is the PodDisruptionBudget that the plan wants."""
    pool = snapshot.pool
    counts = Counter(vm.state for vm in snapshot.members)
    fresh = pool.status.model_copy(
        update={
            "observed_generation": pool.generation,
            "desired_replicas": snapshot.replicas,
            "available_replicas": len(snapshot.available),
            "ready_replicas": counts[WarmState.READY],
            "replicas": sum(counts[each] for each in COUNTED),
            "provisioning": counts[WarmState.PROVISIONING] + counts[WarmState.STANDING_BY],
            "allocating": sum(vm.state is WarmState.ALLOCATING for vm in snapshot.claimed),
            "claimed": sum(vm.state is WarmState.IN_USE for vm in snapshot.claimed),
            "unhealthy": counts[WarmState.UNHEALTHY],
            "unknown": counts[WarmState.UNKNOWN],
            "terminating": len(snapshot.deleting),
            "members": _members(snapshot),
            "orphaned": len(snapshot.orphaned),
            "queued_claims": snapshot.queued_claims,
            "updated_replicas": sum(not snapshot.outdated(vm) for vm in snapshot.members if vm.state in COUNTED),
            "template_hash": pool.template_hash,
            "label_selector": f"{meta.WARM_POOL}={pool.name}",
            "autoscaling": snapshot.autoscaling_status,
            "demand_history": snapshot.demand_history,
            "placements": tuple(_placements(snapshot)),
            "failures": _failures(snapshot.failures),
        }
    )
    found = *_conditions(snapshot, now), *budget_condition(snapshot, budget)
    conditions = set_times(
        (*found, *readiness(found).conditions), pool.status.conditions, generation=pool.generation, now=now
    )
    update = {"conditions": conditions, "last_progress_time": _last_progress(snapshot, fresh, now)}
    return fresh.model_copy(update=update)


def _members(snapshot: WarmPoolSnapshot) -> tuple[str, ...] | None:
    """The record of the VMs that the pool may give to claims. It has no VM that a claim uses, because the status of the
    claim has its UID. It has a VM that this process has created before the cache shows the VM."""
    if snapshot.pool.spec.ec2 is not None:
        return None
    shown = {vm.uid for vm in snapshot.vms}
    kept = {short_uid(vm.uid) for vm in snapshot.vms if _is_kept(vm) and snapshot.recorded(vm)}
    return tuple(sorted(kept | {short_uid(uid) for uid in snapshot.created - shown}))


def _is_kept(vm: WarmVM) -> bool:
    return vm.state is not WarmState.IN_USE and not vm.orphaned


def tracked_images(images: Sources, tracked: Mapping[str, Key]) -> tuple[TrackedImage, ...]:
    """The images of the tracked DataSources by name in dataVolumeTemplates, in the form of the status."""
    return tuple(
        TrackedImage.model_validate({"disk": disk, "dataSource": "/".join(tracked[disk]), "kind": kind, **source})
        for disk, image in sorted(images.items())
        for kind, source in image.items()
    )


def invalid_spec_status(pool: InvalidWarmPool, now: datetime) -> WarmPoolStatus:
    conditions = (condition(kind, False, Reason.INVALID_SPEC, pool.problem) for kind in ("Valid", "Progressing"))
    stalled = Readiness("Stalled", Reason.INVALID_SPEC, pool.problem).conditions
    merged = merge((*conditions, *stalled), pool.status.conditions, generation=pool.generation, now=now)
    return pool.status.model_copy(update={"observed_generation": pool.generation, "conditions": merged})


def unavailable_status(pool: WarmPool, why: str, now: datetime, *, refused: bool) -> WarmPoolStatus:
    """The status of a pool whose VMs cannot be listed, with the last counts. A refusal lasts until somebody changes
    rights or credentials; the pool is then Stalled."""
    until = "until somebody corrects this and it can list them" if refused else "until it can list them"
    message = f"{why}; the controller creates, counts and deletes no VM {until}"
    conditions = (
        condition("Progressing", False, Reason.BACKEND_UNAVAILABLE, message),
        condition("Degraded", True, Reason.BACKEND_UNAVAILABLE, message),
        *Readiness("Stalled" if refused else "Reconciling", Reason.BACKEND_UNAVAILABLE, message).conditions,
    )
    merged = merge(conditions, pool.status.conditions, generation=pool.generation, now=now)
    return pool.status.model_copy(update={"conditions": merged})


def _conditions(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Condition]:
    yield condition("Valid", True, Reason.ACCEPTED, "the spec is valid")
    yield _available(snapshot, now)
    yield _progressing(snapshot, now)
    degradation = next(_degradations(snapshot), None)
    yield condition("Degraded", degradation is not None, *(degradation or (Reason.AS_EXPECTED, "")))
    yield _rollout(snapshot, now)
    yield _unowned(snapshot)
    yield from _default(snapshot)
    yield from _autoscaling(snapshot)
    reasons = Reason.AUTHOR_MAY_NOT_GET, Reason.AUTHORS_MAY_GET
    yield references_refused(snapshot.refused_references, WARM_POOL.crd_name, snapshot.pool.name, reasons)
    yield scaling_limited(snapshot.excess, Reason.TOO_MANY_REPLICAS, Reason.WITHIN_LIMIT)


NEED_HELP = frozenset(
    {
        Reason.TOO_MANY_UNHEALTHY,
        Reason.CIRCUIT_BREAKER_OPEN,
        Reason.FAILED_STANDBY,
        Reason.VMS_FAILING,
        Reason.CONFLICTING_LABELS,
        Reason.INVALID_TEMPLATE,
    }
)
"""Reasons of Degraded that last until somebody changes the template, the image or a VM.

The others end by themselves: nodes become ready again, capacity returns, and the controller creates a refused VM again,
until the circuit breaker opens. VMs that are not healthy in time need help
if the pool has too few others. A pool whose VMs wait can be claimed
meanwhile, so its readiness follows from the condition Available."""
READINESS = (
    Rule("Stalled", "Degraded", "True", NEED_HELP),
    Rule("Stalled", "RolloutComplete", "False", {Reason.PROGRESS_DEADLINE_EXCEEDED}),
    Rule("Stalled", SCALING_LIMITED, "True"),
    Rule("Reconciling", "Degraded", "True", {Reason.FAILED_CREATE}),
    Rule("Reconciling", "Progressing", "True", {Reason.UPDATING}),
    Rule("Ready", "Available", "True"),
    Rule("Stalled", "Degraded", "True", {Reason.READINESS_TIMEOUT}),
    Rule("Reconciling", "Progressing", "False", {Reason.INSUFFICIENT_CAPACITY}),
    Rule("Waiting", "Progressing", "False", {Reason.PAUSED, Reason.MAX_TOTAL_REACHED}),
    Rule("Reconciling", "Progressing", "True", {Reason.SCALING, Reason.HEALTH_UNKNOWN}),
    Rule("Reconciling", "Available", "False"),
)


def readiness(conditions: Sequence[Condition]) -> Readiness:
    """The pool is ready if enough VMs can be claimed: claims take VMs at any time, and `maxUnavailable` VMs may be
    missing. With `OnReplenish`, the pool is ready with VMs of an old template. A ready pool that gets no more VMs says
    why."""
    found = decide(conditions, READINESS)
    assert found is not None, "the condition Available is always there"
    if found.state != "Ready":
        return found
    if (obstacle := find_condition(conditions, "Progressing", "False")) is not None:
        return replace(found, reason=obstacle.reason, message=f"{found.message}; {obstacle.message}")
    return replace(found, reason=Reason.READY)


def _available(snapshot: WarmPoolSnapshot, now: datetime) -> Condition:
    replicas, available = snapshot.replicas, len(snapshot.available)
    said = f"{count_of(available, replicas, 'VM', 'is', 'are')} ready to be claimed"
    if available >= replicas - disruption_budget(snapshot).unavailable and (available or not replicas):
        return condition("Available", True, Reason.MINIMUM_REPLICAS_AVAILABLE, said)
    if snapshot.unscheduled or snapshot.failures.reason == Reason.INSUFFICIENT_CAPACITY:
        reason, why = Reason.INSUFFICIENT_CAPACITY, _why_unscheduled(snapshot)
    elif snapshot.keeps_failing:
        reason, why = Reason.CIRCUIT_BREAKER_OPEN, _why_failing(snapshot)
    elif why := _why_unknown(snapshot):
        reason = Reason.HEALTH_UNKNOWN
    elif why := _why_full(snapshot, now):
        reason = Reason.MAX_TOTAL_REACHED
    else:
        reason = Reason.MINIMUM_REPLICAS_UNAVAILABLE
    return condition("Available", False, reason, f"{said}; {why}" if why else said)


def _progressing(snapshot: WarmPoolSnapshot, now: datetime) -> Condition:
    for reason, message in _obstacles(snapshot, now):
        return condition("Progressing", False, reason, message)
    if old := count_outdated(snapshot):
        return condition("Progressing", True, Reason.UPDATING, f"{count_noun(old, 'VM')} of an old template to replace")
    provisioning = snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)
    if provisioning or missing(snapshot, now) or len(snapshot.depth) > snapshot.target:
        progress = f"the pool has {count_of(len(snapshot.depth), snapshot.target, 'VM')}"
        message = "; ".join(filter(None, (progress, _why_not_ready(snapshot), snapshot.last_error)))
        return condition("Progressing", True, Reason.SCALING, message)
    if snapshot.last_error:
        return condition("Progressing", True, Reason.SCALING, snapshot.last_error)
    if unknown := _why_unknown(snapshot):
        return condition("Progressing", True, Reason.HEALTH_UNKNOWN, f"{unknown}; they are not replaced yet")
    return condition("Progressing", True, Reason.COMPLETE, "all VMs are ready and of the current template")


def _why_not_ready(snapshot: WarmPoolSnapshot) -> str:
    """The reasons with which checks of booting VMs fail. The message has no numbers, so that the status is not written
    for each VM."""
    running = [vm for vm in snapshot.in_state(WarmState.PROVISIONING) if vm.vmi is not None and vm.vmi.running]
    failed = [found for vm in running if (found := snapshot.health_of(vm).running).verdict == "Failed"]
    reasons = sorted({each.reason for each in failed} - {"NotReady"})  # which each VM is at first
    return f"VMs that run are not ready: {', '.join(reasons)}" if reasons else ""


def _obstacles(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[tuple[str, str]]:
    """Why the pool makes no progress, the most important reason first."""
    if snapshot.pool.spec.paused:
        yield Reason.PAUSED, "spec.paused is true: the controller neither scales nor updates the pool"
    if why := why_stalled(snapshot, now):
        yield Reason.PROGRESS_DEADLINE_EXCEEDED, why
    if snapshot.keeps_failing:
        yield Reason.CIRCUIT_BREAKER_OPEN, _why_failing(snapshot)
    if snapshot.unscheduled:
        yield Reason.INSUFFICIENT_CAPACITY, _why_unscheduled(snapshot)
    if snapshot.failures.consecutive:
        yield snapshot.failures.reason, snapshot.failures.message
    if snapshot.refusal:
        yield Reason.FAILED_STANDBY, snapshot.refusal
    if why := _why_full(snapshot, now):
        yield Reason.MAX_TOTAL_REACHED, why


def _degradations(snapshot: WarmPoolSnapshot) -> Iterator[tuple[str, str]]:
    """Reasons and messages of the condition Degraded, the most important first."""
    if mass_failure(snapshot):
        unhealthy, available = count_noun(len(snapshot.in_state(WarmState.UNHEALTHY)), "VM"), len(snapshot.available)
        message = f"{unhealthy} unhealthy, {available} available: unhealthy VMs are kept for inspection"
        yield Reason.TOO_MANY_UNHEALTHY, f"{message} while there is capacity for others"
    if snapshot.keeps_failing:
        yield Reason.CIRCUIT_BREAKER_OPEN, _why_failing(snapshot)
    # A VM that fails to start says why. Its predecessor was deleted only because of the time.
    if snapshot.failing and snapshot.failures.reason == Reason.READINESS_TIMEOUT:
        yield Reason.VMS_FAILING, _why_failing(snapshot)
    if snapshot.failures.consecutive:
        yield snapshot.failures.reason, snapshot.failures.message
    if snapshot.refusal:
        yield Reason.FAILED_STANDBY, snapshot.refusal
    if snapshot.failing:
        yield Reason.VMS_FAILING, _why_failing(snapshot)
    if snapshot.unscheduled:
        yield Reason.INSUFFICIENT_CAPACITY, _why_unscheduled(snapshot)
    if unknown := _why_unknown(snapshot):
        yield Reason.HEALTH_UNKNOWN, unknown
    if snapshot.contradictory:
        names = join_names(sorted(vm.name for vm in snapshot.contradictory))
        yield Reason.CONFLICTING_LABELS, f"labels contradict each other or the owner reference: {names}"


def _rollout(snapshot: WarmPoolSnapshot, now: datetime) -> Condition:
    if why := why_stalled(snapshot, now):
        return condition("RolloutComplete", False, Reason.PROGRESS_DEADLINE_EXCEEDED, why)
    if old := sum(snapshot.outdated(vm) for vm in snapshot.members):
        on_replenish = snapshot.pool.spec.update_strategy.type == "OnReplenish"
        how = "replaced when they are claimed" if on_replenish else "being replaced"
        return condition(
            "RolloutComplete", False, Reason.UPDATING, f"{count_noun(old, 'VM')} of an old template: {how}"
        )
    return condition("RolloutComplete", True, Reason.COMPLETE, "all VMs are of the current template")


def _unowned(snapshot: WarmPoolSnapshot) -> Condition:
    if not snapshot.unowned:
        return condition("UnownedVMs", False, Reason.NO_UNOWNED_VMS)
    adopts = "`poolhouse warmpool adopt` takes instances that fit into a pool; terminate the others"
    advice = f"{adopts if snapshot.pool.spec.ec2 else 'Delete them'} if nobody needs them"
    found = f"{join_names(snapshot.unowned)}: the label of this pool, but no owner"
    message = f"{found}. No claim gets them, and the pool neither counts nor changes them. {advice}"
    return condition("UnownedVMs", True, Reason.NO_OWNER, message)


def _default(snapshot: WarmPoolSnapshot) -> Iterator[Condition]:
    """The condition Default: for pools with `default: true`, or for all pools if no pool has it."""
    default, wanted = snapshot.default_pool, snapshot.pool.spec.default
    if default is None:
        message = "claims that name no pool get no VM: no pool of the namespace has default: true"
        yield condition("Default", False, Reason.NO_DEFAULT_POOL, message)
    elif wanted and default.uid == snapshot.pool.uid:
        yield condition("Default", True, Reason.DEFAULT_POOL, "claims that name no pool get a VM of this pool")
    elif wanted:
        message = f"pool {default.name} is older and also has default: true"
        yield condition("Default", False, Reason.DEFAULT_CONFLICT, message)


def _autoscaling(snapshot: WarmPoolSnapshot) -> Iterator[Condition]:
    """The condition Autoscaling, with the decision in the status, whose message stays while only its inputs change."""
    decided = snapshot.autoscaling_status
    if decided is None:
        return
    if not snapshot.pool.scaled_by:
        yield condition("Autoscaling", True, decided.reason, decided.message)
        return
    message = (
        f"{snapshot.pool.scaled_by} sets spec.replicas through the scale subresource. With spec.autoscaling"
        " this is only the minimum of the pool's first hour: remove the HorizontalPodAutoscaler or spec.autoscaling"
    )
    yield condition("Autoscaling", True, Reason.SCALE_IGNORED, f"{message}; {decided.message}")


def _placements(snapshot: WarmPoolSnapshot) -> Iterator[PlacementStatus]:
    depth = [vm for vm in snapshot.members if vm.state in COUNTED]
    for name in dict.fromkeys([*snapshot.pool.placements, *sorted(vm.placement for vm in depth if vm.placement)]):
        here = [vm for vm in depth if vm.placement == name]
        yield PlacementStatus(name=name, replicas=len(here), ready=sum(not why_unavailable(vm) for vm in here))


def _failures(failures: FailureBackoff) -> PoolFailures | None:
    if not failures.consecutive and not failures.retry_at:
        return None
    return PoolFailures(
        consecutive=failures.consecutive,
        last_reason=failures.reason,
        last_message=failures.message,
        next_retry_at=failures.retry_at or None,
    )


def _last_progress(snapshot: WarmPoolSnapshot, fresh: WarmPoolStatus, now: datetime) -> str | None:
    """The time of the last progress: a new template, more available VMs, or fewer VMs of the old template."""
    before = snapshot.pool.status
    old, old_before = fresh.replicas - fresh.updated_replicas, before.replicas - before.updated_replicas
    progressed = (
        before.last_progress_time is None
        or fresh.template_hash != before.template_hash
        or old < old_before
        or (old and fresh.available_replicas > before.available_replicas)
    )
    return format_time(now) if progressed else before.last_progress_time


def _why_failing(snapshot: WarmPoolSnapshot) -> str:
    if not snapshot.failing:
        return f"{count_noun(snapshot.failures.consecutive, 'failure')} in a row: {snapshot.failures.message}"
    words = Counter(_failure_word(vm) for vm in snapshot.failing)
    word, count = words.most_common(1)[0]
    if len(snapshot.failing) == 1:
        said = f"{snapshot.failing[0].name} fails to start: {word}"
    else:
        said = f"{count_noun(len(snapshot.failing), 'VM', 'fails', 'fail')} to start, {count} of them with {word}"
    messages = (vm.vmi.message if vm.vmi else vm.start_refusal for vm in snapshot.failing)
    message = next((message for message in messages if message), "")
    return f"{said}: {message}" if message else said


def _failure_word(vm: WarmVM) -> str:
    if vm.vmi is None and vm.start_refusal:
        return "FailedCreate"
    return (vm.vmi.start_failure if vm.vmi else "") or vm.printable_status or "Failing"


def _why_full(snapshot: WarmPoolSnapshot, now: datetime) -> str:
    limit, provisioning = snapshot.pool.spec.max_total, snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)
    if limit is None or snapshot.capacity_left or not missing(snapshot, now) or provisioning:
        return ""
    groups = {
        "claimed": snapshot.claimed,
        "unhealthy": snapshot.in_state(WarmState.UNHEALTHY),
        "terminating": snapshot.deleting,
    }
    counts = [f"{len(found)} of them {word}" for word, found in groups.items() if found]
    return f"maxTotal is {', '.join([str(limit), *counts])}: no VM is created until one is deleted"


def _why_unknown(snapshot: WarmPoolSnapshot) -> str:
    unknown = snapshot.in_state(WarmState.UNKNOWN)
    if not unknown:
        return ""
    results = (snapshot.health_of(vm).in_standby for vm in unknown)
    why = next((each.message for each in results if each.verdict == "Unable"), "the next check is due soon")
    return f"{count_noun(len(unknown), 'VM')} can't be checked: {why}"


def _why_unscheduled(snapshot: WarmPoolSnapshot) -> str:
    if not snapshot.unscheduled:
        return snapshot.failures.message
    found = (vm.vmi.message if vm.vmi else vm.start_refusal for vm in snapshot.unscheduled)
    messages = (message for message in found if message)
    why = next(messages, "the cluster has no capacity")
    return f"{count_noun(len(snapshot.unscheduled), 'VM')} can't be scheduled: {why}"
