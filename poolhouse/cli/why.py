"""Implements `poolhouse why`, which explains past, present and planned actions on a VM of a pool or replica set."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import UID_LENGTH
from poolhouse.cli.claim_status import to_the_second
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options, list_visible
from poolhouse.cli.completion import complete_names
from poolhouse.cli.data_volumes import data_volume_facts
from poolhouse.cli.doctor import with_outage
from poolhouse.cli.output import Failed, Listing, echo, field, is_structured, output_option, print_structured
from poolhouse.cli.parameters import parse_name, short_name, spellings
from poolhouse.cli.past import (
    DELETIONS,
    VM_KINDS,
    Identity,
    Logged,
    concerns,
    deleted_vms,
    deletion_of,
    events_about,
    logged,
    merge,
    of_vm,
)
from poolhouse.cli.pools import BURST, POOL_KIND
from poolhouse.cli.why_claim import claim_name, show_claim

if TYPE_CHECKING:
    from controllers.pool.snapshot import Pool, PoolSnapshot
    from controllers.replicaset.observe import ReplicaSetSnapshot
    from controllers.shared.vm import VM
    from controllers.shared.vmi import VMI
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

MAX_ROWS = 20
EXPLAINED_BY = {
    "VirtualMachinePool": "rollout status",
    "VirtualMachineWarmPool": "warmpool why",
    "MigrationPolicy": "policy explain",
}
"""commands that explain objects of other kinds"""
REPLICA_SET_KIND = "VirtualMachineInstanceReplicaSet"
SCALE_IN = {"Protect": "scale-in does not delete it", "First": "scale-in deletes it first"}
INVALID_SCALE_IN = "which is neither Protect nor First, so scale-in does not delete it"
DELETED = Listing(
    (
        field("TIME", "time"),
        field("VM", "vm"),
        field("OWNER", "owner"),
        field("REASON", "reason"),
        field("MESSAGE", "message"),
    )
)
_REFERENCE = re.compile(r"(?P<name>.+)/(?P<uid>[0-9a-f][0-9a-f-]{0,35})")
State = tuple[list[str], list[Json]]
"""facts about the current state, and the next actions"""


def _needs_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Refuses a command without VM before it looks for a cluster."""
    if (name is None) is not context.params.get("deleted", False) and not context.resilient_parsing:
        raise click.UsageError("give the name of a VM, vmclaim/NAME, or --deleted")
    return name


@click.command()
@click.argument(
    "name",
    metavar="[VM]",
    required=False,
    callback=_needs_name,
    shell_complete=complete_names(
        "virtualmachines", "virtualmachineinstances", vm="virtualmachines", vmi="virtualmachineinstances"
    ),
)
@click.option("--deleted", is_flag=True, is_eager=True, help="List the VMs that were deleted, in place of VM.")
@output_option("text")
@all_namespaces
@cluster_options
def why(cluster: Cluster, name: str | None, deleted: bool, output: str) -> None:
    """Explain what the controllers did to a VM and why, what the VM waits for, and the next actions.

    VM may be deleted. If several VMs had the name, VM/UID chooses one, with the first characters of its UID, as the
    statuses of pools write it. The past comes from events, which the cluster keeps for an hour, and from the logs of
    decisions in the statuses of pools, replica sets and warm pools, which keep the last hundreds of deletions. The next
    actions are simulated with the controllers' own code.

    vmclaim/NAME explains a claim: what it waits for, whose it is, and when it ends.

    With --deleted, list the deleted VMs that these logs have, the last deletion last.
    """
    if cluster.everywhere and not deleted:
        raise click.UsageError("-A needs --deleted; give the namespace of the VM with -n")
    if name is None:
        hidden: list[str] = []
        rows = deletions(cluster.run(lambda api: _owners(api, cluster.scope, hidden)))
        if hidden and not rows:
            raise Failed(f"you may not list {', '.join(hidden)} in {cluster.place}, which have the logs of deletions")
        if hidden:
            echo(f"not shown, because you may not list them: {', '.join(hidden)}", err=True)
        nothing = f"no log of a pool, replica set or warm pool has a deleted VM in {cluster.place}"
        DELETED.show(output, rows, nothing=nothing, everywhere=cluster.everywhere)
        return
    if claim := claim_name(name):
        show_claim(cluster, claim, output)
        return
    vm, uid = parse_reference(name)
    found = cluster.run(lambda api: with_outage(api, cluster, _explain(api, cluster.namespace, vm, uid)))
    if is_structured(output):
        print_structured(output, found)
        return
    for line in _lines(found):
        echo(line)


