"""Where the kinds that have a VM in them keep it, and what around it changes what may be decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from defaulter.hook import HARDWARE_ANNOTATION
from defaulter.json_paths import Json, Path, get

OPT_OUT = "poolhouse.dev/defaulting"
ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"
NIC_SLOTS = "kubevirt.io/pci-interface-slot-count"


@dataclass(frozen=True)
class VMPaths:
    instance: Path
    """what becomes a VirtualMachineInstance: the object that holds `metadata` and `spec`"""
    shared: bool = False
    """a template that many VMs share may be given addresses, never an identity"""
    machine: Path | None = None
    """the VirtualMachine's object, which may name an instance type and a preference"""


PATHS_BY_KIND: Mapping[str, VMPaths] = {
    "VirtualMachine": VMPaths(("spec", "template"), machine=()),
    "VirtualMachineInstance": VMPaths(()),
    "VirtualMachineInstanceReplicaSet": VMPaths(("spec", "template"), shared=True),
    "VirtualMachinePool": VMPaths(("spec", "template", "spec", "template"), shared=True, machine=("spec", "template")),
    "VirtualMachineWarmPool": VMPaths(
        ("spec", "template", "spec", "template"), shared=True, machine=("spec", "template")
    ),
}


@dataclass(frozen=True)
class VMLocation:
    """One document's place, with the facts about it that decisions depend on."""

    spec: Path
    """of the VirtualMachineInstance's spec"""
    name: str
    namespace: str
    shared: bool
    machine: bool
    """a VirtualMachine is started, whose instance KubeVirt adds to; an instance of one's own is taken as it is"""
    sized: bool
    """an instance type brings CPU and memory; KubeVirt refuses a VM that names them too"""
    preferred: bool
    """a preference fills what is empty when the VM starts, and would lose against what is written now"""
    annotations: Mapping[str, Any]

    @property
    def record(self) -> Path:
        """of the annotation that holds what a spec cannot"""
        return (*self.spec[:-1], "metadata", "annotations", HARDWARE_ANNOTATION)


def locate(document: Json, namespace: str | None = None) -> VMLocation | None:
    """The place of a document's VM; None where its kind has none."""
    kind, version = document.get("kind"), document.get("apiVersion")
    place = PATHS_BY_KIND.get(kind) if isinstance(kind, str) else None
    if isinstance(version, str) and version.startswith("pool.kubevirt.io/"):
        place = None  # KubeVirt's own pools, which are not ours to touch
    if place is None:
        return None
    machine = get(document, (*place.machine, "spec")) if place.machine is not None else None
    annotations = get(document, (*place.instance, "metadata", "annotations"))
    name = get(document, ("metadata", "name"))
    own = get(document, ("metadata", "namespace"))
    return VMLocation(
        spec=(*place.instance, "spec"),
        name=name if isinstance(name, str) else "",
        namespace=(own if isinstance(own, str) and own else namespace) or "default",
        shared=place.shared,
        machine=place.machine is not None,
        sized=get(machine, ("instancetype",)) is not None,
        preferred=get(machine, ("preference",)) is not None,
        annotations=annotations if isinstance(annotations, dict) else {},
    )


def opted_out(document: Json) -> bool:
    return bool(get(document, ("metadata", "labels", OPT_OUT)) == "disabled")


def on_root_complex(where: VMLocation) -> bool:
    return where.annotations.get(ROOT_COMPLEX) == "true"
