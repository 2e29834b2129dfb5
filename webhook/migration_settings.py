"""Warns about a migration policy that has expired, or whose settings this cluster's KubeVirt does not have."""

from collections.abc import Callable
from datetime import datetime

from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.migrationpolicies.present_effect import without_effect
from webhook.review import AdmissionRequest, AdmissionResponse


class MigrationSettings:
    """Asks the KubeVirt object for its release and feature gates."""

    def __init__(self, settings: Callable[[], ClusterSettings | None], now: Callable[[], datetime]) -> None:
        self._settings, self._now = settings, now

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not request.is_of(MIGRATION_POLICY):
            return AdmissionResponse()
        return AdmissionResponse(warnings=tuple(without_effect(request.object, self._settings(), self._now())))
