"""The runtime against the real API server and etcd: what a fake would have let pass."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Conflict, Expired, Invalid, NotFound
from poolhouse.runtime.events import EVENTS, EventRecorder
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.leader_election import LeaderElector, LeaseLost
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import CONFIG_MAPS, LEASES, NAMESPACES
from tests.cluster.processes import Process
from tests.cluster.proxy import Cable
from tests.tokens import token_of
from tests.waiting import PATIENCE_SECONDS, eventually, until

LABEL = "runtime.test/ours"


@dataclass(frozen=True)
class View:
    name: str
    uid: str
    version: str
    size: int


def view(document: dict[str, Any]) -> View:
    metadata, data = document["metadata"], document.get("data") or {}
    return View(metadata["name"], metadata["uid"], metadata["resourceVersion"], sum(map(len, data.values())))


@pytest.fixture
async def api(control_plane: Any) -> AsyncIterator[Api]:
    async with await Api.connect(
        control_plane.kubeconfig, user_agent="test-runtime", timeout_seconds=60, metrics=Metrics()
    ) as api:
        yield api


@pytest.fixture
async def namespace(api: Api) -> str:
    made = await api.create(NAMESPACES, {"metadata": {"generateName": "runtime-"}})
    return str(made["metadata"]["name"])


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "labels": {LABEL: "yes"}}, "data": data}


@asynccontextmanager
async def running(informer: Informer[View]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await informer.synced()
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def truth(api: Api, namespace: str) -> dict[str, View]:
    items, _ = await api.list(CONFIG_MAPS, namespace, label_selector=LABEL)
    return {each.name: each for each in map(view, items)}


async def becomes(informer: Informer[View], expected: dict[str, View]) -> None:
    await until(lambda: {each.name: each for each in informer.store.all()}, expected)


async def test_objects_are_made_changed_and_deleted_with_preconditions(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", x="1"))
    with pytest.raises(AlreadyExists):
        await api.create(CONFIG_MAPS, config_map(namespace, "a"))
    changed = await api.patch(CONFIG_MAPS, namespace, "a", {"data": {"y": "2"}})
    assert changed["data"] == {"x": "1", "y": "2"}
    with pytest.raises(Conflict):
        await api.replace(CONFIG_MAPS, made)
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, namespace, "a", uid="another")
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, namespace, "a", resource_version=made["metadata"]["resourceVersion"])
    uid, version = changed["metadata"]["uid"], changed["metadata"]["resourceVersion"]
    await api.delete(CONFIG_MAPS, namespace, "a", uid=uid, resource_version=version)
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, namespace, "a")


async def test_a_dry_run_makes_nothing(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map(namespace, "dry"), dry_run=True)
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, namespace, "dry")


async def test_a_refusal_names_every_field(api: Api, namespace: str) -> None:
    wrong = config_map(namespace, "Not A Name")
    wrong["metadata"]["labels"]["also wrong!"] = "x"
    with pytest.raises(Invalid) as caught:
        await api.create(CONFIG_MAPS, wrong)
    assert {cause["field"] for cause in caught.value.causes} == {"metadata.name", "metadata.labels"}


async def test_applying_creates_and_owns(api: Api, namespace: str) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}
    for _ in range(2):
        await api.patch(CONFIG_MAPS, namespace, "applied", wanted, kind="apply", field_manager="test")
    with pytest.raises(Conflict):
        await api.patch(
            CONFIG_MAPS, namespace, "applied", wanted | {"data": {"a": "2"}}, kind="apply", field_manager="other"
        )


async def test_a_token_is_the_callers_and_not_ours(api: Api, namespace: str) -> None:
    await api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body={"metadata": {"name": "someone"}})
    token = await token_of(api, namespace, "someone")
    theirs = api.with_token(lambda: token)
    review = await theirs.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body={})
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:someone"


async def test_pages_are_one_list(api: Api, namespace: str) -> None:
    for number in range(25):
        await api.create(CONFIG_MAPS, config_map(namespace, f"m{number}"))
    sizes = [len(items) async for items, _ in api.pages(CONFIG_MAPS, namespace, label_selector=LABEL, page=10)]
    assert sizes == [10, 10, 5]
    items, version = await api.list(CONFIG_MAPS, namespace, label_selector=LABEL, page=7)
    assert len({item["metadata"]["name"] for item in items}) == 25
    assert version.isdecimal()


async def test_an_informer_follows_objects_of_more_than_a_megabyte(api: Api, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map(namespace, "before", text="x" * 1_040_000))
    informer = Informer(api, CONFIG_MAPS, view, namespace=namespace, label_selector=LABEL)
    async with running(informer):
        await api.create(CONFIG_MAPS, config_map(namespace, "after", text="y" * 1_040_000))
        await api.patch(CONFIG_MAPS, namespace, "before", {"data": {"text": "z" * 1_030_000}})
        await becomes(informer, await truth(api, namespace))
        assert sorted(each.size for each in informer.store.all()) == [1_030_000, 1_040_000]


async def answers(api: Api) -> bool:
    with suppress(ApiError):
        await api.request("GET", "/version")
        return True
    return False


async def watched(api: Api, namespace: str, version: str) -> None:
    async with aclosing(api.watch(CONFIG_MAPS, namespace, resource_version=version, timeout_seconds=30)) as events:
        async for _ in events:
            pass


async def test_a_store_is_the_truth_after_the_api_server_was_killed_in_the_middle_of_a_watch(
    api: Api, namespace: str
) -> None:
    """Objects come, change and go while the API server is killed and comes back, twice. Every call either happened or
    didn't; the store must end with what did."""
    port = urlsplit(api.host).port or 443
    _, before = await api.list(CONFIG_MAPS, namespace)
    changes: list[tuple[str | None, str | None]] = []
    informer = Informer(api, CONFIG_MAPS, view, namespace=namespace, label_selector=LABEL)
    informer.subscribe(lambda old, new: changes.append((old and old.name, new and new.name)))
    chance = random.Random(7)
    busy = True

    async def churn() -> None:
        while busy:
            name = f"m{chance.randrange(40)}"
            with suppress(ApiError):
                match chance.randrange(3):
                    case 0:
                        await api.create(CONFIG_MAPS, config_map(namespace, name, x=str(chance.random())))
                    case 1:
                        await api.patch(CONFIG_MAPS, namespace, name, {"data": {"x": str(chance.random())}})
                    case 2:
                        await api.delete(CONFIG_MAPS, namespace, name)
            await asyncio.sleep(0.01)

    async with running(informer):
        churning = [asyncio.create_task(churn()) for _ in range(3)]
        try:
            for _ in range(2):
                await asyncio.sleep(2)
                await asyncio.to_thread(Process.listening_on(port).kill)
                await eventually(lambda: answers(api))  # the stack starts it again
            await asyncio.sleep(2)
        finally:
            busy = False
            await asyncio.gather(*churning)
        await becomes(informer, await truth(api, namespace))
        await until(lambda: informer.problem, None)

    with pytest.raises(Expired):  # what it remembers begins with its start: the watch went on only after a list
        await watched(api, namespace, before)

    # What its subscribers were told is consistent with itself: nothing new twice, nothing gone that was not there.
    there: set[str] = set()
    for old, new in changes:
        assert (old in there) == (old is not None)
        there -= {old or ""}
        there |= {new} if new else set()
    assert there == {each.name for each in informer.store.all()}
    asked = sum(
        sample.value
        for metric in api.metrics.requests.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["verb"] in ("list", "watch")
    )
    assert asked < 60, "an API server that comes up is not stormed"


