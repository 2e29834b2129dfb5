"""Small frozen views of the objects that the engine watches, and the functions that read them from documents."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from defaulter.contract import opted_out, undefaulted_fields
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, without_nulls
from poolhouse.api.kinds.meta import KUBEVIRT_EVACUATION, NODE_LOST, SIM_PREFIX
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.live_devices import ABSENT, is_hotpluggable
from poolhouse.api.kubevirt.live_updates import (
    NO_FIELDS,
    UNKNOWN_GUEST,
    LiveFields,
    RunningGuest,
    read_fields,
    read_guest,
    without_fields,
)
from poolhouse.api.kubevirt.versions import TERMINATE
from poolhouse.runtime.resource import Key
from poolhouse.stack.engine import resources
from poolhouse.stack.engine.api_object import ApiObject, Pairs, PhasedObject, common_fields, pairs, read_time
from poolhouse.stack.engine.vm import hotplug
from poolhouse.stack.engine.vmi.probes import Probe, read_probes

Viewed = TypeVar("Viewed", bound="ApiObject")
GRACE_SECONDS = 30.0
DEFAULT_MEMORY = 128 << 20
OVERHEAD = 192 << 20
"""bytes that QEMU uses besides the guest's memory, measured under emulation (translated code uses most of them)"""


@dataclass(frozen=True)
class Volume:
    """A volume of a VMI that is backed by a PVC. A DataVolume and its PVC have the same name."""

    pvc: str
    data_volume: bool
    name: str = ""
    hotpluggable: bool = False


@dataclass(frozen=True)
class VM(PhasedObject):
    generation: int = 0
    run_strategy: str = "Halted"
    template_hash: str = ""
    """hash of the VMI spec in the VM's template, without what KubeVirt may change in a running VMI"""
    live: LiveFields = NO_FIELDS
    """the fields of the template that KubeVirt may change in the running VMI"""
    devices: tuple[str, ...] = ()
    """a text for each hotpluggable volume and each NIC in the template"""
    nics: Pairs = ()
    """name of each NIC with a hash of what needs a restart to change"""
    lists_nics: bool = True
    """False: KubeVirt chooses the NIC of each VMI"""
    data_volume_templates: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    expands: bool = False
    """whether the VM names an instance type or a preference"""
    awaits_defaults: bool = False
    """whether the defaulter has not set all hardware, and the VM has not opted out of its defaults"""
    faults: Pairs = ()


@dataclass(frozen=True)
class VMI(PhasedObject):
    template_hash: str = ""
    """hash of the template from which the VMI was created"""
    devices: tuple[str, ...] = ()
    """as in the VM"""
    nics: Pairs = ()
    """as in the VM"""
    grace_seconds: float = GRACE_SECONDS
    node_selector: Pairs = ()
    volumes: tuple[Volume, ...] = ()
    interfaces: Pairs = ()
    """name and MAC address of each interface"""
    machine: str = "q35"
    """the machine type of the spec, which may be an alias"""
    absent: tuple[str, ...] = ()
    """names of interfaces with `state: absent`"""
    assigned: tuple[str, ...] = ()
    """names of interfaces that are devices of a node (SR-IOV), which the engine does not have"""
    node_label: str = ""
    start_paused: bool = False
    ends_at_reboot: bool = False
    """whether the VMI succeeds when its guest reboots (`rebootPolicy: Terminate`)"""
    memory: int = 0
    """bytes of guest memory"""
    liveness_probe: str = ""
    """kind of the liveness probe, such as guestAgentPing or httpGet; "" without a probe"""
    probes: tuple[Probe, ...] = ()
    faults: Pairs = ()
    eviction_strategy: str = ""
    """empty: that of the KubeVirt object"""
    guest: RunningGuest = UNKNOWN_GUEST
    """what changes of the running VMI depend on"""

    @property
    def memory_with_overhead(self) -> int:
        """Bytes of the node's memory that the VMI uses."""
        return self.memory + OVERHEAD

    @property
    def node(self) -> str:
        return str(self.status.get("nodeName") or "")

    @property
    def marked_for_eviction(self) -> bool:
        """Whether somebody has evicted the VMI from its node, as KubeVirt's webhook for evictions records it."""
        return bool(self.node) and self.status.get("evacuationNodeName") == self.node

    @property
    def conditions(self) -> list[Json]:
        return list(self.status.get("conditions") or ())

    def reached(self, phase: str) -> datetime | None:
        """Returns when the VMI entered the phase; None if it has not."""
        for each in self.status.get("phaseTransitionTimestamps") or ():
            if each.get("phase") == phase:
                return read_time(each.get("phaseTransitionTimestamp"))
        return None


