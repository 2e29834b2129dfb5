"""`poolhouse why`: what was done to a VM of a pool, what will be, and the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli import replicaset
from cli.cluster import Cluster, cluster_options
from cli.output import Failed, count_noun, is_structured, output_option, print_structured
from cli.pools import KIND, controller_of
from cli.resource_names import complete_names, parse_name

if TYPE_CHECKING:
    from controllers.pool.snapshot import PoolSnapshot
    from runtime.api import Api

Json = dict[str, Any]

EVENTS_SHOWN = 10
STEPS_SEEN = 50
MACHINES = ("VirtualMachine", "VirtualMachineInstance")
WISHES = {"Protect": "scale-in never takes it", "First": "it is the first that scale-in takes"}
WRONG_WISH = "which is neither Protect nor First, so scale-in leaves it alone until that is put right"


@click.command()
@click.argument(
    "name",
    metavar="VM",
    shell_complete=complete_names(
        "virtualmachines", "virtualmachineinstances", vm="virtualmachines", vmi="virtualmachineinstances"
    ),
)
@output_option("text")
@cluster_options
def why(cluster: Cluster, name: str, output: str) -> None:
    """Say what was done to a VM and why, what it waits for, and what comes next.

    The past is told from the events of the VM and of its pool or replica set, which the cluster keeps for an hour; what
    comes next is decided here as the controllers would, from what is there now.
    """
    _, vm = parse_name(name, *MACHINES)
    found = cluster.run(lambda api: _found(api, cluster.namespace, vm))
    if is_structured(output):
        print_structured(output, found)
        return
    for line in _lines(found):
        click.echo(line)


async def _found(api: Api, namespace: str, vm: str) -> Json:
    from runtime.errors import NotFound
    from runtime.resource import VMS

    try:
        document: Json | None = await api.get(VMS, namespace, vm)
    except NotFound:
        document = None
    instance = await replicaset.get_vmi(api, namespace, vm) if document is None else None
    if instance is not None and replicaset.is_standalone(instance):
        return await _of_a_set(api, namespace, vm, instance)
    pool = _pool(document, vm)
    controller = (controller_of(document) if document is not None else None) or {}
    past = await _past(api, namespace, vm, pool or controller.get("name", ""))
    if document is None:
        await _refuse_pool(api, namespace, vm)
    if document is None and not past:
        told = await _of_a_set(api, namespace, vm, None)
        if not told["past"]:
            raise Failed(f"there is no VM {vm}, and no event speaks of one")
        return told
    owned = controller.get("kind") == KIND
    now, then = (
        await _present(api, namespace, vm, pool) if owned else ([*_warmth(document), *_left(document, pool)], [])
    )
    return {
        "vm": vm,
        "pool": pool,
        "controller": f"{controller['kind']} {controller['name']}" if controller else None,
        "exists": document is not None,
        "member": owned,
        "past": past,
        "present": now,
        "next": then,
    }


async def _of_a_set(api: Api, namespace: str, name: str, document: Json | None) -> Json:
    """The same of a VM that is an instance only, as those of replica sets are."""
    owner = replicaset.replica_set_name(document, name)
    past = await _past(api, namespace, name, owner)
    owned = document is not None and (controller_of(document) or {}).get("kind") == replicaset.KIND
    now, then = await replicaset.current_state(api, namespace, name, owner) if owned else ([], [])
    return {
        "vm": name,
        "replicaSet": owner,
        "exists": document is not None,
        "member": owned,
        "past": past,
        "present": now,
        "next": then,
    }


async def _refuse_pool(api: Api, namespace: str, name: str) -> None:
    """Asked about a pool: its events speak of its VMs, and none of them is about one of that name."""
    from controllers.pool.observe import POOLS
    from runtime.errors import NotFound

    try:
        await api.get(POOLS, namespace, name)
    except NotFound:
        return
    raise Failed(f"{name} is a pool and no VM; `rollout status {name}` and `tree vmpool/{name}` tell of it")


def _warmth(document: Json | None) -> Iterator[str]:
    """How a VM of a warm pool or of a claim is, as its label says."""
    from kinds import meta

    metadata = (document or {}).get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if state := (metadata.get("labels") or {}).get(meta.WARM_STATE):
        since = f" since {notes[meta.STATE_SINCE]}" if notes.get(meta.STATE_SINCE) else ""
        yield f"it is {state}{since}" + (f": {notes[meta.STATE_REASON]}" if notes.get(meta.STATE_REASON) else "")


def _left(document: Json | None, pool: str) -> Iterator[str]:
    """What becomes of a VM that was in a pool, and is nobody's now."""
    if document is not None and pool and controller_of(document) is None:
        yield f"{pool} leaves it alone and gives its name to no other VM; attach puts it back"