async def test_a_cut_off_leader_has_stopped_before_another_begins(
    api: Api, namespace: str, control_plane: Any, tmp_path: Path
) -> None:
    """The calls of the first leader hang: no error, no reset, nothing. Times are shortened, their order is not."""
    times: dict[str, float] = {}

    def work(name: str) -> Any:
        async def body() -> None:
            times[f"{name} begins"] = time.monotonic()
            try:
                await asyncio.Event().wait()
            finally:
                times[f"{name} ended"] = time.monotonic()

        return body

    def leading(api: Api, name: str) -> asyncio.Task[None]:
        short: Any = {"duration_seconds": 12, "renew_deadline_seconds": 8, "retry_seconds": 0.5}
        return asyncio.create_task(LeaderElector(api, namespace, "leader", name, **short).run(work(name)))

    async with Cable(api.host) as cable:
        through = cable.kubeconfig(control_plane.kubeconfig, tmp_path / "kubeconfig")
        async with await Api.connect(through, user_agent="first") as first_api:
            first = leading(first_api, "first")
            await eventually(lambda: "first begins" in times)
            second = leading(api, "second")
            await asyncio.sleep(2)
            assert "second begins" not in times
            cable.hold()
            await eventually(lambda: "second begins" in times)
            assert times["first ended"] < times["second begins"]
            await eventually(first.done)
            assert isinstance(first.exception(), LeaseLost)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
    assert not (await api.get(LEASES, namespace, "leader"))["spec"].get("holderIdentity"), "it was given back"
    third = leading(api, "third")
    await eventually(lambda: "third begins" in times)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)


async def test_events_are_taken_and_counted(api: Api, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "pool"))
    regarding = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": namespace,
        "name": "pool",
        "uid": made["metadata"]["uid"],
    }
    events = EventRecorder(api, "poolhouse.dev/test")
    task = asyncio.create_task(events.run())
    for _ in range(3):
        events.emit(regarding, "Normal", "ScaledOut", "made pool-1", action="ScaleOut")
    events.emit(regarding, "Warning", "Refused", "quota is full " * 100, action="ScaleOut")

    async def counts() -> dict[str, int]:
        found, _ = await api.list(EVENTS, namespace)
        return {each["reason"]: (each.get("series") or {}).get("count", 1) for each in found}

    await until(counts, {"ScaledOut": 3, "Refused": 1})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
