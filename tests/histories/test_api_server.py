"""The API server in memory answers like the real one, for the operations that controllers use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from controllers.pool.pools import POOLS
from controllers.shared.status_writer import status_patch
from poolhouse.api.kinds.replicaset import ReplicaSetStatus
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import PODS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.cluster.pooling import namespace as cluster_namespace
from tests.cluster.pooling import template
from tests.histories.world import HERE, World
from tests.virtual_loop import VirtualLoop
from tests.waiting import until

Json = dict[str, Any]
Facts = dict[str, Any]
Case = Callable[[Api, str], Awaitable[Any]]

OTHER_UID = "11111111-2222-4333-8444-555555555555"


def vm(namespace: str, name: str = "vm", **metadata: Any) -> Json:
    return manifest(VMS, name, template()["spec"], namespace, **metadata)


def vmi(namespace: str, name: str = "vmi", **metadata: Any) -> Json:
    return manifest(VMIS, name, {"domain": {"devices": {}}}, namespace, **metadata)


def pool(namespace: str) -> Json:
    return manifest(POOLS, "pool", {"replicas": 0, "template": template()}, namespace)


def owner(document: Json, **more: Any) -> Json:
    metadata = document["metadata"]
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "name": metadata["name"], **more} | {
        "uid": metadata["uid"]
    }


def facts(document: Json) -> Facts:
    metadata = document["metadata"]
    return {
        "generation": metadata.get("generation"),
        "deleting": "deletionTimestamp" in metadata,
        "finalizers": metadata.get("finalizers"),
        "labels": metadata.get("labels"),
        "owners": [each["name"] for each in metadata.get("ownerReferences") or ()],
        "status": document.get("status"),
    }


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        answer = await call
    except ApiError as error:
        return type(error).__name__, error.status, error.reason
    return facts(answer) if isinstance(answer, dict) and "metadata" in answer else answer


async def state(api: Api, namespace: str, name: str = "vm") -> Any:
    return await outcome(api.get(VMS, namespace, name))


async def create_twice(api: Api, namespace: str) -> Any:
    made = [await outcome(api.create(VMS, vm(namespace, labels={}, finalizers=[]))) for _ in range(2)]
    return [*made, await outcome(api.create(VMS, {**vm(namespace, "b"), "status": {"ready": True}}))]


async def dry_run(api: Api, namespace: str) -> Any:
    return await outcome(api.create(VMS, vm(namespace), dry_run=True)), await state(api, namespace)


async def resource_versions(api: Api, namespace: str) -> Any:
    made = await api.create(VMS, vm(namespace))
    version = made["metadata"]["resourceVersion"]
    same = await api.patch(VMS, namespace, "vm", {"metadata": {"resourceVersion": version}})
    changed = await api.patch(VMS, namespace, "vm", {"metadata": {"labels": {"a": "1"}}})
    stale = {"metadata": {"resourceVersion": version, "labels": {"b": "1"}}}
    return [
        same["metadata"]["resourceVersion"] == version,
        changed["metadata"]["resourceVersion"] == version,
        await outcome(api.patch(VMS, namespace, "vm", stale)),
        await outcome(api.replace(VMS, made)),
        await outcome(api.delete(VMS, namespace, "vm", resource_version=version)),
        await state(api, namespace),
    ]


async def uids(api: Api, namespace: str) -> Any:
    made = await api.create(VMS, vm(namespace))
    wrong = {"metadata": {"uid": OTHER_UID, "labels": {"a": "1"}}}
    return [
        await outcome(api.patch(VMS, namespace, "vm", wrong)),
        await outcome(api.patch(VMS, namespace, "vm", wrong | {"status": {"ready": True}}, subresource="status")),
        await outcome(api.replace(VMS, {**made, "metadata": {**made["metadata"], "uid": OTHER_UID}})),
        await outcome(api.delete(VMS, namespace, "vm", uid=OTHER_UID)),
        await outcome(api.delete(VMS, namespace, "vm", uid=made["metadata"]["uid"])),
        await outcome(api.delete(VMS, namespace, "vm")),
        await outcome(api.patch(VMS, namespace, "vm", {"metadata": {"labels": {"a": "1"}}})),
    ]


async def status_and_generation(api: Api, namespace: str) -> Any:
    await api.create(VMS, vm(namespace))
    status = {"status": {"ready": True}, "spec": {"running": False}, "metadata": {"labels": {"b": "1"}}}
    return [
        await outcome(api.patch(VMS, namespace, "vm", status, subresource="status")),
        await outcome(api.patch(VMS, namespace, "vm", {"status": {"ready": False}})),
        await outcome(api.patch(VMS, namespace, "vm", {"spec": {"running": False}})),
        await outcome(api.patch(VMS, namespace, "vm", {"metadata": {"labels": {"a": "1"}}})),
        (await api.get(VMS, namespace, "vm"))["spec"]["running"],
    ]


async def status_patches(api: Api, namespace: str) -> Any:
    made = (await api.create(VMS, vm(namespace)))["metadata"]
    fresh = ReplicaSetStatus(replicas=1)

    async def patch(**known: str) -> Any:
        change = status_patch(fresh, **known)
        return await outcome(api.patch(VMS, namespace, "vm", change, kind="json", subresource="status"))

    return [
        await patch(uid=OTHER_UID),
        await patch(uid=made["uid"]),
        await patch(resource_version=made["resourceVersion"]),
        await patch(uid=made["uid"]),
    ]


async def vmi_status(api: Api, namespace: str) -> Any:
    """A VMI has no status subresource."""
    await api.create(VMIS, {**vmi(namespace), "status": {"phase": "Running"}})
    changed = await outcome(api.patch(VMIS, namespace, "vmi", {"status": {"phase": "Failed"}}))
    return changed, await outcome(api.patch(VMIS, namespace, "vmi", {"status": {}}, subresource="status"))


async def finalizers(api: Api, namespace: str) -> Any:
    await api.create(VMS, vm(namespace, finalizers=["example.com/a"]))
    added = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    found = []
    await api.delete(VMS, namespace, "vm")
    found.append(await state(api, namespace))
    await api.delete(VMS, namespace, "vm")
    found.append(await state(api, namespace))
    found.append(await outcome(api.patch(VMS, namespace, "vm", added)))
    found.append(await outcome(api.patch(VMS, namespace, "vm", {"spec": {"running": False}})))
    found.append(await outcome(api.patch(VMS, namespace, "vm", {"metadata": {"deletionTimestamp": None}})))
    found.append(await outcome(api.patch(VMS, namespace, "vm", {"metadata": {"finalizers": None}})))
    return [*found, await state(api, namespace)]


async def owners(api: Api, namespace: str) -> Any:
    first, second = [await api.create(VMS, vm(namespace, name)) for name in ("a", "b")]
    both = [owner(first, controller=True), owner(second, controller=True)]
    return await outcome(api.create(VMIS, vmi(namespace, ownerReferences=both)))


async def gone(api: Api, namespace: str, *names: str) -> bool:
    for name in names:
        with suppress(NotFound):
            await api.get(VMS, namespace, name)
            return False
    return True


async def background_deletion(api: Api, namespace: str) -> Any:
    parent = await api.create(POOLS, pool(namespace))
    other = await api.create(VMS, vm(namespace, "other"))
    await api.create(VMS, vm(namespace, "child", ownerReferences=[owner(parent)]))
    await api.create(VMS, vm(namespace, "shared", ownerReferences=[owner(parent), owner(other)]))
    await api.delete(POOLS, namespace, "pool", propagation="Background")
    await until(lambda: gone(api, namespace, "child"), True)

    async def shared() -> Any:
        return (await state(api, namespace, "shared"))["owners"]

    await until(shared, ["other"])
    return await state(api, namespace, "shared")


async def foreground_deletion(api: Api, namespace: str) -> Any:
    parent = await api.create(POOLS, pool(namespace))
    reference = owner(parent, blockOwnerDeletion=True)
    await api.create(VMS, vm(namespace, "child", ownerReferences=[reference], finalizers=["example.com/a"]))
    await api.delete(POOLS, namespace, "pool", propagation="Foreground")

    async def child() -> Any:
        return (await state(api, namespace, "child"))["deleting"]

    await until(child, True)
    found = await outcome(api.get(POOLS, namespace, "pool"))
    kept = (await api.get(VMS, namespace, "child"))["metadata"]["finalizers"]
    await api.patch(VMS, namespace, "child", {"metadata": {"finalizers": None}})

    async def parent_gone() -> bool:
        return "NotFound" in await outcome(api.get(POOLS, namespace, "pool"))

    await until(parent_gone, True)
    return found, sorted(set(kept) - {"foregroundDeletion"})


async def orphan_deletion(api: Api, namespace: str) -> Any:
    parent = await api.create(POOLS, pool(namespace))
    await api.create(VMS, vm(namespace, "child", ownerReferences=[owner(parent)]))
    await api.delete(POOLS, namespace, "pool", propagation="Orphan")

    async def parent_gone() -> bool:
        return "NotFound" in await outcome(api.get(POOLS, namespace, "pool"))

    await until(parent_gone, True)
    return await state(api, namespace, "child")


async def selected_watch(api: Api, namespace: str) -> Any:
    """An object that the selector no longer matches is deleted for the watch."""
    _, version = await api.list(VMS, namespace, label_selector="a=1")
    await api.create(VMS, vm(namespace, "x", labels={"a": "1"}))
    await api.create(VMS, vm(namespace, "y"))
    await api.patch(VMS, namespace, "y", {"metadata": {"labels": {"a": "1"}}})
    await api.patch(VMS, namespace, "x", {"metadata": {"labels": {"a": "2"}}})
    await api.patch(VMS, namespace, "y", {"metadata": {"labels": {"b": "1"}}})
    await api.delete(VMS, namespace, "y")
    events = []
    watch = api.watch(VMS, namespace, resource_version=version, label_selector="a=1", timeout_seconds=30)
    async for kind, document in watch:
        if kind != "BOOKMARK":
            events.append((kind, document["metadata"]["name"], document["metadata"].get("labels")))
        if len(events) == 5:
            break
    await watch.aclose()
    return events, len((await api.list(VMS, namespace, label_selector="a=1"))[0])


async def pages(api: Api, namespace: str) -> Any:
    for number in range(5):
        await api.create(VMS, vm(namespace, f"vm-{number}"))
    found = []
    async for items, _ in api.pages(VMS, namespace, page=2):
        found.append([each["metadata"]["name"] for each in items])
        await api.create(VMS, vm(namespace, f"later-{len(found)}"))
    return found


def pod(namespace: str, name: str, **spec: Any) -> Json:
    spec = {"containers": [{"name": "main", "image": "registry.example/main:1"}], **spec}
    return manifest(PODS, name, spec, namespace)


async def pods(api: Api, namespace: str) -> Any:
    """A deleted Pod stays on its node for its grace period, which may be shortened, until it is deleted by force."""

    async def grace(name: str) -> Any:
        found = await outcome(api.get(PODS, namespace, name))
        if not isinstance(found, dict):
            return found
        metadata = (await api.get(PODS, namespace, name))["metadata"]
        return found, metadata.get("deletionGracePeriodSeconds"), metadata.get("annotations")

    found = []
    for name, spec in (("free", {}), ("bound", {"nodeName": "far"}), ("ended", {"nodeName": "far"})):
        made = await api.create(PODS, pod(namespace, name, terminationGracePeriodSeconds=60, **spec))
        found.append((made["status"], name))
    note = {"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Succeeded"}}
    wrong = {**note, "metadata": {"uid": OTHER_UID}}
    found.append(await outcome(api.patch(PODS, namespace, "ended", wrong, subresource="status")))
    found.append(await outcome(api.patch(PODS, namespace, "ended", note, subresource="status")))
    found.append(await grace("ended"))
    for name in ("free", "bound", "ended"):
        await api.delete(PODS, namespace, name)
        found.append(await grace(name))
    for seconds in (90, 5, None, 60):
        await api.delete(PODS, namespace, "bound", grace_seconds=seconds)
        found.append(await grace("bound"))
    await api.patch(PODS, namespace, "bound", {"status": {"phase": "Running"}}, subresource="status")
    found.append(await grace("bound"))
    for node in ("far", "other"):
        bound, _ = await api.list(PODS, namespace, field_selector=f"spec.nodeName={node}")
        found.append([each["metadata"]["name"] for each in bound])
    await api.delete(PODS, namespace, "bound", grace_seconds=0)
    return [*found, await grace("bound")]


CASES: list[Case] = [
    pods,
    create_twice,
    dry_run,
    resource_versions,
    uids,
    status_and_generation,
    status_patches,
    vmi_status,
    finalizers,
    owners,
    background_deletion,
    foreground_deletion,
    orphan_deletion,
    selected_watch,
    pages,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_answers_are_those_of_the_real_api_server(case: Case, control_plane: StackPaths) -> None:
    async def real() -> Any:
        async with cluster_namespace(control_plane.kubeconfig, "same") as place:
            return await case(place.api, place.namespace)

    async def in_memory() -> Any:
        return await case(World(Random(1)).api("users"), HERE)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        found = runner.run(in_memory())
    assert found == asyncio.run(real())