def _pool(document: Json | None, vm: str) -> str:
    """Its pool's name, or that of the pool which it was in by the looks of its name."""
    from controllers.shared.names import parent_and_ordinal
    from kinds import meta

    if document is None:
        return parent_and_ordinal(vm)[0]
    owner = controller_of(document)
    if owner is not None and owner["kind"] == KIND:
        return str(owner["name"])
    return str((document["metadata"].get("labels") or {}).get(meta.POOL, ""))


async def _past(api: Api, namespace: str, vm: str, owner: str) -> list[Json]:
    from runtime.errors import Forbidden
    from runtime.events import EVENTS

    found = []
    for name in dict.fromkeys(each for each in (vm, owner) if each):
        try:
            items, _ = await api.list(EVENTS, namespace, field_selector=f"regarding.name={name}")
        except Forbidden as error:
            click.echo(f"not told, because you may not read it: {error.message}", err=True)
            return []
        found += [_told(event) for event in items if mentions(event, vm)]
    return sorted(found, key=lambda each: str(each["time"]))[-EVENTS_SHOWN:]


def mentions(event: Json, vm: str) -> bool:
    """It is about the VM, or says its name. An owner may have the same name."""
    about = event["regarding"]
    if about.get("name") == vm and about.get("kind") in MACHINES:
        return True
    return re.search(rf"(?<![\w.-]){re.escape(vm)}(?![\w-])", event.get("note") or "") is not None


def _told(event: Json) -> Json:
    time = (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    return {"time": time, "reason": event.get("reason"), "note": event.get("note")}


async def _present(api: Api, namespace: str, vm: str, pool: str) -> tuple[list[str], list[Json]]:
    from controllers.pool.observe import list_stores, observe
    from controllers.pool.simulate import rows, simulate
    from controllers.pool.snapshot import PoolSnapshot

    state = observe(await list_stores(api, namespace), (namespace, pool), synced=True, failure=None, burst=250)
    if not isinstance(state, PoolSnapshot):
        return ["its pool is gone" if state is None else f"its pool cannot be read: {state.problem}"], []
    found = simulate(state, datetime.now(UTC), STEPS_SEEN)
    return list(current_facts(state, vm)), [row for row in rows(found) if row["vm"] == vm]


def current_facts(state: PoolSnapshot, vm: str) -> Iterator[str]:
    from controllers.pool.plan import plan
    from kinds import meta

    m = next((each for each in state.vms if each.name == vm), None)
    if m is None:
        return
    pool = state.pool
    if m.deleting:
        yield "it is being deleted" + (", and its disks are kept" if m.retains_disks else "")
    if m.should_run:
        status = m.printable_status or "no status yet"
        yield "it is ready" if m.available else f"it is meant to run and is not ready ({status})"
    elif m.run_strategy in ("Once", "RerunOnFailure") or (m.run_strategy == "Manual" and m.vmi and m.vmi.succeeded):
        yield f"its guest has ended, and by run strategy {m.run_strategy} it is not started again by itself"
    else:
        yield "it is meant to be halted"
    if m.start_failures:
        yield f"{m.start_failures} starts in a row have failed"
    yield "its template is an old one" if state.outdated(m) else "it has the pool's template"
    if not state.outdated(m) and state.needs_restart(m):
        yield "it has run since before its template was changed, and must be restarted"
    if m.scale_in:
        yield f"{meta.SCALE_IN} is {m.scale_in}: {WISHES.get(m.scale_in, WRONG_WISH)}"
    if pool.spec.paused:
        yield "its pool is paused"
    decided = plan(state, datetime.now(UTC))
    for wait in decided.waits:
        if wait.name == vm:
            yield f"it waits: {wait.reason}"
    if decided.blocked:
        yield f"scale-in is blocked: {decided.blocked}"
    for healed in pool.status.healing.machines if pool.status.healing else ():
        if healed.name == vm:
            often = count_noun(healed.attempts, "time")
            yield f"it was replaced {often}, and will not be again before {healed.not_before}"


def _lines(found: Json) -> Iterator[str]:
    vm = found["vm"]
    noun, owner = ("replica set", found["replicaSet"]) if "replicaSet" in found else ("pool", found["pool"])
    if not found["exists"]:
        yield f"{vm} does not exist"
    elif not found["member"]:
        if found.get("controller"):
            yield f"{vm} is in no {noun}: {found['controller']} controls it"
        else:
            yield f"{vm} is in no {noun}" + (f"; it was in {owner}" if owner else "")
    else:
        yield f"{vm} is in {owner}"
    for fact in found["present"]:
        yield f"  now   {fact}"
    for each in found["past"]:
        yield f"  {str(each['time'])[:19]}  {each['reason']}: {each['note']}"
    for each in found["next"]:
        yield f"  next  {each['action']}: {each['reason']}"
