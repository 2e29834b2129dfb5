"""VMs that a pool makes while no webhook completes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.shared import creation
from controllers.shared.hardware_reports import HardwareReports
from defaulter.contract import Defaulter, Problem, undefaulted_fields, with_firmware_ids
from defaulter.field_record import flatten, with_record
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, Invalid
from poolhouse.runtime.events import EventRecorder
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
    made = (await place.machines()).values()
    assert all(undefaulted_fields(vm) == [] for vm in made)
    addresses = [vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] for vm in made]
    assert len(set(addresses)) == len(addresses), "each has an identity of its own"


async def test_a_defaulter_that_is_away_holds_nobody_up_and_is_told_of(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    defaulter.away = "no route to host"
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    (vm,) = (await place.machines()).values()
    assert vm["metadata"]["annotations"][meta.UNDEFAULTED] == "no route to host"


async def test_a_template_that_the_defaulter_refuses_is_told_of(
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
    """The client of an API server that calls Poolhouse's webhook for new VMs, and another webhook before it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.serves = True
        self.reviewed: list[str] = []
        self.refuses_complete = self.refuses_any = False
        self.read: list[str] = []
        self.other: Callable[[Json], None] = lambda spec: None

    async def create(self, resource: Resource, body: Json, *, dry_run: bool = False, field_manager: str = "") -> Json:
        body = deepcopy(body)
        self.other(body["spec"]["template"]["spec"])
        if self.refuses_any or (field_manager and self.refuses_complete):
            raise Invalid("no", status=422)
        if self.serves and not field_manager and undefaulted_fields(body):
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

    made = await place.machines()
    assert {name: undefaulted_fields(vm) for name, vm in made.items()} == {"a": [], "b": [], "c": []}
    generations = {name: vm["metadata"]["generation"] for name, vm in made.items()}
    assert generations == {"a": 1, "b": 2, "c": 1}, "one was stored before anybody knew, and mended at once"


async def test_vms_that_the_controllers_complete_do_not_show_a_webhook(place: Place, defaulter: FakeDefaulter) -> None:
    preparing = creator(place.api, defaulter)
    for name in ("a", "b"):
        (prepared,) = await preparing([named(place, name)])
        assert undefaulted_fields(prepared) == []
        await preparing.create(prepared)
    generations = {name: vm["metadata"]["generation"] for name, vm in (await place.machines()).items()}
    assert generations == {"a": 1, "b": 1}, "no VM was stored incomplete"


async def hardware(place: Place) -> dict[str, Json]:
    return {name: vm["spec"]["template"]["spec"] for name, vm in (await place.machines()).items()}


async def test_vms_of_a_known_shape_are_not_reviewed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    prepared = await creating([named(place, name) for name in "abc"])
    for document in prepared:
        await creating.create(document)
    assert api.reviewed == ["a", "a"], "a dry run teaches nothing, because other webhooks may skip it"
    found = await hardware(place)
    assert list(found) == ["a", "b", "c"]
    assert all(undefaulted_fields(vm) == [] for vm in (await place.machines()).values())
    macs = {at(spec, "domain", "devices", "interfaces", 0, "macAddress") for spec in found.values()}
    assert len(macs) == 3
    addresses = {at(spec, "domain", "devices", "interfaces", 0, "pciAddress") for spec in found.values()}
    assert len(addresses) == 1
    assert defaulter.asked == []


async def test_of_many_vms_at_once_one_is_reviewed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    prepared = await creating([named(place, f"v-{number}") for number in range(20)])
    await asyncio.gather(*map(creating.create, prepared))
    assert api.reviewed == ["v-0", "v-0"], "once in a dry run"
    assert len(await hardware(place)) == 20


async def test_vms_do_not_wait_for_a_first_one_that_fails(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    api.refuses_any = True
    results = await asyncio.gather(*(creating.create(named(place, name)) for name in "abc"), return_exceptions=True)
    assert [type(each) for each in results] == [Invalid] * 3
    api.refuses_any = False
    await creating.create(named(place, "a"))


async def test_a_known_vm_that_another_webhook_changes_is_completed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)

    def inject(spec: Json) -> None:
        spec["domain"]["devices"].setdefault("disks", []).append({"name": "injected", "disk": {"bus": "virtio"}})
        spec["volumes"].append({"name": "injected", "emptyDisk": {"capacity": "1Mi"}})

    (first, second, third) = await creating([named(place, name) for name in "abc"])
    await creating.create(first)
    api.other = inject
    await creating.create(second)
    api.other = lambda spec: None
    await creating.create(third)
    assert {name: undefaulted_fields(vm) for name, vm in (await place.machines()).items()} == {
        "a": [],
        "b": [],
        "c": [],
    }
    assert at(await hardware(place), "b", "domain", "devices", "disks", -1, "disk", "pciAddress")
    assert api.reviewed == ["a", "a", "c"], "the shape is not trusted any more"


