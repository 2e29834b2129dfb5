"""Reads VMs that may lack hardware fields, and finds VMs with the same MAC address.

On one network, only one VM with the address can be reached. On separate networks, all of them are valid. A duplicate
therefore causes a warning event, not a refusal.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from defaulter.contract import MACPolicy, undefaulted_fields
from poolhouse.api.apimachinery import mac_address
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.resource import VMIS, VMS, Key, Resource
from poolhouse.runtime.store import OrderedIndex, Store

STOPPING = frozenset({"Stopping", "Stopped", "CrashLoopBackOff"})
"""Values of `status.printableStatus`. A VM whose VMI has finished is Stopped until KubeVirt deletes the VMI."""

VMIState = Literal["absent", "finishing", "running"]

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class VM:
    """The facts about a VM that decide whether to fill its hardware. Most are empty for a VM with complete hardware."""

    namespace: str
    name: str
    generation: int
    """A new generation causes a retry after a refusal."""
    undefaulted: bool
    annotated: bool
    deleting: bool
    created: bool
    """status.created: whether a VMI exists. A change causes a reconcile of the VM."""
    printable_status: str
    created_at: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    macs: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def stopping(self) -> bool:
        """Whether a VMI stops or has stopped. KubeVirt says so before it deletes the VMI."""
        return self.created and self.printable_status in STOPPING

    @property
    def pending(self) -> bool:
        return (self.undefaulted or self.annotated) and not self.deleting


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class DefaultingSnapshot:
    vm: VM
    vmi: VMIState
    ineligible: str | None = None
    """Why the controller must not fill the VM, or None. See `plan`."""


def parse_vm(document: Json, macs: MACPolicy = "deterministic") -> VM:
    metadata = document["metadata"]
    undefaulted = bool(undefaulted_fields(document, macs=macs))
    annotated = UNDEFAULTED in (metadata.get("annotations") or {})
    # Most VMs have complete hardware. Without these facts, changes of such VMs leave their views equal.
    pending = undefaulted or annotated
    return VM(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        generation=metadata.get("generation", 0) if pending else 0,
        undefaulted=undefaulted,
        annotated=annotated,
        deleting=bool(metadata.get("deletionTimestamp")),
        created=pending and bool(at(document, "status", "created")),
        printable_status=str(at(document, "status", "printableStatus") or "") if pending else "",
        created_at=metadata.get("creationTimestamp", "") if pending else "",
        labels=tuple(sorted((metadata.get("labels") or {}).items())) if pending else (),
        macs=() if metadata.get("deletionTimestamp") else mac_addresses(document),
    )


def mac_addresses(document: Json) -> tuple[str, ...]:
    """The MAC addresses in one notation, so that equal addresses have equal texts."""
    interfaces = at(document, "spec", "template", "spec", "domain", "devices", "interfaces") or ()
    return tuple(mac_address.normalize(mac) for each in interfaces if (mac := each.get("macAddress")))


def parse_namespace(document: Json) -> Namespace:
    return Namespace(document["metadata"]["name"], document["metadata"].get("labels") or {})


async def observe(api: Api, key: Key, macs: MACPolicy) -> tuple[VM, Json | None, Json] | None:
    """The VM from the API, its VMI or None, and its document. None if the VM does not exist."""
    document = await find(api, VMS, *key)
    if document is None:
        return None
    vm = parse_vm(document, macs)
    return vm, await find(api, VMIS, *key) if vm.undefaulted else None, document


def vmi_state(vmi: Json | None) -> VMIState:
    if vmi is None:
        return "absent"
    finished = at(vmi, "status", "phase") in ("Succeeded", "Failed")
    return "finishing" if finished or at(vmi, "metadata", "deletionTimestamp") else "running"


MAX_NAMES = 3


def _by_mac(vm: VM) -> Iterator[Hashable]:
    yield from vm.macs


def _by_mac_in_namespace(vm: VM) -> Iterator[Hashable]:
    for mac in vm.macs:
        yield vm.namespace, mac


MAC_INDEXES: Mapping[str, Callable[[VM], Iterable[Hashable]]] = {
    "mac": _by_mac,
    "namespace_mac": OrderedIndex(_by_mac_in_namespace, lambda vm: vm.name),
}


def mac_conflicts(vms: Store[VM], vm: VM) -> tuple[str, ...]:
    """A message for each MAC address of the stored VM that another VM also has. The cost does not grow with the number
    of VMs that have the address."""
    return tuple(_message(vms, vm, mac) for mac in vm.macs if vms.count("mac", mac) > 1)


def _message(vms: Store[VM], vm: VM, mac: str) -> str:
    # The owner of this VM may not be allowed to read names in other namespaces.
    place = "namespace_mac", (vm.namespace, mac)
    here = vms.count(*place)
    names = [each.name for each in vms.first_of(*place, MAX_NAMES + 1) if each.key != vm.key]
    owners = [f"VM {name}" for name in names[:MAX_NAMES]]
    if left := here - 1 - len(owners):
        owners.append(f"{left} more")
    if foreign := vms.count("mac", mac) - here:
        owners.append(f"{count_noun(foreign, 'VM')} of other namespaces")
    return (
        f"MAC address {mac} is also that of {', '.join(owners)}: on one network only one of them can be reached."
        " Remove macAddress to get a unique address"
    )
