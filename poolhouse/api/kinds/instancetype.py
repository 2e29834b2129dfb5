"""KubeVirt's instance types and preferences, which the embedded engine applies to VMs."""

from poolhouse.api.kinds.kind import AGE, Kind
from poolhouse.api.kinds.model import FreeForm, Model, OpenModel

GROUP = "instancetype.kubevirt.io"


class InstancetypeSpec(OpenModel):
    """Hardware that VMs get, and whose fields they must leave unset."""

    cpu: FreeForm
    """Virtual CPUs: their number is `guest`."""
    memory: FreeForm
    """Memory: its size is `guest`."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes that can run the VMs."""


class PreferenceSpec(OpenModel):
    """Values for fields that VMs leave unset."""

    cpu: FreeForm | None = None
    """Preferred topology of the CPUs."""
    devices: FreeForm | None = None
    """Preferred buses and models of devices."""


def _kind(kind: str, doc: str, spec: type[Model], *, namespaced: bool) -> Kind:
    return Kind(
        group=GROUP,
        versions=("v1beta1",),
        kind=kind,
        plural=f"{kind.lower()}s",
        namespaced=namespaced,
        doc=doc,
        spec=spec,
        columns=(AGE,),
    )


INSTANCETYPE_KINDS = (
    _kind("VirtualMachineInstancetype", "An instance type of a namespace.", InstancetypeSpec, namespaced=True),
    _kind("VirtualMachineClusterInstancetype", "An instance type of the cluster.", InstancetypeSpec, namespaced=False),
    _kind("VirtualMachinePreference", "A preference of a namespace.", PreferenceSpec, namespaced=True),
    _kind("VirtualMachineClusterPreference", "A preference of the cluster.", PreferenceSpec, namespaced=False),
)
