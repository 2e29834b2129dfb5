"""Documents as views: the only place that knows where in a document a fact stands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from defaulter.contract import undefaulted_fields
from kinds.meta import NODE_LOST, SIM_PREFIX
from kinds.vm_documents import run_strategy
from local.engine import times
from local.engine.conditions import find_condition
from local.engine.objects import (
    DEFAULT_MEMORY,
    EPOCH,
    GRACE_SECONDS,
    PVC,
    VM,
    VMI,
    DataVolume,
    Json,
    Migration,
    Node,
    Pairs,
    Volume,
)
from local.engine.quantity import bytes_of
from local.engine.resources import (
    CONTENT_ANNOTATION,
    EVACUATION_ANNOTATION,
    SCHEDULABLE_LABEL,
    TEMPLATE_HASH_ANNOTATION,
)


def read_vm(document: Json) -> VM:
    spec = document.get("spec") or {}
    template = spec.get("template") or {}
    volumes = (template.get("spec") or {}).get("volumes")
    return VM(
        **_object(document),
        generation=int(document["metadata"].get("generation") or 0),
        strategy=run_strategy(spec),
        template=template_hash(template.get("spec") or {}),
        disks=tuple(each["metadata"]["name"] for each in spec.get("dataVolumeTemplates") or ()),
        volumes=tuple(_volumes(volumes)),
        complete=not undefaulted_fields(document),
        faults=_faults(document, template),
        status=document.get("status") or {},
    )


def template_hash(spec: Json) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def read_vmi(document: Json) -> VMI:
    metadata, spec = document["metadata"], document.get("spec") or {}
    domain = spec.get("domain") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    nics = (domain.get("devices") or {}).get("interfaces") or ()
    return VMI(
        **_object(document),
        template=(metadata.get("annotations") or {}).get(TEMPLATE_HASH_ANNOTATION, ""),
        grace_seconds=GRACE_SECONDS if grace is None else float(grace),
        selector=_pairs(spec.get("nodeSelector")),
        volumes=tuple(_volumes(spec.get("volumes"))),
        interfaces=tuple((str(nic.get("name")), str(nic.get("macAddress") or "")) for nic in nics),
        node_label=(metadata.get("labels") or {}).get("kubevirt.io/nodeName", ""),
        start_paused=spec.get("startStrategy") == "Paused",
        memory=guest_memory(domain),
        faults=_faults(document),
        status=document.get("status") or {},
    )


def guest_memory(domain: Json) -> int:
    """Bytes that the guest is given; what cannot be read counts as the default here, and is refused at its start."""
    resources = domain.get("resources") or {}
    named = (domain.get("memory") or {}).get("guest") or (resources.get("requests") or {}).get("memory")
    named = named or (resources.get("limits") or {}).get("memory")
    return (bytes_of(str(named)) if named is not None else None) or DEFAULT_MEMORY


def read_data_volume(document: Json) -> DataVolume:
    spec = document.get("spec") or {}
    return DataVolume(
        **_object(document),
        source=spec.get("source") or {},
        pvc=spec.get("pvc") or spec.get("storage") or {},
        status=document.get("status") or {},
    )


def read_pvc(document: Json) -> PVC:
    spec = document.get("spec") or {}
    owners = document["metadata"].get("ownerReferences") or ()
    return PVC(
        **_object(document),
        phase=str((document.get("status") or {}).get("phase") or ""),
        size=str(((spec.get("resources") or {}).get("requests") or {}).get("storage") or ""),
        content=(document["metadata"].get("annotations") or {}).get(CONTENT_ANNOTATION, ""),
        data_volume=next((o["uid"] for o in owners if o.get("kind") == "DataVolume"), ""),
    )


def read_migration(document: Json) -> Migration:
    spec = document.get("spec") or {}
    return Migration(
        **_object(document),
        vmi=str(spec.get("vmiName") or ""),
        selector=_pairs(spec.get("addedNodeSelector")),
        evacuates=(document["metadata"].get("annotations") or {}).get(EVACUATION_ANNOTATION, ""),
        status=document.get("status") or {},
    )


def read_node(document: Json) -> Node:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    metadata = document["metadata"]
    ready = find_condition(status.get("conditions") or (), "Ready") or {}
    return Node(
        **_object(document),
        labels=_pairs(metadata.get("labels")),
        ready=ready.get("status") == "True" and (metadata.get("labels") or {}).get(SCHEDULABLE_LABEL) != "false",
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple((str(t.get("key")), str(t.get("effect"))) for t in spec.get("taints") or ()),
        memory=bytes_of(str((status.get("allocatable") or {}).get("memory") or "0")) or 0,
        lost=(metadata.get("annotations") or {}).get(NODE_LOST) == "true",
        unready_since=None if ready.get("status") == "True" else times.read_time(ready.get("lastTransitionTime")),
    )


def _object(document: Json) -> Json:
    metadata = document["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return {
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata.get("resourceVersion") or "",
        "created": times.read_time(metadata.get("creationTimestamp")) or EPOCH,
        "deleted": times.read_time(metadata.get("deletionTimestamp")),
        "finalizers": tuple(metadata.get("finalizers") or ()),
        "owner": next((o["uid"] for o in owners if o.get("controller")), ""),
    }


def _volumes(volumes: Any) -> Iterator[Volume]:
    for each in volumes or ():
        if name := (each.get("dataVolume") or {}).get("name"):
            yield Volume(name, data_volume=True)
        elif name := (each.get("persistentVolumeClaim") or {}).get("claimName"):
            yield Volume(name, data_volume=False)


def _pairs(labels: Mapping[str, Any] | None) -> Pairs:
    return tuple(sorted((str(key), str(value)) for key, value in (labels or {}).items()))


def _faults(*documents: Json) -> Pairs:
    """Simulated faults by annotation, without their prefix; those of the earlier document win."""
    found: dict[str, str] = {}
    for document in reversed(documents):
        annotations = (document.get("metadata") or {}).get("annotations") or {}
        found |= {k.removeprefix(SIM_PREFIX): str(v) for k, v in annotations.items() if k.startswith(SIM_PREFIX)}
    return tuple(sorted(found.items()))


def read_config_map(document: Json, name: str) -> Pairs:
    """The data of the ConfigMap of that name; nothing of any other."""
    return _pairs(document.get("data")) if document["metadata"]["name"] == name else ()
