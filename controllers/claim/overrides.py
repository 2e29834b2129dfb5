"""What a claim wants otherwise than its pool's template has it.

A machine that was made already is as its template was: one that doesn't have what is wanted is never handed out. So
each override is a question to a template, and a change of a template.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from apimachinery.unstructured import at, entries, typed
from kinds import meta

Json = dict[str, Any]

BOOTED = frozenset({"containerDisk", "dataVolume", "persistentVolumeClaim", "ephemeral", "hostDisk"})
"""Volumes with a system on them. Others tell a guest something, or are empty."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Empty is what the pool has."""

    instancetype: str = ""
    image: str = ""
    placement: str = ""

    def names(self) -> tuple[str, ...]:
        """Which are given."""
        return tuple(name for name in ("instancetype", "image", "placement") if getattr(self, name))


def wanted(overrides: Any, annotations: Mapping[str, str]) -> Wanted:
    """The document's annotations work too, and lose to fields."""
    return Wanted(
        instancetype=getattr(overrides, "instancetype", None) or annotations.get(meta.INSTANCE_TYPE, ""),
        image=getattr(overrides, "image", None) or annotations.get(meta.IMAGE_ID, ""),
        placement=getattr(overrides, "placement", None) or "",
    )


def mismatch(want: Wanted, template: Json) -> str:
    """Why machines of this template don't do, or nothing. The placement is each machine's own."""
    if want.instancetype and want.instancetype != (has := instancetype(template)):
        return f"instancetype {want.instancetype} is wanted, the pool's is {has or 'none'}"
    if want.image and want.image != (has := image(template)):
        return f"image {want.image} is wanted, the pool's is {has or 'none'}"
    return ""


def refused(want: Wanted, template: Json, allowed: tuple[str, ...] | None, placements: Mapping[str, Json]) -> str:
    """Why no machine can be made as it is wanted, or nothing. `allowed` is None where the pool forbids none."""
    forbidden = [name for name in want.names() if allowed is not None and name not in allowed]
    if forbidden:
        permitted = ", ".join(allowed or ()) or "none"
        return f"overrides.{forbidden[0]} is not one of the pool's claimPolicy.allowedOverrides, which are: {permitted}"
    if want.placement and want.placement not in placements:
        return f"overrides.placement {want.placement} is none of the pool's, which are: {', '.join(placements)}"
    if want.image and not image(template):
        return "overrides.image: the pool's template boots from no image that could be exchanged"
    return ""


def instancetype(template: Json) -> str:
    return at(template, "instanceType") or at(template, "spec", "instancetype", "name") or ""


def image(template: Json) -> str:
    """What it boots from: a container disk's image, or the address or the DataSource of the disk that is made."""
    if named := at(template, "imageID"):
        return str(named)
    if found := _image(template):
        holder, key = found
        return str(holder[key])
    return ""


def applied(template: Json, want: Wanted) -> Json:
    """The template as it is wanted."""
    if not (want.instancetype or want.image):
        return template
    changed = copy.deepcopy(template)
    if "spec" not in changed:
        return changed | {k: v for k, v in (("instanceType", want.instancetype), ("imageID", want.image)) if v}
    if want.instancetype:
        changed["spec"]["instancetype"] = {**(changed["spec"].get("instancetype") or {}), "name": want.instancetype}
        # KubeVirt refuses a VM that says both how large it is and of which type.
        domain = at(changed, "spec", "template", "spec", "domain") or {}
        for field in ("cpu", "memory", "resources"):
            domain.pop(field, None)
        changed["spec"]["instancetype"].pop("revisionName", None)
    if want.image and (found := _image(changed)):
        holder, key = found
        holder[key] = want.image
    return changed


def _image(template: Json) -> tuple[Json, str] | None:
    """Where the image of the disk that it boots from is written."""
    volume = _boot_volume(template)
    if isinstance(at(volume, "containerDisk", "image"), str):
        return volume["containerDisk"], "image"
    # A DataVolume makes a claim of its own name.
    of_claim = at(volume, "persistentVolumeClaim") or at(volume, "ephemeral", "persistentVolumeClaim")
    made = at(volume, "dataVolume", "name") or at(of_claim, "claimName")
    for _, disk in entries(template, "spec", "dataVolumeTemplates"):
        if not made or at(disk, "metadata", "name") != made:
            continue
        for kind, key in (("registry", "url"), ("http", "url"), ("pvc", "name"), ("snapshot", "name")):
            if isinstance(at(disk, "spec", "source", kind, key), str):
                return disk["spec"]["source"][kind], key
        if isinstance(at(disk, "spec", "sourceRef", "name"), str):
            return disk["spec"]["sourceRef"], "name"
    return None


def _boot_volume(template: Json) -> Json:
    """Drivers and installers are in drives: it boots from one of those if it is told to, or has nothing else."""
    turns: dict[Any, tuple[float, bool, int]] = {}
    for number, disk in entries(template, "spec", "template", "spec", "domain", "devices", "disks"):
        order = typed(int, disk, "bootOrder")
        turns[disk.get("name")] = (inf if order is None else order, "cdrom" in disk, number)
    last = (inf, False, len(turns))  # a volume that no disk names gets one, after the others
    volumes = [each for _, each in entries(template, "spec", "template", "spec", "volumes") if BOOTED & each.keys()]
    return min(volumes, key=lambda each: turns.get(each.get("name"), last), default={})
