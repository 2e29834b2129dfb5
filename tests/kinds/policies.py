"""Migration policies for tests. A test gives only the fields that matter to it."""

from __future__ import annotations

from typing import Any

from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations
from poolhouse.api.migrationpolicies.upstream import upstream_spec

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
    given = {"name": name, "creationTimestamp": created, "uid": uid}
    metadata = {key: value for key, value in given.items() if value is not None}
    spec = {**settings, **({"selectors": selectors} if selectors else {})}
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": metadata,
        "spec": spec,
    }


def enforcer(policy: Json, **changed: Any) -> Json:
    """KubeVirt's policy that enforces this one of ours."""
    metadata = {"name": policy["metadata"]["name"]}
    metadata["ownerReferences"] = [{"uid": policy["metadata"]["uid"], "controller": True}]
    return {
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": metadata,
        "spec": upstream_spec(metadata["name"], policy["spec"], ClusterMigrations()) | changed,
    }


def upstream(name: str, instance: Json | None = None, namespace: Json | None = None) -> Json:
    """A policy of KubeVirt's own."""
    selectors = {"virtualMachineInstanceSelector": instance, "namespaceSelector": namespace}
    return {
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": {"name": name},
        "spec": {"selectors": {which: labels for which, labels in selectors.items() if labels is not None}},
    }
