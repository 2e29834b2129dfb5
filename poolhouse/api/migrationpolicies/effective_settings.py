"""Determines a VMI's migration settings and their source: a policy, KubeVirt's configuration or its defaults.

`SETTINGS` has each setting of a policy with the releases and feature gates of KubeVirt that have it. Releases refuse or
drop the settings that they do not have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json, at, value_text
from poolhouse.api.kubevirt import cluster_settings
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import (
    DOWNTIME_TUNING,
    MAIN,
    MIGRATION_COMPRESSION,
    OLDEST,
    STALL_DETECTION,
    FeatureGate,
    Release,
)

Source = Literal["policy", "kubevirt", "default"]

POST_COPY, DISRUPTION = "allowPostCopy", "allowWorkloadDisruption"


@dataclass(frozen=True)
class MigrationSetting:
    name: str
    """the path in a policy's spec"""
    default: Any = None
    """KubeVirt's default; None for a setting that is left out unless somebody sets it"""
    cluster_wide: bool = False
    """whether KubeVirt has the setting only in its configuration, not in its own migration policies"""
    since: Release = OLDEST
    gates: tuple[FeatureGate, ...] = ()
    """KubeVirt has the setting if one of these gates is enabled, or always if there is none."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    def missing(self, cluster: ClusterSettings) -> str:
        """Why this cluster's KubeVirt does not have the setting, or ""."""
        if any(cluster.enables(gate) for gate in self.gates):
            return ""
        needed = "{}.{}".format(*self.since)
        if cluster.release is None and self.since > OLDEST:
            return f"it needs KubeVirt {needed}, and this cluster's release is not known"
        if cluster.release is not None and cluster.release < self.since:
            return "it needs KubeVirt {}, and this cluster has {}.{}".format(needed, *cluster.release)
        release = cluster.release or MAIN
        gate = " or ".join(gate.name for gate in self.gates if gate.alpha is None or gate.alpha <= release)
        return f"it needs KubeVirt's feature gate {gate}, which is off" if gate else ""


# 0 bytes a second means no limit.
SETTINGS = (
    MigrationSetting("allowAutoConverge", False),
    MigrationSetting("bandwidthPerMigration", "0"),
    MigrationSetting("completionTimeoutPerGiB", 150),
    MigrationSetting(POST_COPY, False),
    MigrationSetting(DISRUPTION, False),
    MigrationSetting("maxDowntimeMs", 900, since=(1, 9), gates=(STALL_DETECTION, DOWNTIME_TUNING)),
    MigrationSetting("experimental.stallDetector", since=(1, 9), gates=(STALL_DETECTION,)),
    MigrationSetting("experimental.downtimeTuning", since=(1, 10), gates=(DOWNTIME_TUNING,)),
    MigrationSetting("experimental.compression", since=MIGRATION_COMPRESSION),
    MigrationSetting("disableTLS", False, cluster_wide=True),
)
BY_NAME: Mapping[str, MigrationSetting] = MappingProxyType({each.name: each for each in SETTINGS})


@dataclass(frozen=True)
class ClusterMigrations:
    """The migration settings of a cluster's KubeVirt, and why it does not have others."""

    configured: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """by name of the setting"""

    @classmethod
    def of(cls, kubevirt: Json | None) -> "ClusterMigrations":
        """`kubevirt` is the KubeVirt object, or its `excerpt`; None in a cluster without one."""
        settings = ClusterSettings.of(kubevirt or {})
        configuration = at(kubevirt, "spec", "configuration", "migrations")
        return cls(
            {each.name: found for each in SETTINGS if (found := at(configuration, *each.path)) is not None},
            {each.name: why for each in SETTINGS if (why := each.missing(settings))},
        )


def excerpt(kubevirt: Json) -> Json:
    """The part of a KubeVirt object that `ClusterMigrations` reads."""
    found = cluster_settings.excerpt(kubevirt)
    migrations = at(kubevirt, "spec", "configuration", "migrations")
    return {**found, "spec": {"configuration": {**found["spec"]["configuration"], "migrations": migrations}}}


@dataclass(frozen=True)
class Setting:
    value: Any
    source: Source
    ignored: Any = None
    """the policy's value, if KubeVirt does not apply it"""
    why: str = ""
    """why KubeVirt does not apply the policy's value"""


def said(policy: Any, name: str) -> Any:
    """The value of a setting in a policy's spec; None if the policy leaves it out."""
    return at(policy, *BY_NAME[name].path)


def effective_settings(policy: Mapping[str, Any] | None, cluster: ClusterMigrations) -> dict[str, Setting]:
    """The settings by name. `policy` is a MigrationPolicy's spec. Settings that nobody sets and that have no default in
    this cluster are left out."""
    found = {each.name: setting for each in SETTINGS if (setting := _setting(each, policy, cluster))}
    if follows_post_copy(policy, cluster):
        found[DISRUPTION] = Setting(found[POST_COPY].value, found[POST_COPY].source)
    return found


def follows_post_copy(policy: Mapping[str, Any] | None, cluster: ClusterMigrations) -> bool:
    """Whether allowWorkloadDisruption has the value of allowPostCopy, as KubeVirt does where nobody sets the former.

    A policy that allows post-copy allows the disruption that post-copy needs. A policy that forbids post-copy leaves
    the disruption to KubeVirt's configuration."""
    if said(policy, DISRUPTION) is not None:
        return False
    return DISRUPTION not in cluster.configured or said(policy, POST_COPY) is True


def ignored_settings(policy: Mapping[str, Any], cluster: ClusterMigrations) -> dict[str, str]:
    """Settings of the policy that KubeVirt does not apply, with the reasons."""
    return {name: each.why for name, each in effective_settings(policy, cluster).items() if each.ignored is not None}


def missing_settings(policy: Any, cluster: ClusterSettings) -> Iterator[str]:
    """Warnings about settings that this cluster's KubeVirt does not have. Those that it has only for the whole cluster
    are a check of the kind."""
    for each in SETTINGS:
        if said(policy, each.name) is not None and (why := each.missing(cluster)):
            yield f"spec.{each.name}: this cluster ignores it: {why}"


def _setting(each: MigrationSetting, policy: Any, cluster: ClusterMigrations) -> Setting | None:
    value, configured, missing = said(policy, each.name), cluster.configured.get(each.name), cluster.missing
    default = None if each.name in missing else each.default
    fallback = Setting(default, "default") if configured is None else Setting(configured, "kubevirt")
    if value is None:
        return None if fallback.value is None else fallback
    if why := missing.get(each.name):
        return Setting(fallback.value, fallback.source, value, why)
    if each.cluster_wide and value != fallback.value:
        why = f"KubeVirt has it for the whole cluster only, where it is {value_text(fallback.value)}"
        return Setting(fallback.value, fallback.source, value, why)
    return Setting(value, "policy")
