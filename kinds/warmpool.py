"""VirtualMachineWarmPool: machines that are ready before anybody asks for them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from apimachinery.unstructured import Json
from kinds.checks import warmpool
from kinds.kind import AGE, VMS, Column, Kind, ResourceType, Scale, Template
from kinds.metav1 import Conditions
from kinds.model import (
    ATOMIC_LIST,
    Count,
    Int64,
    IntOrString,
    Model,
    Rule,
    SchemaOf,
    Time,
    Tuple,
    expected,
    has,
    list_map,
)
from kinds.virtualmachine import Network, VMSpec, VMTemplate

Standby = Literal["Running", "Paused", "Stopped"]
OnEmpty = Literal["ColdStart", "Queue", "Fail"]
Override = Literal["instancetype", "image", "placement"]

Seconds = Annotated[Count, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"format": "int32"})]
PlacementName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        json_schema_extra=expected("at most 63 letters, digits, '-', '_' and '.': it is a label's value on each VM"),
    ),
]

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
            message="leave running and runStrategy out: whether a VM runs is the pool's to say, see spec.standby",
            holds=lambda value: not has(value, "running") and not has(value, "runStrategy"),
        ),
    )


class WarmVMTemplate(VMTemplate):
    """Template of the pool's VMs."""

    spec: WarmVMSpec
    """The spec of each VM, as it would be in a VirtualMachine, without `running` and `runStrategy`: those are the
    pool's. Names of dataVolumeTemplates, and of the volumes that refer to them, get the VM's postfix."""


