"""Implements `poolhouse rollout`: shows, pauses, promotes, repeats and undoes updates of a pool."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from controllers.pool.reasons import PoolReason
from poolhouse.api.apimachinery.counting import count_noun, count_verb
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.completion import complete_names
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.doctor import with_outage
from poolhouse.cli.health import assess
from poolhouse.cli.output import (
    Column,
    Failed,
    Listing,
    Unreachable,
    field,
    is_structured,
    output_option,
    print_result,
    print_structured,
)
from poolhouse.cli.parameters import POOL, Duration
from poolhouse.cli.pools import current_revision, get_pool, list_revisions, list_vms
from poolhouse.cli.undo import find_revision, plan_undo, undo_update
from poolhouse.service.progress_bar import ProgressBar

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


T = TypeVar("T")
POLL_SECONDS = 0.5
OBSERVE_SECONDS = 15.0
"""how long an act waits for the controller to observe earlier changes, in addition to the time of the requests"""
MAX_CHANGES = 2
MAX_VALUE_LENGTH = 60
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

HISTORY = Listing(
    (
        field("REVISION", "revision"),
        field("CURRENT", "current"),
        field("VMS", "vms"),
        Column("OUTCOME", lambda row: f"{row['outcome']} ({row['reason']})" if row["reason"] else row["outcome"]),
        field("NAME", "name", wide=True),
        field("CREATED", "created", wide=True),
        field("ENDED", "ended", wide=True),
        Column("CHANGED", lambda row: summarize_changes(row["changes"])),
    ),
    name=lambda row: f"controllerrevision.apps/{row['name']}",
)
pool_argument = click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))


@click.group()
def rollout() -> None:
    """Follow, pause, promote, abort, repeat and undo updates of a pool."""


@rollout.command()
@pool_argument
@click.option("--watch/--no-watch", default=True, show_default=True, help="Wait until the update completes or fails.")
@click.option(
    "--timeout", "seconds", type=Duration(), default="0s", show_default=True, help="Longest wait; 0 means no limit."
)
@output_option("text")
@cluster_options
def status(cluster: Cluster, pool: str, watch: bool, seconds: float, output: str) -> None:
    """Print the progress of an update. Exits with 1 if it failed, with 3 after --timeout.

    At a pause of its steps it prints the commands that end the pause, and waits for one of them, as `kubectl rollout
    status` does. In a terminal, a bar shows the VMs that are updated and available, and an estimate of the time left.
    """
    document, state, message = cluster.run(lambda api: _follow(api, cluster, pool, watch, seconds, output))
    if is_structured(output):
        print_structured(
            output, {"pool": pool, "state": state, "message": message, "status": document.get("status") or {}}
        )
    if state == "Failed":
        raise Failed(message, shown=True)
    if state == "Progressing" and watch:
        raise Unreachable(f"not complete after {seconds:g} s", shown=True)


async def _follow(
    api: Api, cluster: Cluster, pool: str, watch: bool, seconds: float, output: str
) -> tuple[Json, State, str]:
    """Returns the pool with the state of its update and a message, at once or when the update has ended. Prints
    meanwhile what changes."""
    last: tuple[Json, State, str] | None = None
    told = ""
    with suppress(TimeoutError), ProgressBar(pool, None, shown=output == "text" and watch) as bar:
        # The limit also ends a request that the API server does not answer.
        async with asyncio.timeout(seconds or None):
            document = await with_outage(api, cluster, get_pool(api, cluster, pool))
            while True:
                state, message = progress(document)
                if state == "Complete" and not await _counts_hold(api, document):
                    state, message = "Progressing", f"{pool}: {UNOBSERVED}"
                # The error of a failed update contains the message.
                if output == "text" and state != "Failed" and (last is None or message != last[2]):
                    bar.echo(message)
                if output == "text" and (advice := next_commands(document)) and advice != told:
                    told = advice
                    bar.echo(advice)
                bar.update(*finished_vms(document))
                last = document, state, message
                if state != "Progressing" or not watch:
                    break
                await asyncio.sleep(POLL_SECONDS)
                document = await get_pool(api, cluster, pool)
    if last is None:
        raise Unreachable(f"no answer of the API server within {seconds:g} s")
    return last


UNOBSERVED = "the controller has not observed the change yet"


def is_observed(document: Json) -> bool:
    """Whether the pool's status contains the answer of the controller to the last change of the spec, and to the
    requests in the annotations: an annotation does not change the generation."""
    from controllers.pool.rules.steps import promoted_steps
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


async def _counts_hold(api: Api, document: Json) -> bool:
    """Whether the pool has as many VMs as its status says: a VM that was just deleted, detached or attached is not in
    the status yet. True for a user who may not list VMs."""
    from poolhouse.runtime.errors import Forbidden

    status = document["status"]
    try:
        vms = await list_vms(api, document)
    except Forbidden:
        return True
    deleting = sum("deletionTimestamp" in each["metadata"] for each in vms)
    return (len(vms) - deleting, deleting) == (status.get("replicas", 0), status.get("terminatingReplicas", 0))


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
            return "Complete", f"{name}: {_complete(document)}"
        case "Degraded":
            return "Failed", f"{name}: {health.message}"
    return "Progressing", f"{name}: {_remaining(document, health.message)}"


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


@rollout.command()
@pool_argument
@click.option("--revision", "number", type=int, help="Print the template of this revision.")
@HISTORY.option
@cluster_options
def history(cluster: Cluster, pool: str, number: int | None, output: str) -> None:
    """List the revisions of a pool's template: how their updates ended, and the changes between them."""

    async def read(api: Api) -> tuple[Json, list[Json], Counter[str]]:
        from poolhouse.api.kinds import meta

        document = await get_pool(api, cluster, pool)
        vms = [each for each in await list_vms(api, document) if "deletionTimestamp" not in each["metadata"]]
        counts = Counter((each["metadata"].get("labels") or {}).get(meta.REVISION, "") for each in vms)
        return document, await list_revisions(api, document), counts

    document, revisions, counts = cluster.run(read)
    rows = list(history_rows(document, revisions, counts))
    if number is not None:
        chosen = find_revision(revisions, number)
        if output != "name":
            print_structured(output if is_structured(output) else "yaml", chosen["data"])
            return
        rows = [row for row in rows if row["revision"] == number]
    HISTORY.show(output, rows, nothing=f"{pool} has no revisions yet")


