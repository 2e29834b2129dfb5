"""VirtualMachinePool: similar VMs, each with its own state, that the controller updates to a template."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.int_or_percent import scaled_value
from poolhouse.api.apimachinery.unstructured import Json, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks import pool
from poolhouse.api.kinds.conditions import describe_conditions
from poolhouse.api.kinds.decisions import LoggedStatus
from poolhouse.api.kinds.kind import AGE, STATUS, Column, Kind, Scale, Template
from poolhouse.api.kinds.metav1 import Conditions
from poolhouse.api.kinds.model import (
    ATOMIC_LIST,
    Count,
    IntOrPercent,
    Model,
    Rule,
    Ruled,
    SchemaOf,
    Time,
    Tuple,
    has,
    list_map,
    no_more_than,
)
from poolhouse.api.kinds.pool_analysis import CheckStatus
from poolhouse.api.kinds.pool_lifecycle import FailureDomains, LifecycleHook, MaintenanceWindow, RetainedDisks
from poolhouse.api.kinds.pool_strategies import ScaleInStrategy, UpdateStrategy
from poolhouse.api.kinds.resource_types import POOLS, VMS
from poolhouse.api.kinds.virtualmachine import VMSpec, VMTemplate


class NameGeneration(Model):
    """How the names in the template are changed for each VM."""

    hints: ClassVar[Mapping[str, str]] = {
        "appendIndexToSecretRefs": "appendPostfixToSecretReferences",
        "appendIndexToConfigMapRefs": "appendPostfixToConfigMapReferences",
    }

    append_postfix_to_secret_references: bool = False
    """Append the VM's postfix (`-3`) to the names of Secrets in its volumes, so that each VM has its own Secrets. The
    `imagePullSecret` of a containerDisk keeps its name, because all VMs share the image."""
    append_postfix_to_config_map_references: bool = False
    """Append the VM's postfix (`-3`) to the names of ConfigMaps in its volumes, so that each VM has its own ConfigMaps.
    """


FailingStatus = Literal[
    "CrashLoopBackOff",
    "DataVolumeError",
    "ErrImagePull",
    "ErrorPvcNotFound",
    "ErrorUnschedulable",
    "ImagePullBackOff",
    "Unknown",
]


class Autohealing(Model):
    """Replaces a VM that fails to start: the VM and its disks are deleted and created again."""

    hints: ClassVar[Mapping[str, str]] = {
        "startUpFailureThreshold": "startupFailureThreshold",
        "minFailingToStartDuration": "a pool counts failed starts, see startupFailureThreshold",
    }

    startup_failure_threshold: Annotated[Count, Field(ge=1)] = 3
    """Consecutive failures after which the VM is replaced: starts that did not reach the running state, or VMIs that
    failed after they had run, for example by their liveness probe. A VMI that runs for 10 minutes ends the series."""
    failing_statuses: Annotated[
        Tuple[FailingStatus], Field(max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = ()
    """Values of the VM's `status.printableStatus` that count as a failure too. A VM that keeps one of them for
    `failingStatusSeconds` is replaced."""
    failing_status_seconds: Annotated[Count, Field(ge=1)] = 300
    """Seconds after which a VM with one of `failingStatuses` is replaced."""
    only_in_maintenance_windows: bool = False
    """Whether healing waits for a maintenance window too."""


class PoolVMSpec(VMSpec):
    """The spec of each VM, as it would be in a VirtualMachine."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.running) != has(self.runStrategy)",
            message="give exactly one of running and runStrategy, such as `running: true`",
            holds=lambda value: has(value, "running") != has(value, "runStrategy"),
        ),
    )


class PoolTemplate(VMTemplate):
    """Template of the pool's VMs."""

    spec: PoolVMSpec
    """The spec of each VM, as it would be in a VirtualMachine. The VM's postfix is appended to the names of
    dataVolumeTemplates and of the volumes that refer to them."""


MAX_REVISIONS = 100
REVISIONS_RULE = Rule(
    cel=f"self <= {MAX_REVISIONS}",
    message=f"must be at most {MAX_REVISIONS}, because each revision stores a template",
    holds=lambda value: value <= MAX_REVISIONS,
)
DAY_SECONDS = 86_400
Lifetime = Annotated[Count, Field(le=365 * DAY_SECONDS)]


