"""The kinds of KubeVirt and CDI that the embedded engine serves in a cluster without KubeVirt.

Names, columns and subresources are the same as KubeVirt's; its VirtualMachineInstance has no status subresource. The
schemas are simpler. They serve `kubectl explain`, deny wrong types, and allow undeclared fields.
"""

from typing import Annotated

from pydantic import Field

from poolhouse.api.kinds.experimental_migration import ExperimentalMigration
from poolhouse.api.kinds.instancetype import INSTANCETYPE_KINDS
from poolhouse.api.kinds.kind import AGE, Column, Kind
from poolhouse.api.kinds.kubevirt_snapshots import VM_RESTORE, VM_SNAPSHOT, VM_SNAPSHOT_CONTENT
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.model import FreeForm, Int64, Model, OpenModel, Quantity
from poolhouse.api.kinds.resource_types import DATA_VOLUMES, VMIS, VMS
from poolhouse.api.kinds.virtualmachine import VMISpec, VMSpec

_READY = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")


class OpenCondition(OpenModel, Condition):
    """A condition of the object."""


class StartFailure(OpenModel):
    """Consecutive failed starts."""

    consecutive_fail_count: Int64 | None = None
    """Number of failed starts since the VM last ran."""
    last_failed_vmi_uid: Annotated[str | None, Field(alias="lastFailedVMIUID")] = None
    """UID of the VirtualMachineInstance that failed last."""
    retry_after_timestamp: str | None = None
    """Time at which the VM is started again."""


class VMStatus(OpenModel):
    """Observed state of the VM."""

    printable_status: str | None = None
    """State of the VM, in CamelCase."""
    created: bool | None = None
    """Whether a VirtualMachineInstance of the VM exists."""
    ready: bool | None = None
    """Whether the VM runs and is ready."""
    start_failure: StartFailure | None = None
    """Consecutive failed starts."""
    observed_generation: Int64 | None = None
    """Generation of the spec that this status describes."""
    conditions: list[OpenCondition] | None = None
    """Ready, Paused, Failure, ..."""


class VMIInterface(OpenModel):
    """A network interface of the running guest."""

    name: str | None = None
    """Name of the interface in the spec."""
    ip_address: str | None = None
    """IP address of the interface."""
    mac: str | None = None
    """MAC address of the interface."""


class VMIStatus(OpenModel):
    """Observed state of the VirtualMachineInstance."""

    phase: str | None = None
    """Pending, Scheduling, Scheduled, Running, Succeeded, Failed or Unknown."""
    node_name: str | None = None
    """Node on which the VirtualMachineInstance runs."""
    reason: str | None = None
    """Reason of the phase."""
    interfaces: list[VMIInterface] | None = None
    """Network interfaces of the running guest."""
    conditions: list[OpenCondition] | None = None
    """Ready, LiveMigratable, Paused, AgentConnected, ..."""


class MigrationSpec(OpenModel):
    """VirtualMachineInstance to migrate."""

    vmi_name: str | None = None
    """Name of the VirtualMachineInstance to migrate to another node."""
    added_node_selector: dict[str, str] | None = None
    """Labels that the target node must have, besides those that the VirtualMachineInstance asks for."""


class MigrationStatus(OpenModel):
    """Observed state of the migration."""

    phase: str | None = None
    """Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or Failed."""
    conditions: list[OpenCondition] | None = None
    """Conditions of the migration."""


class DataVolumeSpec(OpenModel):
    """Source and size of the disk."""

    source: dict[str, FreeForm | None] | None = None
    """Where the content comes from: http, pvc, blank, ..."""
    source_ref: FreeForm | None = None
    """DataSource with the content."""
    pvc: FreeForm | None = None
    """Spec of the PersistentVolumeClaim."""
    storage: FreeForm | None = None
    """Spec of the PersistentVolumeClaim, completed by the storage profile."""


class DataVolumeStatus(OpenModel):
    """Observed state of the import."""

    phase: str | None = None
    """Pending, ImportScheduled, ImportInProgress, Succeeded, Failed, ..."""
    progress: str | None = None
    """Progress in percent, for example `42.0%`, or N/A."""
    restart_count: Int64 | None = None
    """Number of restarts of the import."""
    claim_name: str | None = None
    """The PersistentVolumeClaim that holds the disk."""
    conditions: list[OpenCondition] | None = None
    """Bound, Running, Ready."""


class DataSourceTarget(OpenModel):
    """The PersistentVolumeClaim or the VolumeSnapshot with the image."""

    namespace: str | None = None
    """Namespace of the object. Defaults to that of the DataSource."""
    name: str | None = None
    """Name of the object."""


class DataSourceSource(OpenModel):
    """The image: a claim or a snapshot."""

    pvc: DataSourceTarget | None = None
    """A PersistentVolumeClaim."""
    snapshot: DataSourceTarget | None = None
    """A VolumeSnapshot."""


class DataSourceSpec(OpenModel):
    """The image."""

    source: DataSourceSource
    """Where the image is. A DataImportCron of CDI changes it when it has imported a new image."""


class DataSourceStatus(OpenModel):
    """Observed state of the image."""

    source: DataSourceSource | None = None
    """Where the image is now."""
    conditions: list[OpenCondition] | None = None
    """Ready."""


