"""Explanation of policies: authorization, assumptions and invalid questions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kinds.policies import policy, upstream
from tests.runtime.faulty_server import Request, Script, status
from tests.webhook.conftest import RunningWebhook
from webhook.explain import parse_question
from webhook.models import QueryError

Json = dict[str, Any]

VMI = {
    "metadata": {"name": "web", "namespace": "shop", "labels": {"gpu": "nvidia", "poolhouse.dev/migration-policy": "a"}}
}
ASKED = {"namespace": "shop", "name": "web"}
BOTH = [policy("gpu", {"gpu": ""}, created="1"), policy("shop", {"gpu": ""}, {"tier": "gold"}, created="2")]


def api_server(policies: list[Json] = BOTH, **answers: tuple[int, Any]) -> Script:
    """One VMI in one namespace, these policies, and by the end of its path any other answer."""

    async def script(request: Request) -> None:
        for end, (code, body) in answers.items():
            if request.path.endswith(end):
                return await request.answer(code, body)
        match request.path.split("/")[2:]:
            case ["migrations.kubevirt.io", *_]:
                return await request.answer(404, status(404, "NotFound"))
            case [*_, "kubevirts"]:
                return await request.answer(200, {"items": []})
            case [*_, "migrationpolicies"]:
                return await request.answer(200, {"metadata": {"resourceVersion": "1"}, "items": policies})
            case [*_, "virtualmachineinstances", "web"]:
                return await request.answer(200, VMI)
            case [*_, "namespaces", "shop"]:
                return await request.answer(200, {"metadata": {"labels": {"tier": "gold"}}})
        return await request.answer(404, status(404, "NotFound"))

    return script


async def ask(webhook: RunningWebhook, document: Any, token: str | None = "jane") -> tuple[int, Json]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    told = await webhook.client.post("/apis/policies/explain", json=document, headers=headers)
    return told.status_code, told.json()


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="no question"),
        pytest.param({"kind": "Secret", "apiVersion": "v1"}, id="another kind"),
        pytest.param({"kind": "VirtualMachine", "name": "web"}, id="neither form of a question"),
    ],
)
async def test_an_unknown_token_learns_nothing(webhook: RunningWebhook, document: Json) -> None:
    unknown = 401, status(401, "Unauthorized")
    webhook.api_server.script = api_server(selfsubjectaccessreviews=unknown)
    code, told = await ask(webhook, document)
    assert (code, told["problems"]) == (401, [{"path": "", "message": "the API server does not know this token"}])
    webhook.api_server.script = api_server(selfsubjectaccessreviews=(201, {"status": {"allowed": False}}))
    assert (await ask(webhook, document))[0] == 400


async def test_an_explanation_has_the_winner_all_candidates_and_all_settings(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    code, told = await ask(webhook, ASKED)
    assert code == 200
    assert told["policy"] == "shop"
    assert [each["name"] for each in told["candidates"]] == ["shop", "gpu"]
    assert told["stamped"] == "a"
    assert told["supposed"] is False
    assert set(told["settings"]) == {
        "allowAutoConverge", "bandwidthPerMigration", "completionTimeoutPerGiB", "allowPostCopy",
        "allowWorkloadDisruption", "disableTLS",
    }  # fmt: skip


async def test_a_halted_vm_is_reported_as_halted(webhook: RunningWebhook) -> None:
    machine = {"spec": {"template": {"metadata": {"labels": {"gpu": "amd"}}}}}
    missing = (404, status(404, "NotFound"))
    webhook.api_server.script = api_server(**{"virtualmachineinstances/web": missing, "/web": (200, machine)})
    _, told = await ask(webhook, ASKED)
    assert (told["policy"], told["halted"], told["supposed"], told["stamped"]) == ("shop", True, False, None)
    webhook.api_server.script = api_server()
    _, told = await ask(webhook, ASKED)
    assert told["halted"] is False


@pytest.mark.parametrize(
    ("machine", "winner"),
    [
        pytest.param(
            (200, {"spec": {"template": {"metadata": {"labels": {"os": "f"}}}}}), None, id="its VM's next one"
        ),
        pytest.param((404, status(404, "NotFound")), "shop", id="of no VM"),
    ],
)
async def test_a_vmi_that_has_ended_obeys_no_policy(
    webhook: RunningWebhook, machine: tuple[int, Json], winner: str | None
) -> None:
    ended = (200, {**VMI, "status": {"phase": "Succeeded"}})
    webhook.api_server.script = api_server(**{"virtualmachineinstances/web": ended, "/web": machine})
    _, told = await ask(webhook, ASKED)
    assert (told["halted"], told["policy"]) == (True, winner)


async def test_all_objects_are_read_with_the_callers_token(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    await ask(webhook, ASKED, "janes-token")
    assert {each.headers["authorization"] for each in webhook.api_server.requests} == {"Bearer janes-token"}
    assert {each.method for each in webhook.api_server.requests} == {"GET"}


@pytest.mark.parametrize(
    ("document", "winner"),
    [
        pytest.param({**ASKED, "withLabels": {"gpu": None}}, None, id="a label less"),
        pytest.param({**ASKED, "withLabels": {"os": "fedora"}}, "shop", id="a label more"),
        pytest.param(
            {**ASKED, "withPolicies": [policy("new", {"gpu": ""}, {"tier": "gold", "x": ""})]}, "shop", id="no match"
        ),
        pytest.param(
            {
                **ASKED,
                "withLabels": {"os": "f"},
                "withPolicies": [policy("new", {"gpu": "", "os": ""}, {"tier": True})],
            },
            "shop",
            id="a boolean is the text it means, which is another value here",
        ),
        pytest.param(
            {**ASKED, "withLabels": {"os": "f"}, "withPolicies": [policy("new", {"gpu": "", "os": ""}, {"tier": ""})]},
            "new",
            id="a new policy",
        ),
        pytest.param({**ASKED, "withPolicies": [policy("shop", {"no": ""})]}, "gpu", id="a changed policy"),
        pytest.param({"kind": "VirtualMachineInstance", **VMI}, "shop", id="a VMI as it is written"),
        pytest.param(
            {
                "kind": "VirtualMachine",
                "metadata": {"name": "new", "namespace": "shop"},
                "spec": {"template": {"metadata": {"labels": {"gpu": "amd"}}}},
            },
            "shop",
            id="a VM that does not exist",
        ),
    ],
)
async def test_assumptions_change_the_winner(webhook: RunningWebhook, document: Json, winner: str | None) -> None:
    webhook.api_server.script = api_server()
    code, told = await ask(webhook, document)
    assert (code, told["policy"]) == (200, winner)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param({}, "name", id="no name"),
        pytest.param({"name": "../../secrets/x"}, "name", id="a path for a name"),
        pytest.param({"name": "web", "namespace": "a/b"}, "namespace", id="a path for a namespace"),
        pytest.param({"name": ["web"]}, "name", id="a list for a name"),
        pytest.param({"name": "web", "labels": {}}, "labels", id="an unknown field"),
        pytest.param({"name": "web", "withLabels": {"a b": "x"}}, 'withLabels["a b"]', id="no label key"),
        pytest.param({"name": "web", "withLabels": {"a": 1}}, "withLabels.a", id="no label value"),
        pytest.param({"name": "web", "withLabels": ["a"]}, "withLabels", id="no labels"),
        pytest.param({"name": "web", "withPolicies": {}}, "withPolicies", id="an empty object is no list"),
        pytest.param({"name": "web", "withPolicies": None}, None, id="null is as good as no policies"),
        pytest.param({"name": "web", "namespace": 0}, "namespace", id="a number is no namespace"),
        pytest.param({"name": "web", "namespace": ""}, None, id="an empty namespace is the default one"),
        pytest.param(
            {"kind": "VirtualMachine", "apiVersion": "v1", "metadata": {}}, "apiVersion", id="a VM of another group"
        ),
        pytest.param({"name": "web", "withPolicies": {"a": 1}}, "withPolicies", id="no list of policies"),
        pytest.param({"name": "web", "withPolicies": ["x"]}, "withPolicies[0]", id="no policy"),
        pytest.param(
            {"name": "web", "withPolicies": [policy("p", {"a": "1"}, completionTimeoutPerGiB=-1)]},
            "withPolicies[0].spec.completionTimeoutPerGiB",
            id="a policy that is wrong",
        ),
        pytest.param(
            {"name": "web", "withPolicies": [{**policy("p", {"a": "1"}), "metadata": {"generateName": "p-"}}]},
            "withPolicies[0].metadata.name",
            id="a policy that has no name yet",
        ),
        pytest.param({"kind": "VirtualMachineInstance", "metadata": {"labels": "x"}}, "metadata.labels", id="VMI"),
        pytest.param({"kind": "VirtualMachine", "metadata": {}, "name": "web"}, "name", id="a name of its own"),
        pytest.param(
            {"kind": "VirtualMachineInstance", "metadata": {}, "withLabels": {}},
            "withLabels",
            id="assumptions",
        ),
        pytest.param({"name": "web", "with_labels": {"os": "f"}}, "with_labels", id="labels by another name"),
        pytest.param({"name": "web", "with_policies": []}, "with_policies", id="policies by another name"),
        pytest.param({"name": "web", "api_version": "v1"}, "api_version", id="a version by another name"),
        pytest.param({"kind": "VirtualMachine", "spec": {}}, "metadata", id="a VM without metadata"),
        pytest.param({"kind": "VirtualMachine", "metadata": []}, "metadata", id="metadata that is no object"),
        pytest.param({"kind": "VirtualMachine", "metadata": {}, "spec": "x"}, "spec", id="a spec that is no object"),
        pytest.param({"kind": "Pod", "name": "web"}, "kind", id="another kind"),
        pytest.param({"kind": 1, "name": "web"}, "kind", id="a number for a kind"),
    ],
)
def test_an_invalid_question_is_refused_at_its_path(document: Json, path: str | None) -> None:
    if path is None:
        parse_question(document)
        return
    with pytest.raises(QueryError) as refused:
        parse_question(document)
    assert [problem.path for problem in refused.value.problems] == [path]


async def test_an_assumed_policy_with_the_selectors_of_another_is_refused(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    code, told = await ask(webhook, {**ASKED, "withPolicies": [policy("new", {"x": ""}), policy("rival", {"gpu": ""})]})
    (problem,) = told["problems"]
    assert (code, problem["path"]) == (400, "withPolicies[1].spec.selectors")
    assert 'exactly those of policy "gpu"' in problem["message"]


async def test_a_request_without_a_token_reads_nothing(webhook: RunningWebhook) -> None:
    assert (await ask(webhook, ASKED, None))[0] == 401
    assert webhook.api_server.requests == []


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        pytest.param("web", 403, 403, id="the VMI may not be read"),
        pytest.param("migrationpolicies", 403, 403, id="policies may not be read"),
        pytest.param("shop", 401, 401, id="an unknown token"),
        pytest.param("web", 404, 404, id="there is no such VM"),
        pytest.param("shop", 404, 404, id="there is no such namespace"),
        pytest.param("migrationpolicies", 500, 503, id="the API server fails"),
    ],
)
async def test_the_api_servers_refusal_is_the_answer(webhook: RunningWebhook, end: str, code: int, told: int) -> None:
    webhook.api_server.script = api_server(**{end: (code, status(code, "InvalidDocument"))})
    found, body = await ask(webhook, ASKED)
    assert found == told
    assert body["problems"][0]["message"]


async def test_unreadable_kubevirt_objects_are_noted(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server(kubevirts=(403, status(403, "Forbidden")))
    code, told = await ask(webhook, ASKED)
    assert code == 200
    assert told["notes"][0] == "KubeVirt's configuration could not be read, and is not counted here"


async def test_a_policy_of_kubevirt_that_outranks_is_noted(webhook: RunningWebhook) -> None:
    script = api_server()

    async def with_theirs(request: Request) -> None:
        if request.path.startswith("/apis/migrations.kubevirt.io"):
            return await request.answer(200, {"items": [upstream("theirs", {"gpu": "nvidia"}, {"tier": "gold"})]})
        return await script(request)

    webhook.api_server.script = with_theirs
    _, told = await ask(webhook, ASKED)
    assert any("theirs" in note for note in told["notes"])
