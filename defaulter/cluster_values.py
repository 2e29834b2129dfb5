"""Values that the cluster gives to VMs, and that no node or no libvirt knows.

The administrator chose them in the KubeVirt object or in the defaulter's settings. KubeVirt alone stores the VMs that
they apply to, so that these VMs get a warning, which names the setting, instead of an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from defaulter.errors import LibvirtUnavailable
from defaulter.fields import ARCHITECTURES, HOST_CPUS
from defaulter.json_paths import Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.machine_types import ALIASES, is_canonical, limited_message, unavailable_message
from defaulter.nodes import CPUs, MachineTypes
from poolhouse.api.apimachinery.unstructured import Json, at

if TYPE_CHECKING:
    from defaulter.driver import Libvirt

CPU_MODEL: Path = ("domain", "cpu", "model")
MACHINE_TYPE: Path = ("domain", "machine", "type")
_CONFIGURATION = "spec.configuration"


def check_architecture(spec: Json, cluster: ClusterConfig) -> None:
    """Raises `LibvirtUnavailable` if KubeVirt gives the VM an architecture that Poolhouse does not know."""
    theirs = cluster.settings.architecture
    if theirs and theirs not in ARCHITECTURES and spec.get("architecture") in (None, "", theirs):
        raise LibvirtUnavailable(
            f"the KubeVirt object's default architecture is {theirs}; the defaulter knows {', '.join(ARCHITECTURES)}"
        )


def without_unknown_model(spec: Json, cluster: ClusterConfig, host: Libvirt, cpus: CPUs | None) -> ClusterConfig:
    """The configuration without a CPU model that neither this libvirt nor that of a node knows, so that KubeVirt sets
    the model when the VM starts. If the nodes are unknown, each model that XML can contain is kept: their libvirt may
    be newer."""
    arch, model = str(spec.get("architecture") or cluster.architecture), cluster.cpu_model
    ours = host.cpu_models(ARCHITECTURES.get(arch, ""))
    unknown = not ours or cpus is None
    if model.isprintable() and (unknown or model in {*HOST_CPUS, *ours, *(cpus.models if cpus else ())}):
        return cluster
    return replace(cluster, cpu_model="", unknown_cpu_model=model)


def model_warnings(spec: Json, cluster: ClusterConfig) -> Iterator[str]:
    """A warning if a VM with this spec depends on a CPU model that no libvirt knows."""
    model = cluster.unknown_cpu_model
    if not model or not is_unset(at(spec, *CPU_MODEL)) or spec.get("architecture") == "arm64":
        return
    of_kubevirt = model == cluster.settings.cpu_model
    setting = f"{_CONFIGURATION}.cpuModel of the KubeVirt object" if of_kubevirt else "the defaulter's CPU model"
    yield (
        f"the CPU model is not set: {setting} is {model!r}, which no libvirt knows, neither the defaulter's nor that of"
        " a node; KubeVirt cannot start the VM until the administrator corrects it"
    )


def machine_type_warnings(
    given: Any, stored: Any, spec: Json, available: MachineTypes | None, cluster: ClusterConfig
) -> Iterator[str]:
    """Warnings about a replaced alias, and about a machine type that not every node can run. `given` is the author's
    VMI spec, `stored` that of the stored VM, `spec` the result."""
    alias, machine_type = at(given, *MACHINE_TYPE), at(spec, *MACHINE_TYPE)
    architecture = str(spec.get("architecture") or cluster.architecture)
    if alias and alias != machine_type and alias != cluster.machine_type_by_virt_api(architecture):
        yield f"the machine type {alias} is an alias, which depends on QEMU; it was replaced by {machine_type}"
    if isinstance(machine_type, str) and is_canonical(machine_type) and at(stored, *MACHINE_TYPE) != machine_type:
        message = unavailable_message(machine_type, available) or limited_message(machine_type, available)
        if message is not None:
            yield message + machine_type_source(machine_type, spec, cluster)


def model_source(model: str, cluster: ClusterConfig) -> str:
    """Which setting of the KubeVirt object has the CPU model, as the end of a message; empty if none has."""
    of_kubevirt = model == cluster.settings.cpu_model
    return f"; {_CONFIGURATION}.cpuModel of the KubeVirt object sets this model" if of_kubevirt else ""


def is_machine_type_of_cluster(machine: Any, spec: Json, cluster: ClusterConfig) -> bool:
    """Whether virt-api gives this machine type to a VM without one. In the stored VM, it looks like the author's."""
    return bool(machine) and machine == cluster.settings.machine_types.get(_architecture(spec, cluster))


def machine_type_source(machine: Any, spec: Json, cluster: ClusterConfig) -> str:
    """Which setting of the KubeVirt object has the machine type, as the end of a message; empty if none has."""
    if not is_machine_type_of_cluster(machine, spec, cluster):
        return ""
    return f"; {_CONFIGURATION} of the KubeVirt object sets this machine type"


def _architecture(spec: Json, cluster: ClusterConfig) -> str:
    arch = spec.get("architecture") or cluster.architecture
    return arch if isinstance(arch, str) and arch in ALIASES else "amd64"
