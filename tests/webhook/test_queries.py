"""Queries are loaded with the first one, because their modules are large."""

from __future__ import annotations

import subprocess
import sys

from service.server import HEALTH_PATHS
from tests.webhook.conftest import RunningWebhook
from webhook.app import QUERY_PATHS
from webhook.queries import openapi_document, queries


def test_every_query_has_a_path_that_loads_it() -> None:
    assert sorted(QUERY_PATHS) == sorted(getattr(route, "path", "") for route in queries.routes)
    assert {path for path in openapi_document()["paths"] if "plan" not in path} <= set(QUERY_PATHS)


def test_admission_does_not_load_fastapi() -> None:
    program = "import sys, webhook.main; print('fastapi' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


async def test_each_kind_of_path_answers_its_methods_only(webhook: RunningWebhook) -> None:
    wrong = dict.fromkeys(HEALTH_PATHS, "POST") | {"/mutate": "GET", "/validate": "GET", "/apis/vms/dryrun": "GET"}
    answers = {path: await webhook.client.request(method, path) for path, method in wrong.items()}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(wrong, 405)
    allowed = {path: {*answer.headers["Allow"].split(", ")} for path, answer in answers.items()}
    assert allowed == {path: {"GET", "HEAD"} if method == "POST" else {"POST"} for path, method in wrong.items()}
    found = await webhook.client.get("/apis")
    assert (found.status_code, found.json()["problems"]) == (404, [{"path": "", "message": "Not Found"}])
    assert all([(await webhook.client.head(path)).status_code == 200 for path in HEALTH_PATHS])
