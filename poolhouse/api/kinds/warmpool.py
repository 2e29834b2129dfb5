"""VirtualMachineWarmPool: VMs that are started and checked before a claim needs a VM."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks import warmpool
from poolhouse.api.kinds.conditions import describe_conditions
from poolhouse.api.kinds.decisions import LoggedStatus
from poolhouse.api.kinds.ec2 import EC2, PlacementName
from poolhouse.api.kinds.kind import AGE, STATUS, Column, Kind, Scale, Template, with_replicas
from poolhouse.api.kinds.metav1 import Conditions
from poolhouse.api.kinds.model import (
    ATOMIC_LIST,
    Count,
    IntOrString,
    Model,
    Rule,
    SchemaOf,
    Seconds,
    Time,
    Tuple,
    has,
    list_map,
    set_at_creation,
)
from poolhouse.api.kinds.resource_types import EC2_INSTANCES, VMS, WARM_POOLS
from poolhouse.api.kinds.virtualmachine import Network, VMSpec, VMTemplate
from poolhouse.api.kinds.warm_agent import Agent
from poolhouse.api.kinds.warm_autoscaling import Autoscaling, AutoscalingStatus
from poolhouse.api.kinds.warm_claim_policy import ClaimPolicy
from poolhouse.api.kinds.warm_readiness import Health, Readiness

Standby = Literal["Running", "Paused", "Stopped"]
IntOrPercentFromZero = Annotated[
    int | str,
    IntOrString(
        "^(100|[1-9]?[0-9])%$",
        'a whole number of at least 0, or a percentage from "0%" to "100%"',
        minimum=0,
        maximum=2**31 - 1,
    ),
]


class WarmVMSpec(VMSpec):
    """The spec of each VM, without `running` and `runStrategy`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.running) && !has(self.runStrategy)",
            message="must not have running or runStrategy, because spec.standby determines whether a VM runs",
            holds=lambda value: not has(value, "running") and not has(value, "runStrategy"),
        ),
    )


class WarmVMTemplate(VMTemplate):
    """Template of the pool's VMs."""

    spec: WarmVMSpec
    """The spec of each VM, as it would be in a VirtualMachine, without `running` and `runStrategy`, which the pool
    sets. The VM's postfix is appended to the names of dataVolumeTemplates and of the volumes that refer to them."""


