"""The health of Poolhouse itself, from what a user can see."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.documentation import EMERGENCY
from poolhouse.cli.service_health import (
    Check,
    Facts,
    controllers,
    defaulter,
    describe_unknown,
    describe_webhook_failure,
    failed,
    judge,
    summarize,
    webhook,
)
from poolhouse.runtime.errors import (
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    Unavailable,
    Unreachable,
    WebhookFailed,
)

NOW = datetime(2026, 1, 2, 3, 4, 30, tzinfo=UTC)
REFUSED = "dial tcp 10.0.0.1:443: connect: connection refused"


def down(name: str, cause: str = REFUSED) -> WebhookFailed:
    call = (
        f'failed to call webhook: Post "https://poolhouse-webhook.poolhouse-system.svc:443/mutate?timeout=10s": {cause}'
    )
    return WebhookFailed(f'Internal error occurred: failed calling webhook "{name}": {call}', status=500)


def no_right(resource: str) -> Forbidden:
    return Forbidden(
        f'{resource} is forbidden: User "ann" cannot create resource "{resource}" in API group "x"', status=403
    )


def claim(**annotations: str) -> Json:
    return {"kind": "VirtualMachineClaim", "metadata": {"annotations": annotations}}


def lease(renewed: str | None = "2026-01-02T03:04:28.000000Z", holder: str = "pod-1", seconds: int = 8) -> Json:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}}


CLAIM = claim(**{meta.REQUESTER: "ann"})
DEFAULTED = {"metadata": {"annotations": {meta.DEFAULTED_FIELDS: "{}"}}}
BARE: Json = {"metadata": {}}
WELL = Facts("team", meta.NAMESPACE, NOW, CLAIM, DEFAULTED, lease())


def facts(**changes: Any) -> Facts:
    return replace(WELL, **changes)


def undefaulted(reason: str) -> Json:
    return {"metadata": {"annotations": {meta.UNDEFAULTED: reason}}}


def test_a_poolhouse_that_works_has_no_line() -> None:
    checks = judge(WELL)
    assert [each.verdict for each in checks] == ["ok", "ok", "ok"]
    assert (failed(checks), summarize(checks), describe_unknown(checks)) == ([], "", "")


@pytest.mark.parametrize(
    ("stack", "where"),
    [
        pytest.param(
            "", "`kubectl get pods -n poolhouse-system -l app.kubernetes.io/component=webhook`", id="a cluster"
        ),
        pytest.param(
            "/tmp/lab", "/tmp/lab/logs/webhook.log and `poolhouse status --dir /tmp/lab`", id="an embedded stack"
        ),
    ],
)
def test_the_remedy_says_where_the_service_runs(stack: str, where: str) -> None:
    assert where in webhook(facts(claim=down("pools.poolhouse.dev"), stack=stack)).remedy


@pytest.mark.parametrize(
    ("stack", "how"),
    [pytest.param("", "`helm upgrade`", id="a cluster"), pytest.param("/tmp/lab", "`poolhouse up", id="a stack")],
)
def test_the_remedy_of_missing_configurations_is_what_installs_them(stack: str, how: str) -> None:
    assert how in webhook(facts(claim=claim(), stack=stack)).remedy


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        pytest.param(down("pools.poolhouse.dev"), "failed", f"fails: {REFUSED}", id="the webhook is down"),
        pytest.param(Unreachable("no answer within 5 s"), "failed", "fails: no answer within 5 s", id="it hangs"),
        pytest.param(claim(), "failed", "configurations are missing", id="admission is off"),
        pytest.param({"kind": "VirtualMachinePool", "metadata": {}}, "ok", "it answers", id="claims are left out"),
        pytest.param(
            Invalid('admission webhook "pools.poolhouse.dev" denied the request: no'),
            "ok",
            "it answers",
            id="it refuses",
        ),
        pytest.param(QuotaExceeded("exceeded quota: few"), "ok", "it answers", id="a full quota counts after webhooks"),
        pytest.param(
            no_right("virtualmachineclaims"),
            "unknown",
            "you may not create virtualmachineclaims in namespace team",
            id="a user who only reads",
        ),
        pytest.param(
            Forbidden('admission webhook "gate.example.com" denied the request: no'),
            "unknown",
            'refused a dry run in namespace team: admission webhook "gate.example.com"',
            id="another webhook refuses",
        ),
        pytest.param(down("gate.example.com"), "unknown", "gate.example.com", id="another webhook is down"),
        pytest.param(NotFound('namespaces "team" not found'), "unknown", "not found", id="the namespace is not there"),
    ],
)
def test_a_dry_run_of_a_claim_shows_whether_the_webhook_answers(answer: Any, verdict: str, said: str) -> None:
    found = webhook(facts(claim=answer))
    assert (found.verdict, said in found.message) == (verdict, True), found.message


def test_an_api_server_that_does_not_answer_is_no_outage_of_the_webhook() -> None:
    silent = Unreachable("no answer within 5 s")
    found = judge(facts(claim=silent, vm=silent, lease=silent))
    assert [each.verdict for each in found] == ["unknown"] * 3
    assert found[0].message == "the API server did not answer a dry run in namespace team: no answer within 5 s"


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        pytest.param({"vm": undefaulted("DefaulterUnavailable")}, "failed", "DefaulterUnavailable", id="it is down"),
        pytest.param({"vm": undefaulted("DefaulterOverloaded")}, "warning", "DefaulterOverloaded", id="it is slow"),
        pytest.param({"vm": BARE}, "unknown", "exempt, or defaulting is off", id="an exempt namespace"),
        pytest.param(
            {"vm": BARE, "claim": down("pools.poolhouse.dev")}, "unknown", "webhook, which asks it", id="no webhook"
        ),
        pytest.param({"vm": down("defaulting.poolhouse.dev")}, "unknown", "no VM can be created", id="it fails closed"),
        pytest.param({"vm": no_right("virtualmachines")}, "unknown", "may not create virtualmachines", id="no right"),
    ],
)
def test_a_dry_run_of_a_vm_shows_whether_the_defaulter_answers(changes: Json, verdict: str, said: str) -> None:
    found = defaulter(facts(**changes))
    assert (found.verdict, said in found.message) == (verdict, True), found.message


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        pytest.param(lease(), "ok", "pod-1 leads, and its Lease was renewed 2s ago", id="it is renewed"),
        pytest.param(
            lease("2026-01-02T03:04:12.000000Z"), "warning", "18s ago, and it has expired", id="another may take it now"
        ),
        pytest.param(
            lease("2026-01-02T03:04:11.000000Z"), "failed", "pod-1 renewed its Lease last, 19s ago", id="late"
        ),
        pytest.param(lease("2026-01-02T03:04:29.500000Z", "", 1), "ok", "the next one leads", id="a leader stopped"),
        pytest.param(
            lease("2026-01-01T00:04:30.000000Z", "", 1), "failed", "gave up its Lease 27h ago", id="none since"
        ),
        pytest.param(lease(None), "failed", "never renewed", id="a Lease without a time"),
        pytest.param({"spec": 1}, "failed", "never renewed", id="a Lease of another form"),
        pytest.param(NotFound("no"), "failed", "no controller has ever led", id="no Lease"),
        pytest.param(Forbidden("no"), "unknown", "you may not read the Lease", id="no right"),
        pytest.param(Unavailable("busy"), "unknown", "cannot be read: busy", id="no answer"),
    ],
)
def test_the_lease_shows_whether_a_controller_leads(found: Any, verdict: str, said: str) -> None:
    check = controllers(facts(lease=found))
    assert (check.verdict, said in check.message) == (verdict, True), check.message


def test_an_outage_is_one_line_and_each_failed_check_has_a_page() -> None:
    checks = judge(facts(claim=down("pools.poolhouse.dev"), vm=BARE, lease=NotFound("no")))
    assert [each.name for each in failed(checks)] == ["webhook", "controllers"]
    assert all(each.page and each.remedy for each in failed(checks))
    line = summarize(checks)
    assert "\n" not in line
    assert line.startswith(
        f"Poolhouse itself has an outage: webhook: a dry run by the API server fails: {REFUSED}; contr"
    )
    assert "is not known: defaulter;" in describe_unknown(checks)


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate"),
        (REFUSED, "kubectl get pods -n poolhouse-system -l app.kubernetes.io/component=webhook"),
    ],
)
def test_the_remedy_is_that_of_the_cause(cause: str, remedy: str) -> None:
    assert remedy in webhook(facts(claim=down("pools.poolhouse.dev", cause))).remedy


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (down("pools.poolhouse.dev"), "Poolhouse's webhook is down, so nothing was changed: Internal error occurred: "),
        (
            down("pools.poolhouse.dev", "the server rejected our request for an unknown reason"),
            "Poolhouse's webhook does not work, so nothing was changed: ",
        ),
        (down("gate.example.com"), "a webhook of another component is down, so nothing was changed: Internal error "),
    ],
)
def test_an_error_says_whose_webhook_is_down(error: WebhookFailed, said: str) -> None:
    assert describe_webhook_failure(error).startswith(said)


def test_each_check_has_the_same_fields_as_json() -> None:
    check = Check("webhook", "failed", "no", "start it", EMERGENCY)
    assert check.json() == {
        "check": "webhook",
        "verdict": "failed",
        "message": "no",
        "remedy": "start it",
        "page": str(EMERGENCY),
    }


def test_errors_of_the_api_server_are_no_outage_of_poolhouse() -> None:
    error: ApiError = Unavailable("busy", status=503)
    assert failed(judge(facts(claim=error, vm=error, lease=error))) == []
