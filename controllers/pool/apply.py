"""Executes the plan of a pool, and reports the actions as events."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from apimachinery.owner_references import controller_of
from apimachinery.unstructured import Json
from controllers.pool import actions, lost_base, revisions, template
from controllers.pool.actions import Action
from controllers.pool.apply_disks import (
    date_disk,
    delete_disks,
    delete_retaining_disks,
    label_state,
    release_disks,
    remove_finalizer,
    retain_replaced_disks,
    return_disk,
)
from controllers.pool.disk_templates import disks_by_entry, entry_of, parse_hashes, same_origin
from controllers.pool.failures import has_failed_since_hold
from controllers.pool.observe import POOLS, REVISIONS
from controllers.pool.plan import Plan
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import InvalidPool, Pool, PoolSnapshot
from controllers.pool.template import merge_template
from controllers.pool.vm_snapshots import VM_RESTORES, VM_SNAPSHOTS, VMSnapshot
from controllers.shared.creation import DefaultingCreator
from controllers.shared.names import has_revision
from controllers.shared.sources import CRON_JOBS, DATA_VOLUMES, JOBS, PODS
from controllers.shared.subresources import Subresources
from controllers.shared.vm import VM, disk_names, parse_hold, parse_vm
from controllers.shared.vmi import parse_vmi
from controllers.shared.write_batches import Failure, Outcome, WriteBatches, failure, merge_outcomes
from defaulter.contract import InvalidDocument
from kinds import meta
from kinds.pool import UpdateAbort
from kinds.vm_documents import run_strategy
from runtime.api import Api
from runtime.batch_writer import ExpectedEvents
from runtime.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from runtime.events import EventRecorder, EventType, view_reference
from runtime.resource import PVCS, VMIS, VMS, Resource

JOBS_ARE_OFF = "the operator of Poolhouse allows Jobs of analyses with the chart's value controllers.analysis.jobs"
MAX_TEMPLATES = 100
"""How many revisions of all pools are kept in memory. The name of a revision contains the hash of its contents."""

A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class PoolOutcome(Outcome):
    blocked_names: tuple[str, ...] = ()
    """VMs that were not created, because disks of an earlier VM of the name still exist"""


@dataclass
class PoolEvents:
    events: EventRecorder

    def succeeded(self, pool: Pool, action: Action) -> None:
        retained = ", its disks are retained" if isinstance(action, actions.Delete) and action.retain_disks else ""
        note = f"{action.past} {action.name}{retained}: {action.reason}"
        self._emit(pool, "Normal", action.succeeded, note, action.verb)

    def snapshot_taken(self, pool: Pool, taken: VMSnapshot) -> None:
        """Reports a snapshot when KubeVirt has completed it, which may be long after the request."""
        note = f"took snapshot {taken.name} of VM {taken.vm_name} before its update"
        self._emit(pool, "Normal", PoolReason.SUCCESSFUL_TAKE_SNAPSHOT, note, "TakeSnapshot")

    def failed(self, pool: Pool, action: Action, error: Exception) -> Failure:
        message = f"{action.verb} {action.name}: {error}"
        self._emit(pool, "Warning", action.failed, message, action.verb)
        return failure(action.failed, message)

    def base_lost(self, pool: Pool, action: actions.Update, fields: str) -> None:
        note = (
            f"VM {action.name}: the ControllerRevision {pool.name}-{action.before} of its former template is gone, so"
            f" that the update removes nothing. It may have left {fields}: {lost_base.REMEDY}"
        )
        self._emit(pool, "Warning", PoolReason.REVISION_LOST, note, "Update")

    def invalid_scale_in(self, pool: Pool, vm: VM) -> None:
        note = (
            f"VM {vm.name}: {meta.SCALE_IN}: Invalid value: {vm.scale_in[:63]!r}: must be Protect or First; "
            "until then the VM is protected"
        )
        self._emit(pool, "Warning", PoolReason.INVALID_SCALE_IN, note, "Read")

    def update_aborted(self, pool: Pool, aborted: str, stable: str, abort: UpdateAbort) -> None:
        note = f"the update to {aborted} is aborted, VMs get {stable} again: {abort.message}"
        self._emit(pool, "Warning", PoolReason.UPDATE_ABORTED, note, "Update")

    def membership_changed(self, pool: Pool, vm: str, *, attached: bool) -> None:
        if attached:
            self._emit(pool, "Normal", PoolReason.ATTACHED, f"VM {vm} has the pool's owner reference again", "Attach")
        else:
            note = f"VM {vm} left the pool: its owner reference is gone. No other VM gets its name"
            self._emit(pool, "Normal", PoolReason.DETACHED, note, "Detach")

    def invalid_spec(self, pool: InvalidPool) -> None:
        self._emit(pool, "Warning", PoolReason.INVALID_SPEC, pool.problem, "Read")

    def _emit(self, pool: Pool | InvalidPool, kind: EventType, reason: PoolReason, note: str, action: str) -> None:
        self.events.emit(view_reference(POOLS, pool), kind, reason, note, action=action)


async def unready_version(api: Api, namespace: str, name: str) -> str:
    """The resourceVersion of a VMI that is not ready, is being deleted, or belongs to a VM that is held.

    Raises Conflict if the VMI has become ready since the plan, because the plan did not count the VM against
    maxUnavailable. The informers may have the event of the VM already, but not that of its VMI. KubeVirt also writes
    the status of the VM a moment after that of the VMI."""
    found = await api.get(VMIS, namespace, name)
    vmi = parse_vmi(found)
    if vmi.ready and not vmi.deleting and not replace(parse_vm(await api.get(VMS, namespace, name)), vmi=vmi).held:
        raise Conflict(f"{name} has become available", status=409)
    return str(found["metadata"]["resourceVersion"])


async def run_job(api: Api, pool: Pool, a: actions.RunJob) -> None:
    """Creates the Job. Raises Forbidden if the author of the CronJob has not allowed it, or if the CronJob is missing.

    A user who may change pools needs no right to create Jobs, so the CronJob must allow it by its label."""
    try:
        cron_job = await api.get(CRON_JOBS, pool.namespace, a.cron_job)
    except NotFound as error:
        raise Forbidden(f"CronJob {a.cron_job} does not exist in namespace {pool.namespace}", status=404) from error
    except Forbidden as error:
        raise Forbidden(f"{error.message}; {JOBS_ARE_OFF}", status=403) from error
    if (cron_job["metadata"].get("labels") or {}).get(meta.POOL_ANALYSIS) != "true":
        label = f'{meta.POOL_ANALYSIS}: "true"'
        raise Forbidden(f"CronJob {a.cron_job} lacks the label {label}, which allows pools to run it", status=403)
    with suppress(AlreadyExists):
        await api.create(JOBS, template.build_job(pool, cron_job, a))


async def hold(api: Api, namespace: str, a: actions.Hold) -> None:
    """Takes the VM out of its Services, then marks it for the owners of the hooks."""
    if a.spares_available:
        await unready_version(api, namespace, a.name)
    if a.vmi_uid:
        await _label_in_service(api, namespace, a.name, a.vmi_uid, in_service=False)
    annotations: Json = {meta.TRANSITION_SINCE: a.since, meta.TRANSITION_VMI: a.vmi_uid}
    annotations |= {f"{meta.HOOK_PREFIX}{name}": None for name in a.former}
    annotations |= {f"{meta.HOOK_PREFIX}{name}": end for name, end in a.hooks}
    await _mark(api, namespace, a, {meta.TRANSITION: a.transition}, annotations)


async def end_hold(api: Api, namespace: str, a: actions.EndHold) -> None:
    annotations: Json = {meta.TRANSITION_SINCE: None, meta.TRANSITION_VMI: None}
    annotations |= {f"{meta.HOOK_PREFIX}{name}": None for name in a.hooks}
    await _mark(api, namespace, a, {meta.TRANSITION: None}, annotations)


async def _mark(api: Api, namespace: str, a: actions.Hold | actions.EndHold, labels: Json, annotations: Json) -> None:
    # With the resourceVersion, a plan from an old store cannot start a hook again that has ended meanwhile.
    metadata = {"uid": a.uid, "resourceVersion": a.resource_version, "labels": labels, "annotations": annotations}
    await api.patch(VMS, namespace, a.name, {"metadata": metadata})


async def set_in_service(api: Api, namespace: str, a: actions.SetInService) -> None:
    """Raises Conflict if the VM has been held, or its hold has ended, since the plan."""
    found = parse_hold((await api.get(VMS, namespace, a.name))["metadata"])
    held = found is not None and (found.transition == "Terminating" or found.vmi_uid == a.vmi_uid)
    if held == a.in_service:
        raise Conflict(f"{a.name} is {'' if held else 'not '}held now", status=409)
    await _label_in_service(api, namespace, a.name, a.vmi_uid, in_service=a.in_service)


async def _label_in_service(api: Api, namespace: str, name: str, vmi_uid: str, *, in_service: bool) -> None:
    """Changes the label of the launcher pods, which Services select, and then that of the VMI.

    KubeVirt copies labels of a VMI only to new pods. The VMI comes last, because its label shows that the pods have
    theirs."""
    labels = {meta.IN_SERVICE: "true" if in_service else None}
    pods, _ = await api.list(PODS, namespace, label_selector=f"{meta.KUBEVIRT_CREATED_BY}={vmi_uid}")
    for pod in pods:
        with suppress(NotFound):
            await api.patch(PODS, namespace, pod["metadata"]["name"], {"metadata": {"labels": labels}})
    await api.patch(VMIS, namespace, name, {"metadata": {"uid": vmi_uid, "labels": labels}})


def _replace_disks(vm: Json, old: set[str]) -> None:
    """Removes the entries of replaced disks, which a merge without the former template keeps."""
    spec = vm["spec"]
    spec["dataVolumeTemplates"] = [each for each in spec["dataVolumeTemplates"] if each["metadata"]["name"] not in old]


@dataclass
class PoolWriter:
    api: Api
    batches: WriteBatches[Pool]
    creator: DefaultingCreator
    subresources: Subresources
    events: PoolEvents
    _templates: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
        def planned(kind: type[A]) -> list[A]:
            return [action for action in plan.actions if isinstance(action, kind)]

        pool, api = snapshot.pool, self.api
        namespace, burst = pool.namespace, snapshot.burst
        send = partial(self.batches.send, pool)
        creations, updates = planned(actions.Create), planned(actions.Update)
        # The creations are expected before the first await, so that other pools know which disks will be created.
        self.batches.expect(pool, creations)
        blocked: list[str] = []
        outcomes = [
            await self.release_disks(namespace, planned(actions.ReleaseDisks), pool),
            await send(planned(actions.ReturnDisk), partial(return_disk, api, namespace)),
            await send(planned(actions.DateDisk), partial(date_disk, api, namespace), quiet=True),
            await send(planned(actions.DeleteDisks), partial(delete_disks, api, namespace, {})),
            await send(planned(actions.RetainDisks), partial(retain_replaced_disks, api, namespace)),
            await send(planned(actions.RemoveFinalizer), partial(remove_finalizer, api, namespace)),
            await send(planned(actions.Adopt), partial(self._adopt, pool)),
            await send(planned(actions.RewriteRevision), partial(self._rewrite, pool), quiet=True),
            await send(planned(actions.AdoptRevision), partial(self._adopt_revision, pool), quiet=True),
        ]
        saved = await send(planned(actions.SaveRevision), partial(self._save, snapshot), quiet=True)
        if saved.retry:
            # An update compares the VM with its revision, so no VM gets a revision that is not stored.
            outcomes += [self.batches.skip(pool, creations), Outcome(retry=bool(updates), not_done=tuple(updates))]
            creations, updates = [], []
        outcomes += [
            saved,
            await self._create(snapshot, creations, blocked),
            await send(planned(actions.Delete), partial(self._delete, pool), max_in_flight=burst),
            await send(planned(actions.Heal), partial(self._heal, pool), max_in_flight=burst),
            await send(
                planned(actions.TakeSnapshot), partial(self._take_snapshot, pool), max_in_flight=burst, quiet=True
            ),
            await send(planned(actions.Restore), partial(self._restore, pool), max_in_flight=burst),
            await send(planned(actions.LabelState), partial(label_state, api, namespace)),
            await send(updates, partial(self._update, snapshot), max_in_flight=burst),
            await send(planned(actions.LabelVMI), partial(self._label_vmi, snapshot), max_in_flight=burst, quiet=True),
            await send(planned(actions.EndHold), partial(end_hold, api, namespace), max_in_flight=burst),
            await send(planned(actions.Hold), partial(hold, api, namespace), max_in_flight=burst),
            await send(
                planned(actions.SetInService), partial(set_in_service, api, namespace), max_in_flight=burst, quiet=True
            ),
            await send(planned(actions.Restart), partial(self._restart, pool), max_in_flight=burst),
            await send(planned(actions.RunJob), partial(run_job, api, pool)),
            await send(planned(actions.PruneRevision), partial(self._prune, pool), quiet=True),
            await send(planned(actions.PruneSnapshot), partial(self._prune_object, VM_SNAPSHOTS, pool), quiet=True),
            await send(planned(actions.PruneRestore), partial(self._prune_object, VM_RESTORES, pool), quiet=True),
        ]
        found = merge_outcomes(outcomes)
        return PoolOutcome(found.failure, found.retry, found.done, found.not_done, tuple(blocked))

    async def release_disks(
        self, namespace: str, releases: Sequence[actions.ReleaseDisks], pool: Pool | None = None
    ) -> Outcome:
        call = partial(release_disks, self.api, namespace)
        return await self.batches.send(pool, releases, call, quiet=True)

    async def _save(self, snapshot: PoolSnapshot, action: actions.SaveRevision) -> None:
        with suppress(AlreadyExists):  # the name depends on the content, so an earlier write created this revision
            await self.api.create(REVISIONS, template.build_revision(snapshot.pool, snapshot.revision))

    async def _adopt(self, pool: Pool, action: actions.Adopt) -> None:
        metadata = (await self.api.get(VMS, pool.namespace, action.name))["metadata"]
        if controller_of({"metadata": metadata}) is not None:
            raise Conflict(f"{action.name} has a controller now", status=409)
        others = [each for each in metadata.get("ownerReferences") or () if each.get("uid") != pool.uid]
        # With the resourceVersion, the patch removes no reference that another client has added meanwhile.
        change = {
            "uid": action.uid,
            "resourceVersion": metadata["resourceVersion"],
            "ownerReferences": [*others, template.owner_reference(pool)],
        }
        await self.api.patch(VMS, pool.namespace, action.name, {"metadata": change})

    async def _rewrite(self, pool: Pool, action: actions.RewriteRevision) -> None:
        found = await self.api.get(REVISIONS, pool.namespace, action.name)
        metadata = {key: found["metadata"].get(key) for key in ("name", "namespace", "labels")}
        metadata["ownerReferences"] = [template.owner_reference(pool)]
        await self.api.delete(REVISIONS, pool.namespace, action.name, uid=found["metadata"]["uid"])
        await self.api.create(REVISIONS, {**found, "metadata": metadata})

    async def _adopt_revision(self, pool: Pool, action: actions.AdoptRevision) -> None:
        change = {"uid": action.uid, "ownerReferences": [template.owner_reference(pool)]}
        await self.api.patch(REVISIONS, pool.namespace, action.name, {"metadata": change})

    async def _create(self, snapshot: PoolSnapshot, creations: Sequence[actions.Create], blocked: list[str]) -> Outcome:
        if not creations:
            return Outcome()
        pool = snapshot.pool
        # Only the first VM has a dry run, so a VM that was refused before must not come first.
        creations = sorted(creations, key=lambda a: a.name in snapshot.refused)
        try:
            documents = await self.creator([await self._build(snapshot, a) for a in creations])
        except (InvalidDocument, ApiError) as error:
            return self.batches.refuse(pool, creations, error)
        by_action = dict(zip(creations, documents, strict=True))

        async def create(action: actions.Create) -> None:
            if action.after_deletion and (disk := await self._old_disk(snapshot, by_action[action])):
                blocked.append(action.name)
                raise Conflict(f"{disk} of the VM before it still exists", status=409)
            await self.creator.create(by_action[action])

        return await self.batches.send(pool, creations, create, max_in_flight=snapshot.burst)

    async def _build(self, snapshot: PoolSnapshot, a: actions.Create) -> Json:
        pool, revision = snapshot.pool, snapshot.revision
        if a.revision != revision.name:
            label = a.revision.rpartition("-")[2]
            if earlier := await self.pool_with_revision(snapshot, label):
                pool, revision = earlier, snapshot.revisions_by_label[label]
        return template.build_vm(pool, a.ordinal, revision, a.retained_disks, dict(a.disks))

    async def _old_disk(self, snapshot: PoolSnapshot, vm: Json) -> str:
        """An existing disk of the deleted VM of this name, or ""."""
        metadata = vm["metadata"]
        namespace, annotations = metadata["namespace"], metadata.get("annotations") or {}
        hashes = parse_hashes(annotations.get(meta.DISK_TEMPLATES, ""))
        for disk in sorted(disk_names(vm)):
            makers = set[str]()
            for resource in (DATA_VOLUMES, PVCS):
                with suppress(NotFound):
                    found = (await self.api.get(resource, namespace, disk))["metadata"]
                    labels, wanted = found.get("labels") or {}, hashes.get(entry_of(disk, hashes), "")
                    created = snapshot.entry_hash(labels.get(meta.DISK_TEMPLATE, wanted))
                    other = meta.REPLACED in labels or not same_origin(created, wanted)
                    # A disk without an owner was provided for this VM, or retained from the same entry. The DataVolume
                    # of the disk owns the claim that CDI has made from it.
                    owners = {each.get("uid") for each in found.get("ownerReferences") or ()}
                    if owners - makers or "deletionTimestamp" in found or other:
                        return f"{resource.kind} {disk}"
                    makers.add(found["uid"])
        return ""

    async def _delete(self, pool: Pool, a: actions.Delete) -> None:
        if a.spares_available:
            await unready_version(self.api, pool.namespace, a.name)
        if a.retain_disks:
            await delete_retaining_disks(self.api, pool.namespace, pool.uid, a)
        else:
            await self._delete_vm(pool, a.name, a.uid, a.resource_version, "Background")

    async def _heal(self, pool: Pool, a: actions.Heal) -> None:
        # KubeVirt counts each failure in the VM's status, so the resourceVersion of the plan is usually outdated.
        live = parse_vm(await self.api.get(VMS, pool.namespace, a.name))
        recovers = live.ready or (a.failed_starts and not live.start_failures)
        if live.ready and live.terminating and not a.failed_starts:
            vmi = parse_vmi(await self.api.get(VMIS, pool.namespace, a.name))
            recovers = not has_failed_since_hold(replace(live, vmi=vmi))
        if live.uid != a.uid or live.deleting or recovers:
            raise Conflict(f"{a.name} does not fail any more", status=409)
        # With foreground deletion, the VM's name is free only after its disks are gone.
        await self._delete_vm(pool, a.name, a.uid, live.resource_version, "Foreground")

    async def _delete_vm(self, pool: Pool, name: str, uid: str, version: str, propagation: str) -> None:
        await self.api.delete(VMS, pool.namespace, name, uid=uid, resource_version=version, propagation=propagation)

    async def _update(self, snapshot: PoolSnapshot, a: actions.Update) -> None:
        pool = snapshot.pool
        live = await self.api.get(VMS, pool.namespace, a.name)
        if live["metadata"]["uid"] != a.uid or "deletionTimestamp" in live["metadata"]:
            raise Conflict(f"{a.name} is being deleted, or is another VM now", status=409)
        before = await self.pool_with_revision(snapshot, a.before)
        known = snapshot.revisions_by_label
        here, replaced = disk_names(live), {each.entry: each.new for each in a.replacements}
        if any(each.old not in here or each.new in here for each in a.replacements):
            raise Conflict(f"{a.name} has other disks now", status=409)
        base = None
        if before is not None:
            names = disks_by_entry(here, a.ordinal, disk_names(before.spec.template))
            base = template.build_vm(before, a.ordinal, known[a.before], disks=names)
        names = disks_by_entry(here, a.ordinal, disk_names(pool.spec.template))
        new = template.build_vm(pool, a.ordinal, snapshot.revision, disks=names | replaced)
        merged = merge_template(live, base, new)
        annotations = merged["metadata"].setdefault("annotations", {})
        lost, known_left = bool(a.before) and base is None, annotations.pop(meta.LEFT_FIELDS, "")
        if left := lost_base.left_fields(merged, new, known_left, lost=lost):
            annotations[meta.LEFT_FIELDS] = left
            if lost:
                self.events.base_lost(pool, a, lost_base.show(left))
        if a.disk_templates:
            # The merge would record that the disks are new.
            annotations[meta.DISK_TEMPLATES] = a.disk_templates
        if a.replacements:
            _replace_disks(merged, {each.old for each in a.replacements})
            annotations[meta.REPLACED_DISKS] = a.replaced_disks
        if a.counts:
            annotations[meta.UPDATES] = str(parse_vm(live).updates + 1)
        if a.restored:
            await self._resume(pool, a, merged)
        await self.api.replace(VMS, merged)

    async def _resume(self, pool: Pool, a: actions.Update, vm: Json) -> None:
        """Gives a restored VM the run strategy of before, and starts it if its run strategy does not."""
        vm["metadata"]["annotations"] = {**(vm["metadata"].get("annotations") or {}), meta.RESTORED: a.restored}
        spec = vm["spec"]
        if a.start and run_strategy(spec) == a.run_strategy and a.run_strategy in ("Manual", "RerunOnFailure"):
            with suppress(Conflict):  # it runs already: this update is a retry
                await self.subresources.put("start", pool.namespace, a.name, a.uid)
        elif run_strategy(spec) != a.run_strategy:
            if spec.pop("running", None) is not None and a.run_strategy in ("Always", "Halted"):
                spec["running"] = a.run_strategy == "Always"
            else:
                spec["runStrategy"] = a.run_strategy

    async def _take_snapshot(self, pool: Pool, a: actions.TakeSnapshot) -> None:
        with suppress(AlreadyExists):  # the name depends on the VM's state, so an earlier write took this snapshot
            await self.api.create(VM_SNAPSHOTS, template.build_snapshot(pool, a))

    async def _restore(self, pool: Pool, a: actions.Restore) -> None:
        with suppress(AlreadyExists):
            await self.api.create(VM_RESTORES, template.build_restore(pool, a), strict=True)

    async def _prune_object(
        self, resource: Resource, pool: Pool, a: actions.PruneSnapshot | actions.PruneRestore
    ) -> None:
        with suppress(NotFound):
            await self.api.delete(resource, pool.namespace, a.name, uid=a.uid)

    async def _label_vmi(self, snapshot: PoolSnapshot, a: actions.LabelVMI) -> None:
        old = await self.pool_with_revision(snapshot, a.before)
        was = template.vmi_metadata(old, a.ordinal, snapshot.revisions_by_label[a.before]) if old else {}
        now = template.vmi_metadata(snapshot.pool, a.ordinal, snapshot.revision)
        changes: Json = {
            part: dict.fromkeys(was.get(part) or {}) | (now.get(part) or {}) for part in ("labels", "annotations")
        }
        patch = {"metadata": {"uid": a.vmi_uid, **changes}}
        await self.api.patch(VMIS, snapshot.pool.namespace, a.name, patch)

    async def pool_with_revision(self, snapshot: PoolSnapshot, label: str) -> Pool | None:
        """The pool with the template of this revision, or None if the revision does not exist."""
        if label not in snapshot.revisions_by_label:
            return None
        key = snapshot.pool.namespace, snapshot.revisions_by_label[label].name
        if key not in self._templates:
            try:
                document = await self.api.get(REVISIONS, *key)
            except NotFound:
                return None
            self._templates[key] = revisions.read(document)
            while len(self._templates) > MAX_TEMPLATES:
                del self._templates[next(iter(self._templates))]
        return replace(snapshot.pool, spec=snapshot.pool.spec.model_copy(update=self._templates[key]))

    async def _restart(self, pool: Pool, a: actions.Restart) -> None:
        version = await unready_version(self.api, pool.namespace, a.name) if a.spares_available else None
        if a.by_subresource:
            await self.subresources.put("restart", pool.namespace, a.name, a.vmi_uid)
        else:
            await self.api.delete(VMIS, pool.namespace, a.name, uid=a.vmi_uid, resource_version=version)

    async def _prune(self, pool: Pool, a: actions.PruneRevision) -> None:
        with suppress(NotFound):
            await self.api.delete(REVISIONS, pool.namespace, a.name)


def expected_events(action: Action) -> ExpectedEvents:
    match action:
        case actions.Create():
            return ExpectedEvents(creates=(action.name,))
        case actions.Update():
            return ExpectedEvents(creates=(has_revision(action.name, action.revision),))
        case actions.Delete() | actions.Heal():
            return ExpectedEvents(deletes=(action.uid,))
        case actions.Restart():
            return ExpectedEvents(deletes=(action.vmi_uid,))
        case actions.TakeSnapshot():
            return ExpectedEvents(creates=(action.snapshot,))
        case actions.Restore():
            return ExpectedEvents(creates=(action.restore,))
        case actions.PruneSnapshot() | actions.PruneRestore():
            return ExpectedEvents(deletes=(action.uid,))
    return ExpectedEvents()
