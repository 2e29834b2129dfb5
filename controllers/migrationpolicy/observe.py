"""The views of policies, VMIs and KubeVirt's policies, and the snapshot as the input of a plan."""

from dataclasses import dataclass, field
from datetime import datetime
from sys import intern

from controllers.migrationpolicy.winners import Winners
from controllers.shared.invalid_spec import parse_status
from controllers.shared.vmi import ObjectView
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY, MigrationPolicyStatus
from poolhouse.api.kubevirt.cluster_settings import choose
from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations
from poolhouse.api.migrationpolicies.expiry import expires_at, is_over
from poolhouse.api.migrationpolicies.precedence import Labels, RankedPolicy, is_active, ranked_policy
from poolhouse.api.migrationpolicies.upstream import UpstreamPolicy
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import Resource
from poolhouse.runtime.store import Store


@dataclass(frozen=True)
class VMILabels(ObjectView):
    """The facts about a VMI that decide its policy. This view is smaller than the shared view, to save memory."""

    labels: Labels
    winner: str | None
    """The stored label of the winning policy."""
    active: bool
    """Whether the VMI can be migrated: it is neither deleted nor finished."""


@dataclass(frozen=True)
class Namespace:
    name: str
    labels: Labels


@dataclass(frozen=True)
class Policy:
    name: str
    uid: str
    generation: int
    deleting: bool
    ranked: RankedPolicy
    problem: str
    """Why the stored policy is invalid, or an empty string."""
    spec: Json
    status: MigrationPolicyStatus
    expires_at: datetime | None = None

    namespace = ""

    @property
    def usable(self) -> bool:
        """Whether the policy could win VMIs before it expired."""
        return not self.deleting and not self.problem

    def expired(self, now: datetime) -> bool:
        return is_over(self.expires_at, now)

    def candidate(self, now: datetime) -> RankedPolicy | None:
        """The policy as a candidate for VMIs. None if it cannot win any VMI."""
        return self.ranked if self.usable and not self.expired(now) else None


@dataclass(frozen=True)
class EnforcingPolicy:
    """A policy of KubeVirt, which enforces a policy of Poolhouse or belongs to another owner."""

    name: str
    uid: str
    managed: bool
    """Whether the policy has the label of objects that Poolhouse manages."""
    deleting: bool
    spec: Json
    upstream: UpstreamPolicy

    @property
    def owner(self) -> str:
        """The UID of the controller owner, or an empty string."""
        return self.upstream.owner


@dataclass(frozen=True)
class PolicySnapshot:
    policy: Policy
    expired: bool = False
    older: str | None = None
    """The name of an older policy with the same selectors."""
    wins: int = 0
    losses: int = 0
    served: bool = True
    """Whether the cluster serves KubeVirt's policies."""
    enforcing: EnforcingPolicy | None = None
    overriding: tuple[str, ...] = ()
    """Names of other policies that KubeVirt may prefer."""
    cluster: ClusterMigrations = field(default_factory=ClusterMigrations)
    repair_postponed: bool = False
    """Whether a repair is postponed, because another client undid the last repairs."""
    refusal: str = ""
    """The API server's message about the last write of KubeVirt's policy."""
    unlabelled: tuple[int, str] = (0, "")
    """The number of VMIs that could not be labelled, and the first message."""

    @property
    def active(self) -> bool:
        return self.policy.usable and not self.expired and self.older is None and bool(self.policy.ranked.selectors)


def parse_vmi(document: Json) -> VMILabels:
    metadata = document["metadata"]
    labels = {intern(key): intern(value) for key, value in (metadata.get("labels") or {}).items()}
    winner = labels.pop(meta.MIGRATION_POLICY, None)
    return VMILabels(
        intern(metadata["namespace"]), metadata["name"], metadata["uid"], labels, winner, is_active(document)
    )


def parse_namespace(document: Json) -> Namespace:
    metadata = document["metadata"]
    return Namespace(metadata["name"], dict(metadata.get("labels") or {}))


def parse_policy(document: Json) -> Policy:
    metadata, spec = document["metadata"], document.get("spec")
    problems = MIGRATION_POLICY.problems(document)
    return Policy(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting=bool(metadata.get("deletionTimestamp")),
        ranked=ranked_policy(document),
        problem=str(problems[0]) if problems else "",
        spec=spec if isinstance(spec, dict) else {},
        status=parse_status(MigrationPolicyStatus, document),
        expires_at=expires_at(document),
    )


def parse_enforcing_policy(document: Json) -> EnforcingPolicy:
    metadata, spec = document["metadata"], document.get("spec")
    return EnforcingPolicy(
        name=metadata["name"],
        uid=metadata["uid"],
        managed=at(metadata, "labels", meta.MANAGED_BY) == meta.POOLHOUSE,
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=spec if isinstance(spec, dict) else {},
        upstream=UpstreamPolicy.of(document),
    )


POLICIES = Resource.of(MIGRATION_POLICY)


@dataclass(frozen=True)
class Stores:
    policies: Store[Policy]
    namespaces: Store[Namespace]
    vmis: Store[VMILabels]
    upstream: OptionalInformer[EnforcingPolicy]
    kubevirts: OptionalInformer[Json]
    """excerpts of KubeVirt objects"""

    @property
    def known(self) -> bool:
        """Whether KubeVirt's objects are listed, or known to be absent. Before that, the controller must not act."""
        return self.upstream.known and self.kubevirts.known


def observe(stores: Stores, winners: Winners, name: str, now: datetime) -> PolicySnapshot | None:
    policy = stores.policies.get(("", name))
    if policy is None:
        return None
    return PolicySnapshot(
        policy=policy,
        expired=policy.expired(now),
        older=winners.older_duplicate(name),
        wins=winners.wins(name),
        losses=winners.losses(name),
        served=stores.upstream.served,
        enforcing=stores.upstream.get(name),
        overriding=tuple(
            each.name
            for each in stores.upstream.all
            if not _enforces_ours(stores, each) and each.upstream.may_override(policy.ranked)
        ),
        cluster=ClusterMigrations.of(choose(stores.kubevirts.all)),
    )


def _enforces_ours(stores: Stores, each: EnforcingPolicy) -> bool:
    policy = stores.policies.get(("", each.name))
    return policy is not None and policy.uid == each.owner
