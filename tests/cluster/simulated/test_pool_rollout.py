"""A pool whose template changes, with guests that start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controllers.pool.pools import POOLS
from controllers.shared.subresources import RESOURCES
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.test_pool import OFFLINE, condition, is_there, said, status, web

Json = dict[str, Any]


@pytest_asyncio.fixture
async def running(simulated: StackPaths, guests: Place) -> AsyncIterator[Place]:
    async with controller(simulated.kubeconfig):
        yield guests


def bigger(**inner: Any) -> Json:
    found = template()
    found["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
    found["spec"]["template"]["spec"].update(inner)
    return found


async def runs(place: Place) -> dict[str, str]:
    items, _ = await place.api.list(VMIS, place.namespace)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in items}


async def complete(place: Place) -> None:
    async def answer() -> Any:
        found = await place.seen()
        if found.get("status", {}).get("observedGeneration") != found["metadata"]["generation"]:
            return "not looked at yet"
        return await condition(place, "Progressing")

    await until(answer, ("True", "Complete"), 400)  # the pauses between tries to start grow to 300 s


@pytest.mark.sentence("1.2")
async def test_a_new_template_restarts_vms_within_the_limit_and_keeps_what_is_theirs(running: Place) -> None:
    await running.pool(4, maxUnavailable=1)
    await complete(running)
    await running.meta("web-2", labels={"team": "blue"})
    await running.api.patch(
        *machine(running, "web-2"),
        {"spec": {"template": {"spec": {"domain": {"firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}}}}}},
    )
    before = await runs(running)
    least = 4

    async def look() -> None:
        nonlocal least
        while True:
            least = min(least, await status(running, "availableReplicas") or 0)
            await asyncio.sleep(0.2)

    looking = asyncio.create_task(look())
    await running.change(template=bigger())
    await complete(running)
    assert not looking.done(), "nobody was looking"
    looking.cancel()
    assert least >= 3
    after = await runs(running)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values()), "each was restarted"
    machines = await running.vms()
    assert {vm["spec"]["template"]["spec"]["domain"]["cpu"]["cores"] for vm in machines.values()} == {4}
    assert machines["web-2"]["metadata"]["labels"]["team"] == "blue"
    assert machines["web-2"]["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"].startswith("5d307ca9")
    found = (await running.seen())["status"]
    assert found["updatedReplicas"] == 4
    assert found["currentRevision"] == found["updateRevision"]
    revisions, _ = await running.api.list(CONTROLLER_REVISIONS, running.namespace)
    assert len(revisions) == 2


@pytest.mark.sentence("1.55")
async def test_a_change_that_needs_no_restart_restarts_nothing(running: Place) -> None:
    await running.pool(3)
    await complete(running)
    before = await runs(running)
    await running.change(template={"metadata": {"labels": {"tier": "a"}}})
    await complete(running)
    assert {vm["metadata"]["labels"]["tier"] for vm in (await running.vms()).values()} == {"a"}
    assert await runs(running) == before


async def test_an_update_by_steps_waits_for_its_promotion(running: Place) -> None:
    steps = [{"setReplicas": 1}, {"pause": {}}, {"setReplicas": "50%"}, {"pause": {"durationSeconds": 1}}]
    await running.pool(4, maxUnavailable=2, updateStrategy={"proactive": {"steps": steps}})
    await complete(running)
    before = await runs(running)
    await running.change(template=bigger())
    await until(lambda: condition(running, "Progressing"), ("True", "UpdatePaused"))
    assert await status(running, "updatedReplicas") == 1
    # A VM that is created meanwhile gets the template of the others.
    kept = next(name for name, uid in (await runs(running)).items() if before[name] == uid)
    former = (await running.vms())[kept]["metadata"]["uid"]
    await running.api.delete(VMS, running.namespace, kept)
    await until(lambda: is_there(running, kept, other_than=former), True)
    await until(lambda: status(running, "readyReplicas"), 4)
    assert await status(running, "updatedReplicas") == 1

    revision = await status(running, "updateRevision")
    await running.api.patch(
        POOLS, running.namespace, "web", {"metadata": {"annotations": {"poolhouse.dev/promote": f"{revision}=2"}}}
    )
    await complete(running)
    assert await status(running, "updatedReplicas") == 4
    assert (await status(running, "update"))["stepsDone"] == 4


async def test_an_update_that_fails_is_rolled_back_and_not_tried_again(running: Place) -> None:
    strategy = {"proactive": {"rollback": {"failureThreshold": 1}}}
    await running.pool(3, maxUnavailable=1, updateStrategy=strategy)
    await complete(running)
    bad = bigger()
    bad["spec"]["template"]["metadata"] = {"annotations": {"sim.poolhouse.dev/fail": "ErrImagePull"}}
    await running.change(template=bad)
    await until(lambda: condition(running, "Progressing"), ("False", "UpdateAborted"))
    await until(lambda: said(running, "Progressing", "3 of 3 VMs have the former template"), True)
    await until(lambda: status(running, "readyReplicas"), 3)
    domains = [vm["spec"]["template"]["spec"]["domain"] for vm in (await running.vms()).values()]
    assert all((domain.get("cpu") or {}).get("cores") != 4 for domain in domains)
    # Another template is tried.
    await running.change(template={"spec": {"template": {"metadata": {"annotations": None}}}})
    await complete(running)
    assert await status(running, "updatedReplicas") == 3


async def test_another_image_is_reported_because_it_reaches_no_disk(running: Place) -> None:
    await running.pool(2, scaleInStrategy=OFFLINE)
    await complete(running)
    larger = template()["spec"]["dataVolumeTemplates"]
    larger[0]["spec"]["pvc"]["resources"]["requests"]["storage"] = "2Gi"
    await running.change(template={"spec": {"dataVolumeTemplates": larger}})
    await until(lambda: said(running, "DisksOutdated", "2 of 2 VMs"), True)
    await complete(running)
    # A retained disk stays older, also with a new VM.
    await running.change(replicas=1)
    await until(lambda: said(running, "DisksOutdated", "1 of 1 VM has"), True)
    await running.change(replicas=2)
    await until(lambda: said(running, "DisksOutdated", "2 of 2 VMs"), True)
    # A VM that a user deletes gets a new disk.
    await running.api.delete(VMS, running.namespace, "web-1")
    await until(lambda: said(running, "DisksOutdated", "1 of 2 VMs"), True)


@pytest.mark.sentence("1.36")
async def test_labels_and_annotations_of_the_vmi_template_are_those_of_the_vmis(running: Place) -> None:
    labelled = template()
    labelled["spec"]["template"]["metadata"] = {"labels": {"size": "small", "old": "x"}, "annotations": {"a": "1"}}
    await running.pool(2, template=labelled)
    await complete(running)
    before = await runs(running)

    async def metadata() -> list[Json]:
        items, _ = await running.api.list(VMIS, running.namespace)
        found = {each["metadata"]["name"]: each["metadata"] for each in items}
        return [found[name] for name in web(1, 2)]

    async def labels() -> Any:
        return [[each["labels"].get(key) for key in ("size", "old", "team")] for each in await metadata()]

    assert await labels() == [["small", "x", None]] * 2
    assert [each["annotations"]["a"] for each in await metadata()] == ["1", "1"]
    # A change reaches the VMIs that run.
    await running.api.patch(VMIS, running.namespace, "web-1", {"metadata": {"labels": {"team": "blue"}}})
    await running.change(template={"spec": {"template": {"metadata": {"labels": {"size": "big", "old": None}}}}})
    await until(labels, [["big", None, "blue"], ["big", None, None]])
    assert await runs(running) == before


async def test_a_paused_pool_waits(running: Place) -> None:
    await running.pool(2)
    await complete(running)
    before = await runs(running)
    await running.change(paused=True, template=bigger(), replicas=3)
    await until(lambda: condition(running, "Progressing"), ("False", "PoolPaused"))
    await asyncio.sleep(1)
    assert await runs(running) == before
    await running.change(paused=False)
    await complete(running)
    assert await running.names() == web(1, 2, 3)


def machine(place: Place, name: str) -> tuple[Any, str, str]:
    return VMS, place.namespace, name


@pytest.mark.parametrize("run_strategy", ["Manual", "RerunOnFailure"])
async def test_an_update_restarts_vms_by_subresource(guests: Place, ours: Path, run_strategy: str) -> None:
    spec = bigger()
    spec["spec"].pop("running")
    spec["spec"] |= {"runStrategy": run_strategy}
    async with controller(ours):
        await guests.pool(2, template=spec, maxUnavailable=1)
        await until(guests.names, web(1, 2))
        if run_strategy == "Manual":
            for name in web(1, 2):
                await guests.api.put_subresource(RESOURCES["start"], guests.namespace, name, "start")
        await until(lambda: cores(guests), [4, 4])
        before = await runs(guests)
        await guests.change(template={"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}})
        await until(lambda: cores(guests), [2, 2])
        assert not set((await runs(guests)).values()) & set(before.values())
        await complete(guests)


async def cores(place: Place) -> list[int]:
    """Of the VMIs that run."""
    found, _ = await place.api.list(VMIS, place.namespace)
    return [each["spec"]["domain"]["cpu"]["cores"] for each in found if at(each, "status", "phase") == "Running"]
