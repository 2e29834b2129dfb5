"""Warns about settings of a migration policy that this cluster's KubeVirt does not have."""

from collections.abc import Callable

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.migrationpolicies.effective_settings import missing_settings
from webhook.review import AdmissionRequest, AdmissionResponse


class MigrationSettings:
    """Asks the KubeVirt object for its release and feature gates."""

    def __init__(self, settings: Callable[[], ClusterSettings | None]) -> None:
        self._settings = settings

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        cluster = self._settings()
        if cluster is None or (request.api_version, request.kind) != (
            MIGRATION_POLICY.api_version,
            MIGRATION_POLICY.kind,
        ):
            return AdmissionResponse()
        return AdmissionResponse(warnings=tuple(missing_settings(at(request.object, "spec"), cluster)))
