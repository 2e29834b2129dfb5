"""VMs that a pool makes while no webhook completes them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from controllers.shared import creation
from defaulter.contract import Defaulter, Problem, undefaulted_fields, with_firmware_ids
from defaulter.field_record import flatten, with_record
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import NAMESPACES, VMS, Resource
from tests.builders import manifest
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.test_pool import condition, said, web
from tests.webhook.fake_defaulter import FakeDefaulter, filled, with_identity

Json = dict[str, Any]


@pytest.fixture
def defaulter() -> FakeDefaulter:
    return FakeDefaulter()


async def test_a_vm_is_made_complete(control_plane: Any, place: Place, defaulter: FakeDefaulter) -> None:
    await place.pool(creation.AT_ONCE + 2)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(*range(1, creation.AT_ONCE + 3)))
    made = (await place.vms()).values()
    assert all(undefaulted_fields(vm) == [] for vm in made)
    addresses = [vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] for vm in made]
    assert len(set(addresses)) == len(addresses), "each has an identity of its own"


async def test_a_vm_is_created_with_the_annotation_while_the_defaulter_is_unavailable(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    defaulter.away = "no route to host"
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    (vm,) = (await place.vms()).values()
    assert vm["metadata"]["annotations"][meta.UNDEFAULTED] == "no route to host"


async def test_a_template_that_the_defaulter_refuses_is_a_failed_create(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    defaulter.refuses = lambda document: [Problem(path="spec.template.spec.domain.cpu", message="no such model")]
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(lambda: condition(place, "ReplicaFailure"), ("True", "FailedCreate"))
        await until(lambda: said(place, "ReplicaFailure", "no such model"), True)
        defaulter.refuses = lambda document: []
        await until(place.names, web(1))


async def test_a_namespace_that_opted_out_is_left_alone(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    labels = {"labels": {meta.DEFAULTING: meta.DISABLED}}
    await place.api.patch(NAMESPACES, None, place.namespace, {"metadata": labels})
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    # Others share the control plane, and what they have left may still be there.
    assert [document for document, _, namespace, _ in defaulter.asked if namespace == place.namespace] == []


class WithWebhook:
    """The client of an API server that calls Poolhouse's webhook for new VMs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.serves = True
        self.reviewed: list[str] = []
        self.read: list[str] = []

    async def create(self, resource: Resource, body: Json, *, dry_run: bool = False) -> Json:
        if self.serves and undefaulted_fields(body):
            self.reviewed.append(body["metadata"]["name"])
            given, body = body, filled(with_identity(body, ""), "")
            before, after = (flatten(each["spec"]["template"]["spec"]) for each in (given, body))
            body = with_record(body, {path: value for path, value in after.items() if before.get(path) != value})
        return await self._api.create(resource, body, dry_run=dry_run)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if resource is NAMESPACES:
            self.read.append(name)
        return await self._api.get(resource, namespace, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)


def creator(api: Any, defaulter: FakeDefaulter) -> creation.DefaultingCreator:
    return creation.DefaultingCreator(api, VMS, cast(Defaulter, defaulter), "", lambda: 0.0)


def named(place: Place, name: str, **labels: str) -> Json:
    document = manifest(VMS, name, template()["spec"], place.namespace, labels=labels)
    spec = document["spec"]["template"]["spec"]
    spec["domain"].setdefault("devices", {})["interfaces"] = [{"name": "default", "masquerade": {}}]
    return document


async def test_every_vm_gets_defaults_if_the_webhook_stops_during_a_batch(
    place: Place, defaulter: FakeDefaulter
) -> None:
    api = WithWebhook(place.api)
    preparing = creator(api, defaulter)
    await preparing.create(named(place, "a"))
    api.serves = False
    others = [named(place, name, shape=name) for name in "bc"]
    prepared = await preparing(others)
    identified = [with_firmware_ids(document, "") for document in others]
    assert prepared == identified, "the last answer was complete, so a webhook is there"
    for document in prepared:
        await preparing.create(document)

    made = await place.vms()
    assert {name: undefaulted_fields(vm) for name, vm in made.items()} == {"a": [], "b": [], "c": []}
    generations = {name: vm["metadata"]["generation"] for name, vm in made.items()}
    assert generations == {"a": 1, "b": 2, "c": 1}, "one was stored before anybody knew, and mended at once"


async def test_vms_that_the_controllers_complete_do_not_show_a_webhook(place: Place, defaulter: FakeDefaulter) -> None:
    preparing = creator(place.api, defaulter)
    for name in ("a", "b"):
        (prepared,) = await preparing([named(place, name)])
        assert undefaulted_fields(prepared) == []
        await preparing.create(prepared)
    generations = {name: vm["metadata"]["generation"] for name, vm in (await place.vms()).items()}
    assert generations == {"a": 1, "b": 1}, "no VM was stored incomplete"


async def test_each_vm_is_reviewed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    for document in await creating([named(place, name) for name in "abc"]):
        await creating.create(document)
    assert api.reviewed == ["a", "a", "b", "c"], "the first in a dry run, too"
    assert all(undefaulted_fields(vm) == [] for vm in (await place.vms()).values())
    assert defaulter.asked == []


async def test_the_labels_of_a_namespace_are_read_once(place: Place, defaulter: FakeDefaulter) -> None:
    api, now = WithWebhook(place.api), 0.0
    creating = creation.DefaultingCreator(cast(Api, api), VMS, cast(Defaulter, defaulter), "", lambda: now)
    await creating.create(named(place, "a"))
    now = creation.BELIEVED_SECONDS
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(creating.create(named(place, f"b-{number}")))
    assert api.read == [place.namespace, place.namespace]


async def test_the_controllers_complete_no_vm_of_a_namespace_that_opted_out(
    place: Place, defaulter: FakeDefaulter
) -> None:
    api, now = WithWebhook(place.api), 0.0
    creating = creation.DefaultingCreator(cast(Api, api), VMS, cast(Defaulter, defaulter), "", lambda: now)
    (first, second) = await creating([named(place, name) for name in "ab"])
    await creating.create(first)
    labels = {"labels": {meta.DEFAULTING: meta.DISABLED}}
    await place.api.patch(NAMESPACES, None, place.namespace, {"metadata": labels})
    api.serves, now = False, creation.BELIEVED_SECONDS
    await creating.create(second)
    (third,) = await creating([named(place, "c")])
    assert third == named(place, "c")
    await creating.create(third)
    made = await place.vms()
    assert undefaulted_fields(made["a"]) == []
    assert undefaulted_fields(made["b"])
    assert made["c"]["spec"] == named(place, "c")["spec"]
    assert defaulter.asked == []
