"""Disks: by each kind of source, retained at scale-in and returned, and imports that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from controllers.shared.sources import DATA_VOLUMES
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS, VMS, Resource
from tests.e2e.scope import POOLS, Json, Scope
from tests.resources import ROLE_BINDINGS, ROLES

OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"basePolicy": "Newest"}}}
SOURCES = ["blank", "http", "registry", "clone", "data_source"]


@pytest_asyncio.fixture
async def may_clone(scope: Scope, source: str) -> AsyncIterator[None]:
    """CDI asks whether the ServiceAccount of a VM may clone from another namespace."""
    golden = scope.target.sources.get(source, "").partition("/")[0] if source in ("clone", "data_source") else ""
    if not golden:
        yield
        return
    metadata, group = {"name": scope.namespace, "namespace": golden}, ROLES.group
    rules = [
        {"apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"], "verbs": ["create"]},
        {"apiGroups": ["cdi.kubevirt.io"], "resources": ["datasources"], "verbs": ["get"]},
    ]
    bound = {
        "roleRef": {"apiGroup": group, "kind": ROLES.kind, "name": scope.namespace},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": f"system:serviceaccounts:{scope.namespace}"}],
    }
    await scope.api.create(ROLES, {"metadata": metadata, "rules": rules})
    try:
        await scope.api.create(ROLE_BINDINGS, {"metadata": metadata, **bound})
        yield
    finally:
        for resource in (ROLE_BINDINGS, ROLES):
            with suppress(NotFound):
                await scope.api.delete(resource, golden, scope.namespace)


@pytest.mark.parametrize("source", [pytest.param(each, marks=pytest.mark.needs(source=each)) for each in SOURCES])
async def test_retained(scope: Scope, source: str, may_clone: None) -> None:
    """Scale-in retains a disk, and scale-out returns it to the VM of its name"""
    await scope.pool(1, vm=scope.vm_spec(disk=scope.target.source(source)), scaleInStrategy=OFFLINE)
    await scope.complete()
    before = await scope.disks()
    await scope.scale(0)
    await scope.becomes(lambda: scope.uids(VMS), {})
    assert await scope.disks() == before, "the disk stays"
    await scope.scale(1)
    await scope.complete()
    assert await scope.disks() == before, "and has returned"


@pytest.mark.needs(source="blank")
async def test_recreate_and_offline(scope: Scope) -> None:
    """With Recreate and Offline, VMs return after scale-in, with their disks"""
    strategy = {"proactive": {"replacePolicy": "Recreate"}}
    spec = scope.vm_spec(disk=scope.target.source("blank"))
    await scope.pool(2, vm=spec, scaleInStrategy=OFFLINE, updateStrategy=strategy)
    await scope.complete()
    before = await scope.disks()
    await scope.scale(1)
    await scope.becomes(lambda: count(scope), 1)
    await scope.scale(2)
    await scope.complete()
    assert await scope.disks() == before


@pytest.mark.needs(source="missing_http")
async def test_failing_import(scope: Scope) -> None:
    """An import that fails stops no VM, is quoted, and its disk goes after `rollout undo`"""
    strategy = {"proactive": {"replacePolicy": "Recreate"}}
    good = scope.vm_spec(disk=scope.target.source("blank"))
    await scope.pool(1, vm=good, updateStrategy=strategy, progressDeadlineSeconds=5)
    await scope.complete()
    before, disks = await scope.uids(VMIS), set(await scope.uids(DATA_VOLUMES))
    bad = {"spec": scope.vm_spec(disk=scope.target.source("missing_http"))}

    def change(pool: Json) -> None:
        pool["spec"]["template"] = bad

    await scope.change(POOLS, "web", change)
    await scope.becomes(lambda: quoted(scope, "404"), True)
    await scope.becomes(lambda: reason(scope, "web", "Progressing"), "ProgressDeadlineExceeded")
    assert (await scope.condition(POOLS, "web", "Available"))["status"] == "True"
    assert await scope.uids(VMIS) == before
    await scope.poolhouse("rollout", "undo", "web")
    await scope.becomes(lambda: names(scope, DATA_VOLUMES), disks)
    await scope.complete()
    assert await scope.uids(VMIS) == before


@pytest.mark.needs(source="blank")
async def test_one_name_for_two_pools(scope: Scope) -> None:
    """Two pools whose disks have one name: the younger one creates no VM and says why"""
    spec = scope.vm_spec(disk=scope.target.source("blank"), run_strategy="Halted")
    await scope.pool(1, vm=spec)
    await scope.becomes(lambda: count(scope), 1)
    # Of two pools of the same second, the one whose name is first counts as older.
    await scope.pool(1, "web-younger", vm=spec)
    await scope.becomes(lambda: reason(scope, "web-younger", "ReplicaFailure"), "DiskConflict")
    assert await count(scope) == 1


async def quoted(scope: Scope, text: str) -> bool:
    """Whether a condition of the pool, and `poolhouse why` about its VM, have this text of the importer."""
    pool = await scope.get(POOLS, "web") or {}
    said = " ".join(each.get("message") or "" for each in (pool.get("status") or {}).get("conditions") or ())
    return text in said and text in await scope.poolhouse("why", "web-1", check=False)


async def reason(scope: Scope, name: str, condition: str) -> str:
    return str((await scope.condition(POOLS, name, condition)).get("reason"))


async def names(scope: Scope, resource: Resource) -> set[str]:
    return set(await scope.uids(resource))


async def count(scope: Scope) -> int:
    return len(await scope.uids(VMS))