class PoolSpec(Model):
    """Desired state of the pool."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.maxLifetimeSeconds) || self.maxLifetimeSeconds == 0"
            f" || self.maxLifetimeSeconds >= {DAY_SECONDS}",
            message=f"must be 0 for VMs without a limit, or at least {DAY_SECONDS} (a day)",
            holds=lambda value: not 0 < (typed(int, value, "maxLifetimeSeconds") or 0) < DAY_SECONDS,
            field=".maxLifetimeSeconds",
        ),
        no_more_than("replicas", "maxReplicas"),
    )

    hints: ClassVar[Mapping[str, str]] = {
        "replica": "replicas",
        "maxSize": "maxReplicas",
        "virtualMachineTemplate": "template",
        "selector": "a pool owns its VMs by reference, leave the selector out",
    }

    replicas: Count
    """Desired number of VMs."""
    max_replicas: Count | None = None
    """Maximum of `replicas`, for autoscalers and `kubectl scale` too, like the maximum size of an Auto Scaling group.
    VMs of `maxSurge` do not count. Defaults to the replica limit of the namespace, which always applies."""
    max_unavailable: IntOrPercent = "25%"
    """Maximum number of unavailable VMs while the pool updates, heals or scales in: a number, or a percentage
    of `replicas`, rounded down but at least 1."""
    name_generation: NameGeneration = NameGeneration()
    """How the names in the template are changed for each VM."""
    update_strategy: UpdateStrategy = UpdateStrategy()
    """How VMs get a new template. Defaults to proactive, in Random order."""
    scale_in_strategy: ScaleInStrategy = ScaleInStrategy()
    """How VMs leave the pool. Defaults to proactive, in Random order, without preserving state."""
    autohealing: Autohealing | None = None
    """Replaces VMs that fail, and their disks. Defaults to never. `{}`: after 3 consecutive failures."""
    lifecycle_hooks: Annotated[Tuple[LifecycleHook], Field(max_length=16, json_schema_extra=list_map("name"))] = ()
    """Hold a VM before the pool deletes or restarts it, so that other programs can drain it. The VM first leaves the
    Services that select the label `poolhouse.dev/in-service`. Defaults to none. At most 16, because a held VM has an
    annotation for each."""
    maintenance_windows: Annotated[Tuple[MaintenanceWindow], Field(max_length=16, json_schema_extra=ATOMIC_LIST)] = ()
    """When the pool may stop available VMs to update them or to end their lifetime. Scale-in and healing do not wait
    for a window, nor does a rollback of a failed update. Defaults to always. At most 16, because each plan finds
    the next opening of all of them."""
    max_lifetime_seconds: Lifetime | None = None
    """Seconds after the creation of a VMI at which the pool restarts its VM: at least a day, or 0 for never, the
    default. Each VM is restarted up to a tenth of the time earlier, so that not all are restarted at once. The disks
    stay."""
    failure_domains: FailureDomains = FailureDomains()
    """Zones of the pool's VMs. Scale-in balances zones among VMs that the selection policy ranks alike. Updates stop
    VMs of one zone at a time. Defaults to the zones of the nodes."""
    retained_disks: RetainedDisks = RetainedDisks()
    """How long, and how many, disks stay that were retained at scale-in or replaced by an update. Defaults to for ever.
    """
    paused: bool = False
    """While true, the controller does not change the pool's VMs. It still reports their status."""
    progress_deadline_seconds: Annotated[Count, Field(ge=1)] = 600
    """Seconds without progress after which the condition Progressing becomes False. Updates,
    scale-outs and the return of lost VMs count as progress."""
    eviction_budget: Literal["Enabled", "Disabled"] = "Enabled"
    """Whether a PodDisruptionBudget lets a drain stop no more than `maxUnavailable` VMs at once."""
    revision_history_limit: Annotated[Count, Ruled(REVISIONS_RULE)] = 10
    """Number of old revisions of the template that are kept for a rollback: at most 100, because each stores a
    template."""
    template: Annotated[Json, SchemaOf(PoolTemplate)]
    """Template of the VMs."""

    @property
    def most_unavailable(self) -> int:
        """`maxUnavailable` as a number of VMs: rounded down, at least 1 (designs/1, MaxUnavailable)."""
        return max(1, scaled_value(self.max_unavailable, self.replicas))


