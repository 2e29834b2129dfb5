"""What is true of a VM or VMI now, as `poolhouse why` and the console say it: each fact is a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from controllers.pool.causes import others_with_cause
from controllers.pool.counts import template_state
from controllers.pool.live_updates import is_live, needs_restart, waits_for, why_restart
from controllers.pool.lost_base import REMEDY, show
from controllers.pool.outages import lost_node, not_ready
from controllers.pool.plan import plan
from controllers.pool.pools import Pool
from controllers.pool.rollback import with_abort
from controllers.pool.rules.lifetime import lifetime_end
from controllers.pool.snapshot import PoolSnapshot
from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.replicaset.plan import describe_end
from controllers.replicaset.plan import plan as replica_set_plan
from controllers.shared.evictions import treatment_of
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from controllers.warmpool.decisions import DELETED_BY_OTHER
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import Healing
from poolhouse.cli.claim_status import to_the_second
from poolhouse.cli.past import Identity, Logged

SCALE_IN = {"Protect": "scale-in does not delete it", "First": "scale-in deletes it first"}
INVALID_SCALE_IN = "which is neither Protect nor First, so scale-in does not delete it"


def pool_facts(snapshot: PoolSnapshot, name: str, at: datetime | None = None) -> Iterator[str]:
    """About a VM of the pool; nothing about another one."""
    vm = next((each for each in snapshot.vms if each.name == name), None)
    if vm is not None:
        now = at or datetime.now(UTC)
        snapshot = with_abort(snapshot, now)
        yield from _run_state(vm)
        yield from _obstacles(snapshot, vm)
        yield from _template(snapshot, vm, now)
        yield from _state(snapshot, vm, now)
        yield from _plans(snapshot, vm, now)
        yield from _healing(snapshot.pool, name)
        yield from _evictions(snapshot, vm)


def _obstacles(snapshot: PoolSnapshot, vm: VM) -> Iterator[str]:
    if node := lost_node(snapshot, vm):
        yield f"{not_ready(node)}; KubeVirt starts the VM elsewhere once it is certain that it has ended there"
    if vm.should_run and not vm.available:
        for disk, state in snapshot.unready_disks_of(vm).items():
            yield f"DataVolume {state.describe(disk)}"
        if others := others_with_cause(snapshot, vm):
            yield f"{count_noun(others, 'other VM', 'does', 'do')} not start for the same cause"


def _template(snapshot: PoolSnapshot, vm: VM, now: datetime) -> Iterator[str]:
    """Whether the VM and its guest have the template, and how the guest gets it."""
    has = "it has the pool's template"
    if snapshot.aborted is not None:
        yield f"the update of its pool is aborted: {snapshot.aborted[1].message}"
        has = "it has the former template"
    yield from (f"its pool uses no new image: {why}" for why in dict.fromkeys(snapshot.refused_references.values()))
    if snapshot.outdated(vm):
        yield "its template is outdated" if snapshot.aborted is None else "it gets the former template again"
    elif not needs_restart(snapshot, vm):
        yield has
    elif is_live(snapshot, vm) and waits_for(snapshot, vm, now):
        yield f"{has}, and KubeVirt changes its guest while it runs"
    elif template_state(snapshot, vm) == "restart":
        why = why_restart(snapshot, vm) if is_live(snapshot, vm) else ""
        yield f"{has}, and its guest, which started before, needs a restart{f': {why}' if why else ''}"
    else:
        yield f"{has}, and its guest, which started before, gets it at its next start"


def _state(snapshot: PoolSnapshot, vm: VM, now: datetime) -> Iterator[str]:
    if (end := lifetime_end(snapshot, vm)) is not None and end > now:
        yield f"its lifetime ends at {format_time(end)} (maxLifetimeSeconds), and the pool then restarts it"
    if zone := snapshot.zones.get(vm.name):
        yield f"it is in zone {zone}"
    if vm.left_fields:
        yield f"an update lost the revision of its former template, and may have left {show(vm.left_fields)}: {REMEDY}"
    if vm.restart_required:
        yield f"KubeVirt says RestartRequired: {vm.restart_required}"
    if vm.scale_in:
        yield f"{meta.SCALE_IN} is {vm.scale_in}: {SCALE_IN.get(vm.scale_in, INVALID_SCALE_IN)}"
    if vm.uid in snapshot.pool.removals:
        yield f"{meta.REMOVE_VMS} of its pool names it: the pool deletes it and creates no other VM for it"
    if snapshot.pool.spec.paused:
        yield "its pool is paused"


def _plans(snapshot: PoolSnapshot, vm: VM, now: datetime) -> Iterator[str]:
    decided = plan(snapshot, now)
    yield from (f"it waits: {wait.reason}" for wait in decided.waits if wait.name == vm.name)
    if decided.blocked:
        yield f"scale-in is blocked: {decided.blocked}"


def _healing(pool: Pool, name: str) -> Iterator[str]:
    healing = pool.status.healing or Healing()
    for failing in healing.failures:
        if failing.name == name and failing.failed_runs:
            yield f"its last {count_noun(failing.failed_runs, 'VMI')} failed after running"
    if pool.spec.autohealing is None:
        yield "healing is off: spec.autohealing of its pool is not set"
    elif healing.breaker is not None and healing.breaker.open:
        yield f"healing has stopped until {healing.breaker.until}: {healing.breaker.message}"
    for healed in healing.vms:
        if healed.name == name:
            yield f"it was replaced {count_noun(healed.attempts, 'time')}; not again before {healed.not_before}"


def _evictions(snapshot: PoolSnapshot, vm: VM) -> Iterator[str]:
    """Why a drain of the VM's node waits for it, or does not wait where it should."""
    if vm.vmi is None or not vm.vmi.running:
        return
    if vm.vmi.eviction_strategy == "LiveMigrate" and (why := vm.vmi.guest.not_migratable):
        yield f"KubeVirt refuses its eviction by evictionStrategy LiveMigrate, because it cannot be migrated: {why}"
    elif treatment_of(vm.vmi, snapshot.cluster) != "Move":
        for each in snapshot.pool.status.conditions:
            if each.type == "EvictionBudgetFailure" and each.status == "True":
                yield f"evictions of VMs of its pool: {each.message}"


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


