"""`spec.claimPolicy` of a warm pool: limits and defaults for claims."""

from typing import Annotated, Literal

from pydantic import Field

from poolhouse.api.kinds.model import ATOMIC_LIST, Count, Model, Seconds, Tuple

OnEmpty = Literal["ColdStart", "Queue", "Fail"]
Override = Literal["instancetype", "image", "placement", "keyPair", "securityGroups", "iamInstanceProfile"]
PersonalizationField = Literal["hostname", "labels", "sshPublicKeySecret"]


class ClaimPolicy(Model):
    """Limits and defaults for claims."""

    on_empty: OnEmpty = "ColdStart"
    """What happens when no VM is ready. ColdStart: a VM is created for the claim. Queue: the claim waits for the next
    VM, and the pool creates one more. Fail: the claim fails at once."""
    bind_timeout_seconds: Seconds = 300
    """Seconds after which a claim without a VM fails."""
    default_ttl_seconds: Seconds | None = Field(default=None, alias="defaultTTLSeconds")
    """Seconds for which a claim without `ttlSeconds` keeps its VM. Defaults to no limit. A change applies to new
    claims."""
    max_ttl_seconds: Seconds | None = Field(default=None, alias="maxTTLSeconds")
    """Maximum seconds for which a claim may keep its VM. Defaults to no limit. A lower value does not shorten claims
    that have a VM, but they cannot be extended."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds after the end of a claim at which the controllers delete it, if the claim has no
    `ttlSecondsAfterFinished`. Defaults to never: the claim stays as a record."""
    max_per_namespace: Count | None = None
    """Maximum number of VMs that all claims of the namespace may hold together."""
    max_per_user: Count | None = None
    """Maximum number of VMs that the claims of one user may hold together."""
    allowed_overrides: Annotated[Tuple[Override], Field(max_length=6, json_schema_extra=ATOMIC_LIST)] | None = None
    """Fields of `spec.overrides` that claims may set, to any value. Defaults to none."""
    allowed_personalization: (
        Annotated[Tuple[PersonalizationField], Field(max_length=3, json_schema_extra=ATOMIC_LIST)] | None
    ) = None
    """Fields of `spec.personalization` that claims may set. Defaults to none."""
    allow_application: bool = False
    """Whether claims may run an application in their VM with `spec.application`. It runs with all permissions that the
    VM has, such as those of an EC2 instance profile."""
    eviction_budget: Literal["Enabled", "Disabled"] = "Enabled"
    """Whether a PodDisruptionBudget makes a drain wait for claims whose VM an eviction would stop."""
    eviction_delay_seconds: Annotated[Count, Field(ge=1, le=86_400)] = 600
    """Maximum seconds for which the drain of a node waits for a claim. They count from the cordon of the node. The
    drain waits no longer for a claim that ends before. After them, an eviction stops the VM, and KubeVirt starts it on
    another node."""
    allow_pods: bool = False
    """Whether Pods of the virtual node may run in the pool's VMs. Everybody who may create Pods in the namespace can
    then run programs with all permissions that a VM has. `maxPerUser` counts the Pods of each ServiceAccount."""
