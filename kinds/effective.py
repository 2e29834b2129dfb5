"""The settings by which a VM is migrated, and who said so: its policy, KubeVirt's own configuration, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from apimachinery.unstructured import Json, at

Source = Literal["policy", "kubevirt", "default"]

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "allowAutoConverge": False,
        "bandwidthPerMigration": "0",
        "completionTimeoutPerGiB": 150,
        "allowPostCopy": False,
        "disableTLS": False,
    }
)
"""What KubeVirt does when nobody says anything. A bandwidth of 0 is no limit."""

CLUSTER_WIDE = frozenset({"disableTLS"})
"""KubeVirt's own migration policies have no such field: its configuration decides, whatever a policy says."""


@dataclass(frozen=True)
class Setting:
    value: Any
    source: Source
    unheeded: Any = None
    """what the policy says instead and KubeVirt has no way to obey"""


def effective(policy: Mapping[str, Any] | None, configuration: Mapping[str, Any]) -> dict[str, Setting]:
    """`policy` is a MigrationPolicy's spec, `configuration` KubeVirt's `spec.configuration.migrations`."""
    found = {}
    for name, default in DEFAULTS.items():
        said, cluster = (policy or {}).get(name), configuration.get(name)
        beneath = Setting(default, "default") if cluster is None else Setting(cluster, "kubevirt")
        if said is None:
            found[name] = beneath
        elif name in CLUSTER_WIDE and said != beneath.value:
            found[name] = Setting(beneath.value, beneath.source, unheeded=said)
        else:
            found[name] = Setting(said, "policy")
    return found


def unheeded(policy: Mapping[str, Any], configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of the policy that KubeVirt will not obey."""
    return tuple(name for name, each in effective(policy, configuration).items() if each.unheeded is not None)


def configuration(kubevirt: Any) -> Json:
    """What KubeVirt's own object says about migrations."""
    found = at(kubevirt, "spec", "configuration", "migrations")
    return {name: found[name] for name in DEFAULTS if name in found} if isinstance(found, dict) else {}
