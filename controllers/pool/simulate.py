"""Simulates the plans of a pool until no actions are left, for users and for admission."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from apimachinery.unstructured import Json
from controllers.pool import actions, template
from controllers.pool.actions import Action
from controllers.pool.analysis import overdue
from controllers.pool.observe import POOL_SOURCE, Stores, observe
from controllers.pool.plan import plan
from controllers.pool.reasons import PoolReason
from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import InvalidPool, Pool, PoolSnapshot, parse_pool
from controllers.pool.steps import hash_steps, update_limit
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot
from controllers.pool.waiting import Waiting
from controllers.shared import simulation
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.names import ordinal_of
from controllers.shared.vm import VM, LifecycleHold, RetainedDisk, parse_vm
from controllers.shared.vmi import VMI
from kinds import meta
from kinds.pool import UpdateProgress
from kinds.pool_strategies import UpdateProactive

MAX_STEPS = 200
MAX_STEPS_OF_ANSWER = 50
"""limit for an answer for which somebody waits, such as a response of the webhook or a page"""
WITHOUT_VM = (
    actions.SaveRevision,
    actions.RewriteRevision,
    actions.AdoptRevision,
    actions.PruneRevision,
    actions.PruneSnapshot,
    actions.PruneRestore,
)
"""actions on objects that users do not look for in a plan"""
LATEST_TIME = "9999-12-31T23:59:59Z"
"""creation time of a pool that does not exist yet"""


@dataclass(frozen=True)
class Checkpoint:
    """The end of a pause, or a successful analysis, which the simulation assumes."""

    verb: str
    reason: str
    progress: UpdateProgress
    """the progress of the update afterwards"""
    name: str = ""


@dataclass(frozen=True)
class Round:
    actions: tuple[Action | Checkpoint, ...] = ()
    blocked: str = ""
    waits: tuple[Waiting, ...] = ()


@dataclass(frozen=True)
class Simulation:
    steps: tuple[Round, ...]
    """consecutive plans, each computed after the actions of the previous plan"""
    complete: bool
    """whether the last plan leaves no actions"""
    blocked: str = ""
    """why the pool still has too many VMs after the steps"""
    waits: tuple[Waiting, ...] = ()
    """VMs that still need an action after the steps"""
    refused: str = ""
    """why the pool creates no VMs"""


def simulate(
    snapshot: PoolSnapshot, now: datetime, max_steps: int = MAX_STEPS, max_actions: int | None = None
) -> Simulation:
    """The consecutive plans of the pool. Pauses end, and analyses are successful."""
    snapshot = _without_deadlines(with_abort(replace(snapshot, synced=True), now), now)
    found = simulation.simulate(snapshot, now, _plan, after, max_steps, max_actions)
    last = found.last or Round()
    refused = snapshot.disk_conflict.message if snapshot.disk_conflict else ""
    return Simulation(found.steps, found.complete, last.blocked, last.waits, refused)


def _without_deadlines(snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot whose checks do not exceed the deadline while simulated time passes."""
    update = snapshot.pool.status.update
    if update is None or overdue(snapshot, now):
        return snapshot
    checks = tuple(each.model_copy(update={"undecided_since": None}) for each in update.checks)
    return _with_progress(update.model_copy(update={"checks": checks}), snapshot)


def _with_progress(progress: UpdateProgress, snapshot: PoolSnapshot) -> PoolSnapshot:
    status = snapshot.pool.status.model_copy(update={"update": progress})
    return replace(snapshot, pool=replace(snapshot.pool, status=status))


def _plan(snapshot: PoolSnapshot, now: datetime) -> Round:
    decided = plan(snapshot, now)
    found: tuple[Action | Checkpoint, ...] = tuple(e for e in decided.actions if not isinstance(e, actions.RunJob))
    if not found and not snapshot.pool.spec.paused and not snapshot.pool.deleting:
        found = tuple(_checkpoint(snapshot, now))
    return Round(found, decided.blocked, decided.waits)


