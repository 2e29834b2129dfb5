"""Determines a VMI's migration settings and their source: a policy, KubeVirt's configuration or its defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json, at

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
"""KubeVirt's defaults. A bandwidth of 0 means no limit."""

CLUSTER_WIDE = frozenset({"disableTLS"})
"""settings that KubeVirt supports only in its configuration, not in its own migration policies"""


@dataclass(frozen=True)
class Setting:
    value: Any
    source: Source
    unsupported: Any = None
    """the policy's value, if KubeVirt cannot apply it"""


def effective_settings(policy: Mapping[str, Any] | None, cluster: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings by name. `policy` is a MigrationPolicy's spec, `cluster` is `spec.configuration.migrations`."""
    found = {}
    for name, default in DEFAULTS.items():
        said, configured = (policy or {}).get(name), cluster.get(name)
        fallback = Setting(default, "default") if configured is None else Setting(configured, "kubevirt")
        if said is None:
            found[name] = fallback
        elif name in CLUSTER_WIDE and said != fallback.value:
            found[name] = Setting(fallback.value, fallback.source, unsupported=said)
        else:
            found[name] = Setting(said, "policy")
    return found


def unsupported_settings(policy: Mapping[str, Any], cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of the policy that KubeVirt cannot apply."""
    return tuple(name for name, each in effective_settings(policy, cluster).items() if each.unsupported is not None)


def cluster_settings(kubevirt: Any) -> Json:
    """The migration settings in a KubeVirt object."""
    found = at(kubevirt, "spec", "configuration", "migrations")
    return {name: found[name] for name in DEFAULTS if name in found} if isinstance(found, dict) else {}
