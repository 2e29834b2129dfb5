"""Metrics of migration policies."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter

from controllers.migrationpolicy.reasons import ActiveReason
from controllers.shared.conditions import find_condition
from controllers.shared.metrics import ObjectMetrics
from poolhouse.api.kinds.migrationpolicy import MigrationPolicyStatus
from poolhouse.runtime.metrics import PREFIX


class PolicyMetrics(ObjectMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        def count(name: str, text: str) -> Counter:
            return Counter(f"{PREFIX}migration_policy_{name}_total", text, registry=registry)

        super().__init__(registry, "migration_policy", ("policy",))
        self._wins = self.gauge("wins", "VMIs that use the policy.")
        self._losses = self.gauge("losses", "VMIs that match the policy and use another.")
        self._enforced = self.gauge("enforced", "1 while KubeVirt applies the policy. An expired policy has no value.")
        self.labels = count("stamps", "Labels of VMIs that were written or removed.")
        self.repairs = count("repairs", "Repairs of KubeVirt's policies after a foreign change.")

    def update(self, name: str, status: MigrationPolicyStatus) -> None:
        self._wins.labels(name).set(status.wins)
        self._losses.labels(name).set(status.losses)
        enforced = find_condition(status.conditions, "Enforced", "True") is not None
        if any(each.reason == ActiveReason.EXPIRED for each in status.conditions):
            with suppress(KeyError):
                self._enforced.remove(name)
        else:
            self._enforced.labels(name).set(enforced)
