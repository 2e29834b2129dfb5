"""Updates of a pool: whether the controller has observed them, how far they are, and what a user does to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from controllers.pool.reasons import PoolReason
from poolhouse.api.apimachinery.counting import count_noun, count_verb
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.health import assess, notes
from poolhouse.cli.output import Failed
from poolhouse.cli.pools import get_pool

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


POLL_SECONDS = 0.5
OBSERVE_SECONDS = 15.0
"""how long an act waits for the controller to observe earlier changes, in addition to the time of the requests"""
WAITING_REASONS = (
    PoolReason.UPDATE_PAUSED,
    PoolReason.ANALYSIS_RUNNING,
    PoolReason.ANALYSIS_INCONCLUSIVE,
    PoolReason.WAITING_FOR_WINDOW,
)
"""reasons of an update that waits, also if all VMs have the template"""
STEP_REASONS = (PoolReason.UPDATE_PAUSED, PoolReason.ANALYSIS_INCONCLUSIVE)
"""reasons of an update that waits at a step, which a user can end"""
State = Literal["Complete", "Progressing", "Failed"]

NOT_DONE = ("RevisionLost", "ReferencesRefused")
"""conditions that say what an update did not do"""
UNOBSERVED = "the controller has not observed the change yet"


def is_observed(document: Json) -> bool:
    """Whether the pool's status contains the answer of the controller to the last change of the spec, and to the
    requests in the annotations: an annotation does not change the generation."""
    from controllers.pool.update_limit import promoted_steps
    from poolhouse.api.kinds import meta
    from poolhouse.api.kinds.pool_strategies import UpdateProactive

    metadata, status = document["metadata"], document.get("status") or {}
    if status.get("observedGeneration", 0) < metadata["generation"]:
        return False
    reasons = {each.get("reason") for each in status.get("conditions") or () if each["type"] == "Progressing"}
    if PoolReason.INVALID_SPEC in reasons:
        return True  # the controller answers no request until the spec is valid
    annotations, update = metadata.get("annotations") or {}, status.get("update") or {}
    if aborted := update.get("aborted"):
        return bool(annotations.get(meta.RETRY) != aborted["time"])
    revision, former = status.get("updateRevision"), status.get("currentRevision")
    if former and former != revision and annotations.get(meta.ABORT) == revision:
        return False
    proactive = at(document, "spec", "updateStrategy", "proactive")
    request = annotations.get(meta.PROMOTE)
    if not request or not update or not proactive:
        return True
    steps = len(UpdateProactive.model_validate(proactive).all_steps)
    return min(promoted_steps(request, update["revision"], steps), steps) <= (update.get("stepsDone") or 0)


async def _observed_pool(api: Api, cluster: Cluster, pool: str) -> Json:
    """The pool with a status that contains all earlier changes, such as that of a `kubectl apply` before this command.
    Waits for the controller. Raises `Failed` if it does not observe them in time."""
    for _ in range(round(OBSERVE_SECONDS / POLL_SECONDS)):
        if is_observed(document := await get_pool(api, cluster, pool)):
            return document
        await asyncio.sleep(POLL_SECONDS)
    raise Failed(f"{pool}: {UNOBSERVED}; check that the controllers run, and try again")


def next_commands(document: Json) -> str:
    """The commands by which a user lets an update go on or back that waits at one of its steps; empty if none waits."""
    name, status = document["metadata"]["name"], document.get("status") or {}
    if document["spec"].get("paused") or not is_observed(document):
        return ""
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if conditions.get("Progressing", {}).get("reason") not in STEP_REASONS:
        return ""
    step = ((status.get("update") or {}).get("stepsDone") or 0) + 1
    return (
        f"{name}: it waits at step {step}: `poolhouse rollout promote {name}` goes on, "
        f"`poolhouse rollout undo {name}` returns to the former template"
    )


def finished_vms(document: Json) -> tuple[int, int]:
    """How many VMs have the template and are available, and how many should. Before the controller has seen a change,
    none do."""
    status = document.get("status") or {}
    done = int(status.get("updatedAvailableReplicas") or 0) if is_observed(document) else 0
    return done, status.get("desiredReplicas", document["spec"]["replicas"])


def progress(document: Json) -> tuple[State, str]:
    """Returns the state of the update, which the controller decides, and a message."""
    name, health = document["metadata"]["name"], assess(document)
    if not is_observed(document):
        return "Progressing", f"{name}: {UNOBSERVED}"
    match health.state:
        case "Healthy":
            return "Complete", f"{name}: {'; '.join((_complete(document), *notes(document, NOT_DONE)))}"
        case "Degraded":
            return "Failed", f"{name}: {health.message}"
    remaining = _remaining(document, health.message)
    missing = (each for each in notes(document, NOT_DONE) if each not in remaining)
    return "Progressing", f"{name}: {'; '.join((remaining, *missing))}"


def _remaining(document: Json, health: str) -> str:
    """What is left of an update, in the numbers of the controller."""
    name, spec, status = document["metadata"]["name"], document["spec"], document.get("status") or {}
    conditions: dict[str, Json] = {each["type"]: each for each in status.get("conditions") or ()}
    condition = conditions.get("Progressing", {})
    if document["metadata"].get("deletionTimestamp"):
        return health
    if spec.get("paused"):
        return f"paused until `rollout resume {name}`"
    if condition.get("status") == "False":
        return f"{condition.get('reason')}: {condition.get('message')}"
    return health if condition.get("reason") == PoolReason.COMPLETE else str(condition.get("message") or health)


def _complete(document: Json) -> str:
    """What a complete pool has. A strategy that leaves VMs with an older template says so in the condition Ready."""
    status = document["status"]
    desired = status.get("desiredReplicas", document["spec"]["replicas"])
    ready = status.get("readyReplicas", 0)
    said = next((each["message"] for each in status.get("conditions") or () if each["type"] == "Ready"), "")
    if status.get("updatedReplicas", 0) < desired and said:
        return str(said)
    match desired:
        case 0:
            return "spec.replicas is 0, and it has no VMs"
        case 1:
            return f"its VM has the template, and is {'ready' if ready else 'not ready'}"
    return f"all {count_noun(desired, 'VM')} have the template, {count_verb(ready, 'is', 'are')} ready"


@again_if_changed
async def promote_update(api: Api, cluster: Cluster, pool: str, *, full: bool = False, step: int | None) -> str:
    """Ends the present step of an update, or all, or the steps up to this one. Returns which was the last."""
    from controllers.pool.update_limit import ALL
    from poolhouse.api.kinds import meta
    from poolhouse.api.kinds.pool_strategies import UpdateProactive

    document = await _observed_pool(api, cluster, pool)
    proactive = (document["spec"].get("updateStrategy") or {}).get("proactive") or {}
    steps = UpdateProactive.model_validate(proactive).all_steps
    progress = (document.get("status") or {}).get("update") or {}
    done = progress.get("stepsDone", 0)
    if progress.get("aborted"):
        raise Failed(f"the update of {pool} is aborted; use `rollout retry {pool}`")
    if not steps or done >= len(steps):
        raise Failed(f"{pool} has no step to leave")
    last = step_to_end(len(steps), done, step)
    await _annotate(api, cluster, document, {meta.PROMOTE: f"{progress['revision']}={ALL if full else last}"})
    return "the last step" if full else f"step {last} of {len(steps)}"


def step_to_end(steps: int, done: int, step: int | None) -> int:
    """Returns the number of the step that a promotion ends: the one that the user names, else the present one. Raises
    `Failed` if that step is over, so that a user who saw it does not end the next one."""
    last = done + 1 if step is None else step
    if last > steps:
        raise Failed(f"the update has {count_noun(steps, 'step')}, not {last}")
    if last <= done:
        raise Failed(f"step {last} of {steps} is over: the update is at step {done + 1}")
    return last


@again_if_changed
async def abort_update(api: Api, cluster: Cluster, pool: str) -> None:
    """Returns the VMs to the last template that all of them had."""
    from poolhouse.api.kinds import meta

    document = await _observed_pool(api, cluster, pool)
    status = document.get("status") or {}
    revision, former = status.get("updateRevision"), status.get("currentRevision")
    if not former or former == revision:
        raise Failed(f"{pool} has no update to abort")
    if not await _is_stored(api, cluster, former):
        raise Failed(
            f"{pool}: its former revision {former} is not stored any more; choose one of `rollout history {pool}` for"
            f" `rollout undo {pool} --to-revision`, or apply the former template again"
        )
    await _annotate(api, cluster, document, {meta.ABORT: revision, meta.PROMOTE: None})


async def _is_stored(api: Api, cluster: Cluster, revision: str) -> bool:
    """Whether the controller can return VMs to the revision. True for a user who may not read revisions."""
    from poolhouse.runtime.errors import Forbidden, NotFound
    from poolhouse.runtime.resource import CONTROLLER_REVISIONS

    try:
        await api.get(CONTROLLER_REVISIONS, cluster.namespace, revision)
    except Forbidden:
        return True
    except NotFound:
        return False
    return True


@again_if_changed
async def retry_update(api: Api, cluster: Cluster, pool: str) -> None:
    """Tries an aborted update again."""
    from poolhouse.api.kinds import meta

    document = await _observed_pool(api, cluster, pool)
    aborted = ((document.get("status") or {}).get("update") or {}).get("aborted")
    if not aborted:
        raise Failed(f"{pool} has no aborted update")
    await _annotate(api, cluster, document, {meta.ABORT: None, meta.PROMOTE: None, meta.RETRY: aborted["time"]})


async def _annotate(api: Api, cluster: Cluster, pool: Json, annotations: dict[str, str | None]) -> None:
    from poolhouse.cli.resources import POOLS

    metadata = pool["metadata"]
    change = {"resourceVersion": metadata["resourceVersion"], "annotations": annotations}
    await api.patch(POOLS, cluster.namespace, metadata["name"], {"metadata": change})


async def restart_vms(api: Api, cluster: Cluster, pool: str) -> None:
    """Restarts all VMs of the pool, as an update without another change."""
    from poolhouse.api.apimachinery.timestamps import format_time
    from poolhouse.api.kinds import meta
    from poolhouse.cli.resources import POOLS

    annotations = {meta.RESTARTED_AT: format_time(api.now())}
    change = {"spec": {"template": {"spec": {"template": {"metadata": {"annotations": annotations}}}}}}
    await api.patch(POOLS, cluster.namespace, pool, change)


async def set_paused(api: Api, cluster: Cluster, pool: str, paused: bool) -> None:
    from poolhouse.cli.resources import POOLS

    await api.patch(POOLS, cluster.namespace, pool, {"spec": {"paused": paused}})