def summarize_changes(changes: Sequence[str]) -> str:
    """Returns the first changes, for a table. JSON and YAML contain all changes."""
    more = len(changes) - MAX_CHANGES
    return "; ".join([*changes[:MAX_CHANGES], *([f"and {more} more"] if more > 0 else [])])


def history_rows(document: Json, revisions: list[Json], counts: Counter[str]) -> Iterator[Json]:
    from poolhouse.api.kubevirt.meaning import POOL_CONTENT
    from poolhouse.api.kubevirt.own_namespace import without_own_namespace

    current, status = current_revision(document, revisions), document.get("status") or {}
    ended = {each["revision"]: each for each in status.get("history") or ()}
    before: Json | None = None
    for each in revisions:
        name = each["metadata"]["name"]
        data = without_own_namespace(each["data"], POOL_CONTENT, document["metadata"]["namespace"])
        end = ended.get(name) or {"outcome": "Progressing" if name == current else None}
        yield {
            "revision": each["revision"],
            "name": name,
            "created": each["metadata"].get("creationTimestamp"),
            "vms": counts[name.rpartition("-")[2]],
            "current": name == current,
            **{key: end.get(key) for key in ("outcome", "reason", "message")},
            "ended": end.get("time"),
            "changes": [] if before is None else list(differences(before, data, POOL_CONTENT)),
        }
        before = data


def differences(before: Any, after: Any, type_name: str = "", path: str = "") -> Iterator[str]:
    """Yields lines such as `template.spec.domain.cpu.cores: 1 -> 2`. Matches list entries by name, and omits what only
    differs in its spelling. `type_name` is the type of both values in poolhouse/api/kubevirt/meaning.py."""
    from poolhouse.api.kubevirt.meaning import changed_fields, mean_the_same

    if mean_the_same(before, after, type_name):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for each in changed_fields(before, after, type_name):
            yield from differences(each.before, each.after, each.type, f"{path}.{each.name}" if path else each.name)
        return
    old, new = _by_name(before), _by_name(after)
    if old is not None and new is not None:
        for name in {**old, **new}:
            yield from differences(old.get(name), new.get(name), type_name, f"{path}[{name}]")
        return
    yield f"{path}: {_short(before)} -> {_short(after)}"


def _by_name(value: Any) -> dict[str, Any] | None:
    """Returns the entries of a list by name; None if an entry has no name or a name is not unique."""
    if not isinstance(value, list):
        return None
    found: dict[str, Any] = {}
    for each in value:
        name = each.get("name") or (each.get("metadata") or {}).get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = each
    return found


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"


def _change(cluster: Cluster, change: Callable[[Api], Awaitable[T]]) -> T:
    """Carries out the change of a pool. If no part of Poolhouse would act on it, a line on stderr says so."""
    return cluster.run(lambda api: with_outage(api, cluster, change(api)))