@dataclass(frozen=True)
class Migration(PhasedObject):
    """A VirtualMachineInstanceMigration."""

    vmi: str = ""
    node_selector: Pairs = ()
    """node selector of the migration, in addition to that of the VMI"""
    evacuates: str = ""
    """name of the node that the migration evacuates"""
    updates_workload: bool = False
    """whether KubeVirt migrates the VMI to change its guest"""

    @property
    def phase_since(self) -> datetime | None:
        transitions = self.status.get("phaseTransitionTimestamps") or ()
        return read_time(transitions[-1].get("phaseTransitionTimestamp")) if transitions else None


@dataclass(frozen=True)
class Launcher(ApiObject):
    """The launcher Pod of a VMI."""

    vmi: Key = ("", "")
    node: str = ""
    ready: bool = False


@dataclass(frozen=True)
class Node(ApiObject):
    labels: Pairs = ()
    ready: bool = True
    cordoned: bool = False
    taints: Pairs = ()
    """key and effect of each taint"""
    memory: int = 0
    """allocatable bytes"""
    lost: bool = False
    """whether an annotation declares the node lost"""
    unready_since: datetime | None = None

    @property
    def schedulable(self) -> bool:
        tainted = any(effect in ("NoSchedule", "NoExecute") for _, effect in self.taints)
        return self.ready and not self.cordoned and not self.lost and not tainted

    @property
    def machine_types(self) -> frozenset[str]:
        names = (key.partition("machine-type.node.kubevirt.io/") for key, value in self.labels if value == "true")
        return frozenset(name for _, prefix, name in names if prefix)

    def matches(self, node_selector: Pairs) -> bool:
        return set(node_selector) <= set(self.labels)


def read_vm(document: Json) -> VM:
    spec = document.get("spec") or {}
    template = spec.get("template") or {}
    return VM(
        **common_fields(document),
        generation=int(document["metadata"].get("generation") or 0),
        run_strategy=run_strategy(spec),
        template_hash=template_hash(template.get("spec") or {}),
        live=read_fields(template.get("spec") or {}),
        devices=hotplug.plugged_devices(template.get("spec") or {}),
        nics=hotplug.nic_hashes(template.get("spec") or {}),
        lists_nics=hotplug.lists_nics(template.get("spec") or {}),
        data_volume_templates=tuple(each["metadata"]["name"] for each in spec.get("dataVolumeTemplates") or ()),
        volumes=tuple(_volumes((template.get("spec") or {}).get("volumes"))),
        expands=any(spec.get(name) is not None for name in ("instancetype", "preference")),
        awaits_defaults=not opted_out(document) and bool(undefaulted_fields(document)),
        faults=_faults(document, template),
        status=document.get("status") or {},
    )


