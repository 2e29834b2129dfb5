"""The NetworkPolicies of the rendered chart select every Pod, those of hooks too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.charts.helm import CHART, NAMESPACE, template

Json = dict[str, Any]

BEFORE_THE_RELEASE = {"pre-install", "pre-upgrade", "pre-rollback"}
"""the events at which Helm has not yet created the objects that are no hooks"""


def pods(documents: list[Json]) -> Iterator[tuple[str, Json, Json]]:
    """Yields the name, the metadata of the object, and the labels of its Pods, for objects of every kind."""
    for each in documents:
        spec = each.get("spec") or {}
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        pod = each if each["kind"] == "Pod" else spec.get("template") or {}
        if "containers" in pod.get("spec", {}):
            yield f"{each['kind']} {each['metadata']['name']}", each["metadata"], pod["metadata"]["labels"]


def policies_of(labels: Json, documents: list[Json]) -> list[Json]:
    policies = [each for each in documents if each["kind"] == "NetworkPolicy"]
    return [each for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]


def events(metadata: Json) -> set[str]:
    return set(filter(None, metadata.get("annotations", {}).get("helm.sh/hook", "").split(",")))


def weight(metadata: Json) -> int:
    return int(metadata.get("annotations", {}).get("helm.sh/hook-weight", "0"))


def exists_before(policy: Json, job: Json) -> bool:
    """Whether Helm creates the policy before the Pods of the hook start."""
    early = events(job) & BEFORE_THE_RELEASE
    hook = events(policy)
    return early <= hook and (not hook or weight(policy) < weight(job))


def labels_that_imitate(component: str) -> Json:
    labels = {"podLabels": {"app.kubernetes.io/component": component}}
    return {"webhook": labels, "controllers": labels}


@pytest.mark.parametrize(
    ("values", "options", "count"),
    [
        pytest.param({}, (), 5, id="default"),
        pytest.param({}, ("--is-upgrade",), 5, id="upgrade"),
        pytest.param(None, ("--values", str(CHART / "ci" / "everything-values.yaml")), 6, id="everything"),
        pytest.param(None, ("--values", str(CHART / "ci" / "cert-manager-values.yaml")), 5, id="cert-manager"),
        pytest.param(
            {"networkPolicy": {"enabled": True}, "hooks": {"enabled": True}},
            ("--values", str(CHART / "ci" / "least-values.yaml")),
            4,
            id="least, with policies and hooks",
        ),
        pytest.param({"hooks": {"enabled": False}}, (), 3, id="no hooks"),
        pytest.param({"defaulter": {"enabled": False}}, (), 4, id="no defaulter"),
        pytest.param({"rbac": {"create": False}}, (), 5, id="no rights"),
        pytest.param({"global": {"commonLabels": {"app.kubernetes.io/component": "x"}}}, (), 5, id="common labels"),
        pytest.param(labels_that_imitate("hook"), (), 5, id="labels of Pods"),
    ],
)
def test_one_policy_selects_each_pod_before_it_starts(
    values: Json | None, options: tuple[str, ...], count: int
) -> None:
    documents = template(values, *options, "--api-versions", "cert-manager.io/v1")
    found = list(pods(documents))
    assert len(found) == count
    for name, metadata, labels in found:
        (policy,) = policies_of(labels, documents)
        assert policy["metadata"]["namespace"] == metadata["namespace"] == NAMESPACE
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}, name
        assert exists_before(policy["metadata"], metadata), name


def test_pods_of_hooks_reach_only_the_api_server_and_dns() -> None:
    documents = template({"networkPolicy": {"apiServerPorts": [6443], "dnsPorts": [53, 5353]}})
    hooks = [(name, labels) for name, metadata, labels in pods(documents) if events(metadata)]
    assert {name for name, _ in hooks} == {"Job poolhouse-retire", "Job poolhouse-probe"}
    for _, labels in hooks:
        (policy,) = policies_of(labels, documents)
        assert policy["spec"]["ingress"] == []
        names, api_server = policy["spec"]["egress"]
        assert names == {"ports": [{"port": p, "protocol": q} for p in (53, 5353) for q in ("UDP", "TCP")]}
        assert api_server == {"ports": [{"port": 6443, "protocol": "TCP"}]}


@pytest.mark.parametrize("values", [{"networkPolicy": {"enabled": False}}, {"hooks": {"enabled": False}}])
def test_no_policy_without_its_reason(values: Json) -> None:
    names = {each["metadata"]["name"] for each in template(values) if each["kind"] == "NetworkPolicy"}
    assert "poolhouse-hooks" not in names


JOB = {"annotations": {"helm.sh/hook": "pre-install,post-upgrade", "helm.sh/hook-weight": "0"}}


@pytest.mark.parametrize(
    ("policy", "job", "early"),
    [
        pytest.param({}, {}, True, id="a Deployment, and an object of the release"),
        pytest.param({}, {"annotations": {"helm.sh/hook": "post-install,pre-delete"}}, True, id="a later hook"),
        pytest.param({}, JOB, False, id="an object of the release comes after pre-install"),
        pytest.param({"annotations": {**JOB["annotations"], "helm.sh/hook-weight": "-5"}}, JOB, True, id="less weight"),
        pytest.param(JOB, JOB, False, id="the same weight"),
    ],
)
def test_order_of_policies_and_jobs(policy: Json, job: Json, early: bool) -> None:
    assert exists_before(policy, job) is early
