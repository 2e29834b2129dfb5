"""Which domains are read, where and how often."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.observe import parse_vm
from controllers.defaulting.plan import OLDER, needs_domain
from controllers.defaulting.running_domains import DomainReader
from poolhouse.runtime.resource import Key
from tests.controllers.defaulting.test_controller import EmptyApi
from tests.controllers.defaulting.test_plan import document, snapshot
from tests.defaulter.builders import disk, spec, vmi

Json = dict[str, Any]


def guest(name: str = "web", namespace: str = "shop", phase: str = "Running") -> Json:
    status = {"phase": phase, "volumeStatus": [{"name": "root"}]}
    return {**vmi(spec(disk()), name, namespace, uid="u"), "status": status}


def reader(*namespaces: str, wanted: bool = True) -> tuple[DomainReader, EmptyApi]:
    api = EmptyApi()

    def wants(key: Key) -> bool:
        return wanted

    made = DomainReader(api, None, frozenset(namespaces), wants)
    return made, api


async def reconcile_all(made: DomainReader) -> list[Key]:
    found = []
    while len(made.controller.queue):
        key = await made.controller.queue.get()
        await made.reconcile(key)
        made.controller.queue.done(key)
        found.append(key)
    return found


@pytest.mark.parametrize(
    ("allowed", "running", "expected"),
    [
        pytest.param(["*"], guest(), [("shop", "web")], id="in all namespaces"),
        pytest.param(["shop"], guest(), [("shop", "web")], id="in this namespace"),
        pytest.param(["other"], guest(), [], id="in another namespace"),
        pytest.param(["*"], guest(phase="Scheduling"), [], id="a guest that has not started"),
    ],
)
async def test_where_domains_are_read(allowed: list[str], running: Json, expected: list[Key]) -> None:
    made, api = reader(*allowed)
    made.guests.change(("shop", "web"), running)
    assert await reconcile_all(made) == expected
    assert api.asked == [f"virtualmachineinstances/{name}" for _, name in expected]


async def test_a_vm_that_needs_nothing_causes_no_request() -> None:
    made, api = reader("*", wanted=False)
    made.guests.change(("shop", "web"), guest())
    assert await reconcile_all(made) == [("shop", "web")]
    assert api.asked == []


async def test_a_heartbeat_of_the_guest_does_not_enqueue_it() -> None:
    made, _ = reader("*")
    made.guests.change(("shop", "web"), guest())
    await reconcile_all(made)
    made.guests.change(("shop", "web"), guest() | {"metadata": {**guest()["metadata"], "resourceVersion": "2"}})
    assert await reconcile_all(made) == []


async def test_a_vm_a_namespace_or_the_configuration_makes_it_look_again() -> None:
    made, _ = reader("*")
    for name, namespace in (("web", "shop"), ("db", "other")):
        made.guests.change((namespace, name), guest(name, namespace))
    await reconcile_all(made)
    made.vm_changed(None, parse_vm(document()))
    assert await reconcile_all(made) == [("shop", "web")]
    made.scope_changed("other")
    assert await reconcile_all(made) == [("other", "db")]
    made.scope_changed()
    assert await reconcile_all(made) == [("shop", "web"), ("other", "db")]


@pytest.mark.parametrize(
    ("known", "ineligible", "expected"),
    [
        pytest.param({}, None, True, id="missed by the webhook, or with a hotplugged disk"),
        pytest.param({}, OLDER, True, id="older than Poolhouse"),
        pytest.param({}, "its namespace opted out", False, id="opted out"),
        pytest.param({"undefaulted": False}, None, False, id="all its hardware is in the spec"),
        pytest.param({"deleting": True}, OLDER, False, id="it is being deleted"),
    ],
)
def test_which_vms_need_their_domain(known: Json, ineligible: str | None, expected: bool) -> None:
    assert needs_domain(snapshot(**known).vm, ineligible) is expected