class EC2(Model):
    """Instances of AWS EC2 instead of VMs. Needs controllers that were given a region."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "KeyPair": "keyPair",
                "ImageID": "imageID",
                "imageId": "imageID",
                "ImageId": "imageID",
                "InstanceType": "instanceType",
                "Subnets": "subnets",
                "IamInstanceProfile": "iamInstanceProfile",
                "SecurityGroups": "securityGroups",
                "securityGroup": "securityGroups",
            }
        }
    )

    image_id: Annotated[str, Field(alias="imageID", min_length=1, max_length=255)]
    """The AMI that instances are made from."""
    instance_type: Annotated[str, Field(min_length=1, max_length=64)] = "mac1.metal"
    """Type of the instances."""
    key_pair: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Key pair whose owner may log in."""
    subnets: Annotated[Tuple[PlacementName], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """Subnets of the VPC. One is drawn at random for each instance. The controllers' own subnet when left out."""
    iam_instance_profile: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """Instance profile, by its name or ARN."""
    security_groups: Annotated[
        Tuple[Annotated[str, Field(min_length=1, max_length=255)]],
        Field(max_length=16, json_schema_extra=ATOMIC_LIST),
    ] = ()
    """Security groups, by their IDs. They must let the controllers reach `port`. The VPC's default one when left
    out."""
    port: Port | None = None
    """Port on which the agent in the instance answers. Left out, an instance is healthy as soon as EC2 says that it
    runs, and a claim is handed the instance and nothing more."""
    protocol: Literal["TCP", "GRPC"] = "TCP"
    """How the agent is asked. TCP: healthy when it accepts a connection. GRPC: healthy when the standard health service
    says SERVING; and a claim's application is launched and terminated through it."""
    secure: bool = False
    """Whether the agent speaks TLS, verified with the machine's certificate authorities. GRPC only."""


class Placement(Model):
    """Somewhere that VMs can be: nodes, networks, storage."""

    name: PlacementName
    """What the placement is called in labels, in status and in claims."""
    weight: Annotated[Count, Field(le=1_000_000)] = 1
    """How likely it is drawn, compared with the weights of the others. 0: never, and the VMs that are there stay."""
    node_selector: Annotated[dict[str, str], Field(max_length=64)] | None = None
    """Labels that a node must have, added to those of the template."""
    networks: Annotated[
        Tuple[Annotated[Json, SchemaOf(Network)]], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Networks, each in the place of the template's network of the same name."""
    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Storage class of the disks that are made with the VM."""


class StandbySpec(Model):
    """How VMs wait."""

    mode: Standby = "Running"
    """Running: handed over at once. Paused: uses no CPU and all of its memory, takes a moment to resume. Stopped: uses
    only its disks, and boots for the claim."""
    hot_replicas: Count = 0
    """How many wait Running though the mode is another. They are handed over first."""
    warmup_seconds: Count = 0
    """Seconds that a healthy VM goes on running before it is paused or stopped, for what its guest does after boot."""


class TcpProbe(Model):
    """Asks whether a connection is accepted."""

    port: Port
    """Port of the guest."""


class HttpProbe(Model):
    """Asks whether a page is there: any answer below 400 will do."""

    port: Port
    """Port of the guest."""
    path: Annotated[
        str, Field(max_length=1024, pattern="^/", json_schema_extra=expected("a path beginning with /"))
    ] = "/"
    """Path of the page."""


class Readiness(Model):
    """When a VM can be handed over. Its condition Ready must be True; everything here must hold as well."""

    guest_agent: bool = False
    """Whether the guest's agent must be connected."""
    conditions: Annotated[
        Tuple[Annotated[str, Field(min_length=1, max_length=316)]],
        Field(max_length=32, json_schema_extra=ATOMIC_LIST),
    ] = ()
    """Conditions of the VirtualMachineInstance that must be True besides Ready."""
    tcp: TcpProbe | None = None
    """A port of the guest that must accept connections."""
    http: HttpProbe | None = None
    """A page that the guest must serve."""
    min_ready_seconds: Count = 0
    """Seconds for which all that must hold before the VM can be handed over."""
    timeout_seconds: Seconds = 900
    """Seconds after which a VM that never became ready is replaced."""


class Health(Model):
    """How waiting VMs are watched."""

    period_seconds: Seconds = 10
    """Seconds from one check to the next."""
    timeout_seconds: Seconds = 5
    """Seconds after which a check that gets no answer has failed."""
    failure_threshold: Annotated[Count, Field(ge=1)] = 3
    """Failed checks in a row after which a VM is Unhealthy: it is not handed over, and another is made."""
    terminate_threshold: Annotated[Count, Field(ge=1)] = 6
    """Further failed checks in a row after which an Unhealthy VM is deleted. Checks that could not be carried out count
    for nothing."""


class Refill(Model):
    """How briskly VMs are made."""

    max_concurrent: Annotated[Count, Field(ge=1)] = 100
    """VMs that may be on their way to Ready at a time."""
    rate_per_second: Annotated[Count, Field(ge=1)] = 50
    """VMs that may be made in a second."""
    backoff_seconds: Seconds = 10
    """Seconds of pause after a first failure. Each further one in a row doubles it."""
    max_backoff_seconds: Seconds = 300
    """The longest pause."""
    breaker_threshold: Count = 5
    """Failures in a row after which one VM at a time is tried, until one succeeds. 0: never."""


class RollingUpdate(Model):
    """How far a rollout may go below and above `replicas`."""

    max_unavailable: IntOrPercentFromZero = "25%"
    """How many VMs may be missing while old ones are replaced: a number, or a percentage of `replicas`, rounded
    down."""
    max_surge: IntOrPercentFromZero = 0
    """How many VMs may be there besides, for that time: a number, or a percentage of `replicas`, rounded up."""


class WarmUpdateStrategy(Model):
    """How waiting VMs get a new template. Claimed ones keep theirs."""

    type: Literal["RollingUpdate", "Recreate", "OnReplenish"] = "RollingUpdate"
    """RollingUpdate: old ones are replaced by and by, and go on serving claims until then. Recreate: old ones serve
    nobody any more and are all replaced. OnReplenish: old ones are handed over, and new ones made in their place."""
    rolling_update: RollingUpdate = RollingUpdate()
    """How far a rollout may go below and above `replicas`."""
    progress_deadline_seconds: Count = 600
    """Seconds without any progress after which a rollout stops and the old VMs go on serving. 0: never."""


class Expiry(Model):
    """How old a waiting VM may get."""

    max_age_seconds: Annotated[Count, Field(ge=60)] | None = None
    """Seconds after which a waiting VM is replaced, up to a tenth earlier so that not all go at once. Left out: never.
    """


class ClaimPolicy(Model):
    """What claims may ask for and what they get when they don't."""

    on_empty: OnEmpty = "ColdStart"
    """When no VM is ready. ColdStart: one is made for the claim. Queue: the claim waits for the next, and the pool
    makes one more. Fail: the claim fails at once."""
    bind_timeout_seconds: Seconds = 300
    """Seconds after which a claim that got no VM fails."""
    default_ttl_seconds: Seconds | None = Field(default=None, alias="defaultTTLSeconds")
    """Seconds for which a claim that says nothing keeps its VM. Left out: for ever. A change is for those to come."""
    max_ttl_seconds: Seconds | None = Field(default=None, alias="maxTTLSeconds")
    """The longest that any claim may keep its VM. Left out: for ever. A lower one takes no time from claims that have
    their VM, but they can't have more."""
    max_per_namespace: Count | None = None
    """VMs of the pool that claims may have at a time, all together."""
    max_per_user: Count | None = None
    """VMs of the pool that one user's claims may have at a time."""
    allowed_overrides: Annotated[Tuple[Override], Field(max_length=3, json_schema_extra=ATOMIC_LIST)] | None = None
    """What claims may want otherwise than the template has it. Left out: everything. `[]`: nothing."""


class WarmPoolSpec(Model):
    """What the pool should be."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "replica": "replicas",
                "desiredCount": "replicas",
                "DesiredCount": "replicas",
                "Default": "default",
                "virtualMachineTemplate": "template",
                "subnets": "write them in spec.ec2.subnets, or as spec.placements for VMs",
                "selector": "a pool's VMs are those that it owns, leave the selector out",
            }
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.template) != has(self.ec2)",
            message="give exactly one of template, for VMs, and ec2, for instances of EC2",
            holds=lambda value: has(value, "template") != has(value, "ec2"),
        ),
        Rule(
            cel="!has(self.ec2) || !has(self.placements) || size(self.placements) == 0",
            message="are for VMs; for instances of EC2 give spec.ec2.subnets",
            holds=lambda value: not has(value, "ec2") or not value.get("placements"),
            field=".placements",
        ),
    )

    replicas: Count = 1
    """How many machines should be waiting. Claimed ones don't count."""
    default: bool = False
    """Whether claims that name no pool are served from here. One pool of a namespace can be the default."""
    template: Annotated[Json, SchemaOf(WarmVMTemplate)] | None = None
    """What each VM is made from. Either this or `ec2`."""
    ec2: EC2 | None = None
    """What each instance of EC2 is made from. Either this or `template`."""
    placements: Annotated[Tuple[Placement], Field(max_length=64, json_schema_extra=list_map("name"))] = ()
    """Where VMs can be. One is drawn at random for each VM. Left out: as the template says."""
    standby: StandbySpec = StandbySpec()
    """How VMs wait."""
    readiness: Readiness = Readiness()
    """When a VM can be handed over."""
    health: Health = Health()
    """How waiting VMs are watched."""
    refill: Refill = Refill()
    """How briskly VMs are made."""
    update_strategy: WarmUpdateStrategy = WarmUpdateStrategy()
    """How waiting VMs get a new template."""
    incompatible_policy: Literal["Delete", "Orphan"] = "Delete"
    """What becomes of waiting machines that the template no longer fits. Orphan: they are left running, labelled, and
    nobody's."""
    expiry: Expiry | None = None
    """How old a waiting VM may get. Left out: as old as it likes."""
    claim_policy: ClaimPolicy = ClaimPolicy()
    """What claims may ask for."""
    max_total: Count | None = None
    """How many machines the pool may have in all, claimed, failed and terminating ones included, orphans
    not. Left out: any number."""
    deletion_policy: Literal["Delete", "Orphan"] = "Delete"
    """What becomes of the waiting machines when the pool is deleted. Claimed ones stay with their claims."""
    paused: bool = False
    """While true, no machine is made, replaced or removed. Claims are served from what is there."""

    @property
    def places(self) -> tuple[Placement, ...]:
        """What one is drawn from for each machine: the placements, for instances of EC2 the subnets."""
        return tuple(Placement(name=subnet) for subnet in self.ec2.subnets) if self.ec2 else self.placements


class PlacementStatus(Model):
    """What is in one placement."""

    name: str
    """The placement."""
    replicas: Count = 0
    """Waiting machines, and those on their way."""
    ready: Count = 0
    """Machines that can be claimed."""


class PoolFailures(Model):
    """Why there are fewer machines than there should be."""

    consecutive: Count = 0
    """Failures in a row to get a machine."""
    last_reason: str = ""
    """Why the last one failed, in one word."""
    last_message: str = ""
    """Why, in words."""
    next_retry_at: Time | None = None
    """When the next one is tried."""


class WarmPoolStatus(Model):
    """What the pool is."""

    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the spec that this status answers."""
    available_replicas: Count = 0
    """Machines that can be claimed this moment."""
    ready_replicas: Count = 0
    """Machines in state Ready."""
    replicas: Count = 0
    """Waiting machines, and those on their way."""
    provisioning: Count = 0
    """Machines that were made and are not ready yet."""
    allocating: Count = 0
    """Machines that were given to a claim and are not handed over yet."""
    claimed: Count = 0
    """Machines in use."""
    unhealthy: Count = 0
    """Machines whose check failed."""
    unknown: Count = 0
    """Machines whose check could not be carried out."""
    terminating: Count = 0
    """Machines that are being deleted."""
    orphaned: Count = 0
    """Machines of the pool that nobody takes care of any more."""
    queued_claims: Count = 0
    """Claims that wait for a machine."""
    updated_replicas: Count = 0
    """Waiting machines that have the current template."""
    template_hash: str = ""
    """The current template, in short."""
    label_selector: str = ""
    """Selector of the pool's VMs, in the form that autoscalers read."""
    last_progress_time: Time | None = None
    """When a rollout last came nearer to its end. `progressDeadlineSeconds` counts from here."""
    placements: Annotated[Tuple[PlacementStatus], Field(max_length=512, json_schema_extra=list_map("name"))] = ()
    """What is where."""
    failures: PoolFailures | None = None
    """Why there are fewer machines than there should be."""
    conditions: Conditions = ()
    """Valid, Available, Progressing, Degraded, RolloutComplete and Default, those that have something to say."""


EC2_INSTANCES = ResourceType("poolhouse.dev", ("v1alpha1",), "ec2instances", "EC2Instance")
"""No API server serves them. The right to create them allows a user to have instances started, with their profile."""

WARM_POOL = Kind(
    group="poolhouse.dev",
    versions=("v1alpha1",),
    kind="VirtualMachineWarmPool",
    plural="virtualmachinewarmpools",
    short_names=("vmwp",),
    categories=("poolhouse", "all"),
    doc="Machines that are ready before they are asked for. A VirtualMachineClaim takes one, and another is made.",
    spec=WarmPoolSpec,
    status=WarmPoolStatus,
    scale=Scale(status=".status.availableReplicas"),
    columns=(
        Column("Desired", ".spec.replicas", "Machines that should be waiting", "integer"),
        Column("Available", ".status.availableReplicas", "Machines that can be claimed", "integer"),
        Column("Claimed", ".status.claimed", "Machines in use", "integer"),
        Column("Queued", ".status.queuedClaims", "Claims that wait for a machine", "integer"),
        Column("Default", ".spec.default", "Whether claims that name no pool are served from here", "boolean"),
        AGE,
        Column("Provisioning", ".status.provisioning", "Machines on their way", "integer", wide=True),
        Column("Unhealthy", ".status.unhealthy", "Machines whose check failed", "integer", wide=True),
        Column("Updated", ".status.updatedReplicas", "Machines that have the current template", "integer", wide=True),
        Column("Paused", ".spec.paused", "Whether the pool leaves its machines alone", "boolean", wide=True),
        Column("Template", ".status.templateHash", "The current template, in short", wide=True),
    ),
    templates=(
        Template(("spec", "template"), VMS, {"runStrategy": "Always"}),
        Template(("spec", "ec2"), EC2_INSTANCES, dry_run=False),
    ),
    requires=("virtualmachineclaims",),
    listed_at_admission=True,
    has_finalizer=True,
    ready_replicas="availableReplicas",
    updated_replicas="updatedReplicas",
    rules=(warmpool.NAME_FITS,),
    checks=warmpool.CHECKS,
    warning_checks=warmpool.WARNINGS,
)
