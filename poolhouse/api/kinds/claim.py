"""VirtualMachineClaim: reserves a VM of a warm pool for the lifetime of the claim."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.kinds.application import Application
from poolhouse.api.kinds.application_status import ApplicationStatus
from poolhouse.api.kinds.checks import claim
from poolhouse.api.kinds.conditions import describe_conditions
from poolhouse.api.kinds.ec2 import InstanceProfile, KeyPair, PlacementName, SecurityGroups
from poolhouse.api.kinds.kind import AGE, Column, Kind
from poolhouse.api.kinds.metav1 import Conditions, StatusModel
from poolhouse.api.kinds.model import Count, Int64, Model, Rule, Seconds, Time, Tuple
from poolhouse.api.kinds.names import DNS_LABEL, Image, InstanceType, ObjectName, PoolName, matching
from poolhouse.api.kinds.resource_types import CLAIMS
from poolhouse.api.kinds.warm_claim_policy import OnEmpty

Phase = Literal["Pending", "Queued", "Allocating", "Bound", "Ready", "Releasing", "Released", "Expired", "Failed"]
LaunchType = Literal["Warm", "Resumed", "Started", "Cold"]
NO_POOL_SECONDS = 10
"""Time limit for a pool that does not exist yet, because a user may apply a claim before its pool. The claim's
`bindTimeoutSeconds` overrides this limit."""


class Overrides(Model):
    """Differences from the pool's template, which the pool's `claimPolicy.allowedOverrides` must allow. If overrides
    apply, a VM is created for the claim, and no waiting VM is handed over."""

    hints: ClassVar[Mapping[str, str]] = {
        "instanceType": "instancetype",
        "InstanceType": "instancetype",
        "imageID": "image",
        "imageId": "image",
        "ImageID": "image",
        "KeyPair": "keyPair",
        "SecurityGroups": "securityGroups",
        "instanceProfile": "iamInstanceProfile",
        "subnet": "placement",
    }

    instancetype: InstanceType | None = None
    """Name of the instance type."""
    image: Image | None = None
    """Image of the boot disk: a container disk, the URL or name of the source, or an AMI."""
    placement: PlacementName | None = None
    """Name of one of the pool's placements or subnets."""
    key_pair: KeyPair | None = None
    """Key pair that grants login to an EC2 instance."""
    security_groups: SecurityGroups | None = None
    """IDs of the security groups of an EC2 instance."""
    iam_instance_profile: InstanceProfile | None = None
    """Name or ARN of the instance profile of an EC2 instance, with its AWS permissions."""


class Personalization(Model):
    """Changes to the VM for its user, which the pool's `claimPolicy.allowedPersonalization` must allow."""

    ssh_public_key_secret: ObjectName | None = None
    """Secret of the same namespace that contains only public keys that may log in. The author of the claim needs the
    right to get it. A waiting VM gets the keys if its pool's template names the Secret `poolhouse-claim-key` in an
    access credential."""
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16, default_factory=dict)]
    """Labels that are added to the VM and its VMI."""
    hostname: (
        Annotated[
            str,
            matching(DNS_LABEL, 63, "a host name: lower case letters, digits and '-'"),
        ]
        | None
    ) = None
    """Host name of the guest. Requires `overrides` or `application`, because a guest gets its name when it boots: the
    claim gets a VM that is created for it."""


class ClaimSpec(Model):
    """Desired VM. Only `ttlSeconds`, `ttlSecondsAfterFinished` and `release` can be changed later."""

    hints: ClassVar[Mapping[str, str]] = {
        "warmPoolName": "poolName",
        "pool": "poolName",
        "warmPoolRef": "poolName",
        "instanceType": "write it in spec.overrides.instancetype",
        "imageID": "write it in spec.overrides.image",
        "podSpec": "application",
        "containers": "write them in spec.application.containers",
    }
    rules: ClassVar[tuple[Rule, ...]] = claim.RULES

    pool_name: PoolName | None = None
    """Name of the warm pool, in the same namespace. Defaults to the namespace's default pool."""
    overrides: Overrides | None = None
    """Differences from the pool's template."""
    on_empty: OnEmpty | None = None
    """What happens when no VM is ready: a VM is created (ColdStart), the claim waits for the next VM (Queue), or the
    claim fails at once (Fail). Defaults to the pool's `onEmpty`."""
    bind_timeout_seconds: Seconds | None = None
    """Seconds after which a claim without a VM fails. For 30 more seconds the claim can still get a ready VM. Defaults
    to the pool's `bindTimeoutSeconds`."""
    ttl_seconds: Seconds | None = None
    """Seconds after `boundAt` at which the VM is deleted and the claim expires. Can be extended up to the pool's
    maximum while the pool exists. Defaults to the pool's `defaultTTLSeconds`."""
    personalization: Personalization | None = None
    """Changes to the VM for its user."""
    application: Application | None = None
    """What runs in the VM. The pool's `claimPolicy.allowApplication` must be true."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds after the end of the claim (Released, Expired or Failed) at which the controllers delete it. Can be
    changed. Defaults to the pool's `ttlSecondsAfterFinished`."""
    release: bool = False
    """Set to true to release the VM. The VM is deleted, and the claim stays as a record. Cannot be undone."""


