"""Fills the fields that virt-api's mutating webhooks fill, before the webhook of Poolhouse sees the object."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from uuid import uuid4

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, without_nulls
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import NEWEST, Release
from poolhouse.stack.engine.resources import disk_kind

MACHINE_TYPES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
TOPOLOGY_ANNOTATION = "kubevirt.io/pci-topology-version"
TOPOLOGY = "v3"
# The first releases in which virt-api fills the field of a new VM.
UUID_SINCE: Release = (1, 6)
SERIAL_SINCE: Release = (1, 7)
TOPOLOGY_SINCE: Release = (1, 8)

Draw = Callable[[], str]


def random_uuid() -> str:
    return str(uuid4())


def default_vm(vm: Json, operation: str, settings: ClusterSettings, draw: Draw = random_uuid) -> Json:
    """Returns the VM as virt-api patches it. `draw` returns the next random UUID."""
    document = copy.deepcopy(vm)
    if document["metadata"].get("deletionTimestamp") or not isinstance(document.get("spec"), dict):
        return document
    template = document["spec"].get("template")
    if not isinstance(template, dict):
        return document  # the validating webhook refuses it
    # virt-api writes the object that it has read into Go's types, so that fields with null are gone.
    document["spec"] = without_nulls(document["spec"])
    template = document["spec"]["template"]
    release = settings.release or NEWEST
    spec = _child(template, "spec")
    domain = _child(spec, "domain")
    if operation == "CREATE":
        _firmware(domain, release, draw)
    _machine_and_architecture(spec, domain, settings)
    if operation == "CREATE" and release >= TOPOLOGY_SINCE and supports_hotplug_ports(spec):
        _topology(template)
    # Go writes these structures even if they are empty.
    for empty in ("devices", "resources"):
        _child(domain, empty)
    return document


def default_vmi(vmi: Json, settings: ClusterSettings) -> Json:
    """Returns a new VMI as virt-api patches it."""
    document = copy.deepcopy(vmi)
    document["spec"] = spec = without_nulls(vmi.get("spec") or {})
    domain = _child(spec, "domain")
    _machine_and_architecture(spec, domain, settings)
    _guest_memory(domain)
    _processors(domain, settings)
    add_implicit_devices(spec, settings)
    _disk_buses(spec)
    if (settings.release or NEWEST) >= TOPOLOGY_SINCE and supports_hotplug_ports(spec):
        _topology(document)
    return document


def _child(holder: Json, name: str) -> Json:
    """The object in a field. If the field is absent or null, an empty object is added."""
    if holder.get(name) is None:
        holder[name] = {}
    child: Json = holder[name]
    return child


def supports_hotplug_ports(spec: Json) -> bool:
    """Whether KubeVirt adds PCIe root ports for hotplug to the VMs with this VMI spec."""
    machine = (spec.get("domain") or {}).get("machine")
    kind = str((machine or {}).get("type") or "")
    named = machine is None or "q35" in kind or kind.startswith("virt")
    return spec.get("architecture") in (None, "", "amd64", "arm64") and named


def _firmware(domain: Json, release: Release, draw: Draw) -> None:
    if release < UUID_SINCE:
        return
    firmware = domain["firmware"] = dict(domain.get("firmware") or {})
    if not firmware.get("uuid"):
        firmware["uuid"] = draw()
    if release >= SERIAL_SINCE and not firmware.get("serial"):
        firmware["serial"] = draw()


def _machine_and_architecture(spec: Json, domain: Json, settings: ClusterSettings) -> None:
    if not spec.get("architecture"):
        spec["architecture"] = settings.architecture or "amd64"
    machine = domain["machine"] = dict(domain.get("machine") or {})
    if not machine.get("type"):
        architecture = spec["architecture"]
        machine["type"] = settings.machine_types.get(architecture) or MACHINE_TYPES.get(architecture, "q35")


def _topology(holder: Json) -> None:
    metadata = holder["metadata"] = dict(holder.get("metadata") or {})
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    annotations.setdefault(TOPOLOGY_ANNOTATION, TOPOLOGY)


def _guest_memory(domain: Json) -> None:
    memory = domain["memory"] = dict(domain.get("memory") or {})
    if memory.get("guest"):
        return
    resources = domain.get("resources") or {}
    quantity = _quantity(resources, "requests", "memory") or _quantity(resources, "limits", "memory")
    quantity = quantity or (memory.get("hugepages") or {}).get("pageSize")
    if quantity:
        memory["guest"] = quantity


def _processors(domain: Json, settings: ClusterSettings) -> None:
    cpu = domain["cpu"] = dict(domain.get("cpu") or {})
    if not any(cpu.get(part) for part in ("cores", "sockets", "threads")):
        resources = domain.get("resources") or {}
        wanted = str(_quantity(resources, "limits", "cpu") or _quantity(resources, "requests", "cpu") or "1")
        cpu |= {"cores": 1, "threads": 1, "sockets": max(1, to_int(wanted) or 1)}
    if not cpu.get("model"):
        cpu["model"] = settings.cpu_model or "host-model"


def add_implicit_devices(spec: Json, settings: ClusterSettings) -> None:
    """Adds a NIC on the pod network to a VMI without NICs and networks, and a disk for each volume without a device
    (`SetDefaultNetworkInterface`, `SetDefaultVolumeDisk`), as virt-controller does before it applies a preference."""
    devices = _child(_child(spec, "domain"), "devices")
    attaches = devices.get("autoattachPodInterface") is not False
    if attaches and not devices.get("interfaces") and not spec.get("networks"):
        devices["interfaces"] = [{"name": "default", settings.network or "bridge": {}}]
        spec["networks"] = [{"name": "default", "pod": {}}]
    disks = list(devices.get("disks") or ())
    named = {each.get("name") for each in (*disks, *(devices.get("filesystems") or ()))}
    disks += [{"name": each.get("name")} for each in spec.get("volumes") or () if each.get("name") not in named]
    if disks:
        devices["disks"] = disks


def _disk_buses(spec: Json) -> None:
    """On amd64 the bus of a disk is SATA unless the spec names one."""
    devices, disks = spec["domain"]["devices"], []
    for disk in devices.get("disks") or ():
        kind, bus = disk_kind(disk), "sata" if spec["architecture"] == "amd64" else "virtio"
        disks.append({**disk, kind: {**(disk.get(kind) or {}), "bus": at(disk, kind, "bus") or bus}})
    if disks:
        devices["disks"] = disks


def _quantity(resources: Mapping[str, Json], kind: str, name: str) -> object:
    return (resources.get(kind) or {}).get(name)
