"""Finds the VMI spec in each kind of document, and the facts that limit its defaults.

The VMI spec of a VirtualMachine is at `spec.template.spec`. A pool has a template of a VirtualMachine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from defaulter.hook import HARDWARE_ANNOTATION
from defaulter.json_paths import Path
from defaulter.template_paths import VM_TEMPLATES, VMI_TEMPLATES
from poolhouse.api.apimachinery.unstructured import Json, at, typed

OPT_OUT = "poolhouse.dev/defaulting"
ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"
PCI_SLOT_COUNT = "kubevirt.io/pci-interface-slot-count"
SIDECARS = "hooks.kubevirt.io/hookSidecars"
HOOK = "poolhouse-hardware"
"""name of the hook that restores a hardware record"""


@dataclass(frozen=True)
class VMPaths:
    vmi: Path
    """path of the object with the `metadata` and `spec` of the VMI"""
    vm: Path | None = None
    """path of the object with the `spec` of the VM, which may name an instance type and a preference"""
    is_template: bool = False
    """whether many VMs share the spec, which then gets no MAC addresses and no firmware UUID"""


PATHS_BY_KIND: Mapping[str, VMPaths] = {
    "VirtualMachine": VMPaths(("spec", "template"), vm=()),
    "VirtualMachineInstance": VMPaths(()),
    **{kind: VMPaths((*path, "spec", "template"), vm=path, is_template=True) for kind, path in VM_TEMPLATES.items()},
    **{kind: VMPaths(path, is_template=True) for kind, path in VMI_TEMPLATES.items()},
}


@dataclass(frozen=True)
class VMLocation:
    """The VMI spec of one document, with the facts that its defaults depend on."""

    spec: Path
    """path of the VMI spec"""
    name: str
    namespace: str
    is_template: bool
    is_vm: bool
    """whether KubeVirt creates the VMI and adds devices to it; a VMI that a user creates stays unchanged"""
    has_instancetype: bool
    """whether an instance type sets CPU and memory, which KubeVirt then rejects in the VM"""
    has_preference: bool
    """whether an unknown preference fills unset fields when the VM starts"""
    annotations: Mapping[str, Any]
    """annotations of the VMI"""
    vm: Path | None = None
    """path of the object with the `spec` of the VM; None for a VMI"""

    @property
    def record(self) -> Path:
        """Path of the hardware record, the annotation for hardware that a spec cannot hold."""
        return (*self.spec[:-1], "metadata", "annotations", HARDWARE_ANNOTATION)


def is_libvirt_vm(document: Json) -> bool:
    """Whether the document is a `VM` whose spec is a libvirt domain in JSON."""
    return document.get("apiVersion") == "kubevirt.io/v1alpha1" and document.get("kind") == "VM"


def locate(document: Json, namespace: str | None = None) -> VMLocation | None:
    """The location of a document's VMI spec; None for a kind without one."""
    paths = PATHS_BY_KIND.get(typed(str, document, "kind") or "")
    # Poolhouse does not manage KubeVirt's own pools.
    if paths is None or (typed(str, document, "apiVersion") or "").startswith("pool.kubevirt.io/"):
        return None
    vm_spec = at(document, *paths.vm, "spec") if paths.vm is not None else None
    return VMLocation(
        spec=(*paths.vmi, "spec"),
        name=typed(str, document, "metadata", "name") or "",
        namespace=typed(str, document, "metadata", "namespace") or namespace or "default",
        is_template=paths.is_template,
        is_vm=paths.vm is not None,
        has_instancetype=at(vm_spec, "instancetype") is not None,
        has_preference=at(vm_spec, "preference") is not None,
        annotations=typed(dict, document, *paths.vmi, "metadata", "annotations") or {},
        vm=paths.vm,
    )


def opted_out(document: Json) -> bool:
    return bool(at(document, "metadata", "labels", OPT_OUT) == "disabled")


def places_on_root_complex(location: VMLocation) -> bool:
    return location.annotations.get(ROOT_COMPLEX) == "true"