class Placement(Model):
    """Nodes, networks and storage for a part of the VMs."""

    name: PlacementName
    """Name of the placement in labels, status and claims."""
    weight: Annotated[Count, Field(le=1_000_000)] = 1
    """Probability of this placement relative to the weights of the others. 0: the placement gets no new VMs and keeps
    its VMs."""
    node_selector: Annotated[dict[str, str], Field(max_length=64)] | None = None
    """Node labels that are required in addition to those of the template."""
    networks: Annotated[
        Tuple[Annotated[Json, SchemaOf(Network)]], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Networks that replace the template's networks of the same names."""
    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Storage class of the disks that are created with the VM."""


class StandbySpec(Model):
    """State in which VMs wait for a claim."""

    mode: Standby = "Running"
    """Running: the VM is handed over at once. Paused: the VM uses its memory but no CPU, and resumes within seconds.
    Stopped: the VM uses only its disks, and boots for the claim."""
    hot_replicas: Count = 0
    """Number of VMs that stay running in the modes Paused and Stopped. These VMs are handed over first."""
    warmup_seconds: Count = 0
    """Seconds that a healthy VM keeps running before it is paused or stopped, so that its guest can finish booting."""


class Refill(Model):
    """How fast the pool creates VMs."""

    max_concurrent: Annotated[Count, Field(ge=1)] = 100
    """Maximum number of VMs that are created and not yet Ready."""
    rate_per_second: Annotated[Count, Field(ge=1)] = 50
    """Maximum number of VMs created per second."""
    backoff_seconds: Seconds = 10
    """Seconds to wait after the first failure. Each further consecutive failure doubles the wait."""
    max_backoff_seconds: Seconds = 300
    """Maximum seconds to wait after failures."""
    breaker_threshold: Count = 5
    """Consecutive failures after which the pool creates one VM at a time, until one succeeds. 0: never."""


class RollingUpdate(Model):
    """How far a rollout may deviate from `replicas`."""

    max_unavailable: IntOrPercentFromZero = "25%"
    """Maximum number of VMs that can be unavailable during the rollout: a number, or a percentage of `replicas`,
    rounded down."""
    max_surge: IntOrPercentFromZero = 0
    """Maximum number of VMs above `replicas` during the rollout: a number, or a percentage of `replicas`, rounded up.
    """


class WarmUpdateStrategy(Model):
    """How waiting VMs get a new template. Claimed VMs keep their template."""

    type: Literal["RollingUpdate", "Recreate", "OnReplenish"] = "RollingUpdate"
    """RollingUpdate: old VMs are replaced gradually and serve claims until then. Recreate: old VMs serve no claims and
    are all replaced at once. OnReplenish: old VMs are handed over, and their replacements get the new template."""
    rolling_update: RollingUpdate = RollingUpdate()
    """How far a rollout may deviate from `replicas`."""
    progress_deadline_seconds: Count = 600
    """Seconds without progress after which a rollout stops. The old VMs keep serving claims. 0: never."""
    track_data_sources: bool = False
    """Whether a new image of a DataSource in the template's dataVolumeTemplates is a new template. VMs then get the
    image that `status.dataSources` names, in place of the DataSource."""


class Expiry(Model):
    """Maximum age of a waiting VM."""

    max_age_seconds: Annotated[Count, Field(ge=60)] | None = None
    """Seconds after which a waiting VM is replaced, up to a tenth earlier so that VMs expire one by one. Defaults to
    never."""


class WarmPoolSpec(Model):
    """Desired state of the pool."""

    hints: ClassVar[Mapping[str, str]] = {
        "replica": "replicas",
        "desiredCount": "replicas",
        "DesiredCount": "replicas",
        "Default": "default",
        "virtualMachineTemplate": "template",
        "subnets": "write them in spec.ec2.subnets, or as spec.placements for VMs",
        "selector": "leave it out, a pool's VMs are those that it owns",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.template) != has(self.ec2)",
            message="give exactly one of template (for VMs) and ec2 (for EC2 instances)",
            holds=lambda value: has(value, "template") != has(value, "ec2"),
        ),
        Rule(
            cel="!has(self.ec2) || !has(self.placements) || size(self.placements) == 0",
            message="must be empty for EC2 instances; list spec.ec2.subnets instead",
            holds=lambda value: not has(value, "ec2") or not value.get("placements"),
            field=".placements",
        ),
        Rule(
            cel="!has(self.ec2) || !has(self.agent)",
            message="is for VMs; for EC2 instances give spec.ec2.port and spec.ec2.protocol GRPC",
            holds=lambda value: not has(value, "ec2") or not has(value, "agent"),
            field=".agent",
        ),
    )

    replicas: Annotated[Count, Field(json_schema_extra=set_at_creation())] = 1
    """Desired number of waiting VMs. Claimed VMs do not count. A new pool without it gets 1; without it in a later
    manifest, the stored number stays. With `autoscaling`, this is only the minimum for the
    first hour, until the controller knows the demand."""
    autoscaling: Autoscaling | None = None
    """Number of waiting VMs that follows the demand. The controller changes only the status. Remove a
    HorizontalPodAutoscaler of the pool before you set this field."""
    default: bool = False
    """Whether this pool serves claims without `poolName`. One pool of a namespace can be the default."""
    template: Annotated[Json, SchemaOf(WarmVMTemplate)] | None = None
    """Template of the VMs. Exactly one of `template` and `ec2` is required."""
    ec2: EC2 | None = None
    """Description of the EC2 instances. Exactly one of `template` and `ec2` is required."""
    agent: Agent | None = None
    """Agent in the VMs, which starts the applications of claims in VMs that wait. A VM is ready when its agent is. A
    change gives the pool new VMs. Without an agent, cloud-init starts an application in a VM that boots for it."""
    placements: Annotated[Tuple[Placement], Field(max_length=64, json_schema_extra=list_map("name"))] = ()
    """Placements of the VMs. Each VM gets a random one. Defaults to the settings of the template. At most 64, because
    the status has each of them, and the template is hashed with each."""
    standby: StandbySpec = StandbySpec()
    """State in which VMs wait for a claim."""
    readiness: Readiness = Readiness()
    """When a VM can be handed over."""
    health: Health = Health()
    """Health checks of waiting VMs."""
    refill: Refill = Refill()
    """How fast the pool creates VMs."""
    update_strategy: WarmUpdateStrategy = WarmUpdateStrategy()
    """How waiting VMs get a new template."""
    incompatible_policy: Literal["Delete", "Orphan"] = "Delete"
    """What happens to waiting VMs that do not fit a new template. Delete: the VMs are deleted. Orphan: the VMs keep
    running with the label `poolhouse.dev/orphaned`, without an owner."""
    expiry: Expiry | None = None
    """Maximum age of a waiting VM. Defaults to no limit."""
    claim_policy: ClaimPolicy = ClaimPolicy()
    """Limits and defaults for claims."""
    max_total: Count | None = None
    """Maximum number of VMs of the pool, including claimed, failed and terminating VMs, but not orphaned VMs. Defaults
    to no limit."""
    deletion_policy: Literal["Delete", "Orphan"] = "Delete"
    """What happens to the waiting VMs when the pool is deleted. Claimed VMs stay with their claims."""
    paused: bool = False
    """While true, the pool creates, replaces and deletes no VM. Waiting VMs still serve claims."""

    @property
    def places(self) -> tuple[Placement, ...]:
        """The placements of the pool. For EC2 instances, each subnet is a placement."""
        return tuple(Placement(name=subnet) for subnet in self.ec2.subnets) if self.ec2 else self.placements


class PlacementStatus(Model):
    """VMs of one placement."""

    name: str
    """Name of the placement."""
    replicas: Count = 0
    """Waiting VMs, including those that are not ready yet."""
    ready: Count = 0
    """VMs that can be claimed."""


class PoolFailures(Model):
    """Why the pool has fewer VMs than desired."""

    consecutive: Count = 0
    """Consecutive failures to create a VM."""
    last_reason: str = ""
    """Reason of the last failure, in CamelCase."""
    last_message: str = ""
    """Message of the last failure."""
    next_retry_at: Time | None = None
    """Time of the next attempt."""


class TrackedImage(Model):
    """What a DataSource points at."""

    disk: str
    """Name of the entry in dataVolumeTemplates."""
    data_source: str
    """Namespace and name of the DataSource, with a slash."""
    kind: Literal["pvc", "snapshot"]
    """pvc: a PersistentVolumeClaim. snapshot: a VolumeSnapshot."""
    namespace: str
    """Namespace of the PersistentVolumeClaim or VolumeSnapshot."""
    name: str
    """Name of the PersistentVolumeClaim or VolumeSnapshot."""


class WarmPoolStatus(LoggedStatus):
    """Observed state of the pool."""

    desired_replicas: Count | None = None
    """Desired number of waiting VMs: that of the autoscaling, or `spec.replicas`; fewer if the condition ScalingLimited
    is True."""
    available_replicas: Count = 0
    """VMs that can be claimed now."""
    ready_replicas: Count = 0
    """VMs in state Ready."""
    replicas: Count = 0
    """Waiting VMs, including those that are not ready yet."""
    provisioning: Count = 0
    """VMs that were created and are not ready yet."""
    allocating: Count = 0
    """VMs that are reserved for a claim and not handed over yet."""
    claimed: Count = 0
    """VMs in use."""
    unhealthy: Count = 0
    """VMs whose health check failed."""
    unknown: Count = 0
    """VMs whose health check could not be performed."""
    terminating: Count = 0
    """VMs that are being deleted."""
    members: Annotated[Tuple[str], Field(max_length=50_000, json_schema_extra=ATOMIC_LIST)] | None = None
    """UIDs of the VMs that the controllers have created for the pool and that no claim uses, shortened to 13
    characters. Claims get no other VMs. Null until a release with this field has seen the pool."""
    orphaned: Count = 0
    """Orphaned VMs of the pool."""
    queued_claims: Count = 0
    """Claims that wait for a VM."""
    updated_replicas: Count = 0
    """Waiting VMs that have the current template."""
    template_hash: str = ""
    """Hash of the current template."""
    data_sources: Annotated[Tuple[TrackedImage], Field(max_length=256, json_schema_extra=list_map("disk"))] = ()
    """Images of the DataSources that `updateStrategy.trackDataSources` follows. They belong to the template."""
    label_selector: str = ""
    """Selector of the pool's VMs, as text for autoscalers."""
    last_progress_time: Time | None = None
    """Time of the last progress of a rollout. `progressDeadlineSeconds` counts from this time."""
    autoscaling: AutoscalingStatus | None = None
    """The last decision of the autoscaling."""
    demand_history: Annotated[str, Field(max_length=65_536)] = ""
    """Arrivals of claims in the last weeks in a compressed form, for the autoscaling and for `poolhouse warmpool
    advise`. Written at most every five minutes, after a claim or when the boot time has changed."""
    placements: Annotated[Tuple[PlacementStatus], Field(max_length=512, json_schema_extra=list_map("name"))] = ()
    """VMs by placement."""
    failures: PoolFailures | None = None
    """Why the pool has fewer VMs than desired."""
    conditions: Annotated[Conditions, Field(description=describe_conditions(WARM_POOLS))] = ()


WARM_POOL = Kind(
    **vars(WARM_POOLS),
    categories=("poolhouse", "all"),
    doc="VMs that are started and checked in advance. A VirtualMachineClaim takes one, and the pool creates another.",
    spec=WarmPoolSpec,
    status=WarmPoolStatus,
    scale=Scale(status=".status.availableReplicas"),
    columns=(
        Column("Desired", ".status.desiredReplicas", "Desired number of waiting VMs", "integer"),
        Column("Available", ".status.availableReplicas", "VMs that can be claimed", "integer"),
        Column("Claimed", ".status.claimed", "VMs in use", "integer"),
        Column("Queued", ".status.queuedClaims", "Claims that wait for a VM", "integer"),
        Column("Default", ".spec.default", "Whether this pool serves claims without poolName", "boolean"),
        STATUS,
        AGE,
        Column("Provisioning", ".status.provisioning", "VMs that are not ready yet", "integer", wide=True),
        Column("Unhealthy", ".status.unhealthy", "VMs whose health check failed", "integer", wide=True),
        Column(
            "Updated", ".status.updatedReplicas", "Waiting VMs that have the current template", "integer", wide=True
        ),
        Column("Paused", ".spec.paused", "Whether the pool is paused", "boolean", wide=True),
        Column("Template", ".status.templateHash", "Hash of the current template", wide=True),
    ),
    templates=(
        Template(("spec", "template"), VMS, {"runStrategy": "Always"}),
        Template(("spec", "ec2"), EC2_INSTANCES, dry_run=False),
    ),
    requires=("virtualmachineclaims",),
    listed_at_admission=True,
    has_finalizer=True,
    spec_annotations=(meta.REFERENCE_AUTHORS,),
    rules=(warmpool.NAME_RULE,),
    checks=warmpool.CHECKS,
    warning_checks=warmpool.WARNINGS,
    on_create=with_replicas,
)