def parse_reference(text: str) -> tuple[str, str]:
    """Returns name and UID of NAME, KIND/NAME, NAME/UID or KIND/NAME/UID; the UID may be empty, or its beginning."""
    try:
        return parse_name(text, *VM_KINDS)[1], ""
    except click.UsageError:
        if (found := _REFERENCE.fullmatch(text)) is None:
            for kind, command in EXPLAINED_BY.items():
                if text.partition("/")[0].partition(".")[0].lower() in spellings(kind):
                    raise click.UsageError(f"{text!r} is not a VM; `poolhouse {command}` explains it") from None
            raise
    return parse_name(found["name"], *VM_KINDS)[1], found["uid"]


async def _explain(api: Api, namespace: str, name: str, uid: str) -> Json:
    from poolhouse.runtime.resource import VMIS, VMS

    vm = await _get(api, VMS, namespace, name)
    vmi = await _get(api, VMIS, namespace, name) if vm is None else None
    decisions = list(logged(await _owners(api, namespace), name))
    if vmi is not None and (controller_of(vmi) or {}).get("kind") != "VirtualMachine":
        if not vmi["metadata"]["uid"].startswith(uid):
            raise Failed(f"the VMI {name} has another UID: {vmi['metadata']['uid']}")
        return await _explain_vmi(api, namespace, Identity.of(name, vmi), vmi, decisions)
    pool = _pool_name(vm, name, decisions)
    controller = (controller_of(vm) if vm is not None else None) or {}
    events = await events_about(api, namespace, name, pool or controller.get("name", ""))
    present = Identity.of(name, vm)
    known = [*deleted_vms(present, decisions, events), *([present] if vm is not None else [])]
    identity = choose(known, name, uid)
    if identity is not present:
        vm, controller = None, {}
    past = _past(events, identity, decisions)
    if vm is None and (gone := await _explain_gone(api, namespace, identity, past, decisions)):
        return gone
    member = controller.get("kind") == POOL_KIND
    state, following = (
        await _pool_state(api, namespace, name, pool) if member else ([*warm_state(vm), *detached(vm, pool)], [])
    )
    gone_by = deletion_of(decisions, identity) if vm is None else None
    claims = await _claims(api, namespace, identity, gone_by) if vm is None or not member else []
    disks = [] if member else await data_volume_facts(api, vm)
    return {
        "vm": name,
        "uid": identity.uid,
        "pool": pool,
        "controller": f"{controller['kind']} {controller['name']}" if controller else None,
        "exists": vm is not None,
        "member": member,
        "deletion": gone_by.json() if gone_by is not None else None,
        "others": [_other(each, decisions, exists=each is present) for each in known if each is not identity],
        "past": past,
        "present": [*state, *disks, *claims],
        "next": following,
    }


def choose(known: Sequence[Identity], name: str, uid: str) -> Identity:
    """The VM with the UID; without one, the VM that exists, or that was deleted last."""
    found = [each for each in known if each.uid.startswith(uid) or (each.uid and uid.startswith(each.uid))]
    if found:
        return found[-1]
    if not uid:
        return Identity(name)
    references = ", ".join(each.reference for each in known)
    raise Failed(f"no VM {name} with the UID {uid} is known" + (f"; there are {references}" if known else ""))


def _other(vm: Identity, decisions: Sequence[Logged], *, exists: bool) -> Json:
    """Another VM of the name."""
    last = vm.gone.strftime("%Y-%m-%dT%H:%M:%SZ") if vm.gone is not None else None
    return {"vm": vm.reference, "exists": exists, "last": last, "deletion": _deletion(decisions, vm)}


async def _explain_vmi(
    api: Api, namespace: str, identity: Identity, vmi: Json | None, decisions: Sequence[Logged]
) -> Json:
    """Explains a VMI without a VM, such as a VMI of a replica set."""
    from controllers.shared.names import base_name
    from poolhouse.api.kinds.replicaset import REPLICA_SET
    from poolhouse.cli.foreign_kinds import refuse_foreign

    name = identity.name
    controller = (controller_of(vmi) if vmi is not None else None) or {}
    member = controller.get("kind") == REPLICA_SET_KIND
    if member:
        await refuse_foreign(api, REPLICA_SET)
    known = next((each.owner.partition(" ")[2] for each in decisions), base_name(name))
    owner = str(controller["name"]) if member else known
    present, following = await _replica_set_state(api, namespace, name, owner) if member else ([], [])
    return {
        "vm": name,
        "uid": identity.uid,
        "replicaSet": owner,
        "exists": vmi is not None,
        "member": member,
        "deletion": _deletion(decisions, identity) if vmi is None else None,
        "others": [],
        "past": _past(await events_about(api, namespace, name, owner), identity, decisions),
        "present": present,
        "next": following,
    }


