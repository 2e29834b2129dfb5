"""Handles KubeVirt's own migration policies, which enforce Poolhouse's policies.

KubeVirt prefers the policy with more labels, then with more VMI labels, then by name. The enforcing policy selects by
one label, which the controller sets on the VMI. A policy of another owner with more labels, or with one label and a
name that comes first, can therefore override it. The status of Poolhouse's policy reports this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.migrationpolicies.effective_settings import (
    DISRUPTION,
    POST_COPY,
    SETTINGS,
    ClusterMigrations,
    follows_post_copy,
    said,
)
from poolhouse.api.migrationpolicies.precedence import ANY, Labels, RankedPolicy

API_VERSION = "migrations.kubevirt.io/v1alpha1"


@dataclass(frozen=True)
class UpstreamPolicy:
    """A policy of KubeVirt, in which the value "" matches only the empty value."""

    name: str
    instance: tuple[tuple[str, str], ...] = ()
    namespace: tuple[tuple[str, str], ...] = ()
    selects: bool = True
    """whether the policy has selectors; without selectors it matches nothing"""
    owner: str = ""
    """UID of the policy's controller in its owner references; empty without controller"""

    @classmethod
    def of(cls, document: Any) -> UpstreamPolicy:
        selectors = at(document, "spec", "selectors")
        return cls(
            name=str(at(document, "metadata", "name")),
            instance=_pairs(at(selectors, "virtualMachineInstanceSelector")),
            namespace=_pairs(at(selectors, "namespaceSelector")),
            selects=isinstance(selectors, dict),
            owner=str((controller_of(document) or {}).get("uid") or ""),
        )

    @property
    def rank(self) -> tuple[int, int, str]:
        """The sort key of KubeVirt's precedence. KubeVirt applies the matching policy with the lowest rank."""
        return -len(self.instance) - len(self.namespace), -len(self.instance), self.name

    def matches(self, instance: Labels, namespace: Labels) -> bool:
        return (
            self.selects
            and all(instance.get(key) == value for key, value in self.instance)
            and all(namespace.get(key) == value for key, value in self.namespace)
        )

    def outranks(self, name: str) -> bool:
        """Whether KubeVirt prefers this policy to the enforcing policy of the MigrationPolicy `name`."""
        return self.rank < (-1, -1, name)

    def may_override(self, policy: RankedPolicy) -> bool:
        """Whether KubeVirt can prefer this policy for a VMI to which the MigrationPolicy `policy` applies."""
        stamped = {**dict(policy.selectors.instance), meta.MIGRATION_POLICY: policy.name}
        return (
            self.selects
            and self.outranks(policy.name)
            and _possible(self.instance, stamped)
            and _possible(self.namespace, dict(policy.selectors.namespace))
        )


def upstream_spec(
    policy: str, settings: Mapping[str, Any], cluster: ClusterMigrations, found: Mapping[str, Any] | None = None
) -> Json:
    """The spec of KubeVirt's policy that enforces the MigrationPolicy `policy` with these settings, as far as the
    cluster has them. Settings in `found`, the spec as it is, that Poolhouse does not know stay."""
    kept = _unknown(found or {})
    for each in SETTINGS:
        value = said(settings, each.name)
        if value is not None and not each.cluster_wide and each.name not in cluster.missing:
            _put(kept, each.path, value)
    if said(settings, POST_COPY) is False and DISRUPTION not in kept and not follows_post_copy(settings, cluster):
        # KubeVirt would forbid the disruption with post-copy.
        kept[DISRUPTION] = cluster.configured[DISRUPTION]
    bandwidth = to_fraction(kept.get("bandwidthPerMigration"))
    if bandwidth is not None and bandwidth.denominator != 1:
        # KubeVirt subtracts 1 from a quantity with a fraction of a byte (QuantityToByte in vcpu.go), so that less than
        # one byte a second would be 0: no limit.
        kept["bandwidthPerMigration"] = str(math.ceil(bandwidth))
    return {**kept, "selectors": {"virtualMachineInstanceSelector": {meta.MIGRATION_POLICY: policy}}}


_KNOWN = frozenset({("selectors",), *(each.path for each in SETTINGS)})
_GROUPS = frozenset(each.path[:-1] for each in SETTINGS)


def _unknown(found: Mapping[str, Any], path: tuple[str, ...] = ()) -> Json:
    """The part of a spec that is neither selectors nor settings that Poolhouse knows."""
    left: Json = {}
    for name, value in found.items():
        here = (*path, name)
        if here in _GROUPS and isinstance(value, dict):
            if more := _unknown(value, here):
                left[name] = more
        elif here not in _KNOWN:
            left[name] = value
    return left


def _put(spec: Json, path: tuple[str, ...], value: Any) -> None:
    *parents, name = path
    for parent in parents:
        spec = spec.setdefault(parent, {})
    spec[name] = value


def _possible(wanted: tuple[tuple[str, str], ...], there: Labels) -> bool:
    """Whether an object with the labels `there` can also have the labels `wanted`. In `there`, "" is any value."""
    return all(there.get(key, ANY) in (ANY, value) for key, value in wanted)


def _pairs(selector: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(selector.items())) if isinstance(selector, dict) else ()
