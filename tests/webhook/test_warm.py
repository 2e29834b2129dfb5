"""What admission writes into a claim, what it keeps as it was, and which pools it compares."""

from __future__ import annotations

from typing import Any

import pytest

from kinds import by_gvk
from kinds.meta import IMAGE_ID, REQUESTER
from tests.kinds.warm import claim, ec2_pool, warm_pool
from tests.runtime.misbehaving import Request
from tests.webhook.builders import request, review
from tests.webhook.conftest import Running
from tests.webhook.test_app import granting, patched
from webhook import claims
from webhook.declared import validate_kind
from webhook.review import AdmissionResponse
from webhook.scope import skip_reason
from webhook.template import changed_template, vm_of

Json = dict[str, Any]
JANE, JOE = {REQUESTER: "jane"}, {REQUESTER: "joe"}


def stored(document: Json, old: Json | None = None, user: str = "jane") -> AdmissionResponse:
    return claims.complete_claim(request(document, old, user={"username": user}), AdmissionResponse())


@pytest.mark.parametrize(
    ("document", "old", "annotations", "warned"),
    [
        pytest.param(claim(), None, JANE, False, id="who makes it is written down"),
        pytest.param(claim(annotations=JOE), None, JANE, True, id="nobody makes it for somebody else"),
        pytest.param(claim(annotations=JOE), claim(annotations=JANE), JANE, True, id="it stays the maker's"),
        pytest.param(claim(), claim(annotations=JANE), JANE, False, id="replaced by a document without it"),
        pytest.param(claim(annotations={"a": "b"}), claim(), {"a": "b"}, False, id="what came unsigned stays unsigned"),
    ],
)
def test_the_makers_name_is_written_and_kept(document: Json, old: Json | None, annotations: Json, warned: bool) -> None:
    verdict = stored(document, old)
    assert verdict.object is not None
    assert verdict.object["metadata"].get("annotations", {}) == annotations
    assert bool(verdict.warnings) == warned


def test_annotations_become_fields_at_creation_only() -> None:
    noted = claim(annotations={IMAGE_ID: "ami-1"})
    made_now, changed_now = stored(noted), stored(noted, noted)
    assert made_now.object is not None
    assert made_now.object["spec"] == {"overrides": {"image": "ami-1"}}
    assert changed_now.object is not None
    assert changed_now.object["spec"] == {}


@pytest.mark.parametrize(
    ("document", "old", "looked_at"),
    [
        pytest.param(claim(annotations=JOE), claim(annotations=JANE), True, id="another maker"),
        pytest.param(claim(annotations={IMAGE_ID: "x"}), claim(), True, id="another image"),
        pytest.param(claim(annotations={"a": "b"}), claim(), False, id="any other annotation"),
    ],
)
def test_annotations_that_are_as_good_as_the_spec_are_looked_at(document: Json, old: Json, looked_at: bool) -> None:
    assert (skip_reason(request(document, old)) is None) == looked_at


def test_a_changed_wish_is_denied_and_a_changed_time_is_not() -> None:
    kind = by_gvk("poolhouse.dev/v1alpha1", "VirtualMachineClaim")
    assert kind is not None
    before = claim(poolName="web")
    assert validate_kind(request(claim(poolName="web", ttlSeconds=5), before), kind).problems == ()
    (problem,) = validate_kind(request(claim(poolName="db"), before), kind).problems
    assert problem.path == "spec.poolName"


def test_a_warm_template_is_tried_as_the_vm_that_it_becomes() -> None:
    asked = request(warm_pool())
    template = changed_template(asked)
    assert template is not None
    machine = vm_of(asked, template)
    assert machine["kind"] == "VirtualMachine"
    assert machine["spec"] == {**warm_pool()["spec"]["template"]["spec"], "runStrategy": "Always"}


async def test_instances_need_a_right_of_their_own(webhook: Running) -> None:
    async def refusing(http: Request) -> None:
        asked = http.document["spec"]["resourceAttributes"]["resource"]
        await http.answer(201, {"status": {"allowed": asked != "ec2instances"}})

    webhook.api_server.script = refusing
    response = await webhook.review(review(ec2_pool()))
    assert response["status"]["code"] == 403
    assert "ec2instances" in response["status"]["message"]


async def test_a_pool_of_instances_is_not_tried_as_a_vm(webhook: Running) -> None:
    webhook.api_server.script = granting
    assert (await webhook.review(review(ec2_pool())))["allowed"]


POOLS = "/apis/poolhouse.dev/v1alpha1/namespaces/shop/virtualmachinewarmpools"


@pytest.mark.parametrize(
    ("there", "old", "denied"),
    [
        pytest.param([], None, False, id="the first"),
        pytest.param([{"name": "db"}], None, True, id="a second one"),
        pytest.param([{"name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z"}], None, False, id="the other goes"),
        pytest.param([{"name": "web"}], None, False, id="itself"),
        pytest.param([{"name": "db"}], warm_pool(default=False), True, id="one that becomes it"),
        pytest.param([{"name": "db"}], warm_pool(default=True), False, id="one that is: the controller has decided"),
    ],
)
async def test_a_namespace_has_one_default(webhook: Running, there: list[Json], old: Json | None, denied: bool) -> None:
    async def listing(http: Request) -> None:
        if http.method == "GET" and http.path.startswith(POOLS):
            items = [{"metadata": metadata, "spec": {"default": True}} for metadata in there]
            return await http.answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})
        return await granting(http)

    webhook.api_server.script = listing
    document = warm_pool(default=True, paused=True)
    document["metadata"]["namespace"] = "shop"
    response = await webhook.review(review(document, old))
    assert response["allowed"] != denied
    if denied:
        assert "db is this namespace's default pool" in response["status"]["message"]


async def test_a_claim_is_stored_signed(webhook: Running) -> None:
    response = await webhook.review(review(claim()))
    assert patched(claim(), response)["metadata"]["annotations"] == JANE
