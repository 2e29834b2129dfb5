"""Checks of templates: the user's rights and the dry run of one VM."""

from __future__ import annotations

import pytest

from tests.kinds.documents import changed
from tests.kinds.warm import ec2_pool, warm_pool
from tests.runtime.faulty_server import Request, Script
from tests.webhook.builders import POOL, granting, request, review
from tests.webhook.conftest import RunningWebhook
from webhook.templates import changed_template, vm_of


async def test_a_pool_needs_the_right_to_create_vms(webhook: RunningWebhook) -> None:
    async def refusing(request: Request) -> None:
        assert request.document["spec"]["user"] == "jane"
        await request.answer(201, {"status": {"allowed": False}})

    webhook.api_server.script = refusing
    response = await webhook.review(review(POOL))
    assert response["status"]["code"] == 403
    assert "jane may not create virtualmachines in namespace shop" in response["status"]["message"]


async def test_a_problem_of_the_vm_is_reported_at_the_template(webhook: RunningWebhook) -> None:
    cause = {"field": "spec.template.spec.domain.machine.type", "message": "no such machine"}

    async def refusing(request: Request) -> None:
        if "review" in request.path:
            return await request.answer(201, {"status": {"allowed": True}})
        assert (request.query["dryRun"], request.document["metadata"]["generateName"]) == ("All", "web-")
        status = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": [cause]}}
        return await request.answer(422, status)

    webhook.api_server.script = refusing
    response = await webhook.review(review(POOL))
    (told,) = response["status"]["details"]["causes"]
    assert told["field"] == "spec.template.spec.template.spec.domain.machine.type"


def forbidding(message: str) -> Script:
    """Grants the right to make VMs, and makes none."""

    async def script(request: Request) -> None:
        if "review" in request.path:
            return await request.answer(201, {"status": {"allowed": True}})
        return await request.answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message})

    return script


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        pytest.param(
            'admission webhook "gate.example.com" denied the request: [owners] give a label owner',
            "[owners] give a label owner",
            id="another webhook",
        ),
        pytest.param(
            "virtualmachines.kubevirt.io \"web-\" is forbidden: ValidatingAdmissionPolicy 'gate' with binding 'gate' "
            "denied request: give a label owner",
            "ValidatingAdmissionPolicy 'gate'",
            id="a policy",
        ),
        pytest.param(
            'virtualmachines.kubevirt.io "web-" is forbidden: failed quota: few: must specify limits.cpu',
            "must specify limits.cpu",
            id="a quota's required field",
        ),
    ],
)
async def test_a_denial_of_the_vm_is_reported_at_the_template(webhook: RunningWebhook, refusal: str, told: str) -> None:
    webhook.api_server.script = forbidding(refusal)
    response = await webhook.review(review(POOL))
    assert not response["allowed"]
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.template"
    assert told in cause["message"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(
            'virtualmachines.kubevirt.io "web-" is forbidden: exceeded quota: few, requested: count=1',
            id="a full quota",
        ),
        pytest.param(
            'virtualmachines.kubevirt.io is forbidden: User "us" cannot create resource "virtualmachines"',
            id="the webhook may not create VMs",
        ),
    ],
)
async def test_a_refusal_for_another_cause_is_a_warning(webhook: RunningWebhook, refusal: str) -> None:
    webhook.api_server.script = forbidding(refusal)
    response = await webhook.review(review(POOL))
    assert response["allowed"]
    assert refusal in response["warnings"][0]


async def test_a_missing_preference_is_a_warning(webhook: RunningWebhook) -> None:
    async def without_preferences(request: Request) -> None:
        if "review" in request.path:
            return await request.answer(201, {"status": {"allowed": True}})
        if request.method == "POST":
            return await request.answer(201, request.document)
        if "clusterinstancetypes/small" in request.path:
            found = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "spec": {"cpu": {"guest": 1}}}
            return await request.answer(200, found)
        return await request.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"})

    webhook.api_server.script = without_preferences
    preference = {"kind": "VirtualMachinePreference", "name": "debian"}
    given = changed(POOL, {"name": "small"}, "spec", "template", "spec", "instancetype")
    given = changed(given, preference, "spec", "template", "spec", "preference")
    response = await webhook.review(review(given))
    assert response["allowed"]
    assert response["warnings"] == [
        "spec.template.spec.preference.name: the VirtualMachinePreference debian does not exist; without it, VMs of the"
        " template do not start"
    ]


async def test_a_failed_access_review_denies(webhook: RunningWebhook) -> None:
    async def broken(request: Request) -> None:
        await request.answer(500, {"kind": "Status", "code": 500, "message": "oh"})

    webhook.api_server.script = broken
    assert not (await webhook.review(review(POOL)))["allowed"]


async def test_an_unchanged_template_is_not_checked(webhook: RunningWebhook) -> None:
    larger = {**POOL, "spec": {**POOL["spec"], "replicas": 5}}
    assert (await webhook.review(review(larger, POOL)))["allowed"]
    assert webhook.api_server.requests == []


def test_the_vm_of_a_warm_template_has_the_run_strategy() -> None:
    asked = request(warm_pool())
    template = changed_template(asked)
    assert template is not None
    machine = vm_of(asked, template)
    assert machine["kind"] == "VirtualMachine"
    assert machine["spec"] == {**warm_pool()["spec"]["template"]["spec"], "runStrategy": "Always"}


async def test_ec2_instances_need_their_own_right(webhook: RunningWebhook) -> None:
    async def refusing(http: Request) -> None:
        asked = http.document["spec"]["resourceAttributes"]["resource"]
        await http.answer(201, {"status": {"allowed": asked != "ec2instances"}})

    webhook.api_server.script = refusing
    response = await webhook.review(review(ec2_pool()))
    assert response["status"]["code"] == 403
    assert "ec2instances" in response["status"]["message"]


async def test_a_pool_of_ec2_instances_has_no_dry_run(webhook: RunningWebhook) -> None:
    webhook.api_server.script = granting
    assert (await webhook.review(review(ec2_pool())))["allowed"]