class HealedVM(Model):
    """A VM that was replaced. The next replacement is not before `notBefore`."""

    name: str
    """Name of the VM."""
    attempts: Count = 0
    """Number of replacements since the VM last ran."""
    healed_at: Time | None = None
    """Time of the last replacement."""
    not_before: Time | None = None
    """Earliest time of the next replacement."""


class FailingVM(Model):
    """Failures of a VM that KubeVirt does not count."""

    name: str
    """Name of the VM."""
    failed_runs: Count = 0
    """VMIs in a row that failed after they had run."""
    last_vmi: Annotated[str, Field(alias="lastVMI")] = ""
    """UID of the last VMI that was counted."""
    status: str = ""
    """The `printableStatus` of `failingStatuses` that the VM has."""
    since: Time | None = None
    """Time since which the VM has this status."""


class Breaker(Model):
    """Circuit breaker that stops healing when many VMs fail at once, because then their replacements would fail too."""

    open: bool = False
    """Whether healing is stopped."""
    since: Time | None = None
    """Time at which healing was stopped."""
    until: Time | None = None
    """Time of the next attempt to replace one VM."""
    reason: str = ""
    """Reason, in CamelCase."""
    message: str = ""
    """Message for users."""


MAX_HEALED_VMS = 1000
MAX_FAILING_VMS = 1000


class Healing(Model):
    """State of healing."""

    failing: Count = 0
    """VMs that currently fail."""
    replaced: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] = 0
    """Total number of VMs that were replaced."""
    vms: Annotated[Tuple[HealedVM], Field(max_length=MAX_HEALED_VMS, json_schema_extra=list_map("name"))] = ()
    """VMs that were replaced and have not run long enough since then."""
    failures: Annotated[Tuple[FailingVM], Field(max_length=MAX_FAILING_VMS, json_schema_extra=list_map("name"))] = ()
    """VMs that failed after they had run, or that keep a failing status."""
    breaker: Breaker | None = None
    """Circuit breaker of healing."""


class RetainedDiskStatus(Model):
    """A disk that was retained when its VM was scaled in."""

    name: str
    """Name of the DataVolume and of the PersistentVolumeClaim."""
    vm: str
    """Name of the VM that gets the disk back."""
    expires_at: Time | None = None
    """Time at which the pool deletes the disk, if nothing uses it."""


class UpdateAbort(Model):
    """Why an update was aborted. The VMs get the former template again."""

    reason: str
    """Reason, in CamelCase."""
    message: str = ""
    """Message for users."""
    time: Time
    """Time of the abort."""


class UpdateProgress(Model):
    """Progress of an update with steps or an analysis, or of one that was aborted."""

    revision: str
    """Name of the revision that the pool is updated to."""
    steps_done: Count = 0
    """Number of steps that are done."""
    steps_hash: str = ""
    """Hash of the steps that are done. If one of them changes, the update starts again with the first step."""
    paused_since: Time | None = None
    """Time at which the pause or the analysis of the next step began."""
    checks: Annotated[Tuple[CheckStatus], Field(max_length=8, json_schema_extra=list_map("name"))] = ()
    """State of the checks of the analysis."""
    aborted: UpdateAbort | None = None
    """Why the update was aborted."""


Outcome = Literal["Complete", "Aborted", "RolledBack", "Superseded"]
MAX_HISTORY = 100


class RevisionHistory(Model):
    """How the update to a revision ended."""

    revision: str
    """Name of the revision."""
    outcome: Outcome
    """Complete: all VMs got the template. Aborted: a user aborted the update. RolledBack: the update failed.
    Superseded: the template changed before the update ended."""
    reason: str = ""
    """Reason of a rollback, in CamelCase."""
    message: str = ""
    """Message for users."""
    time: Time
    """Time at which the update ended."""