def template_hash(spec: Json) -> str:
    parts = hotplug.restarting_parts(without_nulls(spec))
    # KubeVirt applies no change of the sockets to a VM that has or gets no CPU at all.
    text = json.dumps([without_fields(parts), "cpu" in parts["domain"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_vmi(document: Json) -> VMI:
    metadata, spec = document["metadata"], document.get("spec") or {}
    domain = spec.get("domain") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    nics = (domain.get("devices") or {}).get("interfaces") or ()
    return VMI(
        **common_fields(document),
        template_hash=(metadata.get("annotations") or {}).get(resources.TEMPLATE_HASH_ANNOTATION, ""),
        devices=hotplug.plugged_devices(spec),
        nics=hotplug.nic_hashes(spec),
        grace_seconds=GRACE_SECONDS if grace is None else float(grace),
        node_selector=pairs(spec.get("nodeSelector")),
        volumes=tuple(_volumes(spec.get("volumes"))),
        interfaces=tuple((str(nic.get("name")), str(nic.get("macAddress") or "")) for nic in nics),
        machine=str((domain.get("machine") or {}).get("type") or "q35"),
        absent=tuple(str(nic.get("name")) for nic in nics if nic.get("state") == ABSENT),
        assigned=tuple(str(nic.get("name")) for nic in nics if nic.get("sriov") is not None),
        node_label=(metadata.get("labels") or {}).get(resources.NODE_LABEL, ""),
        start_paused=spec.get("startStrategy") == "Paused",
        ends_at_reboot=at(spec, "domain", "rebootPolicy") == TERMINATE,
        memory=guest_memory(domain),
        liveness_probe=_probe_kind(spec.get("livenessProbe")),
        probes=tuple(read_probes(spec)),
        faults=_faults(document),
        eviction_strategy=str(spec.get("evictionStrategy") or ""),
        guest=read_guest(document),
        status=document.get("status") or {},
    )


def _probe_kind(probe: Json | None) -> str:
    kinds = ("guestAgentPing", "exec", "httpGet", "tcpSocket")
    return next((kind for kind in kinds if probe.get(kind) is not None), "unknown") if probe is not None else ""


def guest_memory(domain: Json) -> int:
    """Returns the bytes of guest memory; the default for an invalid quantity, which the launch refuses."""
    requirements = domain.get("resources") or {}
    quantity = (domain.get("memory") or {}).get("guest") or (requirements.get("requests") or {}).get("memory")
    quantity = quantity or (requirements.get("limits") or {}).get("memory")
    return (to_int(str(quantity)) if quantity is not None else None) or DEFAULT_MEMORY


def read_migration(document: Json) -> Migration:
    spec = document.get("spec") or {}
    return Migration(
        **common_fields(document),
        vmi=str(spec.get("vmiName") or ""),
        node_selector=pairs(spec.get("addedNodeSelector")),
        evacuates=(document["metadata"].get("annotations") or {}).get(KUBEVIRT_EVACUATION, ""),
        updates_workload=resources.WORKLOAD_UPDATE_ANNOTATION in (document["metadata"].get("annotations") or {}),
        status=document.get("status") or {},
    )


def read_launcher(document: Json) -> Launcher:
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    return Launcher(
        **common_fields(document),
        vmi=(metadata["namespace"], str((metadata.get("annotations") or {}).get(resources.DOMAIN_ANNOTATION) or "")),
        node=str(spec.get("nodeName") or ""),
        ready=resources.has_condition(status.get("conditions") or (), "Ready"),
    )


def read_node(document: Json) -> Node:
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    ready = resources.find_condition(status.get("conditions") or (), "Ready") or {}
    return Node(
        **common_fields(document),
        labels=pairs(metadata.get("labels")),
        ready=ready.get("status") == "True"
        and (metadata.get("labels") or {}).get(resources.SCHEDULABLE_LABEL) != "false",
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple((str(t.get("key")), str(t.get("effect"))) for t in spec.get("taints") or ()),
        memory=to_int(str((status.get("allocatable") or {}).get("memory") or "0")) or 0,
        lost=(metadata.get("annotations") or {}).get(NODE_LOST) == "true",
        unready_since=None if ready.get("status") == "True" else read_time(ready.get("lastTransitionTime")),
    )


def read_config_map(document: Json, name: str) -> Pairs:
    """Returns the data of a ConfigMap with this name; empty for any other ConfigMap."""
    return pairs(document.get("data")) if document["metadata"]["name"] == name else ()


def either(old: Viewed | None, new: Viewed | None) -> Viewed:
    """Returns the new version of an object, or the last version of a deleted object."""
    view = new or old
    assert view is not None
    return view


def seconds_until(moment: datetime, now: datetime) -> float:
    return max(0.0, (moment - now).total_seconds())


def _volumes(volumes: Any) -> Iterator[Volume]:
    for each in volumes or ():
        volume, hotpluggable = str(each.get("name")), is_hotpluggable(each)
        if name := (each.get("dataVolume") or {}).get("name"):
            yield Volume(name, True, volume, hotpluggable)
        elif name := (each.get("persistentVolumeClaim") or {}).get("claimName"):
            yield Volume(name, False, volume, hotpluggable)


def _faults(*documents: Json) -> Pairs:
    """Returns fault injection annotations without their prefix. The first document takes precedence."""
    found: dict[str, str] = {}
    for document in reversed(documents):
        annotations = (document.get("metadata") or {}).get("annotations") or {}
        found |= {k.removeprefix(SIM_PREFIX): str(v) for k, v in annotations.items() if k.startswith(SIM_PREFIX)}
    return tuple(sorted(found.items()))
