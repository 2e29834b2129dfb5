"""Updates that give VMs new disks, with simulated guests on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web

from controllers.shared.data_sources import DATA_SOURCES
from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS
from poolhouse.stack.paths import StackPaths
from tests.cluster.chaos import watched
from tests.cluster.faulty import Faulty, cut
from tests.cluster.pooling import PATIENCE_SECONDS, Place, controller, template, until
from tests.cluster.simulated.test_pool_rollout import complete, runs

Json = dict[str, Any]

IDLE_SECONDS = 1.5
LONGEST_SECONDS = 30.0
RECREATE = {"proactive": {"replacePolicy": "Recreate", "selectionPolicy": {"basePolicy": "Oldest"}}}


def sized(size: str, **spec: Any) -> Json:
    found = template(**spec)
    found["spec"]["dataVolumeTemplates"][0]["spec"]["pvc"]["resources"]["requests"]["storage"] = size
    return found


async def sizes(place: Place) -> dict[str, str]:
    return {name: claim["spec"]["resources"]["requests"]["storage"] for name, claim in (await place.disks()).items()}


async def disks_in_use(place: Place) -> dict[str, str]:
    """Size of the disk that each VM has."""
    found = await sizes(place)
    return {
        name: found.get(vm["spec"]["template"]["spec"]["volumes"][0]["dataVolume"]["name"], "")
        for name, vm in (await place.vms()).items()
    }


async def retained(place: Place) -> dict[str, tuple[str, bool]]:
    """For which VM each retained disk is, and whether an update has replaced it."""
    labels = {name: claim["metadata"].get("labels") or {} for name, claim in (await place.disks()).items()}
    return {
        name: (found[meta.KEPT_FOR], meta.REPLACED in found) for name, found in labels.items() if meta.KEPT_BY in found
    }


async def test_a_new_entry_gives_vms_new_disks_and_an_undone_one_gives_the_old_ones_back(
    simulated: StackPaths, guests: Place
) -> None:
    async with controller(simulated.kubeconfig):
        await guests.pool(3, updateStrategy=RECREATE, maxUnavailable=1, template=sized("1Gi"))
        await complete(guests)
        before, uids = await runs(guests), {n: vm["metadata"]["uid"] for n, vm in (await guests.vms()).items()}
        await guests.change(template=sized("2Gi"))
        await complete(guests)
        assert await disks_in_use(guests) == dict.fromkeys(uids, "2Gi")
        assert {n: vm["metadata"]["uid"] for n, vm in (await guests.vms()).items()} == uids, "the VMs stay"
        assert before.keys() == (after := await runs(guests)).keys()
        assert not set(after.values()) & set(before.values()), "each was restarted"
        old = {f"root-{n}": (f"web-{n}", True) for n in (1, 2, 3)}
        await until(lambda: retained(guests), old)
        for name in old:
            claim = (await guests.disks())[name]
            assert not [o for o in claim["metadata"]["ownerReferences"] if o["kind"] == "VirtualMachine"]

        async def replaced() -> bool:
            return any(meta.REPLACED_DISKS in vm["metadata"]["annotations"] for vm in (await guests.vms()).values())

        await until(replaced, False)  # the annotation goes after the label of the disk has come
        await guests.change(template=sized("1Gi"))
        await complete(guests)
        assert await disks_in_use(guests) == dict.fromkeys(uids, "1Gi")
        names = {vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] for vm in (await guests.vms()).values()}
        assert names == set(old), "they have their former disks"
        await until(lambda: replaced_sizes(guests), ["2Gi"] * 3)
        # A VM that is deleted gets a disk of the template, and no retained one.
        await guests.change(replicas=0)
        await until(guests.names, [])
        await guests.change(replicas=1)
        await complete(guests)
        assert await disks_in_use(guests) == {"web-1": "1Gi"}
        assert len(await replaced_sizes(guests)) == 3


async def replaced_sizes(place: Place) -> list[str]:
    found = await sizes(place)
    return [found[name] for name in await retained(place)]


def golden(**spec: Any) -> Json:
    found = sized("1Gi", **spec)
    (disk,) = found["spec"]["dataVolumeTemplates"]
    del disk["spec"]["source"]
    disk["spec"]["sourceRef"] = {"kind": "DataSource", "name": "debian"}
    return found


async def test_a_new_image_of_a_data_source_reaches_all_vms(simulated: StackPaths, guests: Place) -> None:
    def source(image: str) -> Json:
        return {
            "apiVersion": DATA_SOURCES.api_version,
            "kind": DATA_SOURCES.kind,
            "spec": {"source": {"pvc": {"name": image}}},
        }

    metadata = {"namespace": guests.namespace, "name": "debian"}
    await guests.api.create(DATA_SOURCES, {"metadata": metadata, **source("debian-1")})
    tracking = {"proactive": {**RECREATE["proactive"], "trackDataSources": True}}
    async with controller(simulated.kubeconfig):
        await guests.pool(2, updateStrategy=tracking, maxUnavailable=1, template=golden())
        await complete(guests)
        assert await images(guests) == {"root-1": "debian-1", "root-2": "debian-1"}
        before = await runs(guests)
        await guests.api.patch(DATA_SOURCES, guests.namespace, "debian", source("debian-2"))

        async def updated() -> bool:
            return len(await retained(guests)) == 2 and set((await images(guests)).values()) == {"debian-2"}

        await until(updated, True)
        await complete(guests)
        assert not set((await runs(guests)).values()) & set(before.values())
        revisions, _ = await guests.api.list(CONTROLLER_REVISIONS, guests.namespace)
        assert len(revisions) == 2


async def images(place: Place) -> dict[str, str]:
    """The image of the disk that each VM has."""
    used = {vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] for vm in (await place.vms()).values()}
    items, _ = await place.api.list(DATA_VOLUMES, place.namespace)
    found = {each["metadata"]["name"]: each["spec"]["source"]["pvc"]["name"] for each in items}
    return {name: image for name, image in found.items() if name in used}


class OneWrite(Faulty):
    """Lets one write of a controller through. A further one shows that the controller may be killed now, between the
    two. The answer of every other write is lost."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig, Random(0))
        self.lives = 0
        self.crash = asyncio.Event()
        self.writes: list[str] = []
        self._written = False
        self._answered_at: float | None = None

    def revive(self) -> None:
        self.lives += 1
        self.crash.clear()
        self._written, self._answered_at = False, None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" or "/events" in request.path or request.path.endswith("/status"):
            return await self._forward(request, "watch" in request.query, "")
        if self._written:
            self.crash.set()
            return cut(request)
        self._written = True
        self.writes.append(f"{request.method} {'/'.join(request.path.split('/')[-2:])}")
        print(self.lives, self.writes[-1], flush=True)
        try:
            return await self._forward(request, False, "lost" if self.lives % 2 else "")
        finally:
            self._answered_at = asyncio.get_running_loop().time()

    async def ended(self, done: Callable[[], Awaitable[bool]]) -> None:
        """Returns when the controller begins a second write, or waits for the engine after its first one."""
        clock = asyncio.get_running_loop().time
        end = clock() + LONGEST_SECONDS
        while not self.crash.is_set() and clock() < end:
            if self._answered_at is not None and clock() - self._answered_at > IDLE_SECONDS:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self.crash.wait()
            if not self.crash.is_set() and await done():
                return


