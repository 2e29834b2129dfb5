"""How Poolhouse is installed: certificates, versions, APIs, and webhooks of others."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.cli.installation import (
    API_VERSIONS,
    OLDEST_KUBERNETES,
    REQUIRED,
    Installation,
    apis,
    asked_too,
    certificates,
    judge_installation,
    other_webhooks,
    versions,
)
from poolhouse.cli.service_facts import observe, observe_installation, require_answer
from poolhouse.cli.service_health import webhook
from poolhouse.runtime.errors import ApiError, Forbidden, Unauthorized, Unavailable, Unreachable
from tests.cli.test_service_health import WELL, down, facts

ROOT = Path(__file__).resolve().parent.parent.parent
HIDDEN = Forbidden("no", status=403)
BUSY = Unavailable("busy", status=500)
VALID = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
PAST = (datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
SERVED: dict[str, Any] = {
    version: frozenset(
        (
            *(plural for name, plural in REQUIRED if name == version),
            *(kind.plural for kind in KINDS if kind.api_version == version),
            "other",
        )
    )
    for version in API_VERSIONS
}


def kubevirt(version: str) -> Json:
    return {"metadata": {"name": "kubevirt"}, "status": {"phase": "Deployed", "observedKubeVirtVersion": version}}


def deployment(version: str, without: str = "") -> Json:
    container = {"env": [{"name": "POOLHOUSE_KINDS_OFF", "value": without}]}
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"metadata": {"labels": {"app.kubernetes.io/version": version}}, "spec": spec}


def hook(name: str, group: str, resource: str, policy: str = "Fail") -> Json:
    rule = {"apiGroups": [group], "resources": [resource]}
    return {"webhooks": [{"name": name, "failurePolicy": policy, "rules": [rule]}]}


GOOD = Installation(
    "0.1.0",
    {"gitVersion": "v1.34.4"},
    [kubevirt("v1.9.0")],
    [deployment("0.1.0")],
    [hook("pools.poolhouse.dev", "kubevirt.io", "virtualmachinepools")],
    SERVED,
    {"pools.poolhouse.dev": VALID},
)


def installation(**changes: Any) -> Installation:
    return replace(GOOD, **changes)


def test_a_good_installation_passes_all_checks() -> None:
    assert {each.name: each.verdict for each in judge_installation(WELL, GOOD)} == {
        "certificates": "ok",
        "versions": "ok",
        "apis": "ok",
        "other-webhooks": "ok",
    }


def test_a_user_without_rights_sees_no_failure() -> None:
    hidden = installation(kubernetes=HIDDEN, kubevirts=HIDDEN, deployments=HIDDEN, configurations=HIDDEN, validities={})
    found = {each.name: (each.verdict, each.message) for each in judge_installation(WELL, hidden)}
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "certificates": "ok",
        "versions": "ok",
        "apis": "ok",
        "other-webhooks": "unknown",
    }
    assert found["certificates"][1].startswith("the API server trusts the webhook's certificate; you may not list")
    assert "you may not see the versions of the services" in found["versions"][1]


@pytest.mark.parametrize(
    ("validities", "verdict", "said"),
    [
        pytest.param({"a.poolhouse.dev": None}, "failed", "no usable CA bundle: a.poolhouse.dev", id="damaged"),
        pytest.param({"a.poolhouse.dev": PAST}, "failed", "not valid now: a.poolhouse.dev", id="expired"),
        pytest.param({}, "unknown", "no webhook configuration", id="admission is off"),
        pytest.param({"a.poolhouse.dev": VALID}, "ok", "1 webhook are valid until 2026-02-01T00:00:00Z", id="valid"),
    ],
)
def test_ca_bundles(validities: Any, verdict: str, said: str) -> None:
    found = certificates(WELL, installation(validities=validities))
    assert (found.verdict, said in found.message) == (verdict, True), found.message


def test_a_certificate_that_the_api_server_does_not_trust_is_named() -> None:
    broken = facts(claim=down("pools.poolhouse.dev", "x509: certificate signed by unknown authority"))
    assert certificates(broken, GOOD).verdict == "failed"
    for check in (webhook(broken), certificates(broken, GOOD)):
        assert "start a controller" in check.remedy
    for check in (webhook(replace(broken, stack="/tmp/a")), certificates(replace(broken, stack="/tmp/a"), GOOD)):
        assert "`poolhouse up --dir /tmp/a`" in check.remedy, "no controller of a stack writes the CA bundles"


def test_what_the_api_server_does_not_answer_is_no_missing_right() -> None:
    lost = installation(configurations=BUSY, deployments=BUSY)
    said = [check(facts(claim=BUSY), lost).message for check in (certificates, versions, other_webhooks)]
    assert all("busy" in each and "may not" not in each for each in said), said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"kubernetes": {"gitVersion": "v1.30.9"}}, "Kubernetes v1.30.9 is older than 1.31", id="kubernetes"
        ),
        pytest.param(
            {"kubevirts": [kubevirt("v1.4.2")]},
            "KubeVirt v1.4.2 is not one of the supported releases 1.5 to 1.9",
            id="kubevirt",
        ),
        pytest.param({"deployments": [deployment("0.2.0")]}, "and the services are 0.2.0", id="services"),
    ],
)
def test_versions_that_do_not_fit_are_a_warning(changes: Json, said: str) -> None:
    found = versions(WELL, installation(**changes))
    assert (found.verdict, said in found.message) == ("warning", True), found.message


def test_the_oldest_kubernetes_is_that_of_the_chart() -> None:
    chart = (ROOT / "charts/poolhouse/Chart.yaml").read_text()
    found = re.search(r'kubeVersion: ">=(\d+)\.(\d+)', chart)
    assert (int(found[1]), int(found[2])) == OLDEST_KUBERNETES


@pytest.mark.parametrize(
    ("served", "verdict", "said"),
    [
        pytest.param({}, "ok", "serves KubeVirt's and Poolhouse's kinds", id="all"),
        pytest.param({"cdi.kubevirt.io/v1beta1": ()}, "ok", "disks from dataVolumeTemplates", id="without CDI"),
        pytest.param(
            {"subresources.kubevirt.io/v1": ()}, "failed", "virtualmachines/restart of subresources", id="no KubeVirt"
        ),
        pytest.param(
            {"subresources.kubevirt.io/v1": Unavailable("service unavailable")},
            "failed",
            "does not serve subresources.kubevirt.io/v1: service unavailable",
            id="virt-api is down",
        ),
    ],
)
def test_apis_that_poolhouse_needs(served: Json, verdict: str, said: str) -> None:
    found = apis(WELL, installation(served={**SERVED, **served}))
    assert (found.verdict, said in found.message) == (verdict, True), found.message


WITHOUT_POOLS = {**SERVED, "kubevirt.io/v1": SERVED["kubevirt.io/v1"] - {"virtualmachinepools"}}
WITHOUT_ALL = SERVED | {kind.api_version: frozenset(plural for _, plural in REQUIRED) for kind in KINDS}
LEFT: Json = {"metadata": {"name": "web-1"}}
LEAVING: Json = {"metadata": {"name": "web-2", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
DELETED = (
    "If somebody has deleted a CRD, all its objects are gone, and Kubernetes deletes the VMs and disks that they owned,"
    " apart from retained disks; "
)


@pytest.mark.parametrize(
    ("changes", "verdict", "said", "remedy"),
    [
        pytest.param(
            {"deployments": [deployment("0.1.0", "virtualmachinepools,migrationpolicies")]},
            "ok",
            "left out of this installation: virtualmachinepools",
            "",
            id="on purpose",
        ),
        pytest.param(
            {},
            "failed",
            f"this CRD is missing: virtualmachinepools.kubevirt.io. {DELETED}no such VM remains",
            "install the CRDs again with `helm upgrade`; apply your manifests again",
            id="deleted, as are its objects",
        ),
        pytest.param(
            {"orphans": [LEFT, LEAVING]},
            "failed",
            "2 such VMs remain, being deleted: 1",
            "first remove the ownerReferences of the VMs that you want to keep",
            id="some VMs remain",
        ),
        pytest.param(
            {"orphans": [LEAVING]},
            "failed",
            "1 such VM remains, being deleted: 1",
            "install the CRDs again",
            id="none can be kept",
        ),
        pytest.param({"orphans": HIDDEN}, "failed", "whether VMs remain cannot be seen: no", "", id="VMs are hidden"),
        pytest.param(
            {"served": WITHOUT_ALL},
            "failed",
            "these CRDs are missing: virtualmachinepools.kubevirt.io, ",
            "install the CRDs again",
            id="no CRD",
        ),
        pytest.param({"deployments": HIDDEN}, "warning", "You may not see whether", "", id="the settings are hidden"),
        pytest.param({"deployments": []}, "warning", "You may not see whether", "", id="the services are elsewhere"),
    ],
)
def test_crds_of_poolhouse_that_are_missing(changes: Json, verdict: str, said: str, remedy: str) -> None:
    found = apis(WELL, installation(**{"served": WITHOUT_POOLS, **changes}))
    assert (found.verdict, said in found.message, remedy in found.remedy) == (verdict, True, True), found


def test_the_embedded_stack_writes_its_crds_again() -> None:
    found = apis(replace(WELL, stack="/tmp/a"), installation(served=WITHOUT_POOLS, deployments=[]))
    assert found.remedy.startswith("restart the stack, which writes them again: `poolhouse down --dir /tmp/a`")


async def test_the_vms_of_a_kind_without_its_crd_are_those_of_its_objects() -> None:
    def vm(name: str, kind: str, group: str = "kubevirt.io/v1") -> Json:
        return {"metadata": {"name": name, "ownerReferences": [{"apiVersion": group, "kind": kind}]}}

    class Cluster:
        async def request(self, verb: str, path: str) -> Json:
            served = WITHOUT_POOLS.get(path.removeprefix("/apis/"), ())
            return {"resources": [{"name": name} for name in served]}

        async def list(self, resource: Any, *given: Any, **options: Any) -> Any:
            vms = [vm("ours", "VirtualMachinePool"), vm("other", "VirtualMachinePool", "pool.kubevirt.io/v1beta1")]
            return (vms, "") if resource.plural == "virtualmachines" else ([], "")

    found = await observe_installation(Cluster(), "poolhouse-system", 1.0)
    assert [each["metadata"]["name"] for each in found.orphans] == ["ours"]


@pytest.mark.parametrize(
    ("configuration", "asked"),
    [
        pytest.param(hook("gate.example.com", "*", "*"), True, id="a policy engine for everything"),
        pytest.param(hook("gate.example.com", "kubevirt.io", "virtualmachines"), True, id="for VMs"),
        pytest.param(hook("gate.example.com", "poolhouse.dev", "virtualmachineclaims"), True, id="for claims"),
        pytest.param(hook("gate.example.com", "apps", "*"), False, id="for others"),
        pytest.param(hook("gate.example.com", "*", "*", "Ignore"), False, id="it fails open"),
        pytest.param(hook("virtualmachine-validator.kubevirt.io", "*", "*"), False, id="KubeVirt's"),
        pytest.param(hook("pools.poolhouse.dev", "*", "*"), False, id="ours"),
    ],
)
def test_webhooks_of_others_that_may_refuse(configuration: Json, asked: bool) -> None:
    assert list(asked_too([configuration])) == (["gate.example.com"] if asked else [])


def test_a_webhook_of_others_that_is_down_is_named() -> None:
    found = other_webhooks(facts(vm=down("gate.example.com")), GOOD)
    assert (found.verdict, "gate.example.com gives the API server no answer" in found.message) == ("failed", True)
    refused = installation(configurations=[hook("gate.example.com", "*", "*")])
    assert other_webhooks(WELL, refused).message.endswith("objects: gate.example.com; both dry runs passed")
    assert other_webhooks(facts(vm=HIDDEN), refused).verdict == "unknown"


@pytest.mark.parametrize("answer", [Unauthorized("Unauthorized", status=401), BUSY])
async def test_credentials_or_an_etcd_that_fail_are_no_outage_of_poolhouse(answer: ApiError) -> None:
    class Refusing:
        def now(self) -> datetime:
            return VALID[0]

        async def get(self, *call: Any, **options: Any) -> Any:
            raise answer

        create = get

    found = await observe(Refusing(), "team", 1.0)
    with pytest.raises(type(answer)):
        require_answer(found.lease)


async def test_an_api_server_that_hangs_has_a_call_so_that_no_command_blames_the_kubeconfig() -> None:
    class Hanging:
        def now(self) -> datetime:
            return VALID[0]

        async def get(self, *call: Any, **options: Any) -> Any:
            await asyncio.Event().wait()

        create = get

    found = await observe(Hanging(), "team", 0.0)
    with pytest.raises(Unreachable, match=r"GET Lease poolhouse-controllers: no answer within 0 s"):
        require_answer(found.lease)
