"""MigrationPolicy: settings for live migrations of the selected VMIs."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from poolhouse.api.apimachinery.quantity import DECIMAL
from poolhouse.api.kinds.checks import migrationpolicy
from poolhouse.api.kinds.conditions import describe_conditions
from poolhouse.api.kinds.experimental_migration import ExperimentalMigration
from poolhouse.api.kinds.kind import AGE, Column, Kind
from poolhouse.api.kinds.metav1 import Conditions, StatusModel
from poolhouse.api.kinds.model import AtomicModel, Count, Int64, IntOrString, Model, Time, expected
from poolhouse.api.kinds.resource_types import MIGRATION_POLICIES
from poolhouse.api.kinds.validation import quoted

# Users write `hpc-workloads: true`, which YAML reads as a boolean. A structural schema cannot express "text or
# boolean". The schema therefore allows any value, and the kind's checks validate the value.
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
        rf"^\+?{DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE][-+]?{DECIMAL}))?$",
        'a quantity of bytes a second that is not negative, such as "64Mi" or 50000000, or 0 for no limit',
        minimum=0,
        max_length=32,
    ),
]


class RequiredLabels(AtomicModel):
    """Selects objects by labels. An object must have all of the labels."""

    hints: ClassVar[Mapping[str, str]] = {
        "matchExpressions": "a policy selects by matchLabels only, because its labels are counted"
    }

    match_labels: Annotated[dict[str, LabelText], Field(max_length=64, default_factory=dict)]
    """Required labels and their values. "" matches any value."""


class Selectors(Model):
    """VirtualMachineInstances that the policy applies to. Both selectors must match. An empty or absent selector
    matches everything, but if both are empty or absent the policy applies to no VMI."""

    namespace_selector: RequiredLabels | None = None
    """Required labels of the VMI's namespace."""
    virtual_machine_instance_selector: RequiredLabels | None = None
    """Required labels of the VMI."""


class MigrationPolicySpec(Model):
    """Migration settings and the VMIs that they apply to. Settings default to KubeVirt's configuration."""

    hints: ClassVar[Mapping[str, str]] = {
        "namespaceSelector": "put it inside selectors",
        "virtualMachineInstanceSelector": "put it inside selectors",
        "matchLabels": "put it inside selectors.virtualMachineInstanceSelector",
        "stallDetector": "put it inside experimental",
        "downtimeTuning": "put it inside experimental",
        "compression": "put it inside experimental",
        **dict.fromkeys(
            migrationpolicy.CLUSTER_WIDE,
            "KubeVirt has it only for the whole cluster, in spec.configuration.migrations of the KubeVirt object",
        ),
    }

    allow_auto_converge: bool | None = None
    """Whether a guest that writes memory faster than the migration copies it is slowed down."""
    bandwidth_per_migration: Bandwidth | None = None
    """Maximum bandwidth of one migration in bytes per second, for example `64Mi`. 0: no limit. KubeVirt rounds to whole
    MiB, at least 1Mi."""
    completion_timeout_per_gib: Annotated[Int64 | None, Field(ge=0, alias="completionTimeoutPerGiB")] = None
    """Maximum seconds per GiB of memory. After that the migration continues as post-copy or with the guest paused, if
    allowed, else it is aborted. 0: no limit."""
    allow_post_copy: bool | None = None
    """Whether the guest may run on the target before all of its memory is copied. If the connection breaks then, the
    guest is lost."""
    allow_workload_disruption: bool | None = None
    """Whether a migration that exceeds its time may disrupt the guest: it switches to post-copy, or pauses the guest if
    post-copy is not allowed. Defaults to KubeVirt's configuration. KubeVirt gives it the value of allowPostCopy where
    nobody sets it, and where the policy allows post-copy."""
    max_downtime_ms: Annotated[Int64 | None, Field(ge=1, le=2_000_000)] = None
    """Milliseconds for which the guest may stand still at the end of a migration. Needs KubeVirt 1.9 and its feature
    gate MigrationStallDetection."""
    experimental: ExperimentalMigration | None = None
    """Experimental settings of KubeVirt 1.9 and later, which KubeVirt may remove in any release."""
    disable_tls: Annotated[bool | None, Field(alias="disableTLS")] = None
    """Whether the guest's memory is sent unencrypted. KubeVirt supports this only for the whole cluster: a policy with
    a different value has the condition Enforced=False."""
    expires_at: Time | None = None
    """Time from which the policy applies to no VMI, such as `2026-12-01T06:00:00Z`, for a drain or an upgrade. VMIs get
    the policy back that they had before. Defaults to never."""
    selectors: Selectors | None = None
    """VirtualMachineInstances that the policy applies to. Defaults to none."""


class MigrationPolicyStatus(StatusModel):
    """Observed state of the policy."""

    wins: Count = 0
    """VirtualMachineInstances that this policy applies to."""
    losses: Count = 0
    """VirtualMachineInstances that match this policy, but to which a policy with precedence applies."""
    conditions: Annotated[Conditions, Field(description=describe_conditions(MIGRATION_POLICIES))] = ()


MIGRATION_POLICY = Kind(
    **vars(MIGRATION_POLICIES),
    categories=("poolhouse",),
    doc="Settings of live migrations of the VMIs that the policy selects. If several policies match a VMI, the one with"
    " the most labels in its selectors wins; among these, the one whose label keys come first in lexicographic order;"
    " among policies with the same keys, the one that requires more values.",
    spec=MigrationPolicySpec,
    status=MigrationPolicyStatus,
    columns=(
        Column("Wins", ".status.wins", "VMIs that this policy applies to", "integer"),
        Column("Losses", ".status.losses", "VMIs that match but get another policy", "integer"),
        Column("Active", ".status.conditions[?(@.type=='Active')].status", "Whether the policy can win"),
        Column(
            "Enforced",
            ".status.conditions[?(@.type=='Enforced')].status",
            "Whether KubeVirt migrates with its settings",
        ),
        AGE,
        Column(
            "Reason", ".status.conditions[?(@.type=='Enforced')].reason", "Reason of the condition Enforced", wide=True
        ),
        Column("Expires", ".spec.expiresAt", "Time from which the policy applies to no VMI", wide=True),
        Column("Auto-Converge", ".spec.allowAutoConverge", "Slow down guests", "boolean", wide=True),
        Column("Bandwidth", ".spec.bandwidthPerMigration", "Maximum bytes per second", wide=True),
        Column("Timeout", ".spec.completionTimeoutPerGiB", "Maximum seconds per GiB", "integer", wide=True),
        Column(
            "Post-Copy", ".spec.allowPostCopy", "Run on the target before all memory is copied", "boolean", wide=True
        ),
        Column("Disable-TLS", ".spec.disableTLS", "Send memory unencrypted", "boolean", wide=True),
    ),
    listed_at_admission=True,
    rules=(migrationpolicy.NAME_RULE,),
    checks=migrationpolicy.CHECKS,
    warning_checks=migrationpolicy.WARNINGS,
    normalizer=migrationpolicy.normalize,
)
