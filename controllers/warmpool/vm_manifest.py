"""Builds the VirtualMachine for a create request from the pool's template, the placement and the pool's labels."""

import copy
from collections.abc import Iterator

from controllers.shared.vm import disk_names
from controllers.warmpool import agent_certificates
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.ssh_keys import set_secret_name
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_agent import parse_agent


def build_vm(request: CreateRequest) -> Json:
    """Builds a VM that starts at once, even if its standby mode is Stopped: only a running VM can be checked."""
    template = copy.deepcopy(request.template)
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    vmi = spec.setdefault("template", {})
    # VMIs and launcher pods get the label too, so that they match the pool's selector.
    vmi["metadata"] = _with_labels(vmi.get("metadata") or {}, {meta.WARM_POOL: request.pool} if request.pool else {})
    _set_placement(spec, vmi.setdefault("spec", {}), request.placement)
    set_secret_name(vmi["spec"], request.name)
    _add_suffix_to_disks(spec, request.name.rpartition("-")[2])
    if has_issued_certificate(request):
        agent_certificates.add_disk(vmi["spec"], request.name)
    annotations = {**(metadata.get("annotations") or {}), **request.annotations}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "namespace": request.namespace,
            "name": request.name,
            "labels": {**(metadata.get("labels") or {}), **request.labels, **_labels(request)},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [request.owner.json()],
        },
        "spec": {**{key: value for key, value in spec.items() if key != "running"}, "runStrategy": "Always"},
    }


def has_issued_certificate(request: CreateRequest) -> bool:
    """Whether Poolhouse issues the certificate of the agent in the VM."""
    agent = parse_agent(str(at(request.template, "metadata", "annotations", meta.AGENT) or ""))
    return agent is not None and agent.has_issued_certificate


def _labels(request: CreateRequest) -> dict[str, str]:
    labels = {
        meta.WARM_STATE: request.state.value,
        meta.WARM_POOL: request.pool,
        meta.POOL_UID: request.pool_uid,
        meta.CLAIM_UID: request.claim_uid,
        meta.TEMPLATE_HASH: request.template_hash,
        meta.PLACEMENT: str(request.placement.get("name") or ""),
        meta.STANDBY: request.standby,
    }
    return {key: value for key, value in labels.items() if value}


def _with_labels(metadata: Json, labels: dict[str, str]) -> Json:
    return {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}


def _set_placement(spec: Json, vmi_spec: Json, placement: Json) -> None:
    if selector := placement.get("nodeSelector"):
        vmi_spec["nodeSelector"] = {**(vmi_spec.get("nodeSelector") or {}), **selector}
    for network in placement.get("networks") or ():
        others = [each for each in vmi_spec.get("networks") or () if each.get("name") != network["name"]]
        vmi_spec["networks"] = [*others, network]
    if storage_class := placement.get("storageClassName"):
        for each in spec.get("dataVolumeTemplates") or ():
            disk = each.setdefault("spec", {})
            kind = "storage" if disk.get("storage") is not None else "pvc"
            disk[kind] = {**(disk.get(kind) or {}), "storageClassName": storage_class}


def _add_suffix_to_disks(spec: Json, suffix: str) -> None:
    """Appends the suffix of the VM's name to the names of its disks, so that each VM has its own disks."""
    disks = disk_names({"spec": spec})
    for each in spec.get("dataVolumeTemplates") or ():
        each["metadata"]["name"] += f"-{suffix}"
    for volume in (spec["template"].get("spec") or {}).get("volumes") or ():
        for source, field in _disk_references(volume):
            if source[field] in disks:
                source[field] += f"-{suffix}"


def _disk_references(volume: Json) -> Iterator[tuple[Json, str]]:
    sources = (
        (at(volume, "dataVolume"), "name"),
        (at(volume, "persistentVolumeClaim"), "claimName"),
        (at(volume, "ephemeral", "persistentVolumeClaim"), "claimName"),
    )
    for source, field in sources:
        if isinstance(source, dict) and isinstance(source.get(field), str):
            yield source, field
