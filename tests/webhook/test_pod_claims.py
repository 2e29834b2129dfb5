"""Claims that a Pod controls: only the controllers of a virtual node make them."""

from __future__ import annotations

import pytest

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import POD_NAME, POD_UID, REQUESTER
from tests.kinds.warm import claim
from tests.runtime.faulty_server import Request, Script
from tests.webhook.builders import Json, request, review
from tests.webhook.conftest import RunningWebhook
from webhook.admission import complete, skip_reason, validate_kind

BUILDER = "system:serviceaccount:shop:builder"


def of_a_pod(
    *, controller: bool = True, kind: str = "Pod", name: str = "web-0", uid: str = "u", **annotations: str
) -> Json:
    document = claim(poolName="web", annotations={REQUESTER: BUILDER, **annotations})
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": controller}
    document["metadata"] |= {"namespace": "shop", "ownerReferences": [reference]}
    return document


def deciding(allowed: bool, asked: list[Json]) -> Script:
    async def script(request: Request) -> None:
        asked.append(request.document["spec"]["resourceAttributes"])
        await request.answer(201, {"status": {"allowed": allowed}})

    return script


async def test_the_claim_of_a_pod_needs_the_right_to_patch_its_status(webhook: RunningWebhook) -> None:
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


OWNED = of_a_pod(controller=False)
NOTED = of_a_pod(**{POD_NAME: "web-0", POD_UID: "u"})


def naming(annotation: str) -> Json:
    return of_a_pod(controller=False, **{annotation: "u"})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(OWNED, of_a_pod(), "jane may not make a claim that Pod web-0 controls", id="gives it to a Pod"),
        pytest.param(
            OWNED,
            {**OWNED, "metadata": OWNED["metadata"] | {"annotations": NOTED["metadata"]["annotations"]}},
            "metadata.annotations: jane may not make a claim that names Pod web-0: leave out the annotations"
            " poolhouse.dev/pod-name and poolhouse.dev/pod-uid",
            id="names a Pod in its annotations",
        ),
        pytest.param(
            None, naming(POD_NAME), "jane may not make a claim that names Pod u: leave out", id="a name alone"
        ),
        pytest.param(None, naming(POD_UID), "jane may not make a claim that names a Pod: leave out", id="a UID alone"),
        pytest.param(naming(POD_UID), OWNED, "jane may not take a claim from a Pod: delete", id="removes a UID alone"),
        pytest.param(of_a_pod(), OWNED, "jane may not take a claim from Pod web-0", id="takes it from its Pod"),
        pytest.param(NOTED, of_a_pod(), "jane may not take a claim from Pod web-0", id="removes the annotations"),
        pytest.param(of_a_pod(), of_a_pod(uid="v"), "jane may not take a claim", id="gives it to a later Pod"),
        pytest.param(of_a_pod(), of_a_pod(kind="Job"), "jane may not take a claim", id="gives it to a Job"),
    ],
)
async def test_nobody_else_changes_the_pod_of_a_claim(
    webhook: RunningWebhook, before: Json | None, after: Json, words: str
) -> None:
    webhook.api_server.script = deciding(False, [])
    status = (await webhook.review(review(after, old=before)))["status"]
    assert status["code"] == 403
    assert words in status["message"]


async def test_a_claim_changes_its_pod_with_rights_on_both(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = deciding(True, asked)
    assert (await webhook.review(review(of_a_pod(name="web-1"), old=of_a_pod())))["allowed"]
    assert [each["name"] for each in asked] == ["web-0", "web-1"]


async def test_the_garbage_collector_may_take_a_claim_from_its_pod(webhook: RunningWebhook) -> None:
    webhook.api_server.script = deciding(True, [])
    assert (await webhook.review(review(OWNED, old=of_a_pod())))["allowed"]


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
