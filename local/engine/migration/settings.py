"""On what settings a VMI is migrated: the upstream policy that it matches, over KubeVirt's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apimachinery.quantity import to_int
from migrationpolicies import effective_settings as policy_settings

Json = dict[str, Any]


@dataclass(frozen=True)
class MigrationSettings:
    policy: str = ""
    """the winner's name"""
    bandwidth: int = 0
    """bytes a second, in whole MiB; 0 is no limit"""
    seconds_per_gib: int = 150
    auto_converge: bool = False
    post_copy: bool = False
    said: Json | None = None
    """the settings as KubeVirt writes them into the VMI's status"""

    def timeout_seconds(self, memory: int) -> float | None:
        """When a migration of so much memory that has not come to an end is given up. As in KubeVirt, a GiB that has
        begun counts as a whole one, and with 0 seconds a GiB it never is."""
        if not self.seconds_per_gib:
            return None
        return float(self.seconds_per_gib * -(-memory // (1 << 30)))


def timeout_message(seconds: float, progress: Mapping[str, int]) -> str:
    """Why a migration was given up when its time was over, by libvirt's figures as far as there are any."""
    said = f"Live migration is not completed after {seconds:g} seconds and has been aborted"
    if not progress.get("memory_total"):
        return said
    rounds, left, speed = (progress.get(f"memory_{name}", 0) for name in ("iteration", "remaining", "bps"))
    writes = progress.get("memory_dirty_rate", 0) * progress.get("memory_page_size", 4096)
    of = f"{_mib(left)} of {_mib(progress['memory_total'])} MiB were left in round {rounds}"
    return f"{said}: {of}, copied at {_mib(speed)} MiB/s while the guest writes {_mib(writes)} MiB/s"


def _mib(size: int) -> int:
    return round(size / (1 << 20))


def effective_settings(
    labels: Mapping[str, str], namespace: Mapping[str, str], policies: Iterable[Json], kubevirts: Iterable[Json]
) -> MigrationSettings:
    """For a VMI with these labels in a namespace with those."""
    winner = winning_policy(labels, namespace, policies)
    cluster = next((each for each in sorted(kubevirts, key=lambda each: str(each["metadata"]["name"]))), None)
    found = policy_settings.effective_settings(
        winner["spec"] if winner is not None else None, policy_settings.cluster_settings(cluster)
    )
    said = {name: setting.value for name, setting in found.items()}
    return MigrationSettings(
        policy=winner["metadata"]["name"] if winner is not None else "",
        bandwidth=mebibytes(to_int(str(said["bandwidthPerMigration"])) or 0) << 20,
        seconds_per_gib=int(said["completionTimeoutPerGiB"]),
        auto_converge=bool(said["allowAutoConverge"]),
        post_copy=bool(said["allowPostCopy"]),
        said=said,
    )


def mebibytes(size: int) -> int:
    """As KubeVirt tells libvirt, which counts in whole MiB: the nearest, but not 0, which would be no limit."""
    return max(1, (size + (1 << 19)) >> 20) if size else 0


def winning_policy(labels: Mapping[str, str], namespace: Mapping[str, str], policies: Iterable[Json]) -> Json | None:
    """KubeVirt's winner: most labels matched, then most of the VMI's, then by name."""
    best: tuple[tuple[int, int, str], Json] | None = None
    for policy in policies:
        selectors = (policy.get("spec") or {}).get("selectors")
        if selectors is None:
            continue
        of_vmi, of_namespace = (
            dict(selectors.get(key) or {}) for key in ("virtualMachineInstanceSelector", "namespaceSelector")
        )
        if not (of_vmi.items() <= labels.items() and of_namespace.items() <= namespace.items()):
            continue
        rank = -len(of_vmi) - len(of_namespace), -len(of_vmi), str(policy["metadata"]["name"])
        if best is None or rank < best[0]:
            best = rank, policy
    return best[1] if best is not None else None
