"""The names of resources, and what `poolhouse overview` reads from their objects.

They stand apart from the models, because commands that only list objects start in a third of the time without pydantic.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Phases:
    """Values of `status.phase` with a meaning in `poolhouse overview`. Other phases mean that work is in progress."""

    ready: str
    failed: str
    finished: tuple[str, ...] = ()
    """phases of objects that `poolhouse overview` omits; it omits failed objects an hour after `status.finishedAt`"""

    @property
    def terminal(self) -> tuple[str, ...]:
        """The phases that an object never leaves."""
        return (*self.finished, self.failed)


@dataclass(frozen=True)
class ResourceType:
    group: str
    versions: tuple[str, ...]
    """Versions of the API, all with the same schema. The API server stores the first version."""
    kind: str
    plural: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True

    ready_replicas: str = "readyReplicas"
    """field of the status that `poolhouse overview` shows as READY"""
    updated_replicas: str = ""
    """field of the status that `poolhouse overview` shows as UPDATED"""
    phases: Phases | None = None
    """the kind's phases; None if conditions report the health"""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def short_name(self) -> str:
        """The name that the CLI prints and accepts."""
        return self.short_names[0] if self.short_names else self.singular

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.versions[0]}"

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{version}" for version in self.versions)


POOLS = ResourceType(
    "kubevirt.io",
    ("v1",),
    "VirtualMachinePool",
    "virtualmachinepools",
    ("vpool", "vpools", "vmpool", "vmpools"),  # KubeVirt's own pool has the last two, too
    updated_replicas="updatedReplicas",
)
REPLICA_SETS = ResourceType(
    "kubevirt.io",
    ("v1", "v1alpha2"),
    "VirtualMachineInstanceReplicaSet",
    "virtualmachineinstancereplicasets",
    ("vmirs", "vmirss"),
)
MIGRATION_POLICIES = ResourceType(
    "kubevirt.io", ("v1alpha1",), "MigrationPolicy", "migrationpolicies", ("migpol",), namespaced=False
)
WARM_POOLS = ResourceType(
    "poolhouse.dev",
    ("v1alpha1",),
    "VirtualMachineWarmPool",
    "virtualmachinewarmpools",
    ("vmwp",),
    ready_replicas="availableReplicas",
    updated_replicas="updatedReplicas",
)
CLAIM_PHASES = Phases(ready="Ready", failed="Failed", finished=("Released", "Expired"))
CLAIMS = ResourceType(
    "poolhouse.dev",
    ("v1alpha1",),
    "VirtualMachineClaim",
    "virtualmachineclaims",
    ("vmclaim", "vmclaims"),
    phases=CLAIM_PHASES,
)
OURS = (POOLS, REPLICA_SETS, MIGRATION_POLICIES, WARM_POOLS, CLAIMS)
"""the resources of the kinds of Poolhouse"""

VMS = ResourceType("kubevirt.io", ("v1",), "VirtualMachine", "virtualmachines", ("vm", "vms"))
VMIS = ResourceType("kubevirt.io", ("v1",), "VirtualMachineInstance", "virtualmachineinstances", ("vmi", "vmis"))
DATA_VOLUMES = ResourceType("cdi.kubevirt.io", ("v1beta1",), "DataVolume", "datavolumes", ("dv", "dvs"))
PVCS = ResourceType("", ("v1",), "PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",))
EC2_INSTANCES = ResourceType("poolhouse.dev", ("v1alpha1",), "EC2Instance", "ec2instances")
"""A virtual resource for RBAC. A user with the right to create it may start instances with an instance profile."""