def _checkpoint(snapshot: PoolSnapshot, now: datetime) -> Iterator[Checkpoint]:
    limit, strategy = update_limit(snapshot, now), snapshot.pool.spec.update_strategy.chosen
    if limit.waits is None or limit.progress is None or not isinstance(strategy, UpdateProactive):
        return
    if limit.waits is PoolReason.ANALYSIS_INCONCLUSIVE:
        yield Checkpoint("Analyse", limit.reason, limit.progress.model_copy(update={"checks": ()}))
        return
    done, reason = limit.progress.steps_done + 1, limit.reason
    pause = strategy.all_steps[done - 1].pause
    if pause is not None and pause.duration_seconds is not None and snapshot.progress.paused_since is None:
        # The simulation knows no time at which the pause begins.
        reason = f"step {done} of {len(strategy.all_steps)}: the update is paused for {pause.duration_seconds} s"
    at = {"steps_done": done, "steps_hash": hash_steps(strategy.all_steps[:done]), "paused_since": None, "checks": ()}
    verb = "Pause" if limit.waits is PoolReason.UPDATE_PAUSED else "Analyse"
    yield Checkpoint(verb, reason, limit.progress.model_copy(update=at))


def rows(found: Simulation) -> Iterator[Json]:
    """The actions on VMs, with `step`, `action`, `vm` and `reason`. A pause or an analysis has no VM."""
    for number, step in enumerate(found.steps, start=1):
        for action in step.actions:
            if not isinstance(action, WITHOUT_VM):
                yield {"step": number, "action": action.verb, "vm": action.name or None, "reason": action.reason}


def hypothetical_snapshot(stores: Stores, document: Json, burst: int) -> PoolSnapshot | InvalidPool:
    """The snapshot of the pool in the document, with the existing VMs and pools."""
    metadata = {"uid": "", "creationTimestamp": LATEST_TIME, **document["metadata"]}
    known = stores.pools.get((metadata.get("namespace", ""), metadata["name"]))
    if known is not None:
        metadata |= {
            "uid": known.uid,
            "creationTimestamp": known.created_at if isinstance(known, Pool) else LATEST_TIME,
        }
        document = {**document, "status": known.status.json()}
    pool = parse_pool({**document, "metadata": metadata})
    pools = POOL_SOURCE.store()
    pools.put(pool.key, pool)
    for _, other in stores.sharing_disks(pool) if isinstance(pool, Pool) else ():
        pools.put(other.key, other)
    found = observe(replace(stores, pools=pools), pool.key, synced=True, failure=None, burst=burst)
    assert found is not None
    return found


def answer(stores: Stores, document: Json, burst: int, now: datetime) -> Json | InvalidPool:
    """The response to the webhook for the pool in the document."""
    snapshot = hypothetical_snapshot(stores, document, burst)
    if isinstance(snapshot, InvalidSpec):
        return snapshot
    found = simulate(snapshot, now, MAX_STEPS_OF_ANSWER, simulation.MAX_ACTIONS_OF_ANSWER)
    steps = [{key: row[key] for key in ("action", "vm", "reason")} for row in rows(found)]
    return {"plan": steps, "complete": found.complete, "blocked": found.blocked, "refused": found.refused}


