"""A pool of KubeVirt with its VMs, KubeVirt's controller, and imports that end before a write."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from controllers.pool.kubevirt_pools import FINALIZER, KUBEVIRT_POOLS, REVISION_LABEL
from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference
from poolhouse.api.kinds import meta
from poolhouse.cli.import_pool import import_pool_of_kubevirt, observe, take_back_pool
from poolhouse.cli.output import Failed
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS, VMS
from tests.builders import manifest
from tests.cluster.pooling import Place, background, exists, template, until

Json = dict[str, Any]
PREFIX = "import"
"""of the namespaces with pools of KubeVirt"""


@asynccontextmanager
async def kubevirt_at_work(api: Api) -> AsyncIterator[None]:
    """Runs KubeVirt's controller."""
    pools, vms = (Informer[Json](api, each, lambda document: document) for each in (KUBEVIRT_POOLS, VMS))
    async with background(pools.run(), vms.run(), kubevirt_controller(api, pools, vms)):
        yield


async def kubevirt_controller(api: Api, pools: Informer[Json], vms: Informer[Json]) -> None:
    """What KubeVirt's controller does with a paused or deleted pool. Fails if a VM has no controller, or several."""
    changed = asyncio.Event()
    for informer in (pools, vms):
        await informer.synced()
        informer.subscribe(lambda old, new: changed.set())
    while await changed.wait():
        changed.clear()
        members = [each for each in vms.store.all() if each["metadata"]["namespace"].startswith(f"{PREFIX}-")]
        for pool in pools.store.all():
            with suppress(Conflict, NotFound):
                await reconcile(api, pool, members)
        for vm in members:
            assert len([each for each in vm["metadata"]["ownerReferences"] if each.get("controller")]) == 1


async def reconcile(api: Api, pool: Json, vms: list[Json]) -> None:
    metadata, paused = pool["metadata"], bool(pool["spec"].get("paused"))
    where, name, before = metadata["namespace"], metadata["name"], pool.get("status", {})
    seen = len([each for each in vms if (controller_of(each) or {}).get("uid") == metadata["uid"]])
    if metadata.get("deletionTimestamp"):
        left = [each for each in metadata["finalizers"] if each != FINALIZER]
        change: Json = {"resourceVersion": metadata["resourceVersion"], "finalizers": left}
        if left != metadata["finalizers"]:
            await api.patch(KUBEVIRT_POOLS, where, name, {"metadata": change})
    elif (bool(before.get("conditions")), before.get("replicas", 0)) != (paused, seen):
        found = [{"type": "ReplicaPaused", "status": "True"}] if paused else []
        status = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": found, "replicas": seen}}
        await api.patch(KUBEVIRT_POOLS, where, name, status, subresource="status")


def vm_template(name: str) -> Json:
    """A template of a pool of KubeVirt, with a disk of its own name."""
    found = json.loads(json.dumps(template()).replace('"root"', json.dumps(f"{name}-root")))
    found["spec"]["template"]["metadata"] = {"labels": {"app": name}}
    return {"metadata": {"labels": {"app": name}}, **found}


