"""The pages by path: collects what each page shows, and asks the API server only for what no view has."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from urllib.parse import unquote

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.fleet import collect
from poolhouse.cli.hardware import describe
from poolhouse.cli.output import Failed
from poolhouse.cli.policy import impact_of
from poolhouse.console import change, fleet_page, hardware_page, policies_page, stream_page, warm_page
from poolhouse.console.act import VM, Target
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.context import Context, Missing, read_document, read_guest
from poolhouse.console.object_pages import object_page, vm
from poolhouse.console.overview import overview
from poolhouse.console.page import Page, Part, Query, object_path
from poolhouse.runtime.errors import ApiError, Forbidden
from poolhouse.runtime.resource import NAMESPACES, VMS, Resource

Builder = Callable[..., Awaitable[Page]]


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
    found = describe(await read_document(state, VMS, (namespace, name)), await read_guest(state, (namespace, name)))
    other, problem, differences = query.get("with", "").strip(), "", list[Json]()
    if other:
        try:
            against = describe(await read_document(state, VMS, (namespace, other)))
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
