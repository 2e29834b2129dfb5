"""Builders of documents, with defaults for what a test does not care about."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.runtime.resource import VMIS, VMS
from tests.builders import manifest, vm_spec

Json = dict[str, Any]


def disk(name: str = "root", bus: str | None = "virtio", **fields: Any) -> Json:
    target = {} if bus is None else {"bus": bus}
    inner = {key: fields.pop(key) for key in ("pciAddress", "readonly") if key in fields}
    return {"name": name, "disk": {**target, **inner}, **fields}


def nic(name: str = "default", **fields: Any) -> Json:
    return {"name": name, "masquerade": {}, **fields}


def spec(*devices: Json, domain: Json | None = None, **fields: Any) -> Json:
    """A VMI's spec with these disks and NICs, the volumes and networks that they need, and what is given besides."""
    kinds = ("disk", "cdrom", "lun")
    disks, nics = list[Json](), list[Json]()
    for device in devices:
        (disks if any(kind in device for kind in kinds) else nics).append(device)
    given = deepcopy(domain or {})
    inner = given.pop("devices", {})
    return {
        "domain": {
            "memory": {"guest": "128Mi"},
            **given,
            "devices": {"disks": disks, "interfaces": nics, "autoattachPodInterface": False, **inner},
        },
        "volumes": [{"name": device["name"], "emptyDisk": {"capacity": "1Mi"}} for device in disks],
        "networks": [{"name": device["name"], "pod": {}} for device in nics],
        **fields,
    }


def vmi(content: Json, name: str = "a", namespace: str = "ns", **metadata: Any) -> Json:
    return manifest(VMIS, name, content, namespace, **metadata)


def vm(content: Json, name: str = "a", namespace: str = "ns", annotations: Json | None = None, **fields: Any) -> Json:
    template: Json = {"spec": content}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return manifest(VMS, name, {"runStrategy": "Always", **fields, "template": template}, namespace)


def pool(content: Json, name: str = "p", **fields: Any) -> Json:
    return manifest(POOLS, name, {"replicas": 2, "template": {"spec": vm_spec(content, running=True)}, **fields}, "ns")


def inner(document: Json) -> Json:
    """The VMI's spec inside a document."""
    found: Json = document["spec"]
    while "template" in found:
        found = found["template"]["spec"]
    return found


def addresses(document: Json) -> dict[str, str | None]:
    """PCI addresses by device name."""
    devices = inner(document)["domain"]["devices"]
    disks = {d["name"]: d.get("disk", {}).get("pciAddress") for d in devices.get("disks") or ()}
    return {**disks, **{n["name"]: n.get("pciAddress") for n in devices.get("interfaces") or ()}}
