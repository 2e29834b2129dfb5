"""Warns about changes of a pool that only cloud-init could apply, in VMs that keep their disks.

cloud-init runs once for an instance-id and remembers it on the boot disk. KubeVirt gives a VM the same instance-id at
each start: NoCloud has the firmware UUID, ConfigDrive the VM's name and namespace.
"""

from collections.abc import Iterator
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kubevirt.volumes import CLOUD_INIT_METHODS, boot_volume
from webhook.review import AdmissionRequest, AdmissionResponse

VMI = ("spec", "template", "spec", "template", "spec")
PERSISTENT = ("dataVolume", "persistentVolumeClaim", "hostDisk")
WARNING = (
    "cloud-init reads it at a disk's first boot only: existing VMs restart without effect. Use accessCredentials with"
    " the guest agent, or replacePolicy: Recreate and another disk template"
)


class CloudInitChanges:
    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not request.is_of(POOL):
            return AdmissionResponse()
        return AdmissionResponse(warnings=tuple(changes_without_effect(request.old, request.object)))


def changes_without_effect(old: Json | None, new: Json | None) -> Iterator[str]:
    if old is None or new is None or not _keeps_boot_disks(old, new):
        return
    for source in CLOUD_INIT_METHODS:
        before = [at(volume, source) for _, volume in entries(old, *VMI, "volumes") if at(volume, source) is not None]
        for index, volume in entries(new, *VMI, "volumes"):
            given = at(volume, source)
            # Another source has another instance-id, so cloud-init runs for a source that is new.
            if before and given is not None and given not in before:
                yield f"{'.'.join(VMI)}.volumes[{index}].{source}: {WARNING}"
    known = [_by_cloud_init(credential) for _, credential in entries(old, *VMI, "accessCredentials")]
    for index, credential in entries(new, *VMI, "accessCredentials"):
        given = _by_cloud_init(credential)
        if given is not None and given not in known:
            yield f"{'.'.join(VMI)}.accessCredentials[{index}]: {WARNING}"


def _by_cloud_init(credential: Json) -> Any:
    """The credential if cloud-init applies it, else None: the guest agent applies all others."""
    methods = at(credential, "sshPublicKey", "propagationMethod")
    return credential if any(at(methods, each) is not None for each in CLOUD_INIT_METHODS.values()) else None


def _keeps_boot_disks(old: Json, new: Json) -> bool:
    """Whether VMs of the old template boot from the same disks after an update to the new one."""
    strategy, volume = at(new, "spec", "updateStrategy") or {}, boot_volume(at(new, *VMI))
    if at(strategy, "unmanaged") is not None or at(strategy, "proactive", "maxSurge") not in (None, 0, "0%"):
        return False
    if not any(at(volume, source) is not None for source in PERSISTENT):
        return False
    if at(strategy, "proactive", "replacePolicy") != "Recreate":
        return True
    name = at(volume, "dataVolume", "name")
    return bool(_disk_template(old, name) == _disk_template(new, name))


def _disk_template(pool: Json, name: Any) -> Any:
    """The spec of an entry of dataVolumeTemplates; None without one."""
    found = entries(pool, "spec", "template", "spec", "dataVolumeTemplates")
    return next((at(each, "spec") for _, each in found if at(each, "metadata", "name") == name), None)
