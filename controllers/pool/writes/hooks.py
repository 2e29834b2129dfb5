"""Writes for VMs that lifecycle hooks hold."""

from contextlib import suppress

from controllers.pool import actions
from controllers.pool.writes.context import Writing, read_member
from controllers.pool.writes.vms import unready_version
from controllers.shared.vm import parse_hold
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.resource import PODS, VMIS, VMS


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


async def set_in_service(to: Writing, a: actions.SetInService) -> None:
    """Raises Conflict if the VM has been held, or its hold has ended, since the plan, and where `read_member` does.

    A VM that has left the pool stays in its Services, or out of them: a user who detaches a VM debugs it, and no later
    plan would take back what this one writes."""
    found = parse_hold((await read_member(to.api, to.namespace, to.owner.uid, a.name))["metadata"])
    held = found is not None and (found.transition == "Terminating" or found.vmi_uid == a.vmi_uid)
    if held == a.in_service:
        raise Conflict(f"{a.name} is {'' if held else 'not '}held now", status=409)
    await _label_in_service(to.api, to.namespace, a.name, a.vmi_uid, in_service=a.in_service)


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