def after(action: Action | Checkpoint, snapshot: PoolSnapshot) -> PoolSnapshot:
    """The snapshot after the action has succeeded."""
    match action:
        case Checkpoint():
            return _with_progress(action.progress, snapshot)
        case actions.RunJob():
            return snapshot
        case actions.SaveRevision():
            return replace(snapshot, revision_saved=True, revisions=(*snapshot.revisions, snapshot.revision))
        case actions.RewriteRevision(name):
            rewritten = (replace(each, orphanable=True) if each.name == name else each for each in snapshot.revisions)
            return replace(snapshot, revisions=tuple(rewritten))
        case actions.AdoptRevision(name):
            adopted = (replace(each, owned=True) if each.name == name else each for each in snapshot.revisions)
            return replace(snapshot, revisions=tuple(adopted))
        case actions.PruneRevision(name):
            return replace(snapshot, revisions=tuple(each for each in snapshot.revisions if each.name != name))
        case actions.Adopt():
            return _changed(action.uid, snapshot, adopted=True)
        case actions.Create():
            return _created(action, snapshot)
        case actions.Update():
            return _updated(action, snapshot)
        case actions.TakeSnapshot():
            namespace, uid = snapshot.pool.namespace, f"{action.snapshot} (simulated)"
            taken = VMSnapshot(
                *(namespace, action.snapshot, uid, snapshot.pool.name, action.name, action.uid, action.revision),
                update=action.update,
                created_at=LATEST_TIME,
                ready=True,
            )
            return replace(snapshot, vm_snapshots=(*snapshot.vm_snapshots, taken))
        case actions.Restore():
            return _restored(action, snapshot)
        case actions.LabelState():
            restores = (replace(r, complete=True) if r.name == action.restore else r for r in snapshot.restores)
            return replace(snapshot, restores=tuple(restores))
        case actions.PruneSnapshot():
            kept = tuple(each for each in snapshot.vm_snapshots if each.uid != action.uid)
            return replace(snapshot, vm_snapshots=kept)
        case actions.PruneRestore():
            return replace(snapshot, restores=tuple(each for each in snapshot.restores if each.uid != action.uid))
        case actions.LabelVMI():
            labels = {meta.REVISION: snapshot.revision.label}
            vms = (
                replace(vm, vmi=replace(vm.vmi, labels=labels)) if vm.vmi and vm.vmi.uid == action.vmi_uid else vm
                for vm in snapshot.vms
            )
            return replace(snapshot, vms=tuple(vms))
        case actions.Hold():
            # The owners of the hooks are assumed to end them.
            hold = LifecycleHold(action.transition, action.since, action.vmi_uid)
            return _in_service(action.vmi_uid, _changed(action.uid, snapshot, hold=hold), served=False)
        case actions.EndHold():
            return _changed(action.uid, snapshot, hold=None)
        case actions.SetInService():
            return _in_service(action.vmi_uid, snapshot, served=action.in_service)
        case actions.RemoveFinalizer():
            return _changed(action.uid, snapshot, retains_disks=False)
        case actions.Restart():
            vms = (_started(vm) if vm.vmi and vm.vmi.uid == action.vmi_uid else vm for vm in snapshot.vms)
            return replace(snapshot, vms=tuple(vms))
        case actions.RetainDisks():
            retained = (
                RetainedDisk(snapshot.pool.namespace, name, snapshot.pool.uid, action.name, found, replaced=True)
                for name, found in action.disks
            )
            changed = _changed(action.uid, snapshot, replaced_disks="")
            return replace(changed, retained_disks=(*snapshot.retained_disks, *retained))
        case actions.Delete():
            gone = (vm for vm in snapshot.vms if vm.uid == action.uid and action.retain_disks)
            retained = (RetainedDisk(vm.namespace, d, snapshot.pool.uid, vm.name) for vm in gone for d in vm.disks)
            return replace(_without(action, snapshot), retained_disks=(*snapshot.retained_disks, *retained))
        case actions.Heal() | actions.ReleaseDisks():
            return _without(action, snapshot)
        case actions.DateDisk():
            dated = (
                replace(disk, retained_at=action.time) if disk.uid == action.disk_uid else disk
                for disk in snapshot.retained_disks
            )
            return replace(snapshot, retained_disks=tuple(dated))
        case actions.DeleteDisks():
            gone_disks = dict(action.disks)
            others = (disk for disk in snapshot.retained_disks if disk.name not in gone_disks)
            return replace(snapshot, retained_disks=tuple(others))
        case actions.ReturnDisk():
            left = tuple(disk for disk in snapshot.retained_disks if disk.name != action.disk)
            return replace(snapshot, retained_disks=left)


