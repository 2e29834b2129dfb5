"""Disks of the same name in a pool's namespace: of another pool, and of a VM that is in none.

Only warnings. The controller never lets two VMs write to one disk, whoever was first; but its author should hear now
why VMs will be missing, and not wonder later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from apimachinery.unstructured import Json, at, entries
from kinds import meta
from kinds.pool import POOL
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import VMS, Resource
from webhook.review import AdmissionRequest, AdmissionResponse

POOLS = Resource(POOL.group, POOL.versions[0], POOL.plural, POOL.kind, POOL.namespaced)
MOST = 500
"""VMs outside pools that are looked at: the answer is awaited by a person"""
NAMED = 3
WHERE = "spec.template.spec.dataVolumeTemplates"


class DiskConflicts:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api = api
        self._budget_seconds = budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """On a pool whose disks have new names."""
        if (request.api_version, request.kind) != (POOL.api_version, POOL.kind):
            return AdmissionResponse()
        names = disks(request.object) - disks(request.old)
        if not names:
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                pools, _ = await self._api.list(POOLS, request.namespace)
                query = {"labelSelector": f"!{meta.POOL}", "limit": str(MOST)}
                machines = await self._api.request("GET", VMS.path(request.namespace), query=query)
        except (ApiError, TimeoutError):
            return AdmissionResponse()  # a warning that nobody waits for; the controller will say it
        others = [each for each in pools if at(each, "metadata", "name") != request.name]
        return AdmissionResponse(warnings=(*shared(names, others), *passed_over(names, machines.get("items") or ())))


def disks(pool: Json | None) -> set[str]:
    """Names of the disks in its template."""
    found = (at(each, "metadata", "name") for _, each in entries(pool, *WHERE.split(".")))
    return {name for name in found if isinstance(name, str)}


def shared(names: set[str], pools: Iterable[Json]) -> Iterator[str]:
    for pool in pools:
        for name in sorted(names & disks(pool)):
            yield (
                f"{WHERE}: {name} is also pool {pool['metadata']['name']}'s, and VMs of both would write to one disk: "
                "give it another name, the younger of the two creates nothing until then"
            )


def passed_over(names: set[str], machines: Iterable[Json]) -> Iterator[str]:
    """The numbers of VMs that would find somebody else's disk."""
    found: dict[str, list[str]] = {}
    for vm in machines:
        for _, each in entries(vm, "spec", "dataVolumeTemplates"):
            stem, _, number = str(at(each, "metadata", "name") or "").rpartition("-")
            if stem in names and number.isdecimal():
                found.setdefault(stem, []).append(f"{stem}-{number} of VM {vm['metadata']['name']}")
    for stem, taken in sorted(found.items()):
        more = f" and {len(taken) - NAMED} more" if len(taken) > NAMED else ""
        yield f"{WHERE}: {stem}: there are {', '.join(taken[:NAMED])}{more}; VMs with these numbers are passed over"
