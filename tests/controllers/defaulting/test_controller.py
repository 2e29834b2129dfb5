"""When the completion controller looks at a VM, and at which it does not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.defaulting.apply import Apply
from controllers.defaulting.controller import Completion
from runtime.api import Api
from runtime.errors import NotFound
from runtime.metrics import Metrics
from runtime.resource import Resource
from tests.controllers.defaulting.test_registration import AFTER, BEFORE, NAME, configuration, exempt

Json = dict[str, Any]


class Counting:
    """An API server that has nothing but what the informers were told, and counts who asks."""

    identity = "test"

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        self.asked.append(f"{resource.plural}/{name}")
        raise NotFound("gone", call="get")


def vm(name: str, since: str, **status: Any) -> Json:
    metadata = {"namespace": "shop", "name": name, "creationTimestamp": since}
    content: Json = {"template": {"spec": {"domain": {"devices": {}}}}}
    shape = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
    return {**shape, "metadata": metadata, "spec": content, "status": status}


def completion(*machines: Json) -> tuple[Completion, Counting]:
    api = Counting()
    made = Completion(cast(Api, api), cast(Apply, None), now=lambda: 0.0)
    tell(made, configuration())
    tell_namespace(made)
    for each in machines:
        made.machines.change(("shop", each["metadata"]["name"]), each)
    return made, api


def tell(made: Completion, found: Json) -> None:
    made.registered.change(("", found["metadata"]["name"]), found)


def tell_namespace(made: Completion, **labels: str) -> None:
    made.namespaces.change(("", "shop"), {"metadata": {"name": "shop", "labels": {NAME: "shop", **labels}}})


async def waiting(made: Completion) -> list[str]:
    """Who is to be looked at, and is."""
    found = []
    while len(made.controller.queue):
        key = await made.controller.queue.get()
        assert await made.reconcile(key) is None
        made.controller.queue.done(key)
        found.append(key[1])
    return found


@pytest.mark.parametrize(
    ("since", "asked"),
    [
        pytest.param(AFTER, ["virtualmachines/web"], id="who came when the webhook was away"),
        pytest.param(BEFORE, [], id="who was there before it costs no question, however often it changes"),
    ],
)
async def test_who_is_asked_about(since: str, asked: list[str]) -> None:
    made, api = completion(vm("web", since))
    assert await waiting(made) == ["web"]
    made.machines.change(("shop", "web"), vm("web", since, created=True, printableStatus="Running"))
    assert await waiting(made) == ["web"]
    assert api.asked == asked * 2


async def test_what_decides_who_is_ours_is_heard_of() -> None:
    made, api = completion(vm("web", AFTER), vm("old", BEFORE))
    await waiting(made)
    api.asked.clear()

    tell(made, configuration(namespaceSelector=exempt("shop")))
    assert (await waiting(made), api.asked) == (["web", "old"], [])
    tell(made, configuration())
    assert (await waiting(made), api.asked) == (["web", "old"], ["virtualmachines/web"])
    tell(made, configuration(clientConfig={"caBundle": "bmV3"}))
    assert await waiting(made) == [], "a new authority is no news"

    api.asked.clear()
    tell_namespace(made, **{"poolhouse.dev/defaulting": "disabled"})
    assert (await waiting(made), api.asked) == (["web", "old"], [])
    made.registered.forget(("", configuration()["metadata"]["name"]))
    tell_namespace(made)
    assert (await waiting(made), api.asked) == (["web", "old"], [])


async def test_a_namespace_that_is_not_heard_of_yet_is_waited_for() -> None:
    made, api = completion()
    made.namespaces.forget(("", "shop"))
    made.machines.change(("shop", "web"), vm("web", AFTER))
    assert (await waiting(made), api.asked) == (["web"], [])
    tell_namespace(made)
    assert (await waiting(made), api.asked) == (["web"], ["virtualmachines/web"])