async def pool_of_kubevirt(place: Place, name: str = "web", **others: Any) -> Json:
    """Three VMs: the first runs, the second runs an older template, the third is halted. A disk is kept for another."""
    autohealing = {"startUpFailureThreshold": 4}
    pool = await place.api.create(
        KUBEVIRT_POOLS,
        manifest(
            KUBEVIRT_POOLS,
            name,
            {
                "replicas": 3,
                "selector": {"matchLabels": {"app": name}},
                "virtualMachineTemplate": vm_template(name),
                "updateStrategy": {"unmanaged": {}},
                "autohealing": autohealing,
                **others,
            },
            place.namespace,
            labels={"team": "shop"},
            finalizers=[FINALIZER],
        ),
    )
    old = copy.deepcopy(pool["spec"])
    old["virtualMachineTemplate"]["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "64Mi"}
    owner = controller_reference(pool["apiVersion"], pool["kind"], name, pool["metadata"]["uid"])
    for number, spec in ((1, old), (4, pool["spec"])):
        written = copy.deepcopy(spec)
        written["virtualMachineTemplate"]["metadata"]["creationTimestamp"] = None
        document = manifest(CONTROLLER_REVISIONS, f"{name}-{number}", None, place.namespace, ownerReferences=[owner])
        await place.api.create(CONTROLLER_REVISIONS, {**document, "revision": number, "data": written})
    for ordinal, (number, spec) in enumerate([(4, pool["spec"]), (1, old), (4, pool["spec"])]):
        await member(place, name, ordinal, number, spec, owner)
    await place.is_ready(f"{name}-0", f"{name}-1")
    await place.claim(f"{name}-root-7", {**owner, "kind": "DataVolume", "name": f"{name}-root-7"})
    return pool


async def member(place: Place, name: str, ordinal: int, number: int, spec: Json, owner: Json) -> None:
    text = json.dumps(spec["virtualMachineTemplate"]["spec"])
    body = json.loads(text.replace(f'"{name}-root"', f'"{name}-root-{ordinal}"'))
    body["running"] = ordinal != 2
    label = {REVISION_LABEL: f"{name}-{number}"}
    body["template"]["metadata"]["labels"] |= label
    metadata: Json = {"labels": {"app": name, **label}, "ownerReferences": [owner], "finalizers": [FINALIZER]}
    await place.api.create(VMS, manifest(VMS, f"{name}-{ordinal}", body, place.namespace, **metadata))


class Interrupted(Exception):
    pass


class Faulty:
    """An API whose connection ends before the given write. The command remembers nothing, so it is the same as if the
    answer of the write before were lost."""

    def __init__(self, api: Api, at_write: int) -> None:
        self.api, self.left = api, at_write

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.api, name)
        if name not in ("create", "patch", "delete"):
            return found

        async def counted(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Interrupted
            return await found(*args, **options)

        return counted


async def state(place: Place, name: str) -> Json:
    """What an import must not change: identities, VMIs, and specs but for the labels of pools."""
    vms = [
        each for each in (await place.api.list(VMS, place.namespace))[0] if each["metadata"]["labels"]["app"] == name
    ]
    vmis = (await place.api.list(VMIS, place.namespace))[0]
    for vm in vms:
        for key in (meta.POOL, meta.REVISION, REVISION_LABEL):
            vm["spec"]["template"]["metadata"]["labels"].pop(key, None)
    names = {each["metadata"]["name"] for each in vms}
    return {
        "vms": {each["metadata"]["name"]: (each["metadata"]["uid"], each["spec"]) for each in vms},
        "vmis": {
            each["metadata"]["name"]: (each["metadata"]["uid"], each["spec"], each["status"])
            for each in vmis
            if each["metadata"]["name"] in names
        },
    }


async def is_imported(place: Place) -> None:
    observed = await observe(place.api, place.namespace, "web")
    assert observed.source is None
    assert observed.target is not None
    assert (observed.target["spec"].get("paused") or False, observed.target["spec"]["maxUnavailable"]) == (
        False,
        "100%",
    )
    assert meta.IMPORTING not in observed.target["metadata"]["annotations"]
    uid = observed.target["metadata"]["uid"]
    members = observed.owned(uid)
    assert [each["metadata"]["name"] for each in members] == ["web-0", "web-1", "web-2"]
    assert not any(FINALIZER in (each["metadata"].get("finalizers") or ()) for each in members)
    claim = await place.api.get(PVCS, place.namespace, "web-root-7")
    assert (claim["metadata"]["labels"][meta.KEPT_BY], claim["metadata"]["labels"][meta.KEPT_FOR]) == (uid, "web-7")


async def is_back(place: Place, before: Json) -> None:
    observed = await observe(place.api, place.namespace, "web")
    assert (observed.target, observed.record) == (None, None)
    assert observed.source is not None
    assert observed.source["metadata"]["uid"] == before["metadata"]["uid"]
    assert observed.source["spec"] == before["spec"]
    members = observed.owned(before["metadata"]["uid"])
    assert len(members) == 3
    for document in (*members, *(each for each in observed.vmis if each["metadata"]["labels"].get("app") == "web")):
        assert not {meta.POOL, meta.REVISION} & document["metadata"]["labels"].keys()
    assert all(each["metadata"]["finalizers"] == [FINALIZER] for each in members)
    assert not (await place.api.get(PVCS, place.namespace, "web-root-7"))["metadata"].get("labels")


async def continued(place: Place, write: int) -> bool:
    """Whether the import was interrupted, and continued."""
    await pool_of_kubevirt(place)
    before, interrupted = await state(place, "web"), False
    faulty: Any = Faulty(place.api, write)
    try:
        await import_pool_of_kubevirt(faulty, place.namespace, "web")
    except Interrupted:
        interrupted = True
        await import_pool_of_kubevirt(place.api, place.namespace, "web")
    await is_imported(place)
    assert await state(place, "web") == before
    return interrupted


async def taken_back(place: Place, write: int) -> bool:
    """Whether the import was interrupted before KubeVirt's pool was deleted, and taken back."""
    pool = await pool_of_kubevirt(place)
    before = await state(place, "web")
    faulty: Any = Faulty(place.api, write)
    with suppress(Interrupted):
        await import_pool_of_kubevirt(faulty, place.namespace, "web")
    observed = await observe(place.api, place.namespace, "web")
    if observed.source is None or observed.source["metadata"].get("deletionTimestamp"):
        return False
    again: Any = Faulty(place.api, write // 2)
    with suppress(Interrupted):
        await take_back_pool(again, place.namespace, "web")
    with suppress(Failed):  # no import has begun, for one that was not interrupted again
        await take_back_pool(place.api, place.namespace, "web")
    await is_back(place, pool)
    assert await state(place, "web") == before
    return True


async def there_and_back(place: Place, name: str, writes: range) -> list[bool]:
    """Imports a pool and takes the import back, once for each write. The pool gets a VM after its first import.
    Returns whether each way back was interrupted. After every second write, the pool first stays."""
    found, pool = [], await pool_of_kubevirt(place, name)
    for write in writes:
        await import_pool_of_kubevirt(place.api, place.namespace, name)
        await place.change(name, replicas=4)
        await until(lambda: exists(place.api, VMS, place.namespace, f"{name}-3"), True)
        before = await state(place, name)
        found.append(await returned(place, name, write))
        await is_returned(place, name, pool)
        assert await state(place, name) == before
    return found


async def returned(place: Place, name: str, write: int) -> bool:
    """Whether the way back was interrupted, and continued."""
    faulty: Any = Faulty(place.api, write)
    try:
        await take_back_pool(faulty, place.namespace, name)
    except Interrupted:
        observed = await observe(place.api, place.namespace, name)
        if write % 2 and observed.target is not None:
            await import_pool_of_kubevirt(place.api, place.namespace, name)
            await is_kept(place, name)
        again: Any = Faulty(place.api, write // 2)
        with suppress(Interrupted):
            await take_back_pool(again, place.namespace, name)
        observed = await observe(place.api, place.namespace, name)
        if observed.record is not None or observed.return_record is not None:
            await take_back_pool(place.api, place.namespace, name)
        return True
    return False


async def is_kept(place: Place, name: str) -> None:
    """The pool is one of Poolhouse, as before the way back."""
    observed = await observe(place.api, place.namespace, name)
    assert (observed.source, observed.returns) == (None, False)
    assert observed.target is not None
    assert (observed.target["spec"].get("paused") or False, observed.target["spec"]["replicas"]) == (False, 4)
    uid, names = observed.target["metadata"]["uid"], {each["metadata"]["name"] for each in observed.revisions}
    members = observed.owned(uid)
    assert len(members) == 4
    for vm in members:
        assert f"{name}-{vm['metadata']['labels'][meta.REVISION]}" in names
        assert not vm["metadata"].get("finalizers")
    claim = await place.api.get(PVCS, place.namespace, f"{name}-root-7")
    assert (claim["metadata"]["labels"][meta.KEPT_BY], claim["metadata"]["labels"][meta.KEPT_FOR]) == (uid, f"{name}-7")


async def is_returned(place: Place, name: str, before: Json) -> None:
    observed = await observe(place.api, place.namespace, name)
    assert (observed.target, observed.record, observed.return_record) == (None, None, None)
    source = observed.source
    assert source is not None
    assert source["metadata"]["uid"] != before["metadata"]["uid"]
    assert source["spec"] == {**before["spec"], "replicas": 4, "paused": False}
    assert (source["metadata"]["labels"], source["metadata"].get("annotations")) == ({"team": "shop"}, None)
    revisions = {each["metadata"]["name"]: each for each in observed.revisions}
    assert not {f"{name}-1", f"{name}-4"} & revisions.keys()
    members = observed.owned(source["metadata"]["uid"])
    assert [each["metadata"]["name"] for each in members] == [f"{name}-{number}" for number in range(4)]
    for vm in members:
        documents = [vm, observed.vmis_by_name.get(vm["metadata"]["name"], vm)]
        for document in documents:
            labels = document["metadata"]["labels"]
            assert not {meta.POOL, meta.REVISION} & labels.keys()
            found = revisions[labels[REVISION_LABEL]]["data"]["virtualMachineTemplate"]
            is_old = vm["metadata"]["name"] == f"{name}-1"
            assert (found == source["spec"]["virtualMachineTemplate"]) is not is_old
        assert vm["metadata"]["finalizers"] == [FINALIZER]
        assert vm["spec"]["template"]["metadata"]["labels"][REVISION_LABEL] == vm["metadata"]["labels"][REVISION_LABEL]
    assert not (await place.api.get(PVCS, place.namespace, f"{name}-root-7"))["metadata"].get("labels")