async def test_a_crash_between_any_two_writes_loses_no_disk(
    simulated: StackPaths, guests: Place, tmp_path: Path
) -> None:
    claims, lost = dict[str, str](), list[str]()

    def saw(kind: str, document: Json) -> None:
        metadata = document["metadata"]
        claims[metadata["name"]] = metadata["uid"]
        if kind == "DELETED" or metadata.get("deletionTimestamp"):
            lost.append(metadata["name"])

    async with controller(simulated.kubeconfig):
        await guests.pool(2, updateStrategy=RECREATE, maxUnavailable=1, template=sized("1Gi"))
        await complete(guests)
    kubeconfig = tmp_path / "crashing.kubeconfig"
    crashing = OneWrite(simulated.kubeconfig)
    wanted = ["2Gi", "1Gi"]
    async with crashing.serve(kubeconfig), watched(guests.api, PVCS, guests.namespace, saw):
        for size in wanted:
            await guests.change(template=sized(size))
            async with asyncio.timeout(PATIENCE_SECONDS * 2):
                while not await is_done(guests, size):
                    crashing.revive()
                    async with controller(kubeconfig, burst=1):
                        await crashing.ended(partial(is_done, guests, size))
        print(f"{crashing.lives} controllers made {len(crashing.writes)} writes: {', '.join(crashing.writes)}")
        assert len(crashing.writes) > 20, "it was killed often"
        assert not lost
        # The second update gave the first disks back.
        assert sorted((await sizes(guests)).values()) == ["1Gi"] * 2 + ["2Gi"] * 2
        assert await replaced_sizes(guests) == ["2Gi"] * 2


async def is_done(place: Place, size: str) -> bool:
    if any(meta.REPLACED_DISKS in vm["metadata"]["annotations"] for vm in (await place.vms()).values()):
        return False
    if set((await disks_in_use(place)).values()) != {size}:
        return False
    found = await place.seen()
    progressing = await place.condition("Progressing")
    observed = found["status"].get("observedGeneration") == found["metadata"]["generation"]
    returned = not set(await retained(place)) & {
        vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] for vm in (await place.vms()).values()
    }
    return observed and returned and progressing.get("reason") == "Complete"