def replica_set_facts(snapshot: ReplicaSetSnapshot, name: str) -> Iterator[str]:
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
    yield from (
        f"it {each.why}" for each in replica_set_plan(snapshot, datetime.now(UTC)).waits if each.vmi.name == name
    )
    if snapshot.replica_set.spec.paused:
        yield "its replica set is paused"


def warm_state(vm: Json | None) -> Iterator[str]:
    """Yields the facts about a warm VM, from its label and annotations."""
    metadata = (vm or {}).get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if state := (metadata.get("labels") or {}).get(meta.WARM_STATE):
        since = f" since {notes[meta.STATE_SINCE]}" if notes.get(meta.STATE_SINCE) else ""
        yield f"it is {state}{since}" + (f": {notes[meta.STATE_REASON]}" if notes.get(meta.STATE_REASON) else "")


def detached(vm: Json | None, pool: str) -> Iterator[str]:
    if vm is not None and pool and controller_of(vm) is None:
        yield f"{pool} does not manage it and gives its name to no other VM; attach puts it back"


def who_deleted(deletion: Logged | None, *, claimed: bool) -> Iterator[str]:
    """What another client deleted, for a VM that a claim had: the pool saw only that the VM went."""
    if deletion is None or not deletion.message.endswith(DELETED_BY_OTHER):
        return
    if claimed:
        yield "the claim exists, so the client deleted the VM itself; a claim gets no second VM"
    else:
        yield "the claim does not exist any more; whoever deletes a claim deletes its VM with it"


def claim_facts(claim: Json, vm: Identity) -> Iterator[str]:
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
