"""Migration policies for tests. A test gives only the fields that matter to it."""

from __future__ import annotations

from typing import Any

from poolhouse.api.kinds.resource_types import MIGRATION_POLICIES
from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations
from poolhouse.api.migrationpolicies.upstream import upstream_spec
from poolhouse.runtime.resource import UPSTREAM_POLICIES
from tests.builders import manifest, owned_by

Json = dict[str, Any]


def policy(
    name: str,
    instance: Any = None,
    namespace: Any = None,
    *,
    created: str | None = None,
    uid: str | None = None,
    **settings: Any,
) -> Json:
    """A MigrationPolicy; a selector that is None is left out, and one that is not stored yet has no UID."""
    selectors = {
        which: {"matchLabels": labels}
        for which, labels in (("virtualMachineInstanceSelector", instance), ("namespaceSelector", namespace))
        if labels is not None
    }
    spec = {**settings, **({"selectors": selectors} if selectors else {})}
    return manifest(MIGRATION_POLICIES, name, spec, creationTimestamp=created, uid=uid)


def enforcer(policy: Json, **changed: Any) -> Json:
    """KubeVirt's policy that enforces this one of ours."""
    name, uid = policy["metadata"]["name"], policy["metadata"]["uid"]
    spec = upstream_spec(name, policy["spec"], ClusterMigrations()) | changed
    return manifest(UPSTREAM_POLICIES, name, spec, ownerReferences=owned_by(MIGRATION_POLICIES, name, uid))


def upstream(name: str, instance: Json | None = None, namespace: Json | None = None) -> Json:
    """A policy of KubeVirt's own."""
    selectors = {"virtualMachineInstanceSelector": instance, "namespaceSelector": namespace}
    given = {which: labels for which, labels in selectors.items() if labels is not None}
    return manifest(UPSTREAM_POLICIES, name, {"selectors": given})