async def _explain_gone(
    api: Api, namespace: str, vm: Identity, past: list[Json], decisions: Sequence[Logged]
) -> Json | None:
    """Explains a deleted VMI of a replica set; returns None if the past is that of a VM with this name."""
    from controllers.pool.observe import POOLS

    name = vm.name
    if await _get(api, POOLS, namespace, name) is not None:
        raise Failed(f"{name} is a pool, not a VM; use `rollout status {name}` or `tree vmpool/{name}`")
    if any(each.owner.startswith(REPLICA_SET_KIND) for each in decisions):
        return await _explain_vmi(api, namespace, vm, None, decisions)
    if past:
        return None
    found = await _explain_vmi(api, namespace, vm, None, decisions)
    if not found["past"]:
        raise Failed(
            f"there is no VM {name} in namespace {namespace}; no event mentions it, and no log of a pool, replica set "
            "or warm pool that you may list" + await _other_object(api, namespace, name)
        )
    return found


def deletions(owners: Iterable[Json]) -> list[Json]:
    """The deleted VMs in the logs of pools, replica sets and warm pools, the last deletion last."""
    rows = [
        {
            "time": each["time"],
            "namespace": owner["metadata"]["namespace"],
            "vm": vm,
            "owner": f"{short_name(owner['kind'])}/{owner['metadata']['name']}",
            "reason": each["reason"],
            "message": each.get("message") or "",
            "setBy": each.get("setBy"),
        }
        for owner in owners
        for each in (owner.get("status") or {}).get("decisions") or ()
        if each["reason"] in DELETIONS
        for vm in each.get("vms") or ()
    ]
    return sorted(rows, key=lambda row: (row["time"], row["namespace"], row["vm"]))


async def _owners(api: Api, namespace: str | None, hidden: list[str] | None = None) -> list[Json]:
    """The pools, replica sets and warm pools of the namespace, or of all, that the user may list, with their kinds.
    Appends the plurals of the kinds that he may not list to `hidden`."""
    from poolhouse.api.kinds import KINDS
    from poolhouse.api.kinds.decisions import LoggedStatus
    from poolhouse.runtime.resource import Resource

    kinds = [kind for kind in KINDS if kind.status is not None and issubclass(kind.status, LoggedStatus)]
    lists = await asyncio.gather(*(list_visible(api, Resource.of(kind), namespace) for kind in kinds))
    if hidden is not None:
        hidden += [kind.plural for kind, found in zip(kinds, lists, strict=True) if found is None]
    return [{**each, "kind": kind.kind} for kind, found in zip(kinds, lists, strict=True) for each in found or ()]


async def _claims(api: Api, namespace: str, vm: Identity, deletion: Logged | None) -> list[str]:
    """What the claims of the VM say about it. A finished claim explains why its VM is gone."""
    from controllers.claim.snapshot import CLAIMS

    found = await list_visible(api, CLAIMS, namespace)
    facts = [text for each in found or () for text in claim_facts(each, vm)]
    return [*facts, *([] if found is None else who_deleted(deletion, claimed=bool(facts)))]


def who_deleted(deletion: Logged | None, *, claimed: bool) -> Iterator[str]:
    """What another client deleted, for a VM that a claim had: the pool saw only that the VM went."""
    from controllers.warmpool.decisions import DELETED_BY_OTHER

    if deletion is None or not deletion.message.endswith(DELETED_BY_OTHER):
        return
    if claimed:
        yield "the claim exists, so the client deleted the VM itself; a claim gets no second VM"
    else:
        yield "the claim does not exist any more; whoever deletes a claim deletes its VM with it"