@rollout.command()
@pool_argument
@click.option(
    "--to-revision", "number", type=int, help="Default: the last one that all VMs had, before the current one."
)
@click.option(
    "--restore-snapshots",
    is_flag=True,
    help="Give each VM its disks of before the update, too. What its guest has written since then is lost.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and print what would happen to each VM, as `plan` does.")
@output_option("text")
@cluster_options
def undo(cluster: Cluster, pool: str, number: int | None, restore_snapshots: bool, dry_run: bool, output: str) -> None:
    """Give a pool the template of an earlier revision.

    With --restore-snapshots, the pool restores the snapshots of snapshotBeforeUpdate, within maxUnavailable. A VM
    without a snapshot of the revision only gets the template."""

    if dry_run:
        from poolhouse.cli.plan import show_plan

        show_plan(
            _change(cluster, lambda api: plan_undo(api, cluster, pool, number, restore_snapshots=restore_snapshots)),
            output,
        )
        return
    done = _change(cluster, lambda api: undo_update(api, cluster, pool, number, restore_snapshots=restore_snapshots))
    restored = {"vms": done.restored} if restore_snapshots else {}
    print_result(output, done.message, pool=pool, revision=done.revision, **restored)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def pause(cluster: Cluster, pool: str, output: str) -> None:
    """Pause a pool: its VMs are not created, changed, healed or deleted until you resume it."""
    _set_paused(cluster, pool, True, output)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def resume(cluster: Cluster, pool: str, output: str) -> None:
    """Resume a paused pool."""
    _set_paused(cluster, pool, False, output)


@rollout.command()
@pool_argument
@click.option("--full", is_flag=True, help="Skip all remaining steps, not only the present one.")
@click.option("--step", type=click.IntRange(1), help="End this step; refused if the update is past it already.")
@output_option("text")
@cluster_options
def promote(cluster: Cluster, pool: str, full: bool, step: int | None, output: str) -> None:
    """End the present step of an update, such as a pause, so that the update continues."""
    if full and step is not None:
        raise click.UsageError("--full ends all steps, --step ends one: name one of the two")
    place = _change(cluster, lambda api: promote_update(api, cluster, pool, full=full, step=step))
    print_result(output, f"{pool} is promoted past {place}", pool=pool, full=full)


@again_if_changed
async def promote_update(api: Api, cluster: Cluster, pool: str, *, full: bool = False, step: int | None = None) -> str:
    """Ends the present step of an update, or all, or the steps up to this one. Returns which was the last."""
    from controllers.pool.rules.steps import ALL
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


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def abort(cluster: Cluster, pool: str, output: str) -> None:
    """Abort an update: VMs get the last template again that all of them had. The pool's template stays."""

    _change(cluster, lambda api: abort_update(api, cluster, pool))
    print_result(output, f"{pool} returns to its former template", pool=pool)


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


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def retry(cluster: Cluster, pool: str, output: str) -> None:
    """Try an update again that was aborted or rolled back."""

    _change(cluster, lambda api: retry_update(api, cluster, pool))
    print_result(output, f"{pool} is updated again", pool=pool)


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


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def restart(cluster: Cluster, pool: str, output: str) -> None:
    """Restart all VMs of a pool, as an update without another change: within maxUnavailable, by steps if there are."""

    _change(cluster, lambda api: restart_vms(api, cluster, pool))
    print_result(output, f"{pool} restarts its VMs", pool=pool)


async def restart_vms(api: Api, cluster: Cluster, pool: str) -> None:
    """Restarts all VMs of the pool, as an update without another change."""
    from poolhouse.api.apimachinery.timestamps import format_time
    from poolhouse.api.kinds import meta
    from poolhouse.cli.resources import POOLS

    annotations = {meta.RESTARTED_AT: format_time(api.now())}
    change = {"spec": {"template": {"spec": {"template": {"metadata": {"annotations": annotations}}}}}}
    await api.patch(POOLS, cluster.namespace, pool, change)


def _set_paused(cluster: Cluster, pool: str, paused: bool, output: str) -> None:
    _change(cluster, lambda api: set_paused(api, cluster, pool, paused))
    print_result(output, f"{pool} is {'paused' if paused else 'resumed'}", pool=pool, paused=paused)


async def set_paused(api: Api, cluster: Cluster, pool: str, paused: bool) -> None:
    from poolhouse.cli.resources import POOLS

    await api.patch(POOLS, cluster.namespace, pool, {"spec": {"paused": paused}})
