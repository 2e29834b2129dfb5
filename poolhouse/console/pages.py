"""The pages by path: collects what each page shows, and asks the API server only for what no view has."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import ParamSpec
from urllib.parse import unquote

from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import PoolSnapshot
from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.shared.invalid_spec import InvalidSpec
from poolhouse.api.apimachinery.timestamps import format_time, known_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.fleet import collect
from poolhouse.cli.hardware import describe
from poolhouse.cli.health import assess
from poolhouse.cli.output import Failed
from poolhouse.cli.past import Identity, concerns, logged, merge, of_vm
from poolhouse.cli.policy import impact_of
from poolhouse.cli.pools import list_revisions
from poolhouse.console import (
    acts,
    change,
    claim_page,
    fleet_page,
    hardware_page,
    policies_page,
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
from poolhouse.console.overview import overview
from poolhouse.console.page import Page, Part, Query, object_path
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound
from poolhouse.runtime.events import EVENTS, last_observed
from poolhouse.runtime.resource import NAMESPACES, VMIS, VMS, Key, Resource

P = ParamSpec("P")
MAX_EVENTS = 40


@dataclass(frozen=True)
class Context:
    """What every page may use."""

    state: ClusterState
    cluster: Cluster
    drafts: change.Drafts = field(default_factory=change.Drafts)
    metrics: vm_usage.Metrics | None = None


Builder = Callable[..., Awaitable[Page]]


class Missing(Exception):
    """There is no such page or object."""


async def overview_page(context: Context, query: Query) -> Page:
    return await overview(context.state, query)


async def change_page(context: Context, query: Query) -> Page:
    return await change.page(context.state, context.cluster, context.drafts, query)


async def warm(context: Context, query: Query) -> Page:
    now = context.state.now()
    parts = [
        Part("pools", "warm_pools.html", warm_page.pools(context.state, now)),
        Part("claims", "claims.html", warm_page.claims_table(context.state, query, now)),
    ]
    return Page("Warm pools", parts, "warm")


async def sizing(context: Context, query: Query, namespace: str, name: str) -> Page:
    document = context.state.get(WARM_POOL.kind, (namespace, name))
    if document is None:
        raise Missing(f"There is no warm pool {name} in namespace {namespace}.")
    values = {"name": name, "namespace": namespace, "back": object_path(WARM_POOL.short_name, namespace, name)}
    try:
        found = await context.state.compute(warm_page.advice, context.state.list(CLAIM), document, context.state.now())
    except Failed as error:
        found = {"failed": error.format_message()}
    return Page(
        f"Sizing of {name}", [Part("advice", "advice.html", {"failed": "", **values, **found})], "warm", live=False
    )


async def hardware(context: Context, query: Query, namespace: str, name: str) -> Page:
    """The hardware of a VM, compared with that of another VM of the namespace if the query names one."""
    state = context.state
    found = describe(await _document(state, VMS, (namespace, name)), await _guest(state, (namespace, name)))
    other, problem, differences = query.get("with", "").strip(), "", list[Json]()
    if other:
        try:
            against = describe(await _document(state, VMS, (namespace, other)))
            differences = hardware_page.compare(found["devices"], against["devices"])
        except Missing as error:
            problem = str(error)
    values = {
        "name": name,
        "back": object_path("vm", namespace, name),
        "buses": hardware_page.topology(found["devices"]),
        "others": hardware_page.elsewhere(found["devices"]),
        "deciders": hardware_page.deciders(found["devices"]),
        "record": found["record"],
        "undecided": found["undecided"],
        "names": sorted(vm.name for vm in state.pools.vms if vm.namespace == namespace and vm.name != name)[:500],
        "other": other,
        "problem": problem,
        "differences": differences,
        "changed": {each["device"] for each in differences},
    }
    return Page(f"Hardware of {name}", [Part("hardware", "hardware.html", values)])


async def fleet(context: Context, query: Query) -> Page:
    """What the next restart of each VM changes, within the rights of the user."""
    state = context.state
    everywhere = state.namespace is None
    cluster = replace(context.cluster, namespace=state.namespace or context.cluster.namespace, everywhere=everywhere)
    stamp = int(state.now().timestamp()) // fleet_page.FRESH_SECONDS
    reports, refused = await state.remember(("fleet",), stamp, lambda: collect(state.api, cluster))
    found = await state.compute(fleet_page.table, reports, refused, query)
    return Page("Hardware", [Part("fleet", "fleet.html", found)], "fleet", live=False)


async def policies(context: Context, query: Query) -> Page:
    state = context.state
    labels = await _namespace_labels(state)
    vmis, documents = state.pools.vmis.all(), state.list(MIGRATION_POLICY)
    found = await state.compute(policies_page.matrix, vmis, documents, labels or {}, state.now())
    without, impact = query.get("without", ""), None
    if without:
        impact = await _impact(state, without)
    values = {
        **found,
        "unlisted": state.unlisted(MIGRATION_POLICY),
        "unread": labels is None,
        "without": without,
        "impact": impact,
    }
    return Page("Policies", [Part("policies", "policies.html", values)], "policies")


async def _impact(state: ClusterState, without: str) -> Json:
    async def fetch() -> Json:
        try:
            total, changes, _ = await impact_of(state.api, [], (without,))
        except Failed as error:
            return {"problem": error.format_message()}
        except ApiError as error:
            return {"problem": error.message}
        return {"problem": "", "total": total, "number": len(changes), "rows": [asdict(each) for each in changes[:200]]}

    return await state.remember(("impact", without), state.version[0], fetch)


async def _namespace_labels(state: ClusterState) -> dict[str, Json] | None:
    """The labels of namespaces; None if the user may not list namespaces."""

    async def fetch() -> dict[str, Json] | None:
        try:
            items, _ = await state.api.list(NAMESPACES)
        except Forbidden:
            return None
        return {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in items}

    return await state.remember(("namespaces",), state.version[0], fetch)


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
    parts.append(await _events(context, kind, namespace, name))
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


async def _pool_parts(context: Context, document: Json, query: Query) -> list[Part]:
    state, metadata = context.state, document["metadata"]
    key, now = (metadata["namespace"], metadata["name"]), state.now()
    snapshot = state.pool(key)
    if isinstance(snapshot, InvalidSpec):
        return [Part("invalid", "invalid.html", {"problem": snapshot.problem})]
    if not isinstance(snapshot, PoolSnapshot):
        return []
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
    if isinstance(snapshot, InvalidSpec):
        return [Part("invalid", "invalid.html", {"problem": snapshot.problem})]
    if not isinstance(snapshot, ReplicaSetSnapshot):
        return []
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


async def _events(context: Context, kind: Kind, namespace: str, name: str) -> Part:
    try:
        items = await _list_events(context, namespace, [name])
    except ApiError:  # the page says that the API server does not answer
        items = []
    rows = [_event(each, context.state.now()) for each in items or () if each["regarding"].get("kind") == kind.kind]
    rows.sort(key=lambda each: each["time"], reverse=True)
    return _events_part(rows, hidden=items is None, title="Events")


def _events_part(rows: list[Json], *, hidden: bool, title: str) -> Part:
    more = max(0, len(rows) - MAX_EVENTS)
    return Part("events", "events.html", {"rows": rows[:MAX_EVENTS], "more": more, "hidden": hidden, "title": title})


async def _list_events(context: Context, namespace: str, names: Sequence[str]) -> list[Json] | None:
    """The events about objects with these names; None if the user may not list events."""
    state = context.state

    async def fetch() -> list[Json] | None:
        found: list[Json] = []
        for name in dict.fromkeys(names):
            try:
                items, _ = await state.api.list(EVENTS, namespace or None, field_selector=f"regarding.name={name}")
            except Forbidden:
                return None
            found += items
        return [each for each in found if last_observed(each)]

    return await state.remember(("events", namespace, tuple(names)), state.version[0], fetch)


def _event(event: Json, now: datetime) -> Json:
    time = last_observed(event)
    moment = known_time(time)
    series = event.get("series") or {}
    return {
        "time": format_time(moment) if moment else time,
        "age": words.age(time[:19] + "Z", now),
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "note": event.get("note") or "",
        "count": series.get("count") or event.get("deprecatedCount") or 1,
        "object": event["regarding"].get("name") or "",
    }


async def vm(context: Context, query: Query, short: str, namespace: str, name: str) -> Page:
    """The page of a VM, or of a VMI without a VM."""
    state, key, resource = context.state, (namespace, name), VMS if short == "vm" else VMIS
    document = await _document(state, resource, key)
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
        items = await _list_events(context, namespace, [each for each in (name, vm_page.owner_name(document)) if each])
    except ApiError:
        items = []
    events = [_event(each, now) for each in items or ()]
    about = [row for row, each in zip(events, items or (), strict=True) if concerns(each, vm, parse_time(row["time"]))]
    owners = [{**each, "kind": kind.kind} for kind in KINDS for each in state.list(kind) if _is_in(each, namespace)]
    rows = merge(about, of_vm(logged(owners, name), vm))[::-1]
    for row in rows:
        row.setdefault("age", words.age(row["time"], now))
    return _events_part(rows, hidden=items is None, title="Past")


def _is_in(document: Json, namespace: str) -> bool:
    return bool(document["metadata"].get("namespace") == namespace)


async def _document(state: ClusterState, resource: Resource, key: Key) -> Json:
    view = (state.pools.vms if resource is VMS else state.pools.vmis).get(key)
    # Without the right to list, no watch tells of a change.
    stamp: object = view.resource_version if view is not None else object()
    try:
        return await state.remember((resource.plural, key), stamp, lambda: state.api.get(resource, *key))
    except NotFound:
        raise Missing(f"There is no {resource.kind} {key[1]} in namespace {key[0]}.") from None


async def _guest(state: ClusterState, key: Key) -> Json | None:
    """The VMI; None if there is none, or if the user may not get it."""
    try:
        return await _document(state, VMIS, key)
    except (Missing, Forbidden):
        return None


ROUTES: tuple[tuple[re.Pattern[str], Builder], ...] = tuple(
    (re.compile(pattern), builder)
    for pattern, builder in (
        (r"/", overview_page),
        (r"/change", change_page),
        (r"/warm", warm),
        (r"/policies", policies),
        (r"/fleet", fleet),
        (r"/sizing/(?P<namespace>[^/]+)/(?P<name>[^/]+)", sizing),
        (r"/hardware/(?P<namespace>[^/]+)/(?P<name>[^/]+)", hardware),
        (r"/(?P<short>vm|vmi)/(?P<namespace>[^/]+)/(?P<name>[^/]+)", vm),
        (r"/(?P<stream>console|vnc)/(?P<namespace>[^/]+)/(?P<name>[^/]+)", stream_page.stream_page),
        (r"/(?P<short>[a-z]+)/(?P<namespace>[^/]+)/(?P<name>[^/]+)", object_page),
    )
)


async def build(context: Context, path: str, query: Query) -> Page:
    """The page at a path. Raises `Missing`, `Failed` or an API error."""
    for pattern, builder in ROUTES:
        if found := pattern.fullmatch(path):
            names: Mapping[str, str] = {key: unquote(value) for key, value in found.groupdict().items()}
            if names.get("namespace") == "-":
                names = {**names, "namespace": ""}
            return await builder(context, query, **names)
    raise Missing(f"There is no page {path}.")


async def target_of(context: Context, short: str, namespace: str, name: str) -> Target:
    """The object of an act. Raises `Missing`."""
    if short == "vm":
        return Target(VM, await context.state.api.get(VMS, namespace, name))
    kind = next((kind for kind in KINDS if kind.short_name == short), None)
    if kind is None:
        raise Missing(f"There is no kind {short}.")
    return Target(kind.kind, await context.state.api.get(Resource.of(kind), namespace or None, name))
