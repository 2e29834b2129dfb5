"""The routes over a socket: the answer to each kind of request, and to hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from defaulter.contract import Problem
from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.service.request_body import MAX_BODY_BYTES, BodyReader
from tests.runtime.faulty_server import Script, status
from tests.waiting import PATIENCE_SECONDS, until
from tests.webhook.builders import POOL, api_server, disk, granting, patched, review, vm
from tests.webhook.conftest import RunningWebhook
from tests.webhook.fake_defaulter import filled

VM = vm(disk("root"))


async def test_a_vm_gets_defaults(webhook: RunningWebhook) -> None:
    response = await webhook.review(review(VM))
    assert patched(VM, response) == filled(VM, "s")


async def test_a_vm_is_admitted_while_the_defaulter_is_unavailable(webhook: RunningWebhook) -> None:
    webhook.defaulter.away = "gone"
    response = await webhook.review(review(VM))
    assert response["allowed"]
    assert UNDEFAULTED in patched(VM, response)["metadata"]["annotations"]
    assert len(response["warnings"]) == 1
    told = (await webhook.client.get("/metrics")).text
    assert 'kubevirt_poolhouse_admission_fail_open_total{reason="DefaulterUnavailable"} 1.0' in told


@pytest.mark.sentence("4.32")
async def test_an_invalid_vm_is_denied_with_every_problem(webhook: RunningWebhook) -> None:
    webhook.defaulter.refuses = lambda document: [Problem(path="spec.a", message="bad"), Problem(path="", message="no")]
    response = await webhook.review(review(VM))
    assert not response["allowed"]
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.a", ""]


async def test_a_number_beyond_64_bits_is_denied_with_its_path(webhook: RunningWebhook) -> None:
    """An answer other than a review would look like an outage of the webhook."""
    claim = {"apiVersion": "poolhouse.dev/v1alpha1", "kind": "VirtualMachineClaim", "metadata": {"name": "mine"}}
    response = await webhook.review(review({**claim, "spec": {"ttlSeconds": 10**20}}))
    (cause,) = response["status"]["details"]["causes"]
    assert (response["allowed"], cause["field"]) == (False, "spec.ttlSeconds")


async def test_a_vm_that_opted_out_is_not_changed(webhook: RunningWebhook) -> None:
    opted_out = vm(disk(), meta={"labels": {"poolhouse.dev/defaulting": "disabled"}})
    assert await webhook.review(review(opted_out)) == {"uid": "1b0d", "allowed": True}
    assert webhook.defaulter.asked == []


async def test_the_defaulter_is_not_called_without_a_change_of_the_spec(webhook: RunningWebhook) -> None:
    assert await webhook.review(review(VM, VM)) == {"uid": "1b0d", "allowed": True}
    assert await webhook.review(review(None, VM, operation="DELETE")) == {"uid": "1b0d", "allowed": True}
    assert webhook.defaulter.asked == []


async def test_an_unknown_kind_is_admitted_unchanged(webhook: RunningWebhook) -> None:
    document = {"apiVersion": "kubevirt.io/v9", "kind": "Future", "metadata": {"name": "x"}, "spec": {}}
    response = await webhook.review(review(document))
    assert response["allowed"]
    assert "patch" not in response
    assert response["warnings"] == ["this version of poolhouse does not know Future of kubevirt.io/v9"]


async def test_a_valid_pool_passes_both_webhooks(webhook: RunningWebhook) -> None:
    webhook.api_server.script = granting
    for path in ("/mutate", "/validate"):
        assert (await webhook.review(review(POOL), path))["allowed"]


async def test_a_field_that_another_webhook_removed_is_a_warning(webhook: RunningWebhook) -> None:
    complete = filled(VM, "s")
    assert "warnings" not in await webhook.review(review(complete), "/validate")
    (warning,) = (await webhook.review(review(VM), "/validate"))["warnings"]
    assert "left without a default because" in warning


FIVE_MISTAKES = {
    **POOL,
    "spec": {
        "replicas": "three",
        "replica": 3,
        "maxUnavailable": "lots",
        "scaleInStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "Eldest"}}},
        "template": {**POOL["spec"]["template"], "metadata": {"labels": {"app": 7}}},
    },
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("old", [None, POOL], ids=["created", "updated"])
async def test_a_pool_with_five_mistakes_gets_five_problems(
    webhook: RunningWebhook, path: str, old: dict[str, Any] | None
) -> None:
    response = await webhook.review(review(FIVE_MISTAKES, old), path)
    assert not response["allowed"]
    fields = {cause["field"] for cause in response["status"]["details"]["causes"]}
    assert fields == {
        "spec.replicas",
        "spec.replica",
        "spec.maxUnavailable",
        "spec.scaleInStrategy.proactive.selectionPolicy.basePolicy",
        "spec.template.metadata.labels.app",
    }


async def test_booleans_in_selectors_become_strings(webhook: RunningWebhook) -> None:
    webhook.api_server.script = granting
    policy = {"orderedPolicies": [{"labelSelector": {"matchLabels": {"spot": True}}}]}
    document = {
        **POOL,
        "spec": {**POOL["spec"], "scaleInStrategy": {"proactive": {"selectionPolicy": policy}}},
    }
    response = await webhook.review(review(document))
    assert response["allowed"], response
    stored = patched(document, response)["spec"]["scaleInStrategy"]["proactive"]["selectionPolicy"]
    assert stored["orderedPolicies"][0]["labelSelector"]["matchLabels"] == {"spot": "true"}


# Hostile requests


class Chunked:
    """Four megabytes that do not say so beforehand."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536


