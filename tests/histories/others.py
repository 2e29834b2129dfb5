"""What others do to the objects of a history: write a template in another spelling, and remove owner references.

A backup that is restored, a GitOps tool and a script do both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import Resource
from tests.histories.api_server import ApiServer, Change, is_deleting
from tests.kubevirt.spellings import respell

Json = dict[str, Any]

VM_RESOURCE = "virtualmachines.kubevirt.io"
RESTORE_RESOURCE = "virtualmachinerestores.snapshot.kubevirt.io"
CONTENT_RESOURCE = "virtualmachinesnapshotcontents.snapshot.kubevirt.io"
DISKS = {"datavolumes.cdi.kubevirt.io": "DataVolume", "persistentvolumeclaims": "claim"}
VMI_RESOURCE = "virtualmachineinstances.kubevirt.io"
GUESTS = frozenset({VM_RESOURCE, VMI_RESOURCE, "controllerrevisions.apps", *DISKS})
"""What another spelling of a template leaves alone."""


async def respell_template(api: Api, resource: Resource, key: tuple[str, str], type_name: str, random: Random) -> str:
    while True:
        found = await api.get(resource, *key)
        template = respell(found["spec"]["template"], type_name, random)
        with suppress(Conflict):  # a controller has written the status meanwhile
            await api.replace(resource, {**found, "spec": {**found["spec"], "template": template}})
            break
    return f"respell the template of {key[1]}: {template}"


async def strip_owners(api: Api, resource: Resource, namespace: str, random: Random) -> str:
    """Removes the owner references of one object of a resource, or of all."""
    found, _ = await api.list(resource, namespace)
    owned = [each for each in found if each["metadata"].get("ownerReferences") and not is_deleting(each)]
    if not owned:
        return ""
    chosen = owned if random.random() < 0.2 else [random.choice(owned)]
    for each in chosen:
        metadata = each["metadata"]
        change = {"uid": metadata["uid"], "ownerReferences": None}
        await api.patch(resource, namespace, metadata["name"], {"metadata": change})
    return f"strip the owners of {resource.plural} {[each['metadata']['name'] for each in chosen]}"


def touched(server: ApiServer, change: Change) -> str:
    """What a write does to VMs, VMIs, disks and revisions while templates change only in spelling, or nothing."""
    if change.plural not in GUESTS or change.actor == "users":
        return ""
    name = f"{change.plural} {change.document['metadata']['name']}"
    if change.actor == "engine" and change.plural == VMI_RESOURCE:
        # A guest that crashes is started again too, so only requested restarts count.
        vm = server.get(VM_RESOURCE, change.document["metadata"]["namespace"], change.document["metadata"]["name"])
        requested = vm is not None and (vm.get("status") or {}).get("stateChangeRequests")
        return f"{name} was restarted after a respelling" if requested and change.begins_deletion else ""
    if change.old is None:
        return f"{name} was created after a respelling"
    if change.begins_deletion or change.new is None:
        return f"{name} was deleted after a respelling"
    return f"{name} was written after a respelling" if change.actor.startswith("controllers") else ""


def lost_disk(server: ApiServer, change: Change) -> str:
    """A disk without an owner is deleted by nobody but its user, and by KubeVirt for a restore that a user wanted."""
    if change.plural not in DISKS or not change.begins_deletion or change.actor == "users":
        return ""
    assert change.old is not None
    metadata = change.old["metadata"]
    if metadata.get("ownerReferences") or (change.actor == "engine" and _is_restored(server, metadata)):
        return ""
    return f"{DISKS[change.plural]} {metadata['name']} has no owner, and {change.actor} deleted it"


def _is_restored(server: ApiServer, claim: Json) -> bool:
    """Whether a restore is under way from a snapshot that has the claim: KubeVirt makes the claim again."""
    restores = [each for each in server.objects(RESTORE_RESOURCE) if not at(each, "status", "complete")]
    snapshots = {each["spec"]["virtualMachineSnapshotName"] for each in restores}
    contents = [each["spec"] for each in server.objects(CONTENT_RESOURCE)]
    backups = [
        backup
        for content in contents
        if content["virtualMachineSnapshotName"] in snapshots
        for backup in content["volumeBackups"]
    ]
    return any(at(each, "persistentVolumeClaim", "metadata", "name") == claim["name"] for each in backups)


def shared_disks(server: ApiServer, change: Change) -> Iterator[str]:
    """A VM is created without a disk that another VM has."""
    if change.plural != VM_RESOURCE or change.old is not None or not change.actor.startswith("controllers"):
        return
    name, disks = change.document["metadata"]["name"], disk_names(change.document)
    for other in server.objects(VM_RESOURCE):
        if other["metadata"]["uid"] != change.document["metadata"]["uid"] and (both := disks & disk_names(other)):
            yield f"{name} was created with the disks {sorted(both)} of {other['metadata']['name']}"


def disk_names(vm: Json) -> set[str]:
    """The claims that the volumes of a VM name."""
    volumes = vm["spec"]["template"]["spec"].get("volumes") or ()
    sources = ((each.get("dataVolume") or {}, each.get("persistentVolumeClaim") or {}) for each in volumes)
    return {str(name) for volume, claim in sources if (name := volume.get("name") or claim.get("claimName"))}
