"""Compares a claim's overrides with the pool's template, and applies them to the template.

A claim gets a ready VM only if its overrides match the template of the VM. Otherwise the controller creates a VM from
the changed template.
"""

import copy
from collections.abc import Mapping
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds.claim import Overrides
from poolhouse.api.kinds.ec2 import DEFAULT_INSTANCE_TYPE
from poolhouse.api.kubevirt.volumes import boot_volume

EC2_FIELDS = {
    "instancetype": "instanceType",
    "image": "imageID",
    "keyPair": "keyPair",
    "securityGroups": "securityGroups",
    "iamInstanceProfile": "iamInstanceProfile",
}
"""field of `spec.ec2` by field of the overrides, without the placement"""


def given_fields(overrides: Overrides) -> Json:
    """The overrides of a claim by their names in the document."""
    return {name: value for name, value in overrides.json().items() if value}


def mismatch(overrides: Overrides, template: Json) -> str:
    """Why VMs of the template do not match, or an empty string. Placements are compared for each VM, not here."""
    for name, wanted in given_fields(overrides).items():
        if name != "placement" and wanted != (own := _value(template, name)):
            return f"the claim needs {name} {_text(wanted)}, the pool's is {_text(own) or 'none'}"
    return ""


def _value(template: Json, name: str) -> Any:
    if name == "instancetype":
        return instancetype(template)
    return image(template) if name == "image" else template.get(EC2_FIELDS[name])


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value or "")


def forbidden(
    overrides: Overrides, template: Json, allowed: tuple[str, ...] | None, placements: Mapping[str, Json]
) -> str:
    """Why no VM can be created with the overrides, or an empty string. A pool allows only the fields in `allowed`."""
    given = given_fields(overrides)
    if refused := [name for name in given if name not in (allowed or ())]:
        permitted = ", ".join(allowed or ()) or "none"
        return f"overrides.{refused[0]} is not one of the pool's claimPolicy.allowedOverrides, which are: {permitted}"
    if "spec" in template and (only_ec2 := given.keys() - {"instancetype", "image", "placement"}):
        return f"overrides.{min(only_ec2)} is for pools of EC2 instances, and this pool has VMs"
    if overrides.placement and overrides.placement not in placements:
        return f"overrides.placement {overrides.placement} is not one of the pool's, which are: {', '.join(placements)}"
    if overrides.image and not image(template):
        return "overrides.image: the pool's template has no boot image that can be replaced"
    return ""


def instancetype(template: Json) -> str:
    if "spec" not in template:
        return at(template, "instanceType") or DEFAULT_INSTANCE_TYPE
    return at(template, "spec", "instancetype", "name") or ""


def image(template: Json) -> str:
    """The boot image: a container disk, the source URL or DataSource of a DataVolume, or an AMI."""
    if ami := at(template, "imageID"):
        return str(ami)
    if found := _image_field(template):
        holder, key = found
        return str(holder[key])
    return ""


def apply_overrides(template: Json, overrides: Overrides) -> Json:
    given = {name: value for name, value in given_fields(overrides).items() if name != "placement"}
    if not given:
        return template
    changed = copy.deepcopy(template)
    if "spec" not in changed:
        return changed | {EC2_FIELDS[name]: value for name, value in given.items()}
    if overrides.instancetype:
        own = changed["spec"].get("instancetype") or {}
        changed["spec"]["instancetype"] = {**own, "name": overrides.instancetype}
        # KubeVirt refuses a VM that has both an instancetype and its own CPU or memory sizes.
        domain = at(changed, "spec", "template", "spec", "domain") or {}
        for field in ("cpu", "memory", "resources"):
            domain.pop(field, None)
        changed["spec"]["instancetype"].pop("revisionName", None)
    if overrides.image and (found := _image_field(changed)):
        holder, key = found
        holder[key] = overrides.image
    return changed


def _image_field(template: Json) -> tuple[Json, str] | None:
    """The object and the key of the field that names the image of the boot disk."""
    volume = boot_volume(at(template, "spec", "template", "spec"))
    if isinstance(at(volume, "containerDisk", "image"), str):
        return volume["containerDisk"], "image"
    # The PersistentVolumeClaim of a DataVolume has the same name.
    claim = at(volume, "persistentVolumeClaim") or at(volume, "ephemeral", "persistentVolumeClaim")
    name = at(volume, "dataVolume", "name") or at(claim, "claimName")
    for _, disk in entries(template, "spec", "dataVolumeTemplates"):
        if not name or at(disk, "metadata", "name") != name:
            continue
        for kind, key in (("registry", "url"), ("http", "url"), ("pvc", "name"), ("snapshot", "name")):
            if isinstance(at(disk, "spec", "source", kind, key), str):
                return disk["spec"]["source"][kind], key
        if isinstance(at(disk, "spec", "sourceRef", "name"), str):
            return disk["spec"]["sourceRef"], "name"
    return None
