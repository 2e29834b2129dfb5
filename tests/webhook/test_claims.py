"""The Secret of a claim's SSH keys: its author needs the right to get exactly this Secret."""

from __future__ import annotations

import pytest

from tests.kinds.warm import claim
from tests.runtime.faulty_server import Request, Script
from tests.webhook.builders import Json, review
from tests.webhook.conftest import RunningWebhook

KEYS = {"sshPublicKeySecret": "keys"}


def personalized(**personalization: object) -> Json:
    document = claim(poolName="web", personalization=personalization)
    document["metadata"]["namespace"] = "shop"
    return document


def granting_secret(name: str, asked: list[Json]) -> Script:
    async def script(request: Request) -> None:
        asked.append(request.document["spec"])
        allowed = request.document["spec"]["resourceAttributes"].get("name") == name
        await request.answer(201, {"status": {"allowed": allowed}})

    return script


async def test_the_author_may_get_the_secret(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("keys", asked)
    assert (await webhook.review(review(personalized(**KEYS))))["allowed"]
    attributes = {"verb": "get", "group": "", "version": "v1", "resource": "secrets"}
    assert asked == [{"user": "jane", "resourceAttributes": {**attributes, "namespace": "shop", "name": "keys"}}]


async def test_another_secret_is_refused(webhook: RunningWebhook) -> None:
    webhook.api_server.script = granting_secret("other", [])
    status = (await webhook.review(review(personalized(**KEYS))))["status"]
    assert status["code"] == 403
    assert "jane may not get Secret keys in namespace shop" in status["message"]


async def test_another_secret_of_an_application_is_refused(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("keys", asked)
    document = personalized(**KEYS)
    env = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}
        for name, secret in (("A", "keys"), ("B", "other"), ("C", "other"))
    ]
    document["spec"]["application"] = {"containers": [{"name": "a", "image": "i", "env": env}]}
    status = (await webhook.review(review(document)))["status"]
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.application.containers[0].env[1].valueFrom.secretKeyRef.name"
    assert "jane may not get Secret other in namespace shop" in cause["message"]
    assert sorted(each["resourceAttributes"]["name"] for each in asked) == ["keys", "other"]


@pytest.mark.parametrize("code", [403, 500])
async def test_a_secret_is_refused_if_the_right_is_unknown(webhook: RunningWebhook, code: int) -> None:
    async def failing(request: Request) -> None:
        await request.answer(code, {"kind": "Status", "code": code, "message": "no"})

    webhook.api_server.script = failing
    response = await webhook.review(review(personalized(**KEYS)))
    assert not response["allowed"]
    assert "cannot determine whether you may get the Secret" in response["status"]["message"]


async def test_other_claims_need_no_right(webhook: RunningWebhook) -> None:
    asked: list[Json] = []
    webhook.api_server.script = granting_secret("none", asked)
    assert (await webhook.review(review(personalized(labels={"team": "blue"}))))["allowed"]
    changed = personalized(**KEYS)
    changed["spec"]["ttlSeconds"] = 60
    assert (await webhook.review(review(changed, personalized(**KEYS))))["allowed"], "the field has not changed"
    assert not asked


@pytest.mark.parametrize("name", ["../x", "a b", "\n", "keys\n", "Keys", "-x", "x" * 254, ""])
async def test_a_secret_has_a_valid_name(webhook: RunningWebhook, name: str) -> None:
    response = await webhook.review(review(personalized(sshPublicKeySecret=name)))
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.personalization.sshPublicKeySecret"