def claim_facts(claim: Json, vm: Identity) -> Iterator[str]:
    from poolhouse.api.kinds import meta

    metadata, status = claim["metadata"], claim.get("status") or {}
    reference = status.get("vmRef") or {}
    if reference.get("name") != vm.name or not str(reference.get("uid") or vm.uid).startswith(vm.uid):
        return
    requester = (metadata.get("annotations") or {}).get(meta.REQUESTER)
    verb, finished = (
        ("had", f" since {to_the_second(status['finishedAt'])}") if status.get("finishedAt") else ("has", "")
    )
    by = f" of {requester}" if requester else ""
    yield f"claim {metadata['name']}{by} {verb} it: the claim is {status.get('phase') or 'Pending'}{finished}"


def _deletion(decisions: Sequence[Logged], vm: Identity) -> Json | None:
    found = deletion_of(decisions, vm)
    return found.json() if found is not None else None


async def _other_object(api: Api, namespace: str, name: str) -> str:
    """Names the command for a claim of this name."""
    from controllers.claim.snapshot import CLAIMS
    from poolhouse.runtime.errors import Forbidden

    with contextlib.suppress(Forbidden):
        if await _get(api, CLAIMS, namespace, name) is not None:
            return f". It is a claim: `poolhouse why vmclaim/{name}` explains it"
    return ""


async def _get(api: Api, resource: Resource, namespace: str, name: str) -> Json | None:
    from poolhouse.runtime.errors import NotFound

    try:
        return await api.get(resource, namespace, name)
    except NotFound:
        return None


def _pool_name(vm: Json | None, name: str, decisions: Sequence[Logged]) -> str:
    """Returns the VM's pool, or its former pool by its label. For a deleted VM, returns the last owner whose log
    has the VM, or derives the pool from the name."""
    from controllers.shared.names import parent_and_ordinal
    from poolhouse.api.kinds import meta

    if vm is None:
        last = max(decisions, key=lambda each: each.time, default=None)
        return last.owner.partition(" ")[2] if last else parent_and_ordinal(name)[0]
    owner = controller_of(vm)
    if owner is not None and owner["kind"] == POOL_KIND:
        return str(owner["name"])
    return str((vm["metadata"].get("labels") or {}).get(meta.POOL, ""))


def warm_state(vm: Json | None) -> Iterator[str]:
    """Yields the facts about a warm VM, from its label and annotations."""
    from poolhouse.api.kinds import meta

    metadata = (vm or {}).get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if state := (metadata.get("labels") or {}).get(meta.WARM_STATE):
        since = f" since {notes[meta.STATE_SINCE]}" if notes.get(meta.STATE_SINCE) else ""
        yield f"it is {state}{since}" + (f": {notes[meta.STATE_REASON]}" if notes.get(meta.STATE_REASON) else "")


def detached(vm: Json | None, pool: str) -> Iterator[str]:
    if vm is not None and pool and controller_of(vm) is None:
        yield f"{pool} does not manage it and gives its name to no other VM; attach puts it back"


def _past(events: Sequence[Json], vm: Identity, decisions: Sequence[Logged]) -> list[Json]:
    from poolhouse.runtime.events import last_observed

    about = [event for event in events if concerns(event, vm, parse_time(last_observed(event)))]
    rows = [{"time": last_observed(event), "reason": event.get("reason"), "note": event.get("note")} for event in about]
    return merge(rows, of_vm(decisions, vm))[-MAX_ROWS:]


async def _pool_state(api: Api, namespace: str, vm: str, pool: str) -> State:
    from controllers.pool.list_stores import list_stores
    from controllers.pool.observe import observe
    from controllers.pool.simulate import MAX_STEPS_OF_ANSWER, rows, simulate
    from controllers.pool.snapshot import PoolSnapshot

    snapshot = observe(await list_stores(api, namespace), (namespace, pool), synced=True, failure=None, burst=BURST)
    if not isinstance(snapshot, PoolSnapshot):
        return _no_state("pool", snapshot.problem if snapshot else None)
    found = simulate(snapshot, datetime.now(UTC), MAX_STEPS_OF_ANSWER)
    return list(pool_facts(snapshot, vm)), [row for row in rows(found) if row["vm"] == vm]


async def _replica_set_state(api: Api, namespace: str, vmi: str, replica_set: str) -> State:
    from controllers.replicaset.observe import ReplicaSetSnapshot, list_stores, observe
    from controllers.replicaset.simulate import rows, simulate

    key = (namespace, replica_set)
    snapshot = observe(await list_stores(api, namespace), key, synced=True, failure=None, burst=BURST)
    if not isinstance(snapshot, ReplicaSetSnapshot):
        return _no_state("replica set", snapshot.problem if snapshot else None)
    found = rows(snapshot, simulate(snapshot, datetime.now(UTC)))
    return list(replica_set_facts(snapshot, vmi)), [row for row in found if row["vm"] == vmi]


