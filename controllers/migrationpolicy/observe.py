"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from apimachinery.unstructured import Json
from controllers.migrationpolicy.board import Board
from controllers.migrationpolicy.state import Enforcer, Instance, Namespace, Policy, State
from controllers.shared.crd_presence import OptionalInformer
from migrationpolicies.effective_settings import cluster_settings
from runtime.resource import Resource
from runtime.store import Store

POLICIES = Resource("kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", namespaced=False)
INSTANCES = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
UPSTREAM = Resource("migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", namespaced=False)
KUBEVIRTS = Resource("kubevirt.io", "v1", "kubevirts", "KubeVirt")


@dataclass(frozen=True)
class KubeVirt:
    """Where KubeVirt is installed, and what it says about migrations."""

    namespace: str
    name: str
    migrations: Json


def kubevirt(document: Json) -> KubeVirt:
    metadata = document["metadata"]
    return KubeVirt(metadata["namespace"], metadata["name"], cluster_settings(document))


@dataclass(frozen=True)
class Stores:
    policies: Store[Policy]
    namespaces: Store[Namespace]
    instances: Store[Instance]
    upstream: OptionalInformer[Enforcer]
    kubevirts: OptionalInformer[KubeVirt]

    @property
    def known(self) -> bool:
        """Whether KubeVirt's side has been seen. Before that, nothing is said or done about it."""
        return self.upstream.known and self.kubevirts.known


def observe(stores: Stores, board: Board, name: str) -> State | None:
    policy = stores.policies.get(("", name))
    if policy is None:
        return None
    return State(
        policy=policy,
        elder=board.elder(name),
        wins=board.wins(name),
        losses=board.losses(name),
        served=stores.upstream.served,
        enforcer=stores.upstream.get(name),
        threats=tuple(
            each.name
            for each in stores.upstream.all
            if not _enforces(stores, each) and each.upstream.threatens(policy.ranked)
        ),
        configuration=_configuration(stores),
    )


def _enforces(stores: Stores, each: Enforcer) -> bool:
    """Whether it is one of ours; what it selects is then our own affair."""
    policy = stores.policies.get(("", each.name))
    return policy is not None and policy.uid == each.owner


def _configuration(stores: Stores) -> Json:
    """There is one KubeVirt in a cluster. Should there be two, it is always the same one that counts."""
    found = sorted(stores.kubevirts.all, key=lambda each: (each.namespace, each.name))
    return found[0].migrations if found else {}
