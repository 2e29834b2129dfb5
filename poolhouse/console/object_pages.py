"""The pages of pools, replica sets, warm pools, claims, policies and VMs: what each shows, and its forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import PoolSnapshot
from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.shared.invalid_spec import InvalidSpec
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.health import assess
from poolhouse.cli.past import Identity, concerns, logged, merge, of_vm
from poolhouse.cli.pools import list_revisions
from poolhouse.console import (
    acts,
    claim_page,
    pool_page,
    replica_set_page,
    stream_page,
    vm_page,
    vm_snapshots,
    vm_usage,
    warm_page,
    words,
)
from poolhouse.console.act import VM, Act, Target
from poolhouse.console.cluster_state import ClusterState, Right
from poolhouse.console.computations import TooExpensive
from poolhouse.console.context import Context, Missing, read_document
from poolhouse.console.page import Page, Part, Query, object_path
from poolhouse.console.past_events import event_row, events_of, events_part, list_events
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMIS, VMS, Resource

P = ParamSpec("P")


async def object_page(context: Context, query: Query, short: str, namespace: str, name: str) -> Page:
    kind = next((kind for kind in KINDS if kind.short_name == short), None)
    document = context.state.get(kind.kind, (namespace, name)) if kind else None
    if kind is None or document is None:
        raise Missing(_absence(context.state, kind, short, namespace, name))
    parts = [await _head(context, kind, document)]
    match kind:
        case _ if kind is POOL:
            parts += await _pool_parts(context, document, query)
        case _ if kind is REPLICA_SET:
            parts += await _replica_set_parts(context, document, query)
        case _ if kind is CLAIM:
            parts.append(Part("claim", "claim.html", await claim_page.access(context.state, document)))
        case _ if kind is WARM_POOL:
            now = context.state.now()
            parts += [
                Part("measures", "measures.html", warm_page.measures(context.state, document)),
                Part("size", "size.html", warm_page.size(context.state, document, now)),
                Part("vms", "warm_vms.html", warm_page.warm_vms(context.state, document, now)),
                Part("claims", "claims.html", warm_page.claims_table(context.state, query, now, (namespace, name))),
            ]
    parts.append(await events_of(context, kind, namespace, name))
    return Page(f"{short}/{name}", parts)


def _absence(state: ClusterState, kind: Kind | None, short: str, namespace: str, name: str) -> str:
    """Why there is no page of an object: it does not exist, or the user may not see whether it does."""
    place = f" in namespace {namespace}" if namespace else ""
    if kind is not None and state.unlisted(kind):
        right = Right("list", Resource.of(kind))
        scope = f"namespace {state.namespace}" if state.namespace else "all namespaces"
        return f"You may not see whether there is a {short} {name}{place}: the right to {right} in {scope} is missing."
    return f"There is no {short} {name}{place}."


async def _head(context: Context, kind: Kind, document: Json) -> Part:
    now, status = context.state.now(), document.get("status") or {}
    health = assess(document)
    target = Target(kind.kind, document)
    return Part(
        "head",
        "head.html",
        {
            "short": kind.short_name,
            "name": target.name,
            "namespace": target.namespace,
            "health": health,
            "age": words.age(document["metadata"].get("creationTimestamp"), now),
            "numbers": numbers(kind, document),
            "conditions": words.condition_rows(status, now),
            "forms": await forms(context, target),
            "edit": f"/change?kind={kind.short_name}&namespace={target.namespace}&name={target.name}",
        },
    )


def numbers(kind: Kind, document: Json) -> list[tuple[str, object]]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    names = (
        ("Desired", status.get("desiredReplicas", spec.get("replicas"))),
        ("Current", status.get("replicas")),
        ("Ready", status.get(kind.ready_replicas)),
        ("Available", status.get("availableReplicas")),
        ("Updated", status.get("updatedReplicas")),
        ("Being deleted", status.get("terminatingReplicas") or None),
        ("Claimed", status.get("claimed")),
        ("Claims in the queue", status.get("queuedClaims")),
        ("Unhealthy", status.get("unhealthy") or None),
        ("Retained disks", status.get("retainedDisks") or None),
        ("VMIs", status.get("wins")),
    )
    return [(name, value) for name, value in names if value is not None]


async def forms(context: Context, target: Target) -> list[Json]:
    """The forms of the acts, and which right the user lacks for an act."""
    found = acts.acts_of(target)
    missing = await context.state.missing_rights((each.right(target) for each in found), target.namespace)
    return [_form(each, target, str(each.right(target)) if each.right(target) in missing else "") for each in found]


def _form(act: Act, target: Target, missing: str) -> Json:
    values = {field.name: field.value(target) for field in act.fields}
    short = acts.short(target)
    return {
        "id": f"act-{act.name}-{target.name}",
        "name": act.name,
        "label": act.label,
        "help": act.help,
        "target": short,
        "fields": [{**vars(field), "value": values[field.name]} for field in act.fields],
        "template": act.template(target),
        "command": act.shell(target, values),
        "action": f"/act/{act.name}{object_path(short.partition('/')[0], target.namespace, target.name)}",
        "destroys": act.asks,
        "missing": missing,
    }


def _without_snapshot(found: InvalidSpec[Any] | None) -> list[Part]:
    """The parts of a set whose spec is invalid, or which the store does not have."""
    return [Part("invalid", "invalid.html", {"problem": found.problem})] if found is not None else []


async def _pool_parts(context: Context, document: Json, query: Query) -> list[Part]:
    state, metadata = context.state, document["metadata"]
    key, now = (metadata["namespace"], metadata["name"]), state.now()
    snapshot = state.pool(key)
    if not isinstance(snapshot, PoolSnapshot):
        return _without_snapshot(snapshot)
    # After an abort, the former template is the one that VMs should have.
    snapshot = await state.compute(with_abort, snapshot, now)
    parts = await _computed(state, pool_page.parts, snapshot, document, query, now)
    return [*parts, await _history(context, document, snapshot)]


async def _computed(
    state: ClusterState, parts: Callable[P, list[Part]], *given: P.args, **named: P.kwargs
) -> list[Part]:
    """Parts that grow with the VMs, or why they cannot be shown. The page has more than these."""
    try:
        return await state.compute(parts, *given, **named)
    except TooExpensive as error:
        return [Part("rollout", "expensive.html", {"problem": error.format_message()})]


async def _replica_set_parts(context: Context, document: Json, query: Query) -> list[Part]:
    state, metadata = context.state, document["metadata"]
    key, now = (metadata["namespace"], metadata["name"]), state.now()
    snapshot = state.replica_set(key)
    if not isinstance(snapshot, ReplicaSetSnapshot):
        return _without_snapshot(snapshot)
    return await _computed(state, replica_set_page.parts, snapshot, query, now)


async def _history(context: Context, document: Json, snapshot: PoolSnapshot) -> Part:
    state, metadata = context.state, document["metadata"]
    stamp = tuple(each.name for each in snapshot.revisions)
    try:
        revisions = await state.remember(
            ("revisions", metadata["uid"]), stamp, lambda: list_revisions(state.api, document), seconds=0
        )
        rows = await state.compute(pool_page.history, snapshot, document, revisions, state.now())
    except (ApiError, TooExpensive) as error:
        return Part("history", "history.html", {"rows": [], "problem": str(error.message)})
    target = Target(POOL.kind, document)
    undo = acts.BY_NAME["undo"]
    missing = await state.missing_rights([undo.right(target)], target.namespace)
    action = f"/act/undo{object_path(POOL.short_name, target.namespace, target.name)}"
    return Part(
        "history",
        "history.html",
        {"rows": rows, "action": action, "missing": str(undo.right(target)) if missing else "", "name": target.name},
    )


async def vm(context: Context, query: Query, short: str, namespace: str, name: str) -> Page:
    """The page of a VM, or of a VMI without a VM."""
    state, key, resource = context.state, (namespace, name), VMS if short == "vm" else VMIS
    document = await read_document(state, resource, key)
    offered = await forms(context, Target(VM, document)) if short == "vm" else []
    head = vm_page.head(state, document, short) | {
        "forms": [each for each in offered if vm_snapshots.is_possible(state, each["name"])],
        "streams": await stream_page.links(state, namespace, name),
    }
    return Page(
        f"{short}/{name}",
        [
            Part("head", "vm_head.html", head),
            Part("why", "why.html", await vm_page.why(state, document, short)),
            *(
                Part("usage", "usage.html", each)
                for each in await vm_usage.usage(state, context.metrics, resource, key)
            ),
            *(Part("snapshots", "snapshots.html", each) for each in await vm_snapshots.snapshots(state, document)),
            await _past(context, document),
        ],
    )


async def _past(context: Context, document: Json) -> Part:
    """What events and the logs of decisions say about a VM, the newest first."""
    state, metadata, now = context.state, document["metadata"], context.state.now()
    namespace, name = metadata["namespace"], metadata["name"]
    vm = Identity.of(name, document)
    try:
        items = await list_events(context, namespace, [each for each in (name, vm_page.owner_name(document)) if each])
    except ApiError:
        items = []
    events = [event_row(each, now) for each in items or ()]
    about = [row for row, each in zip(events, items or (), strict=True) if concerns(each, vm, parse_time(row["time"]))]
    owners = [{**each, "kind": kind.kind} for kind in KINDS for each in state.list(kind) if _is_in(each, namespace)]
    rows = merge(about, of_vm(logged(owners, name), vm))[::-1]
    for row in rows:
        row.setdefault("age", words.age(row["time"], now))
    return events_part(rows, hidden=items is None, title="Past")


def _is_in(document: Json, namespace: str) -> bool:
    return bool(document["metadata"].get("namespace") == namespace)