def _no_state(noun: str, problem: str | None) -> State:
    return [f"its {noun} is gone" if problem is None else f"its {noun} is invalid: {problem}"], []


def pool_facts(snapshot: PoolSnapshot, name: str) -> Iterator[str]:
    from controllers.pool.causes import others_with_cause
    from controllers.pool.lost_base import REMEDY, show
    from controllers.pool.outages import lost_node, not_ready
    from controllers.pool.plan import plan
    from controllers.pool.rollback import with_abort
    from controllers.pool.rules.lifetime import lifetime_end
    from poolhouse.api.kinds import meta

    vm = next((each for each in snapshot.vms if each.name == name), None)
    if vm is None:
        return
    snapshot = with_abort(snapshot, now := datetime.now(UTC))
    pool = snapshot.pool
    yield from _run_state(vm)
    if node := lost_node(snapshot, vm):
        yield f"{not_ready(node)}; KubeVirt starts the VM elsewhere once it is certain that it has ended there"
    if vm.should_run and not vm.available:
        for disk, state in snapshot.unready_disks_of(vm).items():
            yield f"DataVolume {state.describe(disk)}"
        if others := others_with_cause(snapshot, vm):
            yield f"{count_noun(others, 'other VM', 'does', 'do')} not start for the same cause"
    if snapshot.aborted is not None:
        yield f"the update of its pool is aborted: {snapshot.aborted[1].message}"
    yield _template(snapshot, vm)
    if (end := lifetime_end(snapshot, vm)) is not None and end > datetime.now(UTC):
        yield f"its lifetime ends at {format_time(end)} (maxLifetimeSeconds), and the pool then restarts it"
    if zone := snapshot.zones.get(name):
        yield f"it is in zone {zone}"
    if vm.left_fields:
        yield f"an update lost the revision of its former template, and may have left {show(vm.left_fields)}: {REMEDY}"
    if vm.restart_required:
        yield f"KubeVirt says RestartRequired: {vm.restart_required}"
    if vm.scale_in:
        yield f"{meta.SCALE_IN} is {vm.scale_in}: {SCALE_IN.get(vm.scale_in, INVALID_SCALE_IN)}"
    if vm.uid in pool.removals:
        yield f"{meta.REMOVE_VMS} of its pool names it: the pool deletes it and creates no other VM for it"
    if pool.spec.paused:
        yield "its pool is paused"
    decided = plan(snapshot, now)
    yield from (f"it waits: {wait.reason}" for wait in decided.waits if wait.name == name)
    if decided.blocked:
        yield f"scale-in is blocked: {decided.blocked}"
    for failing in pool.status.healing.failures if pool.status.healing else ():
        if failing.name == name and failing.failed_runs:
            yield f"its last {count_noun(failing.failed_runs, 'VMI')} failed after running"
    yield from _healing(pool)
    for healed in pool.status.healing.vms if pool.status.healing else ():
        if healed.name == name:
            yield f"it was replaced {count_noun(healed.attempts, 'time')}; not again before {healed.not_before}"


def _template(snapshot: PoolSnapshot, vm: VM) -> str:
    """Whether the VM and its guest have the template, and how the guest gets it."""
    from controllers.pool.counts import template_state
    from controllers.pool.live_updates import is_live, needs_restart

    aborted = snapshot.aborted is not None
    if snapshot.outdated(vm):
        return "it gets the former template again" if aborted else "its template is outdated"
    has = "it has the former template" if aborted else "it has the pool's template"
    if not needs_restart(snapshot, vm):
        return has
    if is_live(snapshot, vm):
        return f"{has}, and KubeVirt changes its guest while it runs"
    if template_state(snapshot, vm) == "restart":
        return f"{has}, and its guest, which started before, needs a restart"
    return f"{has}, and its guest, which started before, gets it at its next start"


