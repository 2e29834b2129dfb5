"""Warns about a policy, or a part of it, that has no effect in a cluster now."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.migrationpolicies.effective_settings import missing_settings
from poolhouse.api.migrationpolicies.expiry import is_expired


def without_effect(policy: Any, cluster: ClusterSettings | None, now: datetime) -> Iterator[str]:
    """Warnings about settings that have no effect now. `cluster` is None while KubeVirt's settings are unknown."""
    if is_expired(policy, now):
        yield "spec.expiresAt: is in the past, so the policy matches no VM"
    if cluster is not None:
        yield from missing_settings(at(policy, "spec"), cluster)
