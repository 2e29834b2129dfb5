"""Changes by webhooks that run after the defaulting webhook."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from defaulter.contract import DEFAULTED_FIELDS, defaulted_fields
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.api.kinds.meta import UNDEFAULTED
from tests.webhook.builders import disk, request, vm
from tests.webhook.fake_defaulter import filled
from webhook.admission import Admission
from webhook.hardware_drift import REMEMBERED_SECONDS, HardwareDrift, spec_text
from webhook.metrics import Metrics
from webhook.reasons import DriftReason, FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse

Json = dict[str, Any]

VM = vm(disk("root"), disk("data", bus="virtio"))
DONE = filled(VM, "s")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def late(*answers: Json, clock: Clock | None = None) -> HardwareDrift:
    found = HardwareDrift(now=clock or Clock())
    for document in answers:
        found.remember(request(VM), document)
    return found


def domain(document: Json) -> Json:
    found: Json = document["spec"]["template"]["spec"]["domain"]
    return found


def changed(**fields: Any) -> Json:
    document = copy.deepcopy(DONE)
    domain(document)["devices"]["disks"][1]["disk"] |= fields
    return document


def recorded(document: Json) -> Json:
    """The document with a record of its defaults."""
    return {**document, "metadata": {**document["metadata"], "annotations": {DEFAULTED_FIELDS: "{}"}}}


def test_an_unchanged_vm_has_no_warning() -> None:
    assert late(DONE).check(request(DONE)).warnings == ()


def test_an_added_disk_is_undefaulted() -> None:
    document = copy.deepcopy(DONE)
    domain(document)["devices"]["disks"].insert(0, disk("injected", bus="virtio"))
    verdict = late(DONE).check(request(document))
    assert verdict.drift == DriftReason.HARDWARE_UNDEFAULTED
    (warning,) = verdict.warnings
    assert warning.startswith(
        "spec.template.spec.domain.devices.disks[0].disk.pciAddress was left without a default after defaulting"
    )
    assert not verdict.problems


def test_a_vm_that_was_not_defaulted_at_all_is_reported_with_the_deadline() -> None:
    """The API server goes on without a defaulting webhook that does not answer in time."""
    (warning,) = HardwareDrift(now=Clock()).check(request(VM)).warnings
    assert "because the defaulting webhook did not answer in time, or another webhook ran later" in warning


def test_a_changed_address_is_reported_by_its_device() -> None:
    verdict = late(DONE).check(request(changed(pciAddress="0000:1f:00.0")))
    assert verdict.drift == DriftReason.HARDWARE_CHANGED
    assert verdict.warnings[0].startswith("domain.devices.disks[data].disk.pciAddress was changed after defaulting")


def test_a_change_is_found_when_the_webhook_is_reinvoked() -> None:
    again = request(recorded(changed(pciAddress="0000:1f:00.0")))
    verdict = late(DONE).since_answer(again)
    assert verdict.drift == DriftReason.HARDWARE_CHANGED
    assert verdict.warnings[0].startswith("domain.devices.disks[data].disk.pciAddress was changed after defaulting")
    assert late(DONE).since_answer(request(DONE)).warnings == ()
    assert late().since_answer(again).warnings == ()


class Defaulter:
    """Sets the defaults of a new VM, and allows others as they are for the given reason."""

    reason: Reason | None = None

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if request.object == VM:
            return AdmissionResponse(object=DONE)
        return AdmissionResponse(object=request.object, reason=self.reason)


@pytest.mark.parametrize("reason", [None, FailOpenReason.DEFAULTER_UNAVAILABLE])
async def test_a_change_is_found_each_time_and_beside_another_reason(reason: Reason | None) -> None:
    defaulter = Defaulter()
    defaulter.reason = reason
    admission = Admission(defaulting=defaulter, checks=(), drift=HardwareDrift(now=Clock()))
    for _ in range(2):
        assert (await admission.mutate(request(VM))).drift is None
        verdict = await admission.mutate(request(recorded(changed(pciAddress="0000:1f:00.0"))))
        assert (verdict.drift, verdict.reason) == (DriftReason.HARDWARE_CHANGED, reason)


def test_the_next_request_for_an_object_is_not_compared_with_the_answer_before() -> None:
    edited = changed(pciAddress="0000:1f:00.0")
    assert late(DONE).since_answer(request(edited)).warnings == (), "it was created again, by its author"
    stored = {**DONE, "metadata": {**DONE["metadata"], "resourceVersion": "7"}}
    assert late(DONE).since_answer(request(recorded(edited), stored)).warnings == ()
    assert late(DONE).since_answer(request(recorded(edited), dry_run=True)).warnings == ()
    nameless = {**VM, "metadata": {"namespace": "shop", "generateName": "web-"}}
    found = HardwareDrift(now=Clock())
    found.remember(request(nameless), DONE)
    assert found.since_answer(request(recorded({**edited, "metadata": nameless["metadata"]}))).warnings == ()


def test_another_order_of_devices_is_no_change() -> None:
    document = copy.deepcopy(DONE)
    domain(document)["devices"]["disks"].reverse()
    assert late(DONE).check(request(document)).warnings == ()


def test_fields_without_defaults_may_change() -> None:
    document = copy.deepcopy(DONE)
    document["spec"]["template"]["spec"]["evictionStrategy"] = "LiveMigrate"
    domain(document)["devices"]["disks"][0]["cache"] = "none"
    assert late(DONE).check(request(document)).warnings == ()


def test_many_changes_are_one_short_warning() -> None:
    document = copy.deepcopy(DONE)
    domain(document)["cpu"] |= {"sockets": 9, "cores": 9, "threads": 9, "model": "Penryn"}
    (warning,) = late(DONE).check(request(document)).warnings
    assert " and 2 more were changed" in warning


def test_concurrent_requests_are_not_each_others_change() -> None:
    other = changed(pciAddress="0000:1f:00.0")
    both = late(DONE, other)
    assert both.check(request(DONE)).warnings == ()
    assert both.check(request(other)).warnings == ()
    assert both.check(request(changed(pciAddress="0000:1e:00.0"))).drift == DriftReason.HARDWARE_CHANGED


def test_only_the_order_of_the_keys_of_a_spec_may_change() -> None:
    turned = {**DONE, "spec": dict(reversed(DONE["spec"].items()))}
    assert spec_text(turned) == spec_text(DONE)
    assert spec_text(changed(pciAddress="0000:1f:00.0")) != spec_text(DONE)
    assert spec_text({"spec": {"a": 2**70}}) == b'{"a": 1180591620717411303424}'


def test_a_long_spec_is_not_remembered() -> None:
    found = HardwareDrift(now=Clock())
    found.remember(request(VM), {"spec": "x" * 200_000})
    assert not found._answers


def test_answers_of_another_replica_are_unknown() -> None:
    assert late().check(request(changed(pciAddress="0000:1f:00.0"))).warnings == ()


def test_an_answer_is_forgotten_after_the_request() -> None:
    clock = Clock()
    found = late(DONE, clock=clock)
    clock.now = REMEMBERED_SECONDS + 1
    assert found.check(request(changed(pciAddress="0000:1f:00.0"))).warnings == ()


def test_the_number_of_remembered_answers_is_bounded() -> None:
    found = HardwareDrift(now=Clock())
    for number in range(1000):
        found.remember(request(VM, name=f"vm-{number}"), DONE)
    assert len(found._answers) <= 512
    for number in range(100):
        found.remember(request(VM, name="vm"), {"spec": number})
        found.remember(request(VM, name="vm"), DONE)
    (key,) = [key for key in found._answers if key[2] == "vm"]
    assert [*found._answers[key]] == [*(str(number).encode() for number in range(93, 100)), spec_text(DONE)]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request(vm(annotations={UNDEFAULTED: "DefaulterUnavailable"})), id="admitted without defaults"),
        pytest.param(
            request({**VM, "status": {"created": True}}, {**VM, "status": {"created": True}}),
            id="runs without defaults",
        ),
    ],
)
def test_a_vm_that_was_not_defaulted_has_no_warning(asked: AdmissionRequest) -> None:
    assert late().check(asked).warnings == ()


def test_both_reasons_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, [])
    for document in (VM, changed(pciAddress="0000:1f:00.0")):
        asked = request(document)
        metrics.reviewed("validate", asked, late(DONE).check(asked), 0.0)
    counts = {
        reason: registry.get_sample_value(
            "kubevirt_poolhouse_admission_hardware_changed_later_total", {"reason": reason}
        )
        for reason in (DriftReason.HARDWARE_UNDEFAULTED, DriftReason.HARDWARE_CHANGED)
    }
    assert counts == {DriftReason.HARDWARE_UNDEFAULTED: 1, DriftReason.HARDWARE_CHANGED: 1}


def test_every_defaulted_field_is_watched() -> None:
    fields = defaulted_fields(DONE)
    assert fields["domain.devices.disks[data].disk.pciAddress"]
    assert fields["domain.machine.type"] == "pc-q35-7.2"
    assert defaulted_fields({"kind": "Pod"}) == {}
    assert defaulted_fields({"kind": "VirtualMachine", "spec": 3}) == {}


def stored() -> Json:
    document = recorded(copy.deepcopy(DONE))
    document["metadata"]["resourceVersion"] = "7"
    return document


def asks(**memory: str) -> Json:
    """The stored VM with another size."""
    document = stored()
    domain(document)["memory"] = memory
    return document


def on_scsi() -> Json:
    document = stored()
    domain(document)["devices"]["disks"][1]["disk"]["bus"] = "scsi"
    return document


def with_hostname(name: str) -> Json:
    document = stored()
    document["spec"]["template"]["spec"]["hostname"] = name
    return document


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry runs", "refused updates"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(asks(guest="300Mi"), asks(guest="400Mi"), id="one field with two values"),
        pytest.param(asks(guest="300Mi"), on_scsi(), id="two fields"),
        pytest.param(on_scsi(), asks(guest="300Mi"), id="two fields, in the other order"),
        pytest.param(stored(), on_scsi(), id="an update without a change"),
        pytest.param(with_hostname("a"), on_scsi(), id="a field that is no hardware"),
    ],
)
def test_a_request_that_leaves_the_resource_version_is_no_other_webhook(
    first: Json, second: Json, dry_run: bool
) -> None:
    found = HardwareDrift(now=Clock())
    found.remember(request(first, stored(), dry_run=dry_run), first)
    again = request(second, stored(), dry_run=dry_run)
    assert found.since_answer(again).warnings == ()
    assert found.check(again).warnings == ()


def test_a_change_of_the_same_update_is_still_found() -> None:
    found = HardwareDrift(now=Clock())
    found.remember(request(asks(guest="300Mi"), stored()), asks(guest="300Mi"))
    later = asks(guest="300Mi")
    domain(later)["devices"]["disks"][1]["disk"]["pciAddress"] = "0000:1f:00.0"
    assert found.since_answer(request(later, stored())).drift == DriftReason.HARDWARE_CHANGED


def test_the_same_patch_twice_is_no_other_webhook() -> None:
    """A playbook sends its whole manifest each time, with the alias that the answer replaces."""
    asked, found = stored(), HardwareDrift(now=Clock())
    domain(asked)["machine"] = {"type": "q35"}
    for _ in range(2):
        again = request(asked, stored())
        assert found.since_answer(again).warnings == ()
        found.remember(again, stored())
    later = stored()
    domain(later)["devices"]["disks"][1]["disk"]["pciAddress"] = "0000:1f:00.0"
    assert found.since_answer(request(later, stored())).drift == DriftReason.HARDWARE_CHANGED
