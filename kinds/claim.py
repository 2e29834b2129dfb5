"""VirtualMachineClaim: one machine, taken from a warm pool for as long as the claim lives."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from kinds import meta
from kinds.checks import claim
from kinds.kind import AGE, Column, Kind, Phases
from kinds.metav1 import Conditions
from kinds.model import Count, Int64, Model, Rule, Time, Tuple, expected
from kinds.warmpool import OnEmpty, PlacementName, Seconds

Phase = Literal["Pending", "Queued", "Allocating", "Bound", "Ready", "Releasing", "Released", "Expired", "Failed"]
LaunchType = Literal["Warm", "Resumed", "Started", "Cold"]

_Name = Annotated[str, Field(min_length=1, max_length=253)]


class Overrides(Model):
    """What is wanted otherwise than the pool's template has it. A waiting machine that is otherwise is never handed
    over: one is made."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "instanceType": "instancetype",
                "InstanceType": "instancetype",
                "imageID": "image",
                "imageId": "image",
                "ImageID": "image",
            }
        }
    )

    instancetype: _Name | None = None
    """Name of the instance type."""
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """What the machine boots from: the container disk, or the address or name of the source, of its boot disk; or
    an AMI."""
    placement: PlacementName | None = None
    """One of the pool's placements, or one of its subnets."""


class Personalization(Model):
    """What of the machine is made the claimant's own."""

    ssh_public_key_secret: _Name | None = None
    """Secret of the same namespace with the public keys that may log in, and nothing else. A machine that was waiting
    gets them where its pool's template names the Secret `poolhouse-claim-key` in an access credential."""
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16, default_factory=dict)]
    """Labels that the VM and its instances get."""
    hostname: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=63,
                pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                json_schema_extra=expected("a host name: lower case letters, digits and '-'"),
            ),
        ]
        | None
    ) = None
    """Name that the guest gets, where it can: only one that boots for its claim."""


class ClaimSpec(Model):
    """What is wanted. All but `ttlSeconds` and `release` stays as it was made."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "warmPoolName": "poolName",
                "pool": "poolName",
                "warmPoolRef": "poolName",
                "instanceType": "write it in spec.overrides.instancetype",
                "imageID": "write it in spec.overrides.image",
            }
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = claim.RULES

    pool_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The warm pool, of the same namespace. Left out: the namespace's default pool."""
    overrides: Overrides | None = None
    """What is wanted otherwise than the pool's template has it."""
    on_empty: OnEmpty | None = None
    """When no machine is ready: make one (ColdStart), wait for the next (Queue), or fail at once (Fail). As the pool
    says when left out."""
    bind_timeout_seconds: Seconds | None = None
    """Seconds after which the claim fails if it got no machine. One that is ready may still be given half a minute
    later. As the pool says when left out."""
    ttl_seconds: Seconds | None = None
    """Seconds for which the machine is kept, from the moment that it was bound. Then it is destroyed and the claim
    Expired. May be changed: to longer than before up to the pool's maximum, while there is the pool. As the pool says
    when left out."""
    personalization: Personalization | None = None
    """What of the machine is made the claimant's own."""
    release: bool = False
    """Whether the machine is given back: it is destroyed and the claim stays as a record. Can't be taken back."""


class VMRef(Model):
    """A VirtualMachine of the same namespace."""

    name: str
    """Its name."""
    uid: str
    """Its UID: another VM of the same name is not this claim's."""


class EC2InstanceRef(Model):
    """An instance of EC2."""

    id: str
    """Its ID."""


class Timings(Model):
    """How long each step took, in milliseconds."""

    queued_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Until a machine was there for it."""
    bind_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Until the machine was its own: written down on the machine, and for one that had to be woken on the claim too."""
    activate_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Until the machine was told to wake up."""
    check_ms: Annotated[Int64, Field(ge=0)] | None = None
    """Until the machine was found well and handed over."""
    total_ms: Annotated[Int64, Field(ge=0)] | None = None
    """From the claim to the machine."""


class ClaimStatus(Model):
    """What has become of the claim."""

    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the spec that this status answers."""
    phase: Phase = "Pending"
    """Pending: not looked at, or waiting for a pool. Queued: waiting for a machine. Allocating and Bound: it has one,
    which is not handed over yet. Ready: handed over. Releasing, Released, Expired, Failed: it has none any more."""
    pool_name: str = ""
    """The pool that serves it."""
    vm_ref: VMRef | None = None
    """The VM that is its own."""
    instance_ref: EC2InstanceRef | None = None
    """The instance of EC2 that is its own."""
    launch_type: LaunchType | None = None
    """Warm: the machine was running. Resumed: it was paused. Started: it was stopped. Cold: it was made for the
    claim."""
    launch_reason: str = ""
    """Why so."""
    addresses: Tuple[str] = ()
    """Addresses of the machine, the first one first."""
    queue_position: Count | None = None
    """How many claims will have been served when this one is."""
    timings: Timings | None = None
    """How long each step took."""
    bound_at: Time | None = None
    """When it got its machine. `ttlSeconds` counts from here."""
    ready_at: Time | None = None
    """When the machine was handed over."""
    expires_at: Time | None = None
    """When the machine will be destroyed."""
    attempts: Count = 0
    """Machines that were tried."""
    conditions: Conditions = ()
    """Bound, Ready and Personalized, those that have something to say."""


CLAIM = Kind(
    group="poolhouse.dev",
    versions=("v1alpha1",),
    kind="VirtualMachineClaim",
    plural="virtualmachineclaims",
    short_names=("vmclaim", "vmclaims"),
    categories=("poolhouse", "all"),
    doc="One machine of a warm pool, its own for as long as the claim lives. Deleting the claim destroys the machine.",
    notes="The annotations `poolhouse.dev/instance-type` and `poolhouse.dev/image-id` are read as `overrides` where"
    " `spec.overrides` says nothing.",
    spec=ClaimSpec,
    status=ClaimStatus,
    columns=(
        Column("Phase", ".status.phase", "What has become of the claim"),
        Column("Reason", ".status.conditions[?(@.status=='False')].reason", "What is not so, and why"),
        Column("Pool", ".status.poolName", "The pool that serves it"),
        Column("VM", ".status.vmRef.name", "The VM that is its own"),
        Column("Launch", ".status.launchType", "Whether the machine was waiting, or made for the claim"),
        Column("Address", ".status.addresses[0]", "Address of the machine"),
        AGE,
        Column("Position", ".status.queuePosition", "Place in the queue", "integer", wide=True),
        Column("Took(ms)", ".status.timings.totalMs", "From the claim to the machine", "integer", wide=True),
        Column("Expires", ".status.expiresAt", "When the machine will be destroyed", wide=True),
        Column("Instance", ".status.instanceRef.id", "The instance of EC2 that is its own", wide=True),
    ),
    rules=(claim.NAME_IS_A_LABEL,),
    checks=claim.CHECKS,
    update_checks=(claim.update_problems,),
    requires=("virtualmachinewarmpools",),
    records_requester=True,
    on_create=claim.with_annotation_overrides,
    phases=Phases(ready="Ready", failed="Failed", finished=("Released", "Expired")),
    spec_annotations=(meta.INSTANCE_TYPE, meta.IMAGE_ID, meta.REQUESTER),
)