class MigrationSettings(OpenModel):
    """Migration settings in KubeVirt's configuration and in its policies."""

    allow_auto_converge: bool | None = None
    """Slow down a guest that writes memory faster than the migration copies it."""
    bandwidth_per_migration: Quantity | None = None
    """Maximum bytes per second of a migration. 0: no limit."""
    completion_timeout_per_gi_b: Annotated[Int64 | None, Field(alias="completionTimeoutPerGiB")] = None
    """Maximum seconds of a migration per GiB of memory."""
    allow_post_copy: bool | None = None
    """Run the guest on the target before all of its memory is copied."""
    allow_workload_disruption: bool | None = None
    """Let a migration that exceeds its time switch to post-copy or pause the guest."""
    max_downtime_ms: Annotated[Int64 | None, Field(ge=1, le=2_000_000)] = None
    """Milliseconds for which the guest may stand still at the end of a migration."""


class MigrationConfiguration(MigrationSettings):
    """Migration settings of VirtualMachineInstances without a policy."""

    disable_tls: Annotated[bool | None, Field(alias="disableTLS")] = None
    """Send the guest's memory unencrypted."""


class Configuration(OpenModel):
    """The part of KubeVirt's configuration that the engine reads."""

    migrations: MigrationConfiguration | None = None
    """Migration settings of VirtualMachineInstances without a policy."""


class KubeVirtStatus(OpenModel):
    """Observed state of the installation."""

    phase: str | None = None
    """Deploying, Deployed, Deleting or Deleted."""
    observed_kube_virt_version: str | None = None
    """Version that runs."""
    target_kube_virt_version: str | None = None
    """Version that is being installed, or the version that runs."""
    default_architecture: str | None = None
    """Architecture of VirtualMachines that name none."""


class KubeVirtSpec(OpenModel):
    """Installation of KubeVirt."""

    configuration: Configuration | None = None
    """The part of KubeVirt's configuration that the engine reads."""


class Selectors(Model):
    """VirtualMachineInstances that the policy applies to. All labels must match."""

    namespace_selector: dict[str, str] | None = None
    """Labels of the namespace."""
    virtual_machine_instance_selector: dict[str, str] | None = None
    """Labels of the VirtualMachineInstance."""


class UpstreamPolicySpec(MigrationSettings):
    """Migration settings of the VirtualMachineInstances that the policy selects."""

    selectors: Selectors | None = None
    """VirtualMachineInstances that the policy applies to."""
    experimental: ExperimentalMigration | None = None
    """Experimental settings."""


class Empty(OpenModel):
    """No declared fields."""


VM = Kind(
    **vars(VMS),
    categories=("all",),
    doc="A VM, running or stopped.",
    spec=VMSpec,
    status=VMStatus,
    columns=(AGE, Column("Status", ".status.printableStatus", "Human Readable Status"), _READY),
)
VMI = Kind(
    **vars(VMIS),
    categories=("all",),
    doc="A running VM.",
    spec=VMISpec,
    status=VMIStatus,
    columns=(
        AGE,
        Column("Phase", ".status.phase"),
        Column("IP", ".status.interfaces[0].ipAddress"),
        Column("NodeName", ".status.nodeName"),
        _READY,
        Column("Live-Migratable", ".status.conditions[?(@.type=='LiveMigratable')].status", wide=True),
        Column("Paused", ".status.conditions[?(@.type=='Paused')].status", wide=True),
    ),
    status_subresource=False,
)
VMI_MIGRATION = Kind(
    group="kubevirt.io",
    versions=("v1",),
    kind="VirtualMachineInstanceMigration",
    plural="virtualmachineinstancemigrations",
    short_names=("vmim", "vmims"),
    categories=("all",),
    doc="The live migration of a VMI to another node.",
    spec=MigrationSpec,
    status=MigrationStatus,
    columns=(
        Column("Phase", ".status.phase", "The current phase of VM instance migration"),
        Column("VMI", ".spec.vmiName", "The name of the VMI to perform the migration on"),
    ),
)
DATA_VOLUME = Kind(
    **vars(DATA_VOLUMES),
    categories=("all",),
    doc="A disk and the source of its content.",
    spec=DataVolumeSpec,
    status=DataVolumeStatus,
    columns=(
        Column("Phase", ".status.phase", "The phase the data volume is in"),
        Column("Progress", ".status.progress", "Transfer progress in percentage if known, N/A otherwise"),
        Column("Restarts", ".status.restartCount", "The number of times the transfer has been restarted.", "integer"),
        AGE,
    ),
)
DATA_SOURCE = Kind(
    group="cdi.kubevirt.io",
    versions=("v1beta1",),
    kind="DataSource",
    plural="datasources",
    short_names=("das",),
    categories=("all",),
    doc="An image under a name that stays the same when the image is replaced.",
    spec=DataSourceSpec,
    status=DataSourceStatus,
    columns=(AGE,),
)
UPSTREAM_POLICY = Kind(
    group="migrations.kubevirt.io",
    versions=("v1alpha1",),
    kind="MigrationPolicy",
    plural="migrationpolicies",
    categories=("all",),
    namespaced=False,
    doc="KubeVirt's own migration policy.",
    spec=UpstreamPolicySpec,
    status=Empty,
    columns=(AGE,),
)
KUBEVIRT = Kind(
    group="kubevirt.io",
    versions=("v1",),
    kind="KubeVirt",
    plural="kubevirts",
    short_names=("kv", "kvs"),
    categories=("all",),
    doc="The installation of KubeVirt.",
    spec=KubeVirtSpec,
    status=KubeVirtStatus,
    columns=(AGE,),
)

KUBEVIRT_KINDS: tuple[Kind, ...] = (
    *(VM, VMI, VMI_MIGRATION, DATA_VOLUME, DATA_SOURCE, UPSTREAM_POLICY, KUBEVIRT),
    *(VM_SNAPSHOT, VM_SNAPSHOT_CONTENT, VM_RESTORE),
    *INSTANCETYPE_KINDS,
)
