"""What migration policies measure."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from apimachinery.unstructured import Json
from runtime.metrics import PREFIX


class PolicyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._wins = Gauge(
            f"{PREFIX}migration_policy_wins", "VMIs that obey the policy.", ("policy",), registry=registry
        )
        self._losses = Gauge(
            f"{PREFIX}migration_policy_losses", "VMIs that match it, obeying another.", ("policy",), registry=registry
        )
        self._enforced = Gauge(
            f"{PREFIX}migration_policy_enforced", "1 while KubeVirt obeys it.", ("policy",), registry=registry
        )
        self.stamps = Counter(f"{PREFIX}migration_policy_stamps_total", "VMIs stamped anew.", registry=registry)
        self.repairs = Counter(
            f"{PREFIX}migration_policy_repairs_total", "Drifts of KubeVirt's policies repaired.", registry=registry
        )
        self._of_policies = (self._wins, self._losses, self._enforced)

    def policy(self, name: str, status: Json) -> None:
        self._wins.labels(name).set(status["wins"])
        self._losses.labels(name).set(status["losses"])
        holds = any(each["type"] == "Enforced" and each["status"] == "True" for each in status["conditions"])
        self._enforced.labels(name).set(holds)

    def gone(self, name: str) -> None:
        for gauge in self._of_policies:
            # It has none for a policy that was never counted.
            with suppress(KeyError):
                gauge.remove(name)

    def clear(self) -> None:
        """We don't lead any more: another replica measures."""
        for gauge in self._of_policies:
            gauge.clear()
