"""Updates VMs to the template of their pool."""

from collections.abc import Collection
from contextlib import suppress

from controllers.pool import lost_base, template
from controllers.pool.actions import ReturnDisk, Update
from controllers.pool.disk_templates import disks_by_entry
from controllers.pool.template_merge import merge_template
from controllers.pool.writes.context import Writing, read_member
from controllers.pool.writes.existing_disks import existing_disk
from controllers.pool.writes.retained_disks import return_disk
from controllers.shared.vm import disk_names, parse_vm
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.live_devices import mark_absent
from poolhouse.runtime.errors import Conflict, Invalid
from poolhouse.runtime.resource import VMS


async def update(to: Writing, a: Update) -> None:
    """Raises Conflict if the VM has other disks than the plan has seen, and where `read_member` does. Raises Invalid if
    the VM would get the disk of another owner."""
    live = await read_member(to.api, to.namespace, to.owner.uid, a.name, a.uid)
    here = disk_names(live)
    if any(each.old not in here or each.new in here for each in a.replacements):
        raise Conflict(f"{a.name} has other disks now", status=409)
    merged = await _merged(to, a, live)
    annotations = merged["metadata"].setdefault("annotations", {})
    if a.disk_templates:
        # The merge would record that the disks are new.
        annotations[meta.DISK_TEMPLATES] = a.disk_templates
    if a.replacements:
        _replace_disks(merged, {each.old for each in a.replacements})
        annotations[meta.REPLACED_DISKS] = a.replaced_disks
    await _check_new_disks(to, a, merged, here)
    if a.counts:
        annotations[meta.UPDATES] = str(parse_vm(live).updates + 1)
    if a.live_since:
        annotations[meta.LIVE_UPDATE_SINCE] = a.live_since
        inner = merged["spec"]["template"]
        inner["spec"] = mark_absent(inner.get("spec") or {}, at(live, "spec", "template", "spec") or {})
    if a.restored:
        annotations[meta.RESTORED] = a.restored
        for done in (meta.RESTORE, meta.RUN_STRATEGY):
            annotations.pop(done, None)
        for disk in here:
            # KubeVirt replaces the claim of a retained disk, and its DataVolume keeps the pool's labels.
            await return_disk(to.api, to.namespace, ReturnDisk(a.name, a.uid, disk, a.reason))
        await _resume(to, a, merged["spec"])
    await to.api.replace(VMS, merged)


async def _merged(to: Writing, a: Update, live: Json) -> Json:
    """The VM with the changes of the template since its own revision."""
    snapshot, here = to.snapshot, disk_names(live)
    before = await to.templates.pool_with_revision(snapshot, a.before)
    base = None
    if before is not None:
        names = disks_by_entry(here, a.ordinal, before.disk_names)
        base = template.build_vm(before, a.ordinal, snapshot.revisions_by_label[a.before], disks=names)
    names = disks_by_entry(here, a.ordinal, to.owner.disk_names)
    replaced = {each.entry: each.new for each in a.replacements}
    new = template.build_vm(to.owner, a.ordinal, snapshot.revision, disks=names | replaced)
    merged = merge_template(live, base, new)
    annotations = merged["metadata"].setdefault("annotations", {})
    lost, known = bool(a.before) and base is None, annotations.pop(meta.LEFT_FIELDS, "")
    if left := lost_base.left_fields(merged, new, known, lost=lost):
        annotations[meta.LEFT_FIELDS] = left
        if lost:
            to.events.base_lost(to.owner, a, lost_base.show(left))
    return merged


async def _check_new_disks(to: Writing, a: Update, merged: Json, here: Collection[str]) -> None:
    """Raises Invalid if the update would give the VM an existing disk of another owner. Disks that replace others are
    not looked for: they have names of their own, or are those that the VM had before."""
    new = set(disk_names(merged)).difference(here, (each.new for each in a.replacements))
    if disk := await existing_disk(to.api, to.snapshot, merged, new):
        remedy = "delete it, or give the disk of the template another name"
        raise Invalid(f"the template gives it {disk}, which exists and is not its own: {remedy}", status=422)


def _replace_disks(vm: Json, old: set[str]) -> None:
    """Removes the entries of replaced disks, which a merge without the former template keeps."""
    spec = vm["spec"]
    spec["dataVolumeTemplates"] = [each for each in spec["dataVolumeTemplates"] if each["metadata"]["name"] not in old]


async def _resume(to: Writing, a: Update, spec: Json) -> None:
    """Gives a restored VM the run strategy of before, and starts it if its run strategy does not."""
    if a.start and run_strategy(spec) == a.run_strategy and a.run_strategy in ("Manual", "RerunOnFailure"):
        with suppress(Conflict):  # it runs already: this update is a retry
            await to.subresources.put("start", to.namespace, a.name, a.uid)
    elif run_strategy(spec) != a.run_strategy:
        if spec.pop("running", None) is not None and a.run_strategy in ("Always", "Halted"):
            spec["running"] = a.run_strategy == "Always"
        else:
            spec["runStrategy"] = a.run_strategy
