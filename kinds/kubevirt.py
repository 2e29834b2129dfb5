"""The kinds of KubeVirt and CDI that the embedded engine serves, where no KubeVirt has installed its own.

Names, columns and subresources are KubeVirt's: the VirtualMachineInstance has no status subresource there. The schemas
are ours: enough for `kubectl explain` and for a mistyped spec to be refused, open for everything else.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kinds.kind import AGE, Column, Kind
from kinds.metav1 import Condition
from kinds.model import Int64, Model, OpenModel, Quantity
from kinds.virtualmachine import VMISpec, VMSpec

_READY = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")


class OpenCondition(OpenModel, Condition):
    """One thing that is so, is not so, or is not known."""


class StartFailure(OpenModel):
    """Failed starts in a row."""

    consecutive_fail_count: Int64 | None = None
    """How many starts have failed since the VM last ran."""
    last_failed_vmi_uid: Annotated[str | None, Field(alias="lastFailedVMIUID")] = None
    """UID of the VirtualMachineInstance that failed last."""
    retry_after_timestamp: str | None = None
    """When the VM is started again."""


class VMStatus(OpenModel):
    """What the VM is."""

    printable_status: str | None = None
    """The VM's state in one word."""
    created: bool | None = None
    """Whether a VirtualMachineInstance of the VM exists."""
    ready: bool | None = None
    """Whether the VM runs and is ready."""
    start_failure: StartFailure | None = None
    """Failed starts in a row, while there are any."""
    observed_generation: Int64 | None = None
    """The generation of the spec that this status answers."""
    conditions: list[OpenCondition] | None = None
    """Ready, Paused, Failure, ..."""


class VMIInterface(OpenModel):
    """An interface as it is now."""

    name: str | None = None
    """Name of the interface in the spec."""
    ip_address: str | None = None
    """The address that the guest has."""
    mac: str | None = None
    """The MAC address that the guest has."""


class VMIStatus(OpenModel):
    """What the VirtualMachineInstance is."""

    phase: str | None = None
    """Pending, Scheduling, Scheduled, Running, Succeeded, Failed or Unknown."""
    node_name: str | None = None
    """The node it runs on."""
    reason: str | None = None
    """Why it is in this phase."""
    interfaces: list[VMIInterface] | None = None
    """The interfaces as they are now."""
    conditions: list[OpenCondition] | None = None
    """Ready, LiveMigratable, Paused, AgentConnected, ..."""


class MigrationSpec(OpenModel):
    """What should be migrated."""

    vmi_name: str | None = None
    """Name of the VirtualMachineInstance that should move to another node."""


class MigrationStatus(OpenModel):
    """How the migration goes."""

    phase: str | None = None
    """Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or Failed."""
    conditions: list[OpenCondition] | None = None
    """What there is to say about the migration."""


class DataVolumeSpec(OpenModel):
    """What the disk is made from and how large it is."""


class DataVolumeStatus(OpenModel):
    """How the disk's making goes."""

    phase: str | None = None
    """Pending, ImportScheduled, ImportInProgress, Succeeded, Failed, ..."""
    progress: str | None = None
    """Share that is done, `42.0%`, or N/A."""
    restart_count: Int64 | None = None
    """How often the import was started again."""
    claim_name: str | None = None
    """The PersistentVolumeClaim that holds the disk."""
    conditions: list[OpenCondition] | None = None
    """Bound, Running, Ready."""


class MigrationConfiguration(OpenModel):
    """How VirtualMachineInstances are migrated that no policy says anything else about."""

    allow_auto_converge: bool | None = None
    """Slow the guest down when it writes faster than it can be copied."""
    bandwidth_per_migration: Quantity | None = None
    """Bytes a second that a migration may use; 0 for no limit."""
    completion_timeout_per_gi_b: Annotated[Int64 | None, Field(alias="completionTimeoutPerGiB")] = None
    """Seconds for each GiB of memory after which a migration is given up."""
    allow_post_copy: bool | None = None
    """Start the guest on the target before all of its memory is there."""
    disable_tls: Annotated[bool | None, Field(alias="disableTLS")] = None
    """Send the guest's memory unencrypted."""


class Configuration(OpenModel):
    """KubeVirt's configuration; of it, what the engine reads."""

    migrations: MigrationConfiguration | None = None
    """How VirtualMachineInstances are migrated that no policy says anything else about."""


