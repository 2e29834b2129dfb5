"""Claims that a Pod controls: only the controllers of a virtual node make them."""

from __future__ import annotations

import pytest

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import REQUESTER
from tests.kinds.warm import claim
from tests.runtime.faulty_server import Request, Script
from tests.webhook.builders import Json, request, review
from tests.webhook.conftest import RunningWebhook
from webhook.admission import complete, skip_reason, validate_kind

BUILDER = "system:serviceaccount:shop:builder"


def of_a_pod(*, controller: bool = True, kind: str = "Pod") -> Json:
    document = claim(poolName="web", annotations={REQUESTER: BUILDER})
    reference = {"apiVersion": "v1", "kind": kind, "name": "web-0", "uid": "u", "controller": controller}
    document["metadata"] |= {"namespace": "shop", "ownerReferences": [reference]}
    return document


def deciding(allowed: bool, asked: list[Json]) -> Script:
    async def script(request: Request) -> None:
        asked.append(request.document["spec"]["resourceAttributes"])
        await request.answer(201, {"status": {"allowed": allowed}})

    return script


async def test_who_may_patch_the_status_of_the_pod_makes_its_claim(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = deciding(True, asked)
    assert (await webhook.review(review(of_a_pod())))["allowed"]
    pod = {"group": "", "version": "v1", "resource": "pods", "subresource": "status"}
    assert asked == [{"verb": "patch", **pod, "namespace": "shop", "name": "web-0"}]


async def test_others_are_refused(webhook: RunningWebhook) -> None:
    webhook.api_server.script = deciding(False, [])
    status = (await webhook.review(review(of_a_pod())))["status"]
    assert status["code"] == 403
    assert "jane may not make a claim that Pod web-0 controls" in status["message"]


async def test_nobody_gives_a_claim_to_a_pod_later(webhook: RunningWebhook) -> None:
    webhook.api_server.script = deciding(False, [])
    status = (await webhook.review(review(of_a_pod(), old=of_a_pod(controller=False))))["status"]
    assert status["code"] == 403


@pytest.mark.parametrize("code", [403, 500])
async def test_the_claim_is_refused_if_the_right_is_unknown(webhook: RunningWebhook, code: int) -> None:
    async def failing(request: Request) -> None:
        await request.answer(code, {"kind": "Status", "code": code, "message": "no"})

    webhook.api_server.script = failing
    assert not (await webhook.review(review(of_a_pod())))["allowed"]


@pytest.mark.parametrize(
    ("document", "requester"),
    [
        pytest.param(of_a_pod(), BUILDER, id="the ServiceAccount of the Pod"),
        pytest.param(of_a_pod(controller=False), "jane", id="the author of a claim that a Pod only owns"),
        pytest.param(of_a_pod(kind="Job"), "jane", id="the author of a claim that a Job controls"),
    ],
)
def test_a_claim_counts_for(document: Json, requester: str) -> None:
    asked = request(document)
    stored = complete(asked, validate_kind(asked, CLAIM), CLAIM).object
    assert at(stored, "metadata", "annotations", REQUESTER) == requester


def test_an_update_without_another_pod_is_not_checked_again() -> None:
    assert skip_reason(request(of_a_pod(), old=of_a_pod())) == "the spec does not change"
