"""Warns about a pool that takes snapshots before updates, in a cluster that cannot take them."""

import asyncio
from collections.abc import Callable

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.kubevirt_snapshots import VM_SNAPSHOT
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import IN_PLACE_RESTORE, SNAPSHOT, dotted
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse

PATH = "spec.updateStrategy.proactive.snapshotBeforeUpdate"


class SnapshotSupport:
    """Asks the API server whether it serves VirtualMachineSnapshots, and the KubeVirt object for its feature gate."""

    def __init__(self, api: Api, settings: Callable[[], ClusterSettings | None], *, budget_seconds: float) -> None:
        self._api, self._settings, self._budget_seconds = api, settings, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not request.is_of(POOL) or not takes_snapshots(request.object):
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                found = await self._api.request("GET", f"/apis/{VM_SNAPSHOT.group}/{VM_SNAPSHOT.versions[0]}")
        except NotFound:
            found = {}
        except (ApiError, TimeoutError) as error:
            return AdmissionResponse(warnings=(f"{PATH}: cannot find out about snapshots: {cause_of(error)}",))
        served = any(each.get("name") == VM_SNAPSHOT.plural for each in found.get("resources") or ())
        warning = describe_support(served, self._settings())
        return AdmissionResponse(warnings=(f"{PATH}: {warning}",) if warning else ())


def takes_snapshots(document: Json | None) -> bool:
    return at(document, "spec", "updateStrategy", "proactive", "snapshotBeforeUpdate") is True


def describe_support(served: bool, settings: ClusterSettings | None) -> str:
    """Why snapshots or their restores are not possible; "" if they are, or if KubeVirt's release is unknown."""
    if not served:
        return (
            f"the cluster does not serve {VM_SNAPSHOT.plural}.{VM_SNAPSHOT.group}/{VM_SNAPSHOT.versions[0]}: no VM is"
            " updated until it does"
        )
    if settings is None or settings.release is None:
        return ""
    if not settings.enables(SNAPSHOT):
        return f"KubeVirt's feature gate {SNAPSHOT.name} is off: no VM is updated until it is on"
    if settings.release < IN_PLACE_RESTORE:
        needed = dotted(IN_PLACE_RESTORE)
        return f"`rollout undo --restore-snapshots` needs KubeVirt {needed} or later"
    return ""