JSON = {"Content-Type": "application/json"}
HOSTILE = [
    pytest.param({"content": b"", "headers": JSON}, 400, id="empty"),
    pytest.param({"content": b"{", "headers": JSON}, 400, id="truncated"),
    pytest.param({"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, id="wrong content type"),
    pytest.param({"content": b"{}"}, 415, id="no content type"),
    pytest.param(
        {"content": gzip.compress(b" " * 1_000_000) * 300, "headers": {**JSON, "Content-Encoding": "gzip"}},
        415,
        id="a gzip bomb",
    ),
    pytest.param({"content": b"x" * MAX_BODY_BYTES, "headers": JSON}, 413, id="too large a body"),
    pytest.param({"content": Chunked(), "headers": JSON}, 413, id="4 MiB in chunks, without a length"),
    pytest.param({"content": b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "headers": JSON}, 400, id="deep nesting"),
    pytest.param({"json": {**review(VM), "apiVersion": "admission.k8s.io/v1beta1"}}, 400, id="v1beta1"),
    pytest.param({"json": review(VM, uid="")}, 400, id="no uid"),
    pytest.param({"json": VM}, 400, id="the object itself"),
]


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("request_", "status"), HOSTILE)
async def test_hostile_requests_are_refused_with_one_message(
    webhook: RunningWebhook, path: str, request_: dict[str, Any], status: int
) -> None:
    told = await webhook.client.post(path, **request_)
    assert told.status_code == status
    (problem,) = told.json()["problems"]
    assert problem["message"]
    assert (await webhook.review(review(VM)))["allowed"]


async def test_ten_thousand_problems_of_the_defaulter_come_back(webhook: RunningWebhook) -> None:
    webhook.defaulter.refuses = lambda document: [
        Problem(path=f"spec.disks[{index}]", message="there are too many disks") for index in range(10_000)
    ]
    many = vm(*(disk(f"d{index}", bus="virtio") for index in range(200)))
    response = await webhook.review(review(many))
    assert not response["allowed"]
    assert len(response["status"]["details"]["causes"]) == 1000


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_sixty_thousand_disks_are_denied_with_the_path(webhook: RunningWebhook, path: str) -> None:
    many = vm(*({"name": f"d{index}"} for index in range(60_000)))
    response = await webhook.review(review(many), path)
    assert not response["allowed"]
    assert "spec.template.spec.domain.devices.disks: has 60000 entries" in response["status"]["message"]
    assert not webhook.defaulter.asked


async def test_markup_and_control_characters_are_data(webhook: RunningWebhook) -> None:
    odd = "<a>&'\"]]>\u0000\u202e\n\x1b[31m"
    document = vm(disk("root", serial=odd), annotations={"note": odd})
    response = await webhook.review(review(document))
    assert patched(document, response) == filled(document, "s")


async def test_unknown_fields_survive_untouched(webhook: RunningWebhook) -> None:
    document = vm({"name": "root", "disk": {"bus": "virtio", "futureField": {"deep": [1, None]}}}, newThing=[1.5, "x"])
    stored = patched(document, await webhook.review(review(document)))
    domain = stored["spec"]["template"]["spec"]["domain"]
    assert domain["newThing"] == [1.5, "x"]
    assert domain["devices"]["disks"][0]["disk"]["futureField"] == {"deep": [1, None]}


async def _raw(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await reader.read(65536)
    writer.close()
    return answer


async def test_a_body_that_never_ends_times_out(webhook: RunningWebhook) -> None:
    webhook.service.reviews.bodies = BodyReader(timeout_seconds=0.3)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    assert b" 408 " in await _raw(webhook.port, head, b'{"a')


async def test_a_body_in_small_chunks_times_out(webhook: RunningWebhook) -> None:
    webhook.service.reviews.bodies = BodyReader(timeout_seconds=0.3)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 408 " in await _raw(webhook.port, head, b"1\r\n{\r\n", b'1\r\n"\r\n')


async def test_large_bodies_in_parallel_are_bounded(webhook: RunningWebhook) -> None:
    webhook.defaulter.goes_on.clear()
    large = vm(disk(), annotations={"note": "x" * 2_900_000})
    asked = [asyncio.create_task(webhook.client.post("/mutate", json=review(large))) for _ in range(6)]

    def refused() -> list[int]:
        return [each.result().status_code for each in asked if each.done()]

    await until(refused, [429] * 4)
    webhook.defaulter.goes_on.set()
    assert sorted(answer.status_code for answer in await asyncio.gather(*asked)) == [200, 200, 429, 429, 429, 429]
    assert (await webhook.review(review(VM)))["allowed"]


@pytest.mark.parametrize("path", ["/nowhere", "/mutate/", "/apis/vms/dryrun/../x"])
async def test_an_unknown_path_gets_a_json_error(webhook: RunningWebhook, path: str) -> None:
    told = await webhook.client.post(path, json={})
    assert (told.status_code, told.json()["allowed"]) == (404, False)


async def test_a_wrong_method_gets_a_json_error(webhook: RunningWebhook) -> None:
    assert (await webhook.client.get("/mutate")).json()["problems"][0]["message"] == "Method Not Allowed"


async def test_an_internal_error_fails_one_request(webhook: RunningWebhook) -> None:
    def broken(document: Any) -> Any:
        raise RuntimeError("a bug")

    webhook.defaulter.spoils = broken
    told = await webhook.client.post("/mutate", json=review(VM))
    assert told.status_code == 500
    assert "a bug" not in told.text
    assert (await webhook.client.get("/healthz")).text == "ok"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "metadata",
                    "template",
                    "domain",
                    "devices",
                    "disks",
                    "name",
                    "labels",
                    "annotations",
                    "machine",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    document=st.fixed_dictionaries(
        {
            "apiVersion": st.just("kubevirt.io/v1"),
            "kind": st.sampled_from(["VirtualMachine", "VirtualMachineInstance", "VirtualMachinePool"]),
        },
        optional={"metadata": values, "spec": values, "status": values},
    ),
    old=st.none() | st.fixed_dictionaries({}, optional={"metadata": values, "spec": values}) | st.just(filled(VM, "s")),
    path=st.sampled_from(["/mutate", "/validate"]),
)
async def test_no_object_causes_an_internal_error(
    webhook: RunningWebhook, document: dict[str, Any], old: dict[str, Any] | None, path: str
) -> None:
    webhook.api_server.script = granting
    webhook.defaulter.away = "not asked for this"
    told = await webhook.client.post(
        path,
        content=json.dumps(review({**document}, old, name="x", namespace="y")),
        headers={"Content-Type": "application/json"},
    )
    assert told.status_code in (200, 400), told.text
    if told.status_code == 200:
        response = told.json()["response"]
        assert response["uid"] == "1b0d"
        patched(document, response)


# The OpenAPI document


@pytest.mark.parametrize(
    ("path", "media_type", "part"),
    [
        ("/openapi.json", "application/json", '"/apis/vms/dryrun"'),
        ("/docs", "text/html; charset=utf-8", "POST /apis/policies/explain"),
        ("/docs", "text/html; charset=utf-8", "POST /apis/pools/plan"),
    ],
)
async def test_the_api_is_documented_for_callers_with_a_token(
    webhook: RunningWebhook, path: str, media_type: str, part: str
) -> None:
    webhook.api_server.script = granting
    assert (await webhook.client.get(path)).status_code == 401
    answer = await webhook.client.get(path, headers={"Authorization": "Bearer jane"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    assert part in answer.text
    (review,) = webhook.api_server.requests
    assert review.document["spec"]["nonResourceAttributes"] == {"path": "/openapi/v3", "verb": "get"}
    assert review.headers["authorization"] == "Bearer jane"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param(api_server(may=False), 403, id="may not read it"),
        pytest.param(api_server(401, status(401, "Unauthorized"), may=None), 401, id="an unknown token"),
    ],
)
async def test_the_api_documentation_needs_the_right_to_read_that_of_the_api_server(
    webhook: RunningWebhook, script: Script, code: int
) -> None:
    webhook.api_server.script = script
    answer = await webhook.client.get("/docs", headers={"Authorization": "Bearer jane"})
    assert answer.status_code == code
    assert answer.json()["problems"]