def _run_state(vm: VM) -> Iterator[str]:
    """Whether the VM runs, and what keeps it from it."""
    if vm.deleting:
        yield "it is being deleted" + (", and its disks are retained" if vm.retains_disks else "")
        return
    if vm.held and vm.hold is not None:
        then = "deletes" if vm.terminating else "restarts"
        yield f"it is out of service since {vm.hold.since}, until its lifecycle hooks end and the pool {then} it"
    elif vm.should_run:
        status = vm.printable_status or "no status yet"
        yield "it is ready" if vm.available else f"it should run and is not ready ({status})"
        yield from _start_failure(vm.vmi)
        if vm.start_refusal:
            yield f"KubeVirt says FailedCreate: {vm.start_refusal}"
    elif vm.run_strategy in ("Once", "RerunOnFailure") or (vm.run_strategy == "Manual" and vm.vmi and vm.vmi.succeeded):
        yield f"its guest has shut down, and run strategy {vm.run_strategy} does not start it again"
    else:
        yield "it should be halted"
    if vm.start_failures:
        yield f"its last {count_noun(vm.start_failures, 'start')} failed"


def _start_failure(vmi: VMI | None) -> Iterator[str]:
    if vmi is not None and vmi.start_failure:
        yield f"KubeVirt says {vmi.start_failure}" + (f": {vmi.message}" if vmi.message else "")


def _healing(pool: Pool) -> Iterator[str]:
    if pool.spec.autohealing is None:
        yield "healing is off: spec.autohealing of its pool is not set"
    elif (healing := pool.status.healing) is not None and healing.breaker is not None and healing.breaker.open:
        yield f"healing has stopped until {healing.breaker.until}: {healing.breaker.message}"


def replica_set_facts(snapshot: ReplicaSetSnapshot, name: str) -> Iterator[str]:
    from controllers.replicaset.plan import describe_end, plan

    vmi = next((each for each in snapshot.owned if each.name == name), None)
    if vmi is None:
        return
    if vmi.deleting:
        yield "it is being deleted, and is no longer counted"
    if vmi.final:
        yield f"it has ended ({describe_end(vmi)})"
    elif vmi.unknown:
        yield "its node does not respond, so it is replaced; it may come back"
    else:
        yield "it is ready" if vmi.ready else f"it is not ready ({vmi.phase or 'no phase yet'})"
        yield from _start_failure(vmi)
    if vmi.migrating:
        yield "it is being migrated"
    if vmi.attempt:
        yield f"{count_noun(vmi.attempt, 'predecessor')} ended soon after creation"
    yield from (f"it {each.why}" for each in plan(snapshot, datetime.now(UTC)).waits if each.vmi.name == name)
    if snapshot.replica_set.spec.paused:
        yield "its replica set is paused"


def _lines(found: Json) -> Iterator[str]:
    deletion, others = found["deletion"], found["others"]
    # Beside another VM of the name, the name alone could mean either.
    vm = f"{found['vm']}/{found['uid'][:UID_LENGTH]}" if any(each["exists"] for each in others) else found["vm"]
    noun, owner = ("replica set", found["replicaSet"]) if "replicaSet" in found else ("pool", found["pool"])
    if not found["exists"]:
        yield f"{vm} does not exist" + (f": {_sentence(deletion)}" if deletion else "")
    elif found["member"]:
        yield f"{vm} is in {owner}"
    elif found.get("controller"):
        yield f"{vm} is in no {noun}: {found['controller']} controls it"
    else:
        yield f"{vm} is in no {noun}" + (f"; it was in {owner}" if owner else "")
    for fact in found["present"]:
        yield f"  now   {fact}"
    for each in others:
        if each["exists"]:
            yield f"  now   {each['vm']} has the name: `poolhouse why {found['vm']}` explains it"
        else:
            said = _sentence(each["deletion"]) if each["deletion"] else f"it was last mentioned at {each['last']}"
            yield f"  once  {each['vm']}: {said}"
    for each in found["past"]:
        client = f" ({each['setBy']} had set the spec)" if each.get("setBy") else ""
        yield f"  {to_the_second(each['time'])}  {each['reason']}: {each['note']}{client}"
    for each in found["next"]:
        yield f"  next  {each['action']}: {each['reason']}"


def _sentence(deletion: Json) -> str:
    """Who deleted a VM, when and why."""
    if deletion["reason"] == "DeletedByOther":
        return f"it was deleted at {deletion['time']}: {deletion['note']}"
    client = f"; {deletion['setBy']} had set spec.replicas" if deletion.get("setBy") else ""
    return f"{deletion['owner']} deleted it at {deletion['time']}: {deletion['note']}{client}"
