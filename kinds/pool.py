"""VirtualMachinePool: similar VMs with state of their own, kept in number and up to date."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from apimachinery.unstructured import Json
from kinds.checks import pool
from kinds.kind import AGE, VMS, Column, Kind, Scale, Template
from kinds.metav1 import Conditions
from kinds.model import Count, Int64, IntOrPercent, Model, Rule, SchemaOf, Time, Tuple, has, list_map
from kinds.pool_strategies import ScaleInStrategy, UpdateStrategy
from kinds.virtualmachine import VMSpec, VMTemplate


class NameGeneration(Model):
    """How names inside a VM are made from those in the template."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "appendIndexToSecretRefs": "appendPostfixToSecretReferences",
                "appendIndexToConfigMapRefs": "appendPostfixToConfigMapReferences",
            }
        }
    )

    append_postfix_to_secret_references: bool = False
    """Append the VM's postfix (`-3`) to the names of Secrets in its volumes, so that each VM has its own. The
    `imagePullSecret` of a containerDisk stays as it is: by it the node gets an image that all VMs share."""
    append_postfix_to_config_map_references: bool = False
    """Append the VM's postfix (`-3`) to the names of ConfigMaps in its volumes, so that each VM has its own."""


class Autohealing(Model):
    """When a failing VM is replaced. The VM and its disks are deleted and made anew."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "startUpFailureThreshold": "startupFailureThreshold",
                "minFailingToStartDuration": "a pool counts failed starts, see startupFailureThreshold",
            }
        }
    )

    startup_failure_threshold: Annotated[Count, Field(ge=1)] = 3
    """Failures in a row to reach the running state, failed liveness probes at startup included, after which the VM is
    replaced."""


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
    """The spec of each VM, as it would be in a VirtualMachine. Names of dataVolumeTemplates, and of the volumes that
    refer to them, get the VM's postfix."""


class PoolSpec(Model):
    """What the pool should be."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "replica": "replicas",
                "virtualMachineTemplate": "template",
                "selector": "a pool's VMs are those that it owns, leave the selector out",
            }
        }
    )

    replicas: Count
    """How many VMs the pool should have."""
    max_unavailable: IntOrPercent = "25%"
    """How many VMs may be not ready at a time while the pool updates, heals or scales in: a number, or a percentage of
    `replicas`, rounded down, at least 1."""
    name_generation: NameGeneration = NameGeneration()
    """How names inside a VM are made from those in the template."""
    update_strategy: UpdateStrategy = UpdateStrategy()
    """How VMs get a new template. Proactive, in Random order, when left out."""
    scale_in_strategy: ScaleInStrategy = ScaleInStrategy()
    """How VMs leave the pool. Proactive, in Random order and without preserving state, when left out."""
    autohealing: Autohealing | None = None
    """When a failing VM is replaced, its disks included. Left out: never. `{}`: after 3 failed starts in a row."""
    paused: bool = False
    """While true, nothing is done to the pool's VMs; status goes on being reported."""
    progress_deadline_seconds: Annotated[Count, Field(ge=1)] = 600
    """Seconds without any progress of an update or a scale-out, or of VMs that were lost on their way back, after which
    the condition Progressing becomes False."""
    revision_history_limit: Count = 10
    """How many old revisions of the template are kept to go back to."""
    template: Annotated[Json, SchemaOf(PoolTemplate)]
    """What each VM is made from."""


class HealedVM(Model):
    """A VM that was replaced, remembered so that it is not replaced again too soon."""

    name: str
    """Name of the VM."""
    attempts: Count = 0
    """How often it was replaced without having run since."""
    healed_at: Time | None = None
    """When it was replaced last."""
    not_before: Time | None = None
    """Before this time it is not replaced again."""


class Breaker(Model):
    """Stops healing when so many VMs fail that replacing them would destroy more than it repairs."""

    open: bool = False
    """Whether healing is stopped."""
    since: Time | None = None
    """When it was stopped."""
    until: Time | None = None
    """When one VM is tried again."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in words."""


MAX_HEALED_VMS = 1000


