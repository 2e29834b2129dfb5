"""With strict defaulting, a VM that cannot get its hardware now is refused, with the reason and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import with_undefaulted
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.errors import Unavailable
from tests.webhook.builders import disk, request, unreadable_vmi, vm
from tests.webhook.fake_defaulter import FakeDefaulter, filled
from webhook.defaulting import DefaultingHandler
from webhook.metrics import Metrics, result
from webhook.reasons import FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse, to_admission_review
from webhook.strict_defaulting import WHAT_TO_DO, StrictDefaulting, refusal

Json = dict[str, Any]

STRICT = {"metadata": {"annotations": {meta.STRICT_DEFAULTING: "true"}}}
DEFAULTED = filled(vm(disk()), "s")


class Answers:
    def __init__(self, response: AdmissionResponse) -> None:
        self._response = response

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return self._response


def defaulting(*, away: bool) -> DefaultingHandler:
    defaulter = FakeDefaulter()
    defaulter.away = "no answer" if away else None
    return DefaultingHandler(
        defaulter, seed="s", budget_seconds=1, now=lambda: 0.0, breaker=CircuitBreaker(), find_vmi=unreadable_vmi
    )


async def decide(
    asked: AdmissionRequest, namespace: Json | None = STRICT, *, away: bool = True, everywhere: bool = False
) -> AdmissionResponse:
    async def read(name: str) -> Json:
        assert name == asked.namespace
        if namespace is None:
            raise Unavailable("the API server does not answer")
        return namespace

    return await StrictDefaulting(defaulting(away=away), read, everywhere=everywhere).handle(asked)


async def test_a_vm_without_defaults_is_refused_with_the_reason_and_what_to_do() -> None:
    response = await decide(request(vm(disk())))
    (problem,) = response.problems
    assert problem.path == "spec.template.spec"
    assert problem.message.startswith("the hardware has no defaults (spec.template.spec.architecture, ")
    assert problem.message.endswith(
        "more), and the annotation poolhouse.dev/strict-defaulting of the namespace refuses such VMs. "
        "The defaulter gave no answer. Try again later"
    )
    assert (response.object, response.warnings) == (None, ()), "the warning says that the VM gets its defaults later"


def test_the_refusal_has_the_cause_of_the_defaulter() -> None:
    said = refusal(FailOpenReason.HARDWARE_UNDECIDED, "no machine pc-q35-99.", ["spec.x"], "the annotation")
    assert "libvirt decides it on the node: no machine pc-q35-99. Set these fields yourself" in said


@pytest.mark.parametrize(
    ("namespace", "everywhere", "refused"),
    [
        pytest.param(STRICT, False, True, id="the namespace asks for it"),
        pytest.param({"metadata": {}}, False, False, id="off by default"),
        pytest.param(
            {"metadata": {"annotations": {meta.STRICT_DEFAULTING: "yes"}}}, False, True, id="another spelling"
        ),
        pytest.param({"metadata": {"annotations": {meta.STRICT_DEFAULTING: "False"}}}, False, False, id="false"),
        pytest.param({"metadata": {"annotations": {meta.STRICT_DEFAULTING: ""}}}, False, False, id="an empty value"),
        pytest.param({"metadata": {}}, True, True, id="the installation asks for it"),
        pytest.param(None, True, True, id="the installation asks for it, and the namespace is not read"),
        pytest.param(None, False, False, id="a namespace that cannot be read"),
    ],
)
async def test_the_installation_or_the_namespace_asks_for_it(
    namespace: Json | None, everywhere: bool, refused: bool
) -> None:
    response = await decide(request(vm(disk())), namespace, everywhere=everywhere)
    assert bool(response.problems) is refused
    assert refused or response.reason is FailOpenReason.DEFAULTER_UNAVAILABLE


async def test_the_log_says_why_a_namespace_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async def read(name: str) -> Json:
        raise TimeoutError

    await StrictDefaulting(defaulting(away=True), read, everywhere=False).handle(request(vm(disk())))
    assert "cannot be read: no answer in time" in caplog.text


async def test_a_vm_that_gets_its_defaults_is_stored() -> None:
    response = await decide(request(vm(disk())), away=False)
    assert (response.problems, response.reason) == ((), None)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        pytest.param(DEFAULTED, vm(disk()), False, id="an edit of a VM whose hardware is stored"),
        pytest.param(DEFAULTED, vm(disk(), disk("data")), True, id="a device that cannot get its hardware"),
        pytest.param(vm(disk()), vm(disk(), cpu={"cores": 2}), False, id="a VM that has no defaults stays editable"),
        pytest.param(
            vm(disk()),
            with_undefaulted(vm(disk(), disk("data")), FailOpenReason.DEFAULTER_UNAVAILABLE),
            True,
            id="a further device of a VM that has no defaults",
        ),
    ],
)
async def test_an_update_is_refused_only_for_hardware_that_it_adds(old: Json, new: Json, refused: bool) -> None:
    assert bool((await decide(request(new, old))).problems) is refused


def vmi(**metadata: Any) -> Json:
    document = vm(disk())
    return {**document, "kind": "VirtualMachineInstance", "metadata": {**document["metadata"], **metadata}, "spec": {}}


@pytest.mark.parametrize(
    ("owners", "refused"),
    [([{"kind": "VirtualMachine", "controller": True}], False), ([], True)],
)
async def test_a_stored_vm_can_start(owners: list[Json], refused: bool) -> None:
    response = AdmissionResponse(object=vmi(), reason=FailOpenReason.DEFAULTER_UNAVAILABLE)

    async def read(name: str) -> Json:
        return STRICT

    asked = request(vmi(ownerReferences=owners))
    found = await StrictDefaulting(Answers(response), read, everywhere=False).handle(asked)
    assert bool(found.problems) is refused


def test_each_reason_says_what_to_do() -> None:
    assert set(WHAT_TO_DO) == set(FailOpenReason)


async def test_the_refusal_says_that_the_vm_may_be_allowed_later() -> None:
    asked = request(vm(disk()))
    response = await decide(asked)
    status = to_admission_review(asked, response)["response"]["status"]
    assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")
    registry = CollectorRegistry()
    Metrics(registry, ["VirtualMachine"]).reviewed("mutate", asked, response, 0.1)
    value = registry.get_sample_value
    labels = {"reason": "DefaulterUnavailable"}
    assert value("kubevirt_poolhouse_admission_strict_refusals_total", labels) == 1
    assert value("kubevirt_poolhouse_admission_fail_open_total", labels) == 0
    assert result(response) == "denied"
    assert to_admission_review(asked, replace(response, reason=None))["response"]["status"]["code"] == 422
