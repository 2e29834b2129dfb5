"""Gives a pool the template of an earlier revision, or says what that would do."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.output import Failed
from poolhouse.cli.pools import BURST, current_revision, get_pool, list_revisions, list_vms

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


@dataclass(frozen=True)
class Undone:
    revision: int
    restored: int
    """how many VMs get their disks back"""
    message: str
    pool: Json
    """as the API server has stored it, or would store it"""


async def plan_undo(api: Api, cluster: Cluster, pool: str, number: int | None, *, restore_snapshots: bool) -> Json:
    """What would happen to each VM, as `plan` says it."""
    from poolhouse.cli.plan import plan_pool

    undone = await undo_update(api, cluster, pool, number, restore_snapshots=restore_snapshots, dry_run=True)
    return await plan_pool(api, undone.pool, BURST)


@again_if_changed
async def undo_update(
    api: Api,
    cluster: Cluster,
    pool: str,
    number: int | None,
    *,
    restore_snapshots: bool = False,
    dry_run: bool = False,
) -> Undone:
    """Gives the pool the template of a revision."""
    from poolhouse.api.apimachinery.timestamps import format_time
    from poolhouse.api.kinds import meta
    from poolhouse.cli.resources import POOLS
    from poolhouse.runtime.errors import Conflict, Invalid

    document = await get_pool(api, cluster, pool)
    revisions = await list_revisions(api, document)
    chosen = find_revision(revisions, number) if number is not None else _previous(document, revisions)
    vms = await _restorable_vms(api, document, chosen) if restore_snapshots else ()
    request = f"{chosen['metadata']['name']}={format_time(api.now())}" if restore_snapshots else None
    annotations = {**(document["metadata"].get("annotations") or {}), meta.RESTORE: request}
    annotations = {key: value for key, value in annotations.items() if value is not None}
    # The patch fails if another client has changed the spec meanwhile.
    patch = [{"op": "test", "path": "/metadata/generation", "value": document["metadata"]["generation"]}]
    fields, pins = fields_to_restore(chosen, document)
    patch += [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in fields.items()]
    if annotations != (document["metadata"].get("annotations") or {}):
        patch += [
            {"op": "test", "path": "/metadata/resourceVersion", "value": document["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
        ]
    try:
        answer = await api.patch(POOLS, cluster.namespace, pool, patch, kind="json", dry_run=dry_run)
    except Invalid as error:
        stored = (await get_pool(api, cluster, pool))["metadata"]
        before = document["metadata"]
        if stored["generation"] == before["generation"] and stored["resourceVersion"] != before["resourceVersion"]:
            raise Conflict(error.message) from None
        raise
    revision = int(chosen["revision"])
    text = f"{pool} has the template of revision {revision} again"
    if pins:
        text += ", with the images of then in place of the DataSources"
    if restore_snapshots:
        text += f", and {count_noun(len(vms), 'VM', 'gets', 'get')} the disks of before the update"
    if answer["spec"].get("paused"):
        text += f"; it is paused until `rollout resume {pool}`"
    return Undone(revision, len(vms), text, answer)


def fields_to_restore(revision: Json, pool: Json) -> tuple[Json, bool]:
    """Returns the fields of the pool's spec that a revision determines. If the revision differs from the pool only in
    the images of its DataSources, the template names these images in place of the DataSources, and the flag is true."""
    from controllers.pool.revision_content import content_hash, of_spec
    from controllers.shared.data_sources import pinned

    fields = copy.deepcopy(of_spec(revision))
    sources = revision["data"].get("dataSources") or {}
    contents = (fields, {key: pool["spec"].get(key) or {} for key in fields})
    here, there = (content_hash(each, pool["metadata"]["namespace"]) for each in contents)
    same = here == there
    if same and sources:
        pinned(fields["template"].get("spec") or {}, sources)
    return fields, same and bool(sources)


async def _restorable_vms(api: Api, pool: Json, revision: Json) -> set[str]:
    """Returns the UIDs of the pool's VMs that have a snapshot of the revision. Raises `Failed` without any."""
    from controllers.pool.vm_snapshots import VM_SNAPSHOTS, parse_snapshot
    from poolhouse.api.kinds import meta
    from poolhouse.runtime.errors import NotFound

    metadata = pool["metadata"]
    label = revision["metadata"]["name"].rpartition("-")[2]
    selector = f"{meta.POOL}={metadata['name']},{meta.REVISION}={label}"
    try:
        documents, _ = await api.list(VM_SNAPSHOTS, metadata["namespace"], label_selector=selector)
    except NotFound:
        raise Failed("the cluster does not serve VirtualMachineSnapshots") from None
    present = {each["metadata"]["uid"] for each in await list_vms(api, pool)}
    found = {each.vm_uid for each in map(parse_snapshot, documents) if each.usable and each.vm_uid in present}
    if not found:
        raise Failed(
            f"no VM of {metadata['name']} has a ready snapshot of revision {revision['revision']}; without"
            " --restore-snapshots the VMs get its template only"
        )
    return found


def _previous(document: Json, revisions: list[Json]) -> Json:
    name, current = document["metadata"]["name"], current_revision(document, revisions)
    if all(each["metadata"]["name"] == current for each in revisions):
        raise Failed(f"{name} has no earlier revision")
    found = next(_earlier(document.get("status") or {}, revisions, current), None)
    if found is None:
        raise Failed(
            f"no other template was on all VMs of {name}; `rollout history {name}` lists those that some VMs had, and"
            " --to-revision chooses one"
        )
    return found


def _earlier(status: Json, revisions: list[Json], current: str) -> Iterator[Json]:
    """The revisions that an undo may return to, the most likely first."""
    latest_first = [each for each in reversed(revisions) if each["metadata"]["name"] != current]
    by_name = {each["metadata"]["name"]: each for each in latest_first}
    stable = status.get("currentRevision")
    if stable in by_name:
        yield by_name[stable]
    # The history is in the order of time. Revisions are not: an undo returns to one with a low number.
    outcomes = {each["revision"]: each["outcome"] for each in status.get("history") or ()}
    for name, outcome in reversed(outcomes.items()):
        if outcome == "Complete" and name in by_name:
            yield by_name[name]
    yield from (each for each in latest_first if each["metadata"]["name"] not in outcomes)
    # No template was on all VMs. A second undo must not apply again what the first has taken back, so it returns to a
    # revision from before the current one.
    before = [*takewhile(lambda each: each["metadata"]["name"] != current, revisions)]
    yield from reversed(before)


def find_revision(revisions: list[Json], number: int) -> Json:
    for each in revisions:
        if each["revision"] == number:
            return each
    known = ", ".join(str(each["revision"]) for each in revisions) or "none"
    raise Failed(f"there is no revision {number}; there are {known}")