def _updated(action: actions.Update, snapshot: PoolSnapshot) -> PoolSnapshot:
    facts: Json = {"revision": action.revision, "disk_templates": action.disk_templates}
    if action.restored:
        facts["restored"] = action.restored
    if action.replacements:
        new = {each.old: each.new for each in action.replacements}
        disks = next((vm.disks for vm in snapshot.vms if vm.uid == action.uid), ())
        facts |= {"disks": tuple(new.get(disk, disk) for disk in disks), "replaced_disks": action.replaced_disks}
    more = 1 if action.counts else 0
    vms = (replace(vm, **facts, updates=vm.updates + more) if vm.uid == action.uid else vm for vm in snapshot.vms)
    if action.halts:
        halted: Json = {"run_strategy": "Halted", "should_run": False, "ready": False, "vmi": None, "vmi_exists": False}
        vms = (replace(vm, **halted) if vm.uid == action.uid else vm for vm in vms)
    if action.start:
        vms = (_started(vm) if vm.uid == action.uid else vm for vm in vms)
    return replace(snapshot, vms=tuple(vms))


def _restored(action: actions.Restore, snapshot: PoolSnapshot) -> PoolSnapshot:
    """The snapshot after KubeVirt has stopped the VM and replaced its disks."""
    namespace, uid = snapshot.pool.namespace, f"{action.restore} (simulated)"
    restore = VMRestore(
        *(namespace, action.restore, uid, snapshot.pool.name, action.name, action.uid, action.request),
        *(action.run_strategy, action.ran),
        complete=True,
    )
    stopped = _changed(action.uid, snapshot, ready=False, vmi=None, vmi_exists=False)
    return replace(stopped, restores=(*snapshot.restores, restore))


def _created(action: actions.Create, snapshot: PoolSnapshot) -> PoolSnapshot:
    revision = snapshot.revisions_by_label.get(action.revision.rpartition("-")[2], snapshot.revision)
    document = template.build_vm(snapshot.pool, action.ordinal, revision, action.retained_disks, dict(action.disks))
    document["metadata"]["uid"] = f"{action.name} (simulated)"
    vms = (*snapshot.vms, _started(parse_vm(document)))
    return replace(snapshot, vms=vms, taken_ordinals=snapshot.taken_ordinals | {action.ordinal})


def _in_service(vmi_uid: str, snapshot: PoolSnapshot, *, served: bool) -> PoolSnapshot:
    def labelled(vmi: VMI) -> VMI:
        others = {key: value for key, value in vmi.labels.items() if key != meta.IN_SERVICE}
        return replace(vmi, labels=others | ({meta.IN_SERVICE: "true"} if served else {}))

    vms = (replace(vm, vmi=labelled(vm.vmi)) if vm.vmi and vm.vmi.uid == vmi_uid else vm for vm in snapshot.vms)
    return replace(snapshot, vms=tuple(vms))


def _started(vm: VM) -> VM:
    """The VM after its start, if its run strategy requires a start."""
    if not vm.should_run:
        return vm
    uid, labels = f"{vm.name} (simulated VMI)", {meta.REVISION: vm.revision, meta.IN_SERVICE: "true"}
    vmi = VMI(vm.namespace, vm.name, uid, owner_uid=vm.uid, labels=labels, phase="Running", ready=True, disks=vm.disks)
    return replace(vm, vmi_exists=True, ready=True, start_failures=0, vmi=vmi, hold=None)


def _changed(uid: str, snapshot: PoolSnapshot, **facts: Any) -> PoolSnapshot:
    return replace(snapshot, vms=tuple(replace(vm, **facts) if vm.uid == uid else vm for vm in snapshot.vms))


def _without(action: actions.Delete | actions.Heal | actions.ReleaseDisks, snapshot: PoolSnapshot) -> PoolSnapshot:
    return replace(
        snapshot,
        vms=tuple(vm for vm in snapshot.vms if vm.uid != action.uid),
        awaiting_release=tuple(vm for vm in snapshot.awaiting_release if vm.uid != action.uid),
        taken_ordinals=snapshot.taken_ordinals - {ordinal_of(snapshot.pool.name, action.name)},
    )
