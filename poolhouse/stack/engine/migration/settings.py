"""Computes a VMI's migration settings. The matching upstream policy overrides KubeVirt's configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import choose
from poolhouse.api.migrationpolicies import effective_settings as policy_settings
from poolhouse.api.migrationpolicies.effective_settings import DISRUPTION, POST_COPY, ClusterMigrations
from poolhouse.api.migrationpolicies.upstream import UpstreamPolicy


@dataclass(frozen=True)
class MigrationSettings:
    policy: str = ""
    """name of the matching policy"""
    bandwidth: int = 0
    """bytes per second, in whole MiB; 0 means no limit"""
    seconds_per_gib: int = 150
    auto_converge: bool = False
    post_copy: bool = False
    disruption: bool = False
    """whether a migration that exceeds its timeout may disrupt the guest"""
    max_downtime_ms: int | None = None
    """None: QEMU's default"""
    values: Json | None = None
    """the settings as KubeVirt writes them into the VMI's migrationState"""

    @property
    def at_timeout(self) -> Literal["PostCopy", "Paused"] | None:
        """The mode in which the migration goes on after its timeout. None: it is aborted."""
        if not self.disruption:
            return None
        return "PostCopy" if self.post_copy else "Paused"

    def timeout_seconds(self, memory: int) -> float | None:
        """Returns the timeout of a migration for an amount of memory, in whole GiB as in KubeVirt. None: no timeout."""
        if not self.seconds_per_gib:
            return None
        return float(self.seconds_per_gib * -(-memory // (1 << 30)))


def timeout_message(seconds: float, progress: Mapping[str, int]) -> str:
    """Returns the message of a migration that was aborted at its timeout, with libvirt's job statistics if known."""
    message = f"Live migration is not completed after {seconds:g} seconds and has been aborted"
    if not progress.get("memory_total"):
        return message
    rounds, left, speed = (progress.get(f"memory_{name}", 0) for name in ("iteration", "remaining", "bps"))
    writes = progress.get("memory_dirty_rate", 0) * progress.get("memory_page_size", 4096)
    of = f"{_mib(left)} of {_mib(progress['memory_total'])} MiB were left in round {rounds}"
    return f"{message}: {of}, copied at {_mib(speed)} MiB/s while the guest writes {_mib(writes)} MiB/s"


def _mib(size: int) -> int:
    return round(size / (1 << 20))


def effective_settings(
    labels: Mapping[str, str], namespace: Mapping[str, str], policies: Iterable[Json], kubevirts: Iterable[Json]
) -> MigrationSettings:
    winner = winning_policy(labels, namespace, policies)
    spec = dict(winner["spec"]) if winner is not None else {}
    if spec.get(POST_COPY) is not None and spec.get(DISRUPTION) is None:
        spec[DISRUPTION] = spec[POST_COPY]  # as KubeVirt does, also against its configuration
    found = policy_settings.effective_settings(spec, ClusterMigrations.of(choose(kubevirts)))
    # The engine has no experimental settings.
    values = {name: setting.value for name, setting in found.items() if "." not in name}
    return MigrationSettings(
        policy=winner["metadata"]["name"] if winner is not None else "",
        bandwidth=mebibytes(to_int(str(values["bandwidthPerMigration"])) or 0) << 20,
        seconds_per_gib=int(values["completionTimeoutPerGiB"]),
        auto_converge=bool(values["allowAutoConverge"]),
        post_copy=bool(values[POST_COPY]),
        disruption=bool(values[DISRUPTION]),
        max_downtime_ms=values.get("maxDowntimeMs"),
        values=values,
    )


def mebibytes(size: int) -> int:
    """Converts bytes to MiB, rounded as in KubeVirt. A limit becomes at least 1, because 0 means no limit."""
    return max(1, (size + (1 << 19)) >> 20) if size else 0


def winning_policy(labels: Mapping[str, str], namespace: Mapping[str, str], policies: Iterable[Json]) -> Json | None:
    """Returns the policy that KubeVirt applies to a VMI, by the labels of the VMI and of its namespace."""
    ranked = ((UpstreamPolicy.of(document), document) for document in policies)
    matching = [(policy.rank, document) for policy, document in ranked if policy.matches(labels, namespace)]
    return min(matching, key=lambda pair: pair[0])[1] if matching else None