class PoolStatus(LoggedStatus):
    """Observed state of the pool."""

    replicas: Count = 0
    """VMs of the pool, without those that are being deleted."""
    desired_replicas: Count | None = None
    """VMs that the controller works towards: `spec.replicas`, or fewer if the condition ScalingLimited is True."""
    ready_replicas: Count = 0
    """VMs whose condition Ready is True."""
    updated_replicas: Count = 0
    """VMs that have the current template."""
    updated_available_replicas: Count = 0
    """VMs that have the current template and are available."""
    available_replicas: Count = 0
    """VMs that are ready, and VMs that are halted as specified."""
    unavailable_replicas: Count = 0
    """VMs that are missing or not available."""
    held_replicas: Count = 0
    """VMs that wait for lifecycle hooks. They are not available."""
    terminating_replicas: Count = 0
    """VMs that are being deleted."""
    retained_disks: Count = 0
    """Disks that the pool retained at scale-in."""
    snapshots: Count = 0
    """VirtualMachineSnapshots that the pool took of its VMs before updates."""
    retained: Annotated[Tuple[RetainedDiskStatus], Field(max_length=100, json_schema_extra=list_map("name"))] = ()
    """The first 100 retained disks by name. `kubectl poolhouse disks` lists all."""
    current_revision: str = ""
    """Revision of the last template that all VMs had."""
    update_revision: str = ""
    """Revision of the current template."""
    last_progress_time: Time | None = None
    """Time at which the pool last came closer to its spec, or began to deviate from it. `progressDeadlineSeconds`
    counts from this time."""
    label_selector: str = ""
    """Selector of the pool's VMs, as text for autoscalers."""
    update: UpdateProgress | None = None
    """Progress of the update, if the update strategy has steps or an analysis, or the update was aborted."""
    history: Annotated[
        Tuple[RevisionHistory], Field(max_length=MAX_HISTORY, json_schema_extra=list_map("revision"))
    ] = ()
    """How the updates to the stored revisions ended, the earliest end first."""
    healing: Healing | None = None
    """State of healing."""
    conditions: Annotated[Conditions, Field(description=describe_conditions(POOLS))] = ()


POOL = Kind(
    **vars(POOLS),
    categories=("poolhouse", "all"),
    doc="A pool of similar VMs, each with its own state. The controller creates, updates and deletes VMs.",
    notes="KubeVirt has a kind of the same name in group `pool.kubevirt.io`, with the same short name `vmpool`. Where"
    " both are installed, name this one `vpool` in kubectl commands.",
    spec=PoolSpec,
    status=PoolStatus,
    scale=Scale(),
    if_missing=(
        (
            "spec.replicas",
            "the number of VMs, 0 for none. Beside an autoscaler, give the number to begin with; once the pool exists,"
            " a manifest without the field keeps the stored number",
        ),
    ),
    columns=(
        Column("Desired", ".spec.replicas", "Desired number of VMs", "integer"),
        Column("Current", ".status.replicas", "VMs of the pool", "integer"),
        Column("Ready", ".status.readyReplicas", "VMs that are ready", "integer"),
        Column("Updated", ".status.updatedReplicas", "VMs that have the current template", "integer"),
        STATUS,
        AGE,
        Column(
            "Available", ".status.availableReplicas", "VMs that are ready, or halted as specified", "integer", wide=True
        ),
        Column("Terminating", ".status.terminatingReplicas", "VMs that are being deleted", "integer", wide=True),
        Column("Retained-Disks", ".status.retainedDisks", "Retained disks", "integer", wide=True),
        Column("Paused", ".spec.paused", "Whether the pool is paused", "boolean", wide=True),
        Column("Revision", ".status.updateRevision", "Revision of the template", wide=True),
        Column("Selector", ".status.labelSelector", "Selector of the pool's VMs", wide=True),
    ),
    templates=(Template(("spec", "template"), VMS),),
    listed_at_admission=True,
    plan_path="/apis/pools/plan",
    spec_annotations=(meta.REFERENCE_AUTHORS,),
    rules=(pool.NAME_RULE,),
    checks=pool.CHECKS,
    warning_checks=pool.WARNINGS,
    normalizer=pool.normalize,
)
