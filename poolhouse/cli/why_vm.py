"""Explains a VM of `poolhouse why`: what the logs and events say, its state, and the controller's next actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import list_kinds, list_visible
from poolhouse.cli.data_volumes import data_volume_facts
from poolhouse.cli.health import finalizers_left
from poolhouse.cli.output import Failed
from poolhouse.cli.past import (
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
from poolhouse.cli.pools import BURST, controlling_pool, describe_controller
from poolhouse.cli.why_pod import other_object

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

MAX_ROWS = 20
REPLICA_SET_KIND = "VirtualMachineInstanceReplicaSet"
State = tuple[list[str], list[Json]]
"""facts about the current state, and the next actions"""


async def explain(api: Api, namespace: str, name: str, uid: str) -> Json:
    from poolhouse.runtime.api import find
    from poolhouse.runtime.resource import VMIS, VMS

    vm = await find(api, VMS, namespace, name)
    vmi = await find(api, VMIS, namespace, name) if vm is None else None
    decisions = list(logged(await owners(api, namespace), name))
    if vmi is not None and (controller_of(vmi) or {}).get("kind") != "VirtualMachine":
        if not vmi["metadata"]["uid"].startswith(uid):
            raise Failed(f"the VMI {name} has another UID: {vmi['metadata']['uid']}")
        return await _explain_vmi(api, namespace, Identity.of(name, vmi), vmi, decisions)
    if vm is None and not decisions and (hint := await other_object(api, namespace, name)):
        raise Failed(f"there is no VM {name} in namespace {namespace}{hint}")
    return await _explain_vm(api, namespace, name, uid, vm, decisions)


async def _explain_vm(
    api: Api, namespace: str, name: str, uid: str, vm: Json | None, decisions: Sequence[Logged]
) -> Json:
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
    member = vm is not None and controlling_pool(vm) is not None
    gone_by = deletion_of(decisions, identity) if vm is None else None
    if member:
        facts, following = await _pool_state(api, namespace, name, pool)
    else:
        facts, following = await _facts(api, namespace, identity, vm, pool, gone_by), []
    if vm is not None:
        facts = [*facts, *finalizers_left(vm["metadata"])]
    return {
        "vm": name,
        "uid": identity.uid,
        "pool": pool,
        "controller": describe_controller(controller) if controller else None,
        "exists": vm is not None,
        "member": member,
        "deletion": gone_by.json() if gone_by is not None else None,
        "others": [_other(each, decisions, exists=each is present) for each in known if each is not identity],
        "past": past,
        "present": facts,
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
    last = format_time(vm.gone) if vm.gone is not None else None
    return {"vm": vm.reference, "exists": exists, "last": last, "deletion": _deletion(decisions, vm)}


async def _explain_vmi(
    api: Api, namespace: str, identity: Identity, vmi: Json | None, decisions: Sequence[Logged]
) -> Json:
    """Explains a VMI without a VM, such as a VMI of a replica set."""
    from controllers.shared.names import base_name
    from poolhouse.cli.foreign_kinds import refuse_foreign_replica_sets

    name = identity.name
    controller = (controller_of(vmi) if vmi is not None else None) or {}
    member = controller.get("kind") == REPLICA_SET_KIND
    if member:
        await refuse_foreign_replica_sets(api)
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
    from poolhouse.cli.resources import POOLS
    from poolhouse.runtime.api import find

    name = vm.name
    if await find(api, POOLS, namespace, name) is not None:
        raise Failed(f"{name} is a pool, not a VM; use `rollout status {name}` or `tree vpool/{name}`")
    if any(each.owner.startswith(REPLICA_SET_KIND) for each in decisions):
        return await _explain_vmi(api, namespace, vm, None, decisions)
    if past:
        return None
    found = await _explain_vmi(api, namespace, vm, None, decisions)
    if not found["past"]:
        raise Failed(
            f"there is no VM {name} in namespace {namespace}; no event mentions it, and no log of a pool, replica set "
            "or warm pool that you may list"
        )
    return found


async def owners(api: Api, namespace: str | None, hidden: list[str] | None = None) -> list[Json]:
    """The pools, replica sets and warm pools of the namespace, or of all, that the user may list, with their kinds.
    Appends the plurals of the kinds that he may not list to `hidden`."""
    from poolhouse.api.kinds import KINDS
    from poolhouse.api.kinds.decisions import LoggedStatus

    kinds = [kind for kind in KINDS if kind.status is not None and issubclass(kind.status, LoggedStatus)]
    found, unseen = await list_kinds(api, kinds, namespace)
    if hidden is not None:
        hidden += [kind.plural for kind in unseen]
    return found


async def _facts(
    api: Api, namespace: str, identity: Identity, vm: Json | None, pool: str, deletion: Logged | None
) -> list[str]:
    """The facts about a VM that is not in a pool."""
    from poolhouse.cli.vm_facts import detached, warm_state

    disks, claims = await data_volume_facts(api, vm), await _claims(api, namespace, identity, deletion)
    return [*warm_state(vm), *detached(vm, pool), *disks, *claims]


async def _claims(api: Api, namespace: str, vm: Identity, deletion: Logged | None) -> list[str]:
    """What the claims of the VM say about it. A finished claim explains why its VM is gone."""
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.cli.vm_facts import claim_facts, who_deleted

    found = await list_visible(api, CLAIMS, namespace)
    facts = [text for each in found or () for text in claim_facts(each, vm)]
    return [*facts, *([] if found is None else who_deleted(deletion, claimed=bool(facts)))]


def _deletion(decisions: Sequence[Logged], vm: Identity) -> Json | None:
    found = deletion_of(decisions, vm)
    return found.json() if found is not None else None


def _pool_name(vm: Json | None, name: str, decisions: Sequence[Logged]) -> str:
    """Returns the VM's pool, or its former pool by its label. For a deleted VM, returns the last owner whose log
    has the VM, or derives the pool from the name."""
    from controllers.shared.names import parent_and_ordinal
    from poolhouse.api.kinds import meta

    if vm is None:
        last = max(decisions, key=lambda each: each.time, default=None)
        return last.owner.partition(" ")[2] if last else parent_and_ordinal(name)[0]
    if (owner := controlling_pool(vm)) is not None:
        return str(owner["name"])
    return str((vm["metadata"].get("labels") or {}).get(meta.POOL, ""))


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
    from poolhouse.cli.vm_facts import pool_facts

    stores = await list_stores(api, namespace)
    snapshot = observe(stores, (namespace, pool), synced=True, failure=None, burst=BURST)
    if not isinstance(snapshot, PoolSnapshot):
        return _no_state("pool", snapshot.problem if snapshot else None)
    snapshot = await stores.instancetypes.complete(snapshot)
    found = simulate(snapshot, datetime.now(UTC), MAX_STEPS_OF_ANSWER)
    return list(pool_facts(snapshot, vm)), [row for row in rows(found) if row["vm"] == vm]


async def _replica_set_state(api: Api, namespace: str, vmi: str, replica_set: str) -> State:
    from controllers.replicaset.observe import ReplicaSetSnapshot, list_stores, observe
    from controllers.replicaset.simulate import rows, simulate
    from poolhouse.cli.vm_facts import replica_set_facts

    key = (namespace, replica_set)
    snapshot = observe(await list_stores(api, namespace), key, synced=True, failure=None, burst=BURST)
    if not isinstance(snapshot, ReplicaSetSnapshot):
        return _no_state("replica set", snapshot.problem if snapshot else None)
    found = rows(snapshot, simulate(snapshot, datetime.now(UTC)))
    return list(replica_set_facts(snapshot, vmi)), [row for row in found if row["vm"] == vmi]


def _no_state(noun: str, problem: str | None) -> State:
    return [f"its {noun} is gone" if problem is None else f"its {noun} is invalid: {problem}"], []