class VMRef(Model):
    """A VirtualMachine of the same namespace."""

    name: str
    """Name of the VM."""
    uid: str
    """UID of the VM. A later VM of the same name does not belong to the claim."""


class EC2InstanceRef(Model):
    """An EC2 instance."""

    id: str
    """ID of the instance."""


class Timings(Model):
    """Duration of each step in milliseconds."""

    queued_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Milliseconds until a VM was available."""
    bind_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Milliseconds until the VM was bound. For a paused or stopped VM, includes the update of the claim's status."""
    activate_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Milliseconds until the request to resume or start the VM."""
    check_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Milliseconds until the VM was healthy and handed over."""
    total_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Milliseconds from the creation of the claim to the handover."""


class ClaimStatus(StatusModel):
    """Observed state of the claim."""

    phase: Phase = "Pending"
    """Pending: not processed yet, or waiting for a pool. Queued: waiting for a VM. Allocating, Bound: has a VM that is
    not handed over yet. Ready: handed over. Releasing, Released, Expired, Failed: no longer has a VM."""
    pool_name: str = ""
    """Name of the pool that serves the claim."""
    vm_ref: VMRef | None = None
    """VM of the claim."""
    instance_ref: EC2InstanceRef | None = None
    """EC2 instance of the claim."""
    launch_type: LaunchType | None = None
    """Warm: a running VM. Resumed: a paused VM. Started: a stopped VM. Cold: a VM that was created for the claim."""
    launch_reason: str = ""
    """Reason of the launch type."""
    addresses: Tuple[str] = ()
    """IP addresses of the VM. The first is the primary address."""
    queue_position: Count | None = None
    """Position in the queue of claims. The claim at position 1 is served next."""
    timings: Timings | None = None
    """Duration of each step."""
    bound_at: Time | None = None
    """Time at which the claim got its VM. `ttlSeconds` counts from this time."""
    ready_at: Time | None = None
    """Time at which the VM was handed over."""
    expires_at: Time | None = None
    """Time at which the VM will be deleted."""
    finished_at: Time | None = None
    """Time at which the claim was Released, Expired or Failed."""
    application: ApplicationStatus | None = None
    """What the agent in the VM reports about the application."""
    attempts: Count = 0
    """Number of VMs that were tried."""
    conditions: Annotated[
        Conditions,
        Field(
            description=f"{describe_conditions(CLAIMS)} A claim that was released or has expired has no condition"
            " Ready, and a claim has Evicting only while its VM should leave its node."
        ),
    ] = ()


CLAIM = Kind(
    **vars(CLAIMS),
    categories=("poolhouse", "all"),
    doc="Takes one VM from a warm pool, for as long as the claim exists. Deleting the claim deletes the VM.",
    notes="The annotations `poolhouse.dev/instance-type`, `image-id`, `subnet-id`, `key-pair`, `security-groups` and"
    " `instance-profile` set the fields of `spec.overrides` that are left out."
    " `compute.amazonaws.com/instance-type` and the other annotations of these names, as Pods of an AWS Virtual"
    " Kubelet have them, do the same.",
    spec=ClaimSpec,
    status=ClaimStatus,
    columns=(
        Column("Phase", ".status.phase", "Phase of the claim"),
        Column("Reason", ".status.conditions[?(@.status=='False')].reason", "Reason of a condition that is False"),
        Column("Pool", ".status.poolName", "Pool that serves the claim"),
        Column("VM", ".status.vmRef.name", "VM of the claim"),
        Column("Launch", ".status.launchType", "Whether the VM was waiting or was created for the claim"),
        Column("Address", ".status.addresses[0]", "Primary address of the VM"),
        AGE,
        Column("Position", ".status.queuePosition", "Position in the queue", "integer", wide=True),
        Column("Took(ms)", ".status.timings.totalMs", "Milliseconds from creation to handover", "integer", wide=True),
        Column("Expires", ".status.expiresAt", "Time at which the VM will be deleted", wide=True),
        Column("Instance", ".status.instanceRef.id", "EC2 instance of the claim", wide=True),
    ),
    rules=(claim.NAME_RULE,),
    checks=claim.CHECKS,
    update_checks=(claim.update_problems,),
    requires=("virtualmachinewarmpools",),
    records_requester=True,
    deleted_by_controllers=True,
    on_create=claim.with_annotation_overrides,
    spec_annotations=(*claim.OVERRIDE_ANNOTATIONS, *claim.RECORDED_ANNOTATIONS),
)
