"""MigrationPolicy: how the VMs that it selects are live-migrated."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from apimachinery.quantity import DECIMAL
from kinds.checks import migrationpolicy
from kinds.kind import AGE, Column, Kind
from kinds.metav1 import Conditions
from kinds.model import AtomicModel, Count, Int64, IntOrString, Model, expected
from kinds.validation import quoted

# YAML reads `hpc-workloads: true` as a boolean, and the document writes it so. A structural schema has no word for
# "text or boolean", so it says nothing of the value and our checks do.
LabelText = Annotated[
    str,
    BeforeValidator(lambda value: quoted(value) if isinstance(value, bool) else value),
    WithJsonSchema(
        {
            "description": 'The label\'s value, or "" for any value.',
            "x-kubernetes-preserve-unknown-fields": True,
            **expected('a text, or "" for any value'),
        }
    ),
]

Bandwidth = Annotated[
    int | str,
    IntOrString(
        rf"^\+?{DECIMAL}(([KMGTPE]i)|[kMGTPE]|([eE]\+?{DECIMAL}))?$",
        'a quantity of bytes a second that is not negative, such as "64Mi" or 50000000, or 0 for no limit',
        minimum=0,
        max_length=32,
    ),
]


class RequiredLabels(AtomicModel):
    """Selects by labels, all of which must be there."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            "x-hints": {"matchExpressions": "a policy selects by matchLabels only, so that labels can be counted"},
        }
    )

    match_labels: Annotated[dict[str, LabelText], Field(max_length=64, default_factory=dict)]
    """Labels that must be there with these values; "" stands for any value."""


class Selectors(Model):
    """Which VirtualMachineInstances the policy is for. Both selectors must hold; an empty or absent one constrains
    nothing. With both empty or absent the policy is for none."""

    namespace_selector: RequiredLabels | None = None
    """Labels that the VMI's namespace must have."""
    virtual_machine_instance_selector: RequiredLabels | None = None
    """Labels that the VMI must have."""


class MigrationPolicySpec(Model):
    """How to migrate, and whom. What is left out is as KubeVirt's own configuration has it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-hints": {
                "namespaceSelector": "put it inside selectors",
                "virtualMachineInstanceSelector": "put it inside selectors",
                "matchLabels": "put it inside selectors.virtualMachineInstanceSelector",
                "allowWorkloadDisruption": "KubeVirt lets it follow allowPostCopy",
            }
        }
    )

    allow_auto_converge: bool | None = None
    """Whether a guest that writes memory faster than it can be copied is slowed down until it can."""
    bandwidth_per_migration: Bandwidth | None = None
    """Bytes a second that one migration may use, `64Mi`; 0 for no limit. KubeVirt counts in whole MiB, at least one."""
    completion_timeout_per_gib: Annotated[Int64 | None, Field(ge=0, alias="completionTimeoutPerGiB")] = None
    """Seconds for each GiB of memory that a migration may take. After that it goes on as post-copy where this is
    allowed, and is aborted where not; 0 for no limit."""
    allow_post_copy: bool | None = None
    """Whether the guest may go on at its target before all of its memory is there. If the connection breaks then, the
    guest is lost."""
    disable_tls: Annotated[bool | None, Field(alias="disableTLS")] = None
    """Whether the guest's memory travels unencrypted. KubeVirt has this for the whole cluster only: a policy that
    differs from it says so in its condition Enforced."""
    selectors: Selectors | None = None
    """Which VirtualMachineInstances the policy is for; none when left out."""


class MigrationPolicyStatus(Model):
    """What becomes of the policy."""

    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the spec that this status answers."""
    wins: Count = 0
    """VirtualMachineInstances that obey this policy."""
    losses: Count = 0
    """VirtualMachineInstances that match this policy and obey another that goes before it."""
    conditions: Conditions = ()
    """Active: the policy takes part in deciding. Enforced: KubeVirt migrates as the policy says."""


MIGRATION_POLICY = Kind(
    group="kubevirt.io",
    versions=("v1alpha1",),
    kind="MigrationPolicy",
    plural="migrationpolicies",
    short_names=("migpol",),
    categories=("poolhouse",),
    namespaced=False,
    doc="How the VMs that the policy selects are live-migrated. Of several policies that match a VM, it obeys the one "
    "with the most labels in its selectors; of those, the one whose label keys come first in lexicographic order.",
    spec=MigrationPolicySpec,
    status=MigrationPolicyStatus,
    columns=(
        Column("Wins", ".status.wins", "VMIs that obey this policy", "integer"),
        Column("Losses", ".status.losses", "VMIs that match it and obey another", "integer"),
        Column("Active", ".status.conditions[?(@.type=='Active')].status", "Whether it takes part in deciding"),
        Column("Enforced", ".status.conditions[?(@.type=='Enforced')].status", "Whether KubeVirt migrates by it"),
        AGE,
        Column("Reason", ".status.conditions[?(@.type=='Enforced')].reason", "Why it is enforced or not", wide=True),
        Column("Auto-Converge", ".spec.allowAutoConverge", "Slow guests down", "boolean", wide=True),
        Column("Bandwidth", ".spec.bandwidthPerMigration", "Bytes a second for one migration", wide=True),
        Column("Timeout", ".spec.completionTimeoutPerGiB", "Seconds for each GiB", "integer", wide=True),
        Column("Post-Copy", ".spec.allowPostCopy", "Go on before all memory is there", "boolean", wide=True),
        Column("Disable-TLS", ".spec.disableTLS", "Unencrypted", "boolean", wide=True),
    ),
    listed_at_admission=True,
    rules=(migrationpolicy.NAME_IS_A_LABEL,),
    checks=migrationpolicy.CHECKS,
    warning_checks=migrationpolicy.WARNINGS,
    normalizer=migrationpolicy.normalize,
)
