"""Reads the stores into a PolicySnapshot."""

from __future__ import annotations

from dataclasses import dataclass

from apimachinery.unstructured import Json
from controllers.migrationpolicy.snapshot import EnforcingPolicy, Namespace, Policy, PolicySnapshot, VMILabels
from controllers.migrationpolicy.winners import Winners
from controllers.shared.crd_presence import OptionalInformer
from kinds.migrationpolicy import MIGRATION_POLICY
from migrationpolicies.effective_settings import cluster_settings
from runtime.resource import Resource
from runtime.store import Store

POLICIES = Resource.of(MIGRATION_POLICY)
UPSTREAM = Resource("migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", namespaced=False)
KUBEVIRTS = Resource("kubevirt.io", "v1", "kubevirts", "KubeVirt")


@dataclass(frozen=True)
class KubeVirt:
    """A KubeVirt object: its key, and its configuration of migrations."""

    namespace: str
    name: str
    migrations: Json


def parse_kubevirt(document: Json) -> KubeVirt:
    metadata = document["metadata"]
    return KubeVirt(metadata["namespace"], metadata["name"], cluster_settings(document))


@dataclass(frozen=True)
class Stores:
    policies: Store[Policy]
    namespaces: Store[Namespace]
    vmis: Store[VMILabels]
    upstream: OptionalInformer[EnforcingPolicy]
    kubevirts: OptionalInformer[KubeVirt]

    @property
    def known(self) -> bool:
        """KubeVirt's objects have been listed, or are known to be absent. Before that, the controller must not act."""
        return self.upstream.known and self.kubevirts.known


def observe(stores: Stores, winners: Winners, name: str) -> PolicySnapshot | None:
    policy = stores.policies.get(("", name))
    if policy is None:
        return None
    return PolicySnapshot(
        policy=policy,
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
        configuration=_configuration(stores),
    )


def _enforces_ours(stores: Stores, each: EnforcingPolicy) -> bool:
    policy = stores.policies.get(("", each.name))
    return policy is not None and policy.uid == each.owner


def _configuration(stores: Stores) -> Json:
    """A cluster has one KubeVirt object. If there are several, the choice is stable."""
    found = sorted(stores.kubevirts.all, key=lambda each: (each.namespace, each.name))
    return found[0].migrations if found else {}
