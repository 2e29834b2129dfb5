"""What grows with the VMs and the specs is computed apart from the event loop, which answers other requests."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml

from controllers.shared.vm import VM as VMView
from controllers.shared.vm import parse_vm
from poolhouse.api.kinds.kubevirt import VM, VMI
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.cli.cluster import Cluster
from poolhouse.console.app import Console, Frame
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.computations import Computations
from poolhouse.console.context import Context
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from tests.builders import manifest
from tests.console.test_app import KUBECONFIG, Json, pool, text, vm, vmi
from tests.waiting import eventually

ROOT = f"{Path(__file__).parents[2]}/"
SECONDS = 60.0
BIRTH = "2026-03-01T12:00:00Z"


@dataclass
class User:
    """A user with a console, and the API server as this console sees it: it has the objects of the views, and stores
    what it is sent."""

    name: str
    api: Api
    computations: Computations
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = ClusterState(self.api, None, self.name, computations=self.computations)
        self.state.api = self
        context = Context(self.state, Cluster(None, "shop"))
        console = Console(context, Frame("/token", "cluster"))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(console), base_url="http://console")

    def add(self, kind: str, document: Json) -> None:
        document["metadata"].setdefault("creationTimestamp", BIRTH)
        key = document["metadata"]["namespace"], document["metadata"]["name"]
        self.objects[kind, key[1]] = document
        for informer in self.state.informers:
            if informer.resource.kind == kind:
                informer.change(key, document)

    async def get_page(self, path: str) -> httpx.Response:
        return await self.http.get(f"/token{path}")

    # The API server

    def now(self) -> Any:
        return self.api.now()

    async def get(self, resource: Any, namespace: str, name: str) -> Json:
        if (resource.kind, name) not in self.objects:
            raise NotFound("there is none", status=404)
        return self.objects[resource.kind, name]

    async def list(self, *_: Any, **__: Any) -> tuple[list[Json], str]:
        return [], "1"

    async def request(self, method: str, path: str, *, body: Json | None = None, **_: Any) -> Json:
        if body is None:
            return {"resources": []}
        return {"status": {"allowed": True}} if "selfsubject" in path else body


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    async with await Api.connect(kubeconfig, user_agent="tests") as found:
        yield found


@pytest_asyncio.fixture
async def http() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


def replica_set() -> Json:
    metadata: Json = {"uid": "set", "resourceVersion": "1", "generation": 1}
    template = {"metadata": {"labels": {"app": "batch"}}, "spec": {"domain": {"devices": {}}}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "batch"}}, "template": template}
    return manifest(REPLICA_SET, "batch", spec, "shop", **metadata)


def user(name: str, api: Api, computations: Computations) -> User:
    """A user with a pool of a VM, and a replica set."""
    found = User(name, api, computations)
    found.add(POOL.kind, pool(2))
    found.add(REPLICA_SET.kind, replica_set())
    found.add(VM.kind, vm(1))
    found.add(VMI.kind, vmi(1, "node-1"))
    return found


@dataclass
class Called:
    """The functions that were called in the thread of the event loop, and those of other threads."""

    here: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)


@contextmanager
def called() -> Iterator[Called]:
    found = Called()

    def note(into: set[str]) -> Any:
        def call(frame: FrameType, event: str, argument: object) -> None:
            if event == "call" and (file := frame.f_code.co_filename).startswith(ROOT):
                into.add(f"{file.removeprefix(ROOT)}:{frame.f_code.co_name}")

        return call

    sys.setprofile(note(found.here))
    threading.setprofile(note(found.elsewhere))
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


PLANS_POOL, PLANS_SET = "controllers/pool/plan.py:plan", "controllers/replicaset/plan.py:plan"
COMPUTED = {
    "/vpool/shop/web": (
        PLANS_POOL,
        "controllers/pool/simulate.py:simulate",
        "poolhouse/console/pool_page.py:members",
        "poolhouse/console/pool_page.py:history",
        "poolhouse/console/templates/rollout.html:root",
    ),
    "/vmirs/shop/batch": (
        PLANS_SET,
        "controllers/replicaset/simulate.py:simulate",
        "poolhouse/console/replica_set_page.py:members",
    ),
    "/": ("poolhouse/console/overview.py:_rows", "poolhouse/console/overview.py:table"),
    "/policies": ("poolhouse/console/policies_page.py:matrix",),
    "/vm/shop/web-1": (PLANS_POOL, "controllers/pool/simulate.py:simulate", "poolhouse/cli/vm_facts.py:pool_facts"),
}


@pytest.mark.parametrize("path", COMPUTED)
async def test_no_page_computes_a_plan_on_the_event_loop(path: str, api: Api, http: AsyncExitStack) -> None:
    ann = user("ann", api, Computations(SECONDS, SECONDS))
    await http.enter_async_context(ann.http)
    with called() as found:
        answer = await ann.get_page(path)
    assert answer.status_code == 200, answer.text
    if path.startswith("/vm/"):
        assert "<h2>Next</h2>\n<ol><li>" in answer.text
    assert not {*COMPUTED[path]} & found.here
    assert {*COMPUTED[path]} <= found.elsewhere


@pytest.mark.parametrize(
    ("document", "plan"),
    [
        pytest.param(pool(3), PLANS_POOL, id="a pool"),
        pytest.param(replica_set(), PLANS_SET, id="a replica set"),
    ],
)
async def test_no_change_is_planned_on_the_event_loop(
    document: Json, plan: str, api: Api, http: AsyncExitStack
) -> None:
    ann = user("ann", api, Computations(SECONDS, SECONDS))
    await http.enter_async_context(ann.http)
    document = {**document, "metadata": {"name": "new", "namespace": "shop"}}
    with called() as found:
        sent = await ann.http.post("/token/change", data={"yaml": yaml.safe_dump(document)})
        answer = await ann.http.get(sent.headers["location"])
    assert "Order of actions" in text(answer), text(answer)
    change = "poolhouse/console/change.py"
    computed = {plan, f"{change}:read", f"{change}:diff", f"{change}:_checked"}
    assert not computed & found.here
    assert computed <= found.elsewhere


@dataclass(frozen=True, slots=True)
class Endless(VMView):
    """A VM about which a computation does not end before the test lets it. It uses processor time, so that it is soon
    known to be expensive, and then only `is_busy`."""

    began = threading.Event()
    ends = threading.Event()
    is_busy = threading.Event()

    @property
    def available(self) -> bool:
        assert threading.current_thread() is not threading.main_thread(), "it is computed on the event loop"
        if threading.current_thread().name.startswith(f"plans-{SECONDS:g}") and not self.is_busy.is_set():
            self.began.set()
            return self.ends.wait(SECONDS)
        while not self.ends.is_set():
            pass
        return True


def add_endless_vm(to: User) -> None:
    to.add(VM.kind, vm(2))
    known = parse_vm(to.objects[VM.kind, "web-2"])
    endless = Endless(**{name: getattr(known, name) for name in known.__dataclass_fields__})
    to.state.pools.vms.put(endless.key, endless)
    for each in (Endless.began, Endless.ends, Endless.is_busy):
        each.clear()


async def test_users_do_not_wait_for_the_expensive_page_of_another(api: Api, http: AsyncExitStack) -> None:
    computations = Computations(SECONDS, 0.5)
    ann, bob = user("ann", api, computations), user("bob", api, computations)
    for each in (ann, bob):
        await http.enter_async_context(each.http)
    add_endless_vm(ann)
    pages = ("/static/console.js", "/vpool/shop/web", "/vm/shop/web-1")
    for path in pages:  # the first page of a process is expensive, because it compiles the templates
        await bob.get_page(path)
    waiting = asyncio.create_task(ann.get_page("/vpool/shop/web"))
    try:
        await eventually(lambda: Endless.began.is_set() or waiting.done())
        async with asyncio.timeout(SECONDS):
            for path in pages:
                assert (await bob.get_page(path)).status_code == 200
        assert not waiting.done()
    finally:
        Endless.ends.set()
    answer = await waiting
    assert (answer.status_code, "web-2" in text(answer)) == (200, True)


async def test_a_page_says_what_was_too_expensive_and_shows_the_rest(api: Api, http: AsyncExitStack) -> None:
    ann = user("ann", api, Computations(0.5))
    await http.enter_async_context(ann.http)
    add_endless_vm(ann)
    Endless.is_busy.set()
    for path, shown in (("/vpool/shop/web", "Desired 2"), ("/vm/shop/web-1", "Past")):
        answer = await ann.get_page(path)
        assert answer.status_code == 200
        assert "The page needs more than 0.5 s of processor time, the limit of a page" in text(answer)
        assert shown in text(answer)
