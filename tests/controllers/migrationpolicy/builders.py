"""Builds snapshots; a test names only what matters to it."""

from __future__ import annotations

from typing import Any

from controllers.migrationpolicy.observe import (
    EnforcingPolicy,
    Policy,
    PolicySnapshot,
    parse_enforcing_policy,
    parse_policy,
)
from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations
from poolhouse.api.migrationpolicies.upstream import upstream_spec
from tests.kinds.policies import policy as document
from tests.kinds.policies import upstream

UID = "the-policys-uid"
SETTINGS = ("allow", "band", "disable", "experimental", "expires", "max")
"""the first letters of settings, as opposed to other fields of a policy"""


def policy(name: str = "gold", instance: Any = None, *, uid: str = UID, **changed: Any) -> Policy:
    settings = {key: changed.pop(key) for key in list(changed) if key.startswith(SETTINGS)}
    found = document(name, {"app": "web"} if instance is None else instance, **settings)
    found["metadata"] |= {"uid": uid, "generation": 1, **changed.pop("metadata", {})}
    return parse_policy({**found, **changed})


def enforcing(name: str = "gold", *, owner: str = UID, managed: bool = True, **changed: Any) -> EnforcingPolicy:
    found = upstream(name)
    found["metadata"] |= {
        "uid": f"uid-of-{name}",
        "labels": {"app.kubernetes.io/managed-by": "poolhouse"} if managed else {},
        "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        **changed.pop("metadata", {}),
    }
    spec = changed.pop("spec", None) or upstream_spec(name, {}, ClusterMigrations())
    return parse_enforcing_policy({**found, "spec": spec})


def given(of: Policy | None = None, **known: Any) -> PolicySnapshot:
    return PolicySnapshot(of or policy(), **known)


def cluster(*gates: str, release: str = "v1.9.0", **configured: Any) -> ClusterMigrations:
    """A cluster with these feature gates, and these migration settings in its KubeVirt object."""
    configuration = {"migrations": configured, "developerConfiguration": {"featureGates": list(gates)}}
    return ClusterMigrations.of(
        {"spec": {"configuration": configuration}, "status": {"observedKubeVirtVersion": release}}
    )
