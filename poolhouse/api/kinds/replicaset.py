"""VirtualMachineInstanceReplicaSet: a number of similar VMIs without their own state."""

from typing import Annotated

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.checks import replicaset
from poolhouse.api.kinds.conditions import describe_conditions
from poolhouse.api.kinds.decisions import LoggedStatus
from poolhouse.api.kinds.kind import AGE, STATUS, Column, Kind, Scale, Template, with_replicas
from poolhouse.api.kinds.metav1 import Conditions, LabelSelector
from poolhouse.api.kinds.model import Count, Model, SchemaOf, expected, set_at_creation
from poolhouse.api.kinds.resource_types import REPLICA_SETS, VMIS
from poolhouse.api.kinds.virtualmachine import VMITemplate


class ReplicaSetSpec(Model):
    """Desired state of the replica set."""

    replicas: Annotated[Count, Field(json_schema_extra=set_at_creation())] = 1
    """Desired number of VirtualMachineInstances. A new object without it gets 1; without it in a later manifest, the
    stored number stays."""
    selector: LabelSelector
    """Selects the VirtualMachineInstances of the replica set. Must match the template's labels, and no VMIs of another
    replica set."""
    paused: bool = False
    """While true, the controller creates and deletes no VMIs. The controller still reports their status."""
    template: Annotated[
        Json,
        SchemaOf(VMITemplate),
        Field(json_schema_extra=expected("an object with the metadata and the spec of a VirtualMachineInstance")),
    ]
    """Template of the VirtualMachineInstances."""


class ReplicaSetStatus(LoggedStatus):
    """Observed state of the replica set."""

    replicas: Count = 0
    """VirtualMachineInstances that have not ended and are not being deleted."""
    desired_replicas: Count | None = None
    """VirtualMachineInstances that the controller works towards: `spec.replicas`, or fewer if the condition
    ScalingLimited is True."""
    ready_replicas: Count = 0
    """VirtualMachineInstances that are ready."""
    terminating_replicas: Count = 0
    """VirtualMachineInstances that are being deleted."""
    label_selector: str = ""
    """The selector, as text for autoscalers."""
    conditions: Annotated[
        Conditions,
        Field(description=f"{describe_conditions(REPLICA_SETS)} All but Ready are there while they are True."),
    ] = ()


REPLICA_SET = Kind(
    **vars(REPLICA_SETS),
    categories=("poolhouse", "all"),
    doc="A number of similar VirtualMachineInstances without their own state.",
    notes="KubeVirt has the same resource. Where KubeVirt has installed it, Poolhouse does not install or control it.",
    yields_to_kubevirt=True,
    spec=ReplicaSetSpec,
    status=ReplicaSetStatus,
    scale=Scale(),
    columns=(
        Column("Desired", ".spec.replicas", "Desired number of VirtualMachineInstances", "integer"),
        Column("Current", ".status.replicas", "VirtualMachineInstances of the replica set", "integer"),
        Column("Ready", ".status.readyReplicas", "VirtualMachineInstances that are ready", "integer"),
        STATUS,
        AGE,
        Column("Paused", ".spec.paused", "Whether the replica set is paused", "boolean", wide=True),
        Column("Selector", ".status.labelSelector", "Selector of the VirtualMachineInstances", wide=True),
    ),
    templates=(Template(("spec", "template"), VMIS),),
    plan_path="/apis/replicasets/plan",
    checks=replicaset.CHECKS,
    warning_checks=replicaset.WARNINGS,
    normalizer=replicaset.normalize,
    on_create=with_replicas,
)
