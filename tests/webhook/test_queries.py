"""The routes for users and programs, beside those of the API server."""

from __future__ import annotations

from poolhouse.service.health import HEALTH_PATHS
from tests.webhook.conftest import RunningWebhook
from webhook.app import openapi_document


def test_the_document_has_admission_beside_the_queries() -> None:
    paths = {path for path in openapi_document()["paths"] if "plan" not in path}
    assert paths == {"/mutate", "/validate", "/apis/vms/dryrun", "/apis/policies/explain"}


async def test_each_kind_of_path_answers_its_methods_only(webhook: RunningWebhook) -> None:
    wrong = dict.fromkeys(HEALTH_PATHS, "POST") | {"/mutate": "GET", "/validate": "GET", "/apis/vms/dryrun": "GET"}
    answers = {path: await webhook.client.request(method, path) for path, method in wrong.items()}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(wrong, 405)
    allowed = {path: {*answer.headers["Allow"].split(", ")} for path, answer in answers.items()}
    assert allowed == {path: {"GET", "HEAD"} if method == "POST" else {"POST"} for path, method in wrong.items()}
    found = await webhook.client.get("/apis")
    assert (found.status_code, found.json()["problems"]) == (404, [{"path": "", "message": "Not Found"}])
    assert all([(await webhook.client.head(path)).status_code == 200 for path in HEALTH_PATHS])