class Healing(Model):
    """What healing has to remember."""

    failing: Count = 0
    """VMs that fail to start now."""
    replaced: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] = 0
    """VMs that were replaced in all."""
    machines: Annotated[Tuple[HealedVM], Field(max_length=MAX_HEALED_VMS, json_schema_extra=list_map("name"))] = ()
    """VMs that were replaced and have not run for long enough since."""
    breaker: Breaker | None = None
    """Whether healing is stopped because too many VMs fail at once."""


class RetainedDiskStatus(Model):
    """A disk that scale-in has kept."""

    name: str
    """Name of the DataVolume and of the PersistentVolumeClaim."""
    vm: str
    """Name of the VM that it comes back to."""


class PoolStatus(Model):
    """What the pool is."""

    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the spec that this status answers."""
    replicas: Count = 0
    """VMs of the pool, those that are being deleted left out."""
    ready_replicas: Count = 0
    """VMs whose condition Ready is True."""
    updated_replicas: Count = 0
    """VMs that have the current template."""
    available_replicas: Count = 0
    """VMs that are ready, and VMs that are meant to be halted and are."""
    unavailable_replicas: Count = 0
    """VMs that are missing or not available."""
    terminating_replicas: Count = 0
    """VMs that are being deleted."""
    kept_disks: Count = 0
    """Disks that scale-in has kept for VMs that come back."""
    kept: Annotated[Tuple[RetainedDiskStatus], Field(max_length=100, json_schema_extra=list_map("name"))] = ()
    """The first hundred of them by name. `kubectl poolhouse disks` lists all."""
    current_revision: str = ""
    """Revision of the template that all VMs had last."""
    update_revision: str = ""
    """Revision of the template that VMs get now."""
    last_progress_time: Time | None = None
    """When the pool last came nearer to what its spec says, or fell short of it after having been so.
    `progressDeadlineSeconds` counts from here."""
    label_selector: str = ""
    """Selector of the pool's VMs, in the form that autoscalers read."""
    healing: Healing | None = None
    """What healing has to remember."""
    conditions: Conditions = ()
    """Available, Progressing, Healing, ScaleInBlocked, DisksShared, ReplicaFailure and Paused, those that have
    something to say."""


POOL = Kind(
    group="kubevirt.io",
    versions=("v1",),
    kind="VirtualMachinePool",
    plural="virtualmachinepools",
    short_names=("vmpool", "vmpools"),
    categories=("poolhouse", "all"),
    doc="A pool of similar VMs, each with its own state, kept in number and up to date.",
    notes="KubeVirt has a kind of the same name in group `pool.kubevirt.io`, with the same short name. Where both are"
    " installed they live side by side; write `virtualmachinepools.kubevirt.io` to be sure which one is meant.",
    spec=PoolSpec,
    status=PoolStatus,
    scale=Scale(),
    columns=(
        Column("Desired", ".spec.replicas", "VMs that the pool should have", "integer"),
        Column("Current", ".status.replicas", "VMs that the pool has", "integer"),
        Column("Ready", ".status.readyReplicas", "VMs that are ready", "integer"),
        Column("Updated", ".status.updatedReplicas", "VMs that have the current template", "integer"),
        AGE,
        Column("Available", ".status.availableReplicas", "VMs that are as they are meant to be", "integer", wide=True),
        Column("Terminating", ".status.terminatingReplicas", "VMs that are being deleted", "integer", wide=True),
        Column("Kept-Disks", ".status.keptDisks", "Disks kept for VMs that come back", "integer", wide=True),
        Column("Paused", ".spec.paused", "Whether the pool leaves its VMs alone", "boolean", wide=True),
        Column("Revision", ".status.updateRevision", "Revision of the template", wide=True),
        Column("Selector", ".status.labelSelector", "Selector of the pool's VMs", wide=True),
    ),
    templates=(Template(("spec", "template"), VMS),),
    listed_at_admission=True,
    plan_path="/apis/pools/plan",
    updated_replicas="updatedReplicas",
    rules=(pool.NAMES_ARE_LABELS,),
    checks=pool.CHECKS,
    warning_checks=pool.WARNINGS,
    normalizer=pool.normalize,
)
