"""Writes of VMs."""

from dataclasses import replace

from controllers.pool import actions, template
from controllers.pool.failures import has_failed_since_hold
from controllers.pool.writes.context import Writing, read_member
from controllers.pool.writes.disks import delete_retaining_disks
from controllers.shared.vm import VM, parse_vm
from controllers.shared.vmi import VMI, parse_vmi
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import VMIS, VMS


async def unready_version(api: Api, namespace: str, name: str) -> str:
    """The resourceVersion of a VMI that is not ready, is being deleted, or belongs to a VM that is held.

    Raises Conflict if the VMI has become ready since the plan, because the plan did not count the VM against
    maxUnavailable. The informers may have the event of the VM already, but not that of its VMI. KubeVirt also writes
    the status of the VM a moment after that of the VMI."""
    vmi = parse_vmi(await api.get(VMIS, namespace, name))
    if vmi.ready and not vmi.deleting:
        _must_be_unready(parse_vm(await api.get(VMS, namespace, name)), vmi)
    return vmi.resource_version


def _must_be_unready(vm: VM, vmi: VMI) -> None:
    if vmi.ready and not vmi.deleting and not replace(vm, vmi=vmi).held:
        raise Conflict(f"{vm.name} has become available", status=409)


async def adopt(to: Writing, a: actions.Adopt) -> None:
    metadata = (await to.api.get(VMS, to.namespace, a.name))["metadata"]
    if controller_of({"metadata": metadata}) is not None:
        raise Conflict(f"{a.name} has a controller now", status=409)
    references = metadata.get("ownerReferences") or ()
    others = [each for each in references if each.get("uid") != to.owner.uid]
    if len(others) == len(references):
        raise Conflict(f"{a.name} has left the pool", status=409)
    # With the resourceVersion, the patch removes no reference that another client has added meanwhile.
    change = {
        "uid": a.uid,
        "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": [*others, template.owner_reference(to.owner)],
    }
    await to.api.patch(VMS, to.namespace, a.name, {"metadata": change})


async def delete(to: Writing, a: actions.Delete) -> None:
    if a.spares_available:
        await unready_version(to.api, to.namespace, a.name)
    if a.retain_disks:
        await delete_retaining_disks(to.api, to.namespace, to.owner.uid, a)
    else:
        await _delete_vm(to, a.name, a.uid, a.resource_version, "Background")


async def heal(to: Writing, a: actions.Heal) -> None:
    # KubeVirt counts each failure in the VM's status, so the resourceVersion of the plan is usually outdated.
    live = parse_vm(await read_member(to.api, to.namespace, to.owner.uid, a.name, a.uid))
    recovers = live.ready or (a.failed_starts and not live.start_failures)
    if live.ready and live.terminating and not a.failed_starts:
        vmi = parse_vmi(await to.api.get(VMIS, to.namespace, a.name))
        recovers = not has_failed_since_hold(replace(live, vmi=vmi))
    if recovers:
        raise Conflict(f"{a.name} does not fail any more", status=409)
    # With foreground deletion, the VM's name is free only after its disks are gone.
    await _delete_vm(to, a.name, a.uid, live.resource_version, "Foreground")


async def _delete_vm(to: Writing, name: str, uid: str, version: str, propagation: str) -> None:
    await to.api.delete(VMS, to.namespace, name, uid=uid, resource_version=version, propagation=propagation)


async def restart(to: Writing, a: actions.Restart) -> None:
    """Raises Conflict if KubeVirt has begun to move the VM since the plan: an eviction and a restart would disrupt it
    twice."""
    vm = parse_vm(await read_member(to.api, to.namespace, to.owner.uid, a.name))
    vmi = parse_vmi(await to.api.get(VMIS, to.namespace, a.name))
    if vmi.uid != a.vmi_uid:
        raise Conflict(f"{a.name} has another VMI now", status=409)
    if vmi.moving:
        raise Conflict(f"{a.name} leaves its node now", status=409)
    if a.spares_available:
        _must_be_unready(vm, vmi)
    if a.by_subresource:
        await to.subresources.put("restart", to.namespace, a.name, a.vmi_uid)
    else:
        await to.api.delete(VMIS, to.namespace, a.name, uid=a.vmi_uid, resource_version=vmi.resource_version)