class KubeVirtSpec(OpenModel):
    """How KubeVirt is installed."""

    configuration: Configuration | None = None
    """KubeVirt's configuration; of it, what the engine reads."""


class Selectors(Model):
    """Which VirtualMachineInstances the policy is for: all labels must match."""

    namespace_selector: dict[str, str] | None = None
    """Labels of the namespace."""
    virtual_machine_instance_selector: dict[str, str] | None = None
    """Labels of the VirtualMachineInstance."""


class UpstreamPolicySpec(OpenModel):
    """How VirtualMachineInstances that the policy selects are migrated."""

    selectors: Selectors | None = None
    """Which VirtualMachineInstances the policy is for."""
    allow_auto_converge: bool | None = None
    """Slow the guest down when it writes faster than it can be copied."""
    bandwidth_per_migration: Quantity | None = None
    """Bytes a second that a migration may use."""
    completion_timeout_per_gi_b: Annotated[Int64 | None, Field(alias="completionTimeoutPerGiB")] = None
    """Seconds for each GiB of memory after which a migration is given up."""
    allow_post_copy: bool | None = None
    """Start the guest on the target before all of its memory is there."""
    allow_workload_disruption: bool | None = None
    """Let the migration pause the guest when it does not converge."""


class Empty(OpenModel):
    """Nothing yet."""


def _kubevirt(kind: str, short: str, doc: str, spec: type[Model], status: type[Model], *columns: Column) -> Kind:
    return Kind(
        group="kubevirt.io",
        versions=("v1",),
        kind=kind,
        plural=kind.lower() + "s",
        short_names=(short, short + "s"),
        categories=("all",),
        doc=doc,
        spec=spec,
        status=status,
        columns=columns,
        status_subresource=kind != "VirtualMachineInstance",
    )


VM = _kubevirt(
    "VirtualMachine",
    "vm",
    "A VM that exists whether it runs or not.",
    VMSpec,
    VMStatus,
    AGE,
    Column("Status", ".status.printableStatus", "Human Readable Status"),
    _READY,
)
VMI = _kubevirt(
    "VirtualMachineInstance",
    "vmi",
    "A VM that runs now.",
    VMISpec,
    VMIStatus,
    AGE,
    Column("Phase", ".status.phase"),
    Column("IP", ".status.interfaces[0].ipAddress"),
    Column("NodeName", ".status.nodeName"),
    _READY,
    Column("Live-Migratable", ".status.conditions[?(@.type=='LiveMigratable')].status", wide=True),
    Column("Paused", ".status.conditions[?(@.type=='Paused')].status", wide=True),
)
VMI_MIGRATION = _kubevirt(
    "VirtualMachineInstanceMigration",
    "vmim",
    "The move of a running VM to another node.",
    MigrationSpec,
    MigrationStatus,
    Column("Phase", ".status.phase", "The current phase of VM instance migration"),
    Column("VMI", ".spec.vmiName", "The name of the VMI to perform the migration on"),
)
DATA_VOLUME = Kind(
    group="cdi.kubevirt.io",
    versions=("v1beta1",),
    kind="DataVolume",
    plural="datavolumes",
    short_names=("dv", "dvs"),
    categories=("all",),
    doc="A disk and what it is filled with.",
    spec=DataVolumeSpec,
    status=DataVolumeStatus,
    columns=(
        Column("Phase", ".status.phase", "The phase the data volume is in"),
        Column("Progress", ".status.progress", "Transfer progress in percentage if known, N/A otherwise"),
        Column("Restarts", ".status.restartCount", "The number of times the transfer has been restarted.", "integer"),
        AGE,
    ),
)
UPSTREAM_POLICY = Kind(
    group="migrations.kubevirt.io",
    versions=("v1alpha1",),
    kind="MigrationPolicy",
    plural="migrationpolicies",
    categories=("all",),
    namespaced=False,
    doc="KubeVirt's own migration policy, for the VirtualMachineInstances that it selects.",
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
    doc="KubeVirt itself, as it is installed and configured.",
    spec=KubeVirtSpec,
    status=Empty,
    columns=(AGE,),
)

KUBEVIRT_KINDS: tuple[Kind, ...] = (VM, VMI, VMI_MIGRATION, DATA_VOLUME, UPSTREAM_POLICY, KUBEVIRT)
