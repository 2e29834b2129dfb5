"""Defaulting at admission: answers and failures of the defaulter."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from defaulter.contract import (
    DefaulterOverloaded,
    DefaulterUnavailable,
    Problem,
    UndecidedDocument,
    undefaulted_fields,
)
from poolhouse.api.apimachinery.problem import Problem as DocumentProblem
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.api.kinds.vm_documents import with_firmware_uuid
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMIS
from tests.builders import manifest
from tests.webhook.builders import disk, request, unreadable_vmi, vm
from tests.webhook.fake_defaulter import FakeDefaulter, filled
from webhook.defaulting import DefaultingHandler, FindVMI, NoDefaulter
from webhook.reasons import AdmissionReason, FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse, to_admission_review

Json = dict[str, Any]

VM = vm(disk("root"), disk("data", bus="virtio"))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def no_vmi(namespace: str, name: str) -> Json | None:
    raise AssertionError("the VM does not run")


def ask(
    defaulter: FakeDefaulter, clock: Clock | None = None, budget_seconds: float = 2.0, find_vmi: FindVMI = no_vmi
) -> DefaultingHandler:
    return DefaultingHandler(
        defaulter,
        seed="s",
        budget_seconds=budget_seconds,
        now=clock or Clock(),
        breaker=CircuitBreaker(failures_to_open=3),
        find_vmi=find_vmi,
    )


def notes(verdict: AdmissionResponse) -> Any:
    return verdict.object["metadata"].get("annotations")


@pytest.mark.sentence("4.20")
async def test_empty_fields_are_filled() -> None:
    verdict = await ask(FakeDefaulter()).handle(request(VM))
    assert verdict == AdmissionResponse(object=filled(VM, "s"))
    assert undefaulted_fields(verdict.object or {}) == []


async def test_a_second_call_changes_nothing() -> None:
    once = await ask(FakeDefaulter()).handle(request(VM))
    asked = request(once.object)
    assert "patch" not in to_admission_review(asked, await ask(FakeDefaulter()).handle(asked))["response"]


async def test_a_replayed_request_gets_the_same_bytes() -> None:
    asked = request(VM)
    told = [json.dumps(to_admission_review(asked, await ask(FakeDefaulter()).handle(asked))) for _ in range(2)]
    assert told[0] == told[1]


@pytest.mark.sentence("4.28")
async def test_an_update_sends_the_old_object() -> None:
    defaulter = FakeDefaulter()
    await ask(defaulter).handle(request(VM, vm()))
    assert defaulter.asked == [(VM, vm(), "shop", "s")]


async def test_a_vm_older_than_poolhouse_keeps_its_uuid_at_its_start() -> None:
    started = vm(disk("root"))
    stopped = started | {"spec": started["spec"] | {"running": False}, "status": {"printableStatus": "Stopped"}}
    verdict = await ask(FakeDefaulter()).handle(request(started, stopped))
    uuid = at(verdict.object, "spec", "template", "spec", "domain", "firmware", "uuid")
    assert uuid == at(with_firmware_uuid(stopped), "spec", "template", "spec", "domain", "firmware", "uuid")
    new = await ask(FakeDefaulter()).handle(request(started))
    assert at(new.object, "spec", "template", "spec", "domain", "firmware", "uuid") != uuid


OWNER = {"kind": "VirtualMachine", "controller": True, "name": "web", "uid": "u"}
STOPPED = {**vm(disk("root")), "status": {"printableStatus": "Stopped"}}
STOPPED = STOPPED | {"spec": STOPPED["spec"] | {"running": False}}
RESTORED = vm(disk("root"), meta={"annotations": {"restore.kubevirt.io/lastRestoreUID": "u"}})
VMI = {"kind": "VirtualMachineInstance", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"domain": {}}}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(request(VM), False, id="a new VM"),
        pytest.param(request(VM, vm()), False, id="a VM before its first start"),
        pytest.param(request(VM, STOPPED), True, id="a VM that has stopped"),
        pytest.param(request(RESTORED), True, id="a VM from a snapshot"),
        pytest.param(request(VMI, kind="VirtualMachineInstance"), False, id="a VMI without a VM"),
        pytest.param(
            request(
                {**VMI, "metadata": {**VMI["metadata"], "ownerReferences": [OWNER]}}, kind="VirtualMachineInstance"
            ),
            True,
            id="the VMI of a VM without a machine type",
        ),
    ],
)
async def test_the_defaulter_is_told_whether_the_guest_may_have_run(asked: AdmissionRequest, expected: bool) -> None:
    defaulter = FakeDefaulter()
    await ask(defaulter).handle(asked)
    assert defaulter.may_have_run is expected


def running(machine: str = "q35", **spec: Any) -> Json:
    """A VM without defaults that runs."""
    found = vm(disk("root"))
    inner = found["spec"]["template"]["spec"]
    domain = {**inner["domain"], "machine": {"type": machine}}
    template = {**found["spec"]["template"], "spec": {**inner, "domain": domain}}
    content = {"runStrategy": "Always", "template": template, **spec}
    return {**found, "spec": content, "status": {"created": True}}


@pytest.mark.parametrize(
    ("old", "new", "vmi", "expected"),
    [
        pytest.param(running(), running(runStrategy="Halted"), "pc-q35-10.0", "pc-q35-10.0", id="stop"),
        pytest.param(running(), running(runStrategy="Halted"), None, "q35", id="without a VMI"),
        pytest.param(running(), running(runStrategy="Halted"), "", "q35", id="before KubeVirt knows the type"),
        pytest.param(running(), running(runStrategy="Manual"), "pc-q35-10.0", "q35", id="no stop"),
        pytest.param(
            running("pc-q35-9.0"),
            running("pc-q35-9.0", runStrategy="Halted"),
            "pc-q35-10.0",
            "pc-q35-9.0",
            id="canonical",
        ),
    ],
)
async def test_an_older_vm_gets_the_machine_type_of_its_guest_when_it_stops(
    old: Json, new: Json, vmi: str | None, expected: str
) -> None:
    async def find_vmi(namespace: str, name: str) -> Json | None:
        assert (namespace, name) == ("shop", "web")
        return None if vmi is None else {"status": {"machine": {"type": vmi}}}

    defaulter = FakeDefaulter()
    verdict = await ask(defaulter, find_vmi=find_vmi).handle(request(new, old))
    stored = verdict.object or new
    assert at(stored, "spec", "template", "spec", "domain", "machine", "type") == expected
    assert undefaulted_fields(stored) == undefaulted_fields(new), "nothing else changes in a running VM"
    assert not defaulter.asked


async def test_objects_without_a_name_yet_do_not_share_an_identity() -> None:
    nameless = vm(disk(), meta={"name": "", "generateName": "web-"})
    one, other = [
        (await ask(FakeDefaulter()).handle(request(nameless, uid=uid))).object or {} for uid in ("uid-1", "uid-2")
    ]
    uuids = [each["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] for each in (one, other)]
    assert uuids[0] != uuids[1]


@pytest.mark.sentence("4.34")
async def test_a_vm_is_admitted_without_an_answer() -> None:
    defaulter = FakeDefaulter()
    defaulter.away = "no answer within 2 s"
    verdict = await ask(defaulter).handle(request(VM))
    assert not verdict.problems
    assert notes(verdict) == {UNDEFAULTED: FailOpenReason.DEFAULTER_UNAVAILABLE}
    assert verdict.warnings == (
        "14 hardware fields have no default yet and get one before the next start. The defaulter gave no answer.",
    )
    assert verdict.object == {**VM, "metadata": {**VM["metadata"], "annotations": notes(verdict)}}


async def test_a_complete_vm_needs_no_defaulter() -> None:
    defaulter = FakeDefaulter()
    defaulter.away = "gone"
    verdict = await ask(defaulter).handle(request(filled(VM, "s")))
    assert (verdict.object, verdict.warnings) == (filled(VM, "s"), ())


async def test_an_update_without_a_defaulter_keeps_stored_defaults() -> None:
    defaulter = FakeDefaulter()
    defaulter.away = "gone"
    stored = filled(VM, "s")
    verdict = await ask(defaulter).handle(request(vm(disk("data", bus="virtio"), disk("root"), disk("new")), stored))
    assert verdict.object is not None
    before, after = (each["spec"]["template"]["spec"]["domain"] for each in (stored, verdict.object))
    assert after["firmware"] == before["firmware"]
    assert after["devices"]["disks"][:2] == [before["devices"]["disks"][1], before["devices"]["disks"][0]]
    assert notes(verdict)[UNDEFAULTED] == FailOpenReason.DEFAULTER_UNAVAILABLE


async def test_a_call_without_an_answer_times_out() -> None:
    defaulter = FakeDefaulter()
    defaulter.goes_on.clear()
    verdict = await ask(defaulter, budget_seconds=0.01).handle(request(VM))
    assert notes(verdict) == {UNDEFAULTED: FailOpenReason.DEFAULTER_UNAVAILABLE}


async def test_a_refusal_by_the_defaulter_denies_with_every_problem() -> None:
    defaulter = FakeDefaulter()
    defaulter.refuses = lambda document: [
        Problem(path="spec.a", message="bad"),
        Problem(path="spec.b", message="worse"),
    ]
    verdict = await ask(defaulter).handle(request(VM))
    assert verdict == AdmissionResponse(problems=(DocumentProblem("spec.a", "bad"), DocumentProblem("spec.b", "worse")))


def unknown_buses(document: dict[str, Any]) -> list[Problem]:
    disks = document["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    return [
        Problem(path=f"disks[{index}].bus", message="unknown")
        for index, each in enumerate(disks)
        if each["disk"].get("bus") == "floppy"
    ]


async def test_problems_of_the_stored_object_are_warnings() -> None:
    defaulter = FakeDefaulter()
    defaulter.refuses = unknown_buses
    old = vm(disk("old", bus="floppy"))
    verdict = await ask(defaulter).handle(request(vm(disk("old", bus="floppy"), disk("new")), old))
    assert (verdict.problems, verdict.reason) == ((), AdmissionReason.TOLERATED)
    assert verdict.warnings == ("disks[0].bus: unknown",)


async def test_new_problems_beside_stored_ones_are_denied() -> None:
    defaulter = FakeDefaulter()
    defaulter.refuses = unknown_buses
    old = vm(disk("old", bus="floppy"))
    verdict = await ask(defaulter).handle(request(vm(disk("old", bus="floppy"), disk("new", bus="floppy")), old))
    assert verdict.problems == (DocumentProblem("disks[1].bus", "unknown"),)


async def test_an_answer_with_forbidden_changes_is_ignored() -> None:
    def running_elsewhere(document: dict[str, Any]) -> dict[str, Any]:
        answer = copy.deepcopy(document)
        answer["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "containerDisk": {"image": "evil"}}]
        return answer

    defaulter = FakeDefaulter()
    defaulter.spoils = running_elsewhere
    verdict = await ask(defaulter).handle(request(VM))
    assert notes(verdict) == {UNDEFAULTED: FailOpenReason.INVALID_DEFAULTER_RESPONSE}
    assert verdict.object["spec"] == VM["spec"]
    assert "the webhook ignored it" in verdict.warnings[0]


async def test_defaulting_removes_the_annotation() -> None:
    noted = vm(disk(), annotations={UNDEFAULTED: FailOpenReason.DEFAULTER_UNAVAILABLE, "owner": "jane"})
    assert notes(await ask(FakeDefaulter()).handle(request(noted))) == {"owner": "jane"}


async def test_failures_open_the_circuit_breaker() -> None:
    defaulter, clock = FakeDefaulter(), Clock()
    defaulter.away = "ill"
    asking = ask(defaulter, clock)
    reasons = [notes(await asking.handle(request(VM)))[UNDEFAULTED] for _ in range(5)]
    assert reasons == [FailOpenReason.DEFAULTER_UNAVAILABLE] * 3 + [FailOpenReason.DEFAULTER_CIRCUIT_OPEN] * 2
    assert len(defaulter.asked) == 3
    defaulter.away = None
    clock.now += 0.5
    assert (await asking.handle(request(VM))).object == filled(VM, "s")
    assert asking.breaker.state == "closed"


async def test_a_known_answer_needs_no_service_and_says_nothing_about_it() -> None:
    defaulter, clock = FakeDefaulter(), Clock()
    defaulter.away = "ill"
    asking = ask(defaulter, clock)
    for _ in range(3):
        await asking.handle(request(VM))
    defaulter.recalls = lambda document: filled(document, "s")
    for seconds in (0.0, 0.5):
        clock.now += seconds
        assert (await asking.handle(request(VM))).object == filled(VM, "s")
        assert asking.breaker.state == "open"
    assert len(defaulter.asked) == 3
    await asking.handle(request(VM, filled(VM, "s")))
    assert len(defaulter.asked) == 4, "an update needs the service"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UndecidedDocument, FailOpenReason.HARDWARE_UNDECIDED),
        (DefaulterOverloaded, FailOpenReason.DEFAULTER_OVERLOADED),
    ],
)
async def test_only_failures_of_the_service_open_the_circuit_breaker(
    error: type[DefaulterUnavailable], reason: FailOpenReason
) -> None:
    defaulter = FakeDefaulter()
    defaulter.away, defaulter.fails = "there is no emulator for arm64 here", error
    asking = ask(defaulter)
    reasons = [notes(await asking.handle(request(VM)))[UNDEFAULTED] for _ in range(20)]
    assert reasons == [reason] * 20
    assert asking.breaker.state == "closed"
    defaulter.away = None
    assert (await asking.handle(request(VM))).object == filled(VM, "s"), "another tenant's VM has its defaults"


async def test_the_warning_says_why_a_document_is_undecided() -> None:
    defaulter = FakeDefaulter()
    defaulter.away, defaulter.fails = "there is no emulator for arm64 here", UndecidedDocument
    verdict = await ask(defaulter).handle(request(VM))
    assert verdict.warnings == (
        "14 hardware fields have no default, and libvirt chooses them at each start:"
        " there is no emulator for arm64 here",
    )


async def test_an_undecided_document_closes_a_breaker_that_probes() -> None:
    defaulter, clock = FakeDefaulter(), Clock()
    defaulter.away = "ill"
    asking = ask(defaulter, clock)
    for _ in range(3):
        await asking.handle(request(VM))
    assert asking.breaker.state == "open"
    clock.now += 0.5
    defaulter.fails = UndecidedDocument
    await asking.handle(request(VM))
    assert asking.breaker.state == "closed"


async def test_a_refusal_keeps_the_circuit_breaker_closed() -> None:
    defaulter = FakeDefaulter()
    defaulter.refuses = lambda document: [Problem(path="", message="bad")]
    asking = ask(defaulter)
    for _ in range(5):
        await asking.handle(request(VM))
    assert asking.breaker.state == "closed"


@pytest.mark.parametrize("annotations", [None, {}, {"owner": "jane"}])
async def test_the_annotation_keeps_other_annotations(annotations: dict[str, str] | None) -> None:
    defaulter = FakeDefaulter()
    defaulter.away = "gone"
    verdict = await ask(defaulter).handle(request(vm(disk(), annotations=annotations)))
    assert notes(verdict) == {**(annotations or {}), UNDEFAULTED: FailOpenReason.DEFAULTER_UNAVAILABLE}


async def test_without_a_defaulter_vms_are_stored_unchanged() -> None:
    assert await NoDefaulter().handle(request(VM)) == AdmissionResponse(reason=AdmissionReason.SKIPPED)


@pytest.mark.parametrize(
    ("created", "old", "asked"),
    [
        pytest.param(True, vm(), False, id="it runs undefaulted"),
        pytest.param(True, filled(vm(), "s"), True, id="it runs with defaults"),
        pytest.param(False, vm(), True, id="it is stopped"),
    ],
)
async def test_a_vm_that_runs_undefaulted_gets_no_defaults(created: bool, old: dict[str, Any], asked: bool) -> None:
    defaulter = FakeDefaulter()
    await ask(defaulter, find_vmi=unreadable_vmi).handle(request({**VM, "status": {"created": created}}, old))
    assert bool(defaulter.asked) == asked


RUNS: Json = {**filled(VM, "s"), "status": {"created": True}}
VMI: Json = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "web"}}


def with_disk(document: Json, **address: str) -> Json:
    edited = copy.deepcopy(document)
    disks = edited["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    disks.append(disk("more", bus="virtio") | {"disk": {"bus": "virtio", **address}})
    return edited


class TestRunningVM:
    """The VMI that the defaulter gets with an update of a VM."""

    async def test_is_sent_when_a_device_is_added(self) -> None:
        found = []

        async def find_vmi(namespace: str, name: str) -> Json | None:
            found.append((namespace, name))
            return VMI

        defaulter = FakeDefaulter()
        answer = await ask(defaulter, find_vmi=find_vmi).handle(request(with_disk(RUNS), RUNS))
        assert (found, defaulter.vmis) == ([("shop", "web")], [VMI])
        assert UNDEFAULTED not in (notes(answer) or {})

    @pytest.mark.parametrize(
        "edited",
        [
            pytest.param({**RUNS, "spec": {**RUNS["spec"], "running": False}}, id="nothing is added"),
            pytest.param({**with_disk(RUNS), "status": {"created": False}}, id="the VM does not run"),
        ],
    )
    async def test_is_not_read_otherwise(self, edited: Json) -> None:
        defaulter = FakeDefaulter()
        await ask(defaulter).handle(request(edited, RUNS))
        assert defaulter.vmis == [None]

    @pytest.mark.parametrize(
        ("status", "vmi"), [pytest.param(403, {}, id="forbidden"), pytest.param(None, None, id="it has just stopped")]
    )
    async def test_may_be_unknown(self, status: int | None, vmi: Json | None) -> None:
        async def find_vmi(namespace: str, name: str) -> Json | None:
            if status is None:
                return None
            raise ApiError("no", status=status)

        defaulter = FakeDefaulter()
        await ask(defaulter, find_vmi=find_vmi).handle(request(with_disk(RUNS), RUNS))
        assert defaulter.vmis == [vmi]

    async def test_an_open_address_is_annotated_until_it_is_filled(self) -> None:
        defaulter = FakeDefaulter()
        edited = with_disk(RUNS)
        defaulter.spoils = lambda answer: edited
        answer = await ask(defaulter, find_vmi=unreadable_vmi).handle(request(edited, RUNS))
        assert notes(answer) == {UNDEFAULTED: FailOpenReason.ADDED_WHILE_RUNNING}
        again = await ask(defaulter, find_vmi=unreadable_vmi).handle(request(edited, edited))
        assert notes(again) == {UNDEFAULTED: FailOpenReason.ADDED_WHILE_RUNNING}
        defaulter.spoils = lambda answer: answer
        done = await ask(defaulter).handle(request(with_disk(RUNS, pciAddress="0000:0a:00.0"), edited))
        assert notes(done) in (None, {})

    async def test_an_update_of_a_vmi_sends_the_stored_vmi(self) -> None:
        content = RUNS["spec"]["template"]["spec"]
        stored = {**VMI, "spec": content}
        edited = {**VMI, "spec": with_disk(RUNS)["spec"]["template"]["spec"]}
        defaulter = FakeDefaulter()
        await ask(defaulter).handle(request(edited, stored))
        assert defaulter.vmis == [stored]

    async def test_an_undefaulted_vmi_stays_as_it_is(self) -> None:
        stored = {**VMI, "spec": VM["spec"]["template"]["spec"]}
        edited = {**VMI, "spec": with_disk(VM)["spec"]["template"]["spec"]}
        defaulter = FakeDefaulter()
        answer = await ask(defaulter).handle(request(edited, stored))
        assert (defaulter.asked, answer.object) == ([], None)


OWNED = {"ownerReferences": [{"kind": "VirtualMachine", "name": "web", "controller": True}]}


@pytest.mark.parametrize(
    ("metadata", "complete", "asked"),
    [
        pytest.param(OWNED, True, False, id="started by a complete VM"),
        pytest.param(OWNED, False, True, id="started by an undefaulted VM"),
        pytest.param({}, True, True, id="without an owner"),
        pytest.param({"ownerReferences": "x"}, True, True, id="with an invalid owner"),
    ],
)
async def test_a_vmi_is_not_defaulted_after_its_vm(metadata: dict[str, Any], complete: bool, asked: bool) -> None:
    template = (filled(VM, "s") if complete else VM)["spec"]["template"]
    instance = manifest(VMIS, "web", template["spec"], "shop", **metadata)
    defaulter = FakeDefaulter()
    await ask(defaulter).handle(request(instance))
    assert bool(defaulter.asked) == asked


async def test_a_vm_with_an_unknown_preference_is_marked_until_it_is_known() -> None:
    document = {**VM, "spec": {**VM["spec"], "preference": {"name": "p"}}}
    verdict = await ask(FakeDefaulter(undecided="the preference p does not exist")).handle(request(document))
    assert verdict.reason == FailOpenReason.PREFERENCE_UNKNOWN
    assert notes(verdict) == {UNDEFAULTED: "PreferenceUnknown"}
    assert verdict.warnings == ("the preference p does not exist",)
    again = await ask(FakeDefaulter()).handle(request(verdict.object))
    assert not notes(again)
