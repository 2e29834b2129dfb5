"""The VirtualMachine of an order: the pool's template, the placement that was drawn for it, and our labels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from apimachinery.unstructured import at
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.ssh_keys import own_key
from kinds import meta

Json = dict[str, Any]


def build_vm(order: CreateRequest) -> Json:
    """It is always made to run, also where it will wait stopped: a guest that was never found healthy is not warm."""
    template = copy.deepcopy(order.template)
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    inner = spec.setdefault("template", {})
    # On the run as well, so that instances and launcher pods match the pool's selector.
    inner["metadata"] = _labelled(inner.get("metadata") or {}, {meta.WARM_POOL: order.pool} if order.pool else {})
    _place(spec, inner.setdefault("spec", {}), order.placement)
    own_key(inner["spec"], order.name)
    _postfix(spec, order.name.rpartition("-")[2])
    annotations = {**(metadata.get("annotations") or {}), **order.annotations}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "namespace": order.namespace,
            "name": order.name,
            "labels": {**(metadata.get("labels") or {}), **order.labels, **labels(order)},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [order.owner.json()],
        },
        "spec": {**{key: value for key, value in spec.items() if key != "running"}, "runStrategy": "Always"},
    }


def labels(order: CreateRequest) -> dict[str, str]:
    """By which we know it."""
    found = {
        meta.WARM_STATE: order.state.value,
        meta.WARM_POOL: order.pool,
        meta.POOL_UID: order.pool_uid,
        meta.CLAIM_UID: order.claim_uid,
        meta.TEMPLATE_HASH: order.template_hash,
        meta.PLACEMENT: str(order.placement.get("name") or ""),
        meta.STANDBY: order.standby,
    }
    return {key: value for key, value in found.items() if value}


def disk_names(template: Json) -> frozenset[str]:
    """Names of the template's disks, to which each VM's postfix is added."""
    return frozenset(each["metadata"]["name"] for each in (template.get("spec") or {}).get("dataVolumeTemplates") or ())


def _labelled(metadata: Json, labels: dict[str, str]) -> Json:
    return {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}


def _place(spec: Json, instance: Json, placement: Json) -> None:
    if selector := placement.get("nodeSelector"):
        instance["nodeSelector"] = {**(instance.get("nodeSelector") or {}), **selector}
    for wanted in placement.get("networks") or ():
        rest = [each for each in instance.get("networks") or () if each.get("name") != wanted["name"]]
        instance["networks"] = [*rest, wanted]
    if storage_class := placement.get("storageClassName"):
        for each in spec.get("dataVolumeTemplates") or ():
            disk = each.setdefault("spec", {})
            kind = "storage" if "storage" in disk else "pvc"
            disk[kind] = {**(disk.get(kind) or {}), "storageClassName": storage_class}


def _postfix(spec: Json, postfix: str) -> None:
    """Each VM has disks of its own: their names end as the VM's does."""
    disks = disk_names({"spec": spec})
    for each in spec.get("dataVolumeTemplates") or ():
        each["metadata"]["name"] += f"-{postfix}"
    for volume in (spec["template"].get("spec") or {}).get("volumes") or ():
        for holder, key in _disks(volume):
            if holder[key] in disks:
                holder[key] += f"-{postfix}"


def _disks(volume: Json) -> Iterator[tuple[Json, str]]:
    places = (
        (at(volume, "dataVolume"), "name"),
        (at(volume, "persistentVolumeClaim"), "claimName"),
        (at(volume, "ephemeral", "persistentVolumeClaim"), "claimName"),
    )
    for holder, key in places:
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            yield holder, key