async def test_a_known_vm_that_another_webhook_changes_gets_the_hardware_of_a_review(
    place: Place, defaulter: FakeDefaulter
) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)

    def change(spec: Json) -> None:
        spec["domain"]["devices"]["disks"][0]["disk"]["bus"] = "sata"
        spec["domain"]["devices"]["disks"][0]["disk"].pop("pciAddress", None)

    await creating.create(named(place, "a"))
    api.other = change
    await creating.create(named(place, "b"))
    assert api.reviewed == ["a"]
    found = await hardware(place)
    assert at(found, "a", "domain", "devices", "disks", 0, "disk").keys() == {"bus", "pciAddress"}
    assert at(found, "b", "domain", "devices", "disks", 0, "disk") == {"bus": "sata"}, "it has no PCI address"


async def test_a_known_vm_that_another_webhook_changes_and_that_has_started_is_reported(
    place: Place, defaulter: FakeDefaulter
) -> None:
    class Starting(WithWebhook):
        """KubeVirt starts each VM before another client can change it."""

        async def replace(self, resource: Resource, body: Json) -> Json:
            raise Conflict("the object has been modified", status=409)

        async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
            found = await super().get(resource, namespace, name)
            return {**found, "status": {"created": True}} if resource is VMS else found

    registry, recorder = CollectorRegistry(), Recorded()
    reports = HardwareReports(cast(EventRecorder, recorder), registry)
    api: Any = Starting(place.api)
    creating = creation.DefaultingCreator(
        api, VMS, cast(Defaulter, defaulter), "", lambda: 0.0, report_kept=reports.kept
    )
    await creating.create(named(place, "a"))
    assert recorder.notes == []
    api.other = lambda spec: spec["domain"]["devices"]["disks"][0]["disk"].update(bus="sata")
    await creating.create(named(place, "b"))
    ((reason, note),) = recorder.notes
    assert reason == "HardwareKept"
    assert note.startswith("the VM keeps hardware that Poolhouse did not choose: the VM has started. Another webhook")
    assert registry.get_sample_value("kubevirt_poolhouse_vm_hardware_kept_total") == 1


class Recorded:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def emit(self, regarding: Json, type: str, reason: str, note: str, *, action: str) -> None:
        assert regarding["name"] == "b"
        self.notes.append((reason, note))


async def test_a_known_vm_that_is_refused_is_reviewed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    api.refuses_complete = True
    creating = creator(api, defaulter)
    for document in await creating([named(place, name) for name in "ab"]):
        await creating.create(document)
    assert api.reviewed == ["a", "a", "b"], "the first in a dry run, too"
    assert list(await hardware(place)) == ["a", "b"]


async def test_a_known_vm_that_a_quota_refuses_stays_known(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    await creating.create(named(place, "a"))
    api.refuses_complete = api.refuses_any = True
    with pytest.raises(Invalid):
        await creating.create(named(place, "b"))
    api.refuses_complete = api.refuses_any = False
    await creating.create(named(place, "b"))
    assert api.reviewed == ["a"]


async def test_a_vm_that_is_always_reviewed_is_not_learned(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    for name in "ab":
        document = named(place, name)
        document["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "sriov": {}}]
        await creating.create(document)
    assert api.reviewed == ["a", "b"]


async def test_a_template_that_marks_its_vms_as_undefaulted_is_reviewed(place: Place, defaulter: FakeDefaulter) -> None:
    api = WithWebhook(place.api)
    creating = creator(api, defaulter)
    for name in "ab":
        document = named(place, name)
        document["metadata"]["annotations"] = {meta.UNDEFAULTED: "DefaulterUnavailable"}
        await creating.create(document)
    assert api.reviewed == ["a", "b"]


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
    made = await place.machines()
    assert undefaulted_fields(made["a"]) == []
    assert undefaulted_fields(made["b"])
    assert made["c"]["spec"] == named(place, "c")["spec"]
    assert defaulter.asked == []
