"""Checks a new object against others in the cluster: disk names, selectors of policies, the default warm pool.

Each check lists the other objects at the API server. A check may miss an object that is created at the same moment. The
controllers then report the conflict in the status of the younger object.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing

from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.api.migrationpolicies.conflicts import conflicts, overlaps
from poolhouse.api.migrationpolicies.expiry import is_expired
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, ranked_policy
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMS, Resource
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse

DISKS_PATH = "spec.template.spec.dataVolumeTemplates"
_MAX_COMPARED = 500
"""Limit on the compared pools, and on the compared VMs outside pools, because the user waits for the response."""
_MAX_NAMES = 3


class _ConflictCheck:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds


class DiskConflicts(_ConflictCheck):
    """Warns about disks that a change does not reach, and about disks whose names another pool or VM uses. The
    controller never lets two VMs write to one disk, and so would not create VMs with these disks."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not request.is_of(POOL):
            return AdmissionResponse()
        changed = tuple(changed_disks(request.old, request.object))
        names = disk_names(request.object) - disk_names(request.old)
        if not names:
            return AdmissionResponse(warnings=changed)
        try:
            async with asyncio.timeout(self._budget_seconds):
                pools = await self._some(Resource.of(POOL), request.namespace)
                vms = await self._some(VMS, request.namespace, label_selector=f"!{meta.POOL}")
        except (ApiError, TimeoutError):
            return AdmissionResponse(warnings=changed)  # the controller reports the conflict later
        others = [each for each in pools if at(each, "metadata", "name") != request.name]
        return AdmissionResponse(warnings=(*changed, *disks_of_pools(names, others), *disks_of_vms(names, vms)))

    async def _some(self, resource: Resource, namespace: str, label_selector: str | None = None) -> list[Json]:
        pages = self._api.pages(resource, namespace, label_selector=label_selector, page=_MAX_COMPARED, from_cache=True)
        async with aclosing(pages):
            items, _ = await anext(pages)
        return items


class PolicyConflicts(_ConflictCheck):
    """Denies a migration policy with the selectors of another policy. Warns if only the tie-break decides."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not request.is_of(MIGRATION_POLICY):
            return AdmissionResponse()
        new = ranked_policy(request.object)
        new = RankedPolicy(new.name or request.name, new.selectors)
        # The controller reports conflicts of unchanged selectors: the user must be able to change other fields.
        if not new.selectors or self._applied_before(request.old, new):
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                others, _ = await self._api.list(Resource.of(MIGRATION_POLICY))
        except (ApiError, TimeoutError) as error:
            return AdmissionResponse(
                warnings=(
                    f"spec.selectors: cannot compare with other policies: {cause_of(error)}. If another policy has "
                    "the same selectors, this policy never applies; its condition Active then says so.",
                )
            )
        now = self._api.now()
        existing = [
            ranked_policy(each)
            for each in others
            if not at(each, "metadata", "deletionTimestamp") and not is_expired(each, now)
        ]
        problems = tuple(conflicts(new, existing))
        return AdmissionResponse(problems=problems, warnings=() if problems else tuple(overlaps(new, existing)))

    def _applied_before(self, old: Json | None, new: RankedPolicy) -> bool:
        """Whether the selectors applied before this change. An expired policy, which gets another time, is new."""
        same = old is not None and ranked_policy(old).selectors == new.selectors
        return same and not is_expired(old, self._api.now())


class DefaultPoolConflicts(_ConflictCheck):
    """Denies a second default among the warm pools of a namespace."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if request.kind != WARM_POOL.kind or not _is_default(request.object) or _is_default(request.old):
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                others, _ = await self._api.list(Resource.of(WARM_POOL), request.namespace)
        except (ApiError, TimeoutError) as error:
            warning = (
                f"spec.default: cannot list other pools: {cause_of(error)}. Of two defaults, the older one is used."
            )
            return AdmissionResponse(warnings=(warning,))
        name = at(request.object, "metadata", "name") or request.name
        for other in others:
            metadata = other["metadata"]
            if metadata["name"] != name and _is_default(other) and not metadata.get("deletionTimestamp"):
                message = f"{metadata['name']} is this namespace's default pool; set its spec.default to false first"
                return AdmissionResponse(problems=(Problem("spec.default", message),))
        return AdmissionResponse()


def changed_disks(old: Json | None, new: Json | None) -> Iterator[str]:
    """Warnings about changed entries of dataVolumeTemplates, which reach no disk that exists."""
    path = DISKS_PATH.split(".")
    before = {str(at(each, "metadata", "name")): at(each, "spec") for _, each in entries(old, *path)}
    for index, each in entries(new, *path):
        name = at(each, "metadata", "name")
        if isinstance(name, str) and name in before and before[name] != at(each, "spec"):
            update = at(new, "spec", "updateStrategy", "proactive")
            if at(update, "maxSurge") is not None:
                continue  # new VMs replace the others
            if at(update, "replacePolicy") == "Recreate":
                yield (
                    f"{DISKS_PATH}[{index}].spec: existing VMs get new disks {name}-HASH-NUMBER and lose the content "
                    f"of {name}-NUMBER, which is retained. The annotation {meta.SCALE_IN}: Protect keeps a VM's disks."
                )
                continue
            yield (
                f"{DISKS_PATH}[{index}].spec: disks {name}-NUMBER of existing VMs keep their content and size; only new"
                " VMs get disks from the new entry. The condition DisksOutdated names the others."
            )


def disk_names(pool: Json | None) -> set[str]:
    """Names of the DataVolume templates of a pool."""
    found = (at(each, "metadata", "name") for _, each in entries(pool, *DISKS_PATH.split(".")))
    return {name for name in found if isinstance(name, str)}


def disks_of_pools(names: set[str], pools: Iterable[Json]) -> Iterator[str]:
    """Warnings about disk names that other pools use."""
    for pool in pools:
        for name in sorted(names & disk_names(pool)):
            yield (
                f"{DISKS_PATH}: {name} is also a disk of pool {pool['metadata']['name']}: choose another name. The "
                "younger pool creates no VMs until then."
            )


def disks_of_vms(names: set[str], vms: Iterable[Json]) -> Iterator[str]:
    """Warnings about ordinals whose disks belong to VMs outside pools."""
    found: dict[str, list[str]] = {}
    for vm in vms:
        for _, each in entries(vm, "spec", "dataVolumeTemplates"):
            stem, _, ordinal = str(at(each, "metadata", "name") or "").rpartition("-")
            if stem in names and ordinal.isdecimal():
                found.setdefault(stem, []).append(f"{stem}-{ordinal} of VM {vm['metadata']['name']}")
    for stem, disks in sorted(found.items()):
        yield f"{DISKS_PATH}: {stem}: {join_first(disks, _MAX_NAMES)} exist; the pool skips these ordinals"


def _is_default(warm_pool: object) -> bool:
    return at(warm_pool, "spec", "default") is True
