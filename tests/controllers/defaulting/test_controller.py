"""Which changes make the controller look at a VM, and for which VMs it sends a request."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.controller import DefaultingController, DefaultingWriter
from defaulter.contract import Problem
from poolhouse.api.apimachinery.unstructured import at, replaced
from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.api.kinds.vm_documents import with_firmware_uuid, with_undefaulted
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import VMS, Resource
from tests.builders import manifest, vm_spec
from tests.controllers.defaulting.test_plan import AFTER, BEFORE, NAME, configuration, exempt
from tests.webhook.builders import disk
from tests.webhook.builders import vm as webhook_vm
from tests.webhook.fake_defaulter import FakeDefaulter, filled

Json = dict[str, Any]


class EmptyApi:
    """An API server that answers every get with NotFound and records it."""

    identity = "test"

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        self.asked.append(f"{resource.plural}/{name}")
        raise NotFound("gone", call="get")


def vm(name: str, since: str, **status: Any) -> Json:
    return manifest(VMS, name, vm_spec(), "shop", status=status, creationTimestamp=since)


def controller_with(*vms: Json) -> tuple[DefaultingController, EmptyApi]:
    api = EmptyApi()
    made = DefaultingController(api, None, now=lambda: 0.0)
    set_configuration(made, configuration())
    set_namespace(made)
    for each in vms:
        made.vms.change(("shop", each["metadata"]["name"]), each)
    return made, api


def set_configuration(made: DefaultingController, found: Json) -> None:
    made.scopes.change(("", found["metadata"]["name"]), found)


def set_namespace(made: DefaultingController, **labels: str) -> None:
    made.namespaces.change(("", "shop"), {"metadata": {"name": "shop", "labels": {NAME: "shop", **labels}}})


async def reconcile_all(made: DefaultingController) -> list[str]:
    """Reconciles all enqueued VMs and returns their names."""
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
        pytest.param(AFTER, ["virtualmachines/web"], id="created while the webhook was down"),
        pytest.param(BEFORE, [], id="an older VM causes no request"),
    ],
)
async def test_only_eligible_vms_cause_requests(since: str, asked: list[str]) -> None:
    made, api = controller_with(vm("web", since))
    assert await reconcile_all(made) == ["web"]
    made.vms.change(("shop", "web"), vm("web", since, created=True, printableStatus="Running"))
    assert await reconcile_all(made) == ["web"]
    assert api.asked == asked * 2


async def test_a_change_of_the_scope_or_the_namespace_is_noticed() -> None:
    made, api = controller_with(vm("web", AFTER), vm("old", BEFORE))
    await reconcile_all(made)
    api.asked.clear()

    set_configuration(made, configuration(namespaceSelector=exempt("shop")))
    assert (await reconcile_all(made), api.asked) == (["web", "old"], [])
    set_configuration(made, configuration())
    assert (await reconcile_all(made), api.asked) == (["web", "old"], ["virtualmachines/web"])
    set_configuration(made, configuration(clientConfig={"caBundle": "bmV3"}))
    assert await reconcile_all(made) == [], "a new CA bundle does not change the scope"

    api.asked.clear()
    set_namespace(made, **{"poolhouse.dev/defaulting": "disabled"})
    assert (await reconcile_all(made), api.asked) == (["web", "old"], [])
    made.scopes.forget(("", configuration()["metadata"]["name"]))
    set_namespace(made)
    assert (await reconcile_all(made), api.asked) == (["web", "old"], [])


async def test_vms_of_an_unknown_namespace_wait_for_it() -> None:
    made, api = controller_with()
    made.namespaces.forget(("", "shop"))
    made.vms.change(("shop", "web"), vm("web", AFTER))
    assert (await reconcile_all(made), api.asked) == (["web"], [])
    set_namespace(made)
    assert (await reconcile_all(made), api.asked) == (["web"], ["virtualmachines/web"])


@pytest.mark.parametrize(
    ("vmi", "status", "machine", "may_have_run"),
    [
        pytest.param(
            {"status": {"phase": "Succeeded", "machine": {"type": "pc-q35-10.0"}}}, {}, "pc-q35-10.0", True, id="VMI"
        ),
        pytest.param(None, {"runStrategy": "Always"}, "q35", True, id="the last VMI is gone"),
        pytest.param(None, {}, "q35", False, id="it has never started"),
    ],
)
async def test_a_guest_keeps_the_machine_type_that_it_ran(
    vmi: Json | None, status: Json, machine: str, may_have_run: bool
) -> None:
    stored = vm("web", AFTER, **status)
    stored["spec"]["template"]["spec"]["domain"]["machine"] = {"type": "q35"}
    defaulter, recorder = FakeDefaulter(), FakeRecorder()

    class StoredApi(EmptyApi):
        async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
            found = {"virtualmachines": stored, "virtualmachineinstances": vmi}[resource.plural]
            return found if found is not None else await super().get(resource, namespace, name)

        async def replace(self, resource: Resource, body: Json) -> Json:
            return body

    api = StoredApi()
    made = DefaultingController(api, DefaultingWriter(api, defaulter, recorder, seed="s"), now=lambda: 0.0)
    set_configuration(made, configuration())
    set_namespace(made)
    made.vms.change(("shop", "web"), stored)
    assert await reconcile_all(made) == ["web"]
    (asked,) = defaulter.asked
    assert at(asked[0], "spec", "template", "spec", "domain", "machine", "type") == machine
    kept = ["GuestKept"] if vmi is not None else []
    assert (defaulter.may_have_run, recorder.reasons) == (may_have_run, [*kept, "HardwareDecided"])


@pytest.mark.parametrize("since", [pytest.param(AFTER, id="eligible"), pytest.param(BEFORE, id="older")])
@pytest.mark.parametrize("failures", [pytest.param(0, id="the first failure"), pytest.param(5, id="a long outage")])
async def test_a_vm_that_restarts_in_an_outage_of_the_defaulter_keeps_its_mac_address(
    since: str, failures: int
) -> None:
    stored, mac = vm("web", since, created=True, printableStatus="Stopping"), "02:00:00:00:00:07"
    network = {"networks": [{"name": "default", "pod": {}}]}
    devices = {"interfaces": [{"name": "default", "masquerade": {}, "macAddress": mac}]}
    stored["spec"]["template"]["spec"] = {"domain": {"devices": {}}}
    vmi = {
        "metadata": {"deletionTimestamp": AFTER},
        "spec": {"domain": {"devices": devices}, **network},
        "status": {"interfaces": [{"name": "default", "mac": mac, "infoSource": "domain"}]},
    }
    defaulter, recorder, written = FakeDefaulter(), FakeRecorder(), list[Json]()
    defaulter.away = "no answer"

    class StoredApi(EmptyApi):
        async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
            return {"virtualmachines": stored, "virtualmachineinstances": vmi}[resource.plural]

        async def replace(self, resource: Resource, body: Json) -> Json:
            written.append(body)
            return body

    made = DefaultingController(
        StoredApi(), DefaultingWriter(StoredApi(), defaulter, recorder, seed="s"), now=lambda: 0.0
    )
    for _ in range(failures):
        made.breaker = made.breaker.failed(0.0)
    set_configuration(made, configuration())
    set_namespace(made)
    made.vms.change(("shop", "web"), stored)
    again = await made.reconcile(("shop", "web"))
    (kept,) = written
    (nic,) = at(kept, "spec", "template", "spec", "domain", "devices", "interfaces")
    assert (nic["macAddress"], recorder.reasons) == (mac, ["GuestKept"])
    assert bool(again) == (since == AFTER), "the other fields follow after the outage"


EMPTY = webhook_vm(disk("root"), annotations={UNDEFAULTED: "DefaulterUnavailable"})
DECIDED = filled(EMPTY, "s")
FIRMWARE = ("spec", "template", "spec", "domain", "firmware")
NAMELESS = replaced(DECIDED, {"serial": at(DECIDED, *FIRMWARE, "serial")}, *FIRMWARE)


class FakeRecorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, regarding: Json, type: str, reason: str, note: str, *, action: str) -> None:
        self.reasons.append(reason)


def refusing() -> FakeDefaulter:
    defaulter = FakeDefaulter()
    defaulter.refuses = lambda document: [Problem(path="spec", message="no")]
    return defaulter


@pytest.mark.parametrize(
    ("defaulter", "stored", "asked", "written", "reasons"),
    [
        pytest.param(FakeDefaulter(), EMPTY, EMPTY, with_undefaulted(DECIDED, None), [], id="empty fields are filled"),
        pytest.param(
            FakeDefaulter(),
            NAMELESS,
            with_firmware_uuid(NAMELESS),
            with_undefaulted(with_firmware_uuid(NAMELESS), None),
            [],
            id="only the UUID is missing",
        ),
        pytest.param(FakeDefaulter(), DECIDED, DECIDED, None, ["HardwareUndecided"], id="the answer changes nothing"),
        pytest.param(refusing(), EMPTY, EMPTY, None, ["HardwareUndecided"], id="the defaulter refuses the VM"),
    ],
)
async def test_the_answer_decides_what_is_written(
    defaulter: FakeDefaulter, stored: Json, asked: Json, written: Json | None, reasons: list[str]
) -> None:
    recorder = FakeRecorder()
    writer = DefaultingWriter(None, defaulter, recorder, seed="s")
    assert await writer.fill(stored, asked, may_have_run=False) == written
    assert recorder.reasons == reasons
