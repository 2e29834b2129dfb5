"""The console that the chart can run in the cluster: nothing of it by default, and no right but to impersonate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from poolhouse.portal.settings import Settings
from poolhouse.service.prometheus import PrometheusServer
from tests.charts.helm import HelmError, template
from tests.portal.running import STUDENTS, USERS, values

Json = dict[str, Any]
NAME = "poolhouse-console"


def objects(given: Json, *options: str) -> dict[str, Json]:
    return {each["kind"]: each for each in template(given, *options) if each["metadata"]["name"] == NAME}


def changed(**console: Any) -> Json:
    return {"console": {**values()["console"], **console}}


def environment(found: dict[str, Json]) -> dict[str, str]:
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_it_is_off_by_default() -> None:
    assert objects({}) == {}


@pytest.mark.parametrize(
    ("users", "groups", "rules"),
    [
        pytest.param(
            list(USERS),
            [STUDENTS],
            [
                {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": list(USERS)},
                {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": [STUDENTS]},
            ],
            id="names of users and groups",
        ),
        pytest.param(
            ["*"], [], [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}], id="any user, no group"
        ),
    ],
)
def test_the_role_limits_whom_it_impersonates(users: list[str], groups: list[str], rules: list[Json]) -> None:
    found = objects(changed(impersonate={"users": users, "groups": groups}))
    assert found["ClusterRole"]["rules"] == rules
    assert "Role" not in found
    assert environment(found)["POOLHOUSE_PORTAL_GROUPS"] == ",".join(groups)


def test_with_the_users_own_tokens_it_has_no_right() -> None:
    found = objects(changed(mode="token"))
    assert set(found) == {"ServiceAccount", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    assert not [name for name in environment(found) if name.startswith(("POOLHOUSE_OIDC_USER", "POOLHOUSE_OIDC_GROUP"))]


def test_the_program_accepts_the_settings_of_the_chart(tmp_path: Path) -> None:
    (tmp_path / "sessionKey").write_text("k" * 32)
    prometheus = {"url": "http://prometheus.monitoring:9090"}
    for mode in ("token", "impersonate"):
        given = environment(objects(changed(mode=mode, namespaces=["a", "b"], sessionHours=1.5, prometheus=prometheus)))
        settings = Settings.read({**given, "POOLHOUSE_PORTAL_SECRET_DIR": str(tmp_path)})
        assert (settings.mode, settings.namespaces, settings.session_hours) == (mode, ("a", "b"), 1.5)
        assert settings.prometheus == PrometheusServer(prometheus["url"])
        assert given.keys() <= {str(each.validation_alias) for each in Settings.model_fields.values()}


def test_no_secret_but_its_own_is_in_its_pod() -> None:
    """The portal must not read the identity seed or the webhook's keys."""
    analysis = {"prometheus": {"url": "https://prometheus.example", "secret": "of-the-controllers"}}
    given = {**changed(tlsSecret="certificate"), "controllers": {"analysis": analysis}}
    spec = objects(given)["Deployment"]["spec"]["template"]["spec"]
    assert {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each} == {"portal", "certificate"}
    assert "POOLHOUSE_IDENTITY" not in json.dumps(spec)


def test_it_reaches_a_prometheus_only_if_it_has_one() -> None:
    peers = [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
    policy = {"networkPolicy": {"prometheusTo": peers}}
    without = objects({**changed(), **policy})
    assert {"to": peers} not in without["NetworkPolicy"]["spec"]["egress"]
    assert not [name for name in environment(without) if "PROMETHEUS" in name]
    url, directory = "https://prometheus.monitoring:9090", "/run/poolhouse/prometheus"
    found = objects({**changed(prometheus={"url": url, "secret": "access"}), **policy})
    assert {"to": peers} in found["NetworkPolicy"]["spec"]["egress"]
    given = environment(found)
    assert (given["POOLHOUSE_PROMETHEUS_URL"], given["POOLHOUSE_PROMETHEUS_DIR"]) == (url, directory)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert {"name": "prometheus", "mountPath": directory, "readOnly": True} in pod["containers"][0]["volumeMounts"]
    assert {"name": "prometheus", "secret": {"secretName": "access"}} in pod["volumes"]


@pytest.mark.parametrize(("secret", "scheme", "port"), [("", "http", 80), ("certificate", "https", 443)])
def test_probes_and_the_service_use_tls_if_there_is_a_certificate(secret: str, scheme: str, port: int) -> None:
    found = objects(changed(tlsSecret=secret))
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["poolhouse", "portal"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == scheme.upper()
    assert [(each["port"], each["targetPort"]) for each in found["Service"]["spec"]["ports"]] == [(port, scheme)]
    assert ("POOLHOUSE_TLS_DIR" in environment(found)) == bool(secret)


@pytest.mark.parametrize(
    ("issuer", "port"),
    [("https://login.example", 443), ("https://login.example:8443/realms/a", 8443), ("https://[fd00::1]:9443", 9443)],
)
def test_the_policy_allows_the_port_of_the_issuer(issuer: str, port: int) -> None:
    oidc = {**values()["console"]["oidc"], "issuer": issuer}
    egress = objects(changed(oidc=oidc))["NetworkPolicy"]["spec"]["egress"]
    assert {"ports": [{"port": port, "protocol": "TCP"}]} in egress
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    policy = objects({**changed(), "networkPolicy": {"consoleFrom": peers}})["NetworkPolicy"]["spec"]
    assert [each["from"] for each in policy["ingress"]] == [peers]


@pytest.mark.parametrize(
    ("console", "problem"),
    [
        pytest.param({"url": ""}, "console.url: Required value", id="no address"),
        pytest.param({"url": "http://vms.example"}, "/console/url", id="an address without TLS"),
        pytest.param({"url": "https://vms.example/a"}, "/console/url", id="an address with a path"),
        pytest.param({"secret": ""}, "console.secret: Required value", id="no Secret"),
        pytest.param({"oidc": {"issuer": ""}}, "console.oidc.issuer: Required value", id="no issuer"),
        pytest.param({"oidc": {"clientID": ""}}, "console.oidc.clientID: Required value", id="no client"),
        pytest.param({"oidc": {"scopes": ["email"]}}, "/console/oidc/scopes", id="not OpenID Connect"),
        pytest.param({"mode": "any"}, "/console/mode", id="no such mode"),
        pytest.param({"prometheus": {"url": "prometheus:9090"}}, "/console/prometheus/url", id="not an URL"),
        pytest.param(
            {"prometheus": {"secret": "access"}}, "requires console.prometheus.url", id="a token for no Prometheus"
        ),
        pytest.param({"impersonate": {"users": []}}, "console.impersonate.users: Required value", id="nobody"),
        pytest.param({"impersonate": {"users": ["system:admin"]}}, "/console/impersonate/users", id="a reserved user"),
        pytest.param(
            {"impersonate": {"users": ["a"], "groups": ["system:masters"]}},
            "/console/impersonate/groups",
            id="a reserved group",
        ),
        pytest.param(
            {"impersonate": {"users": ["a"], "usernamePrefix": "system:"}},
            "/console/impersonate/usernamePrefix",
            id="a reserved prefix",
        ),
        pytest.param(
            {"impersonate": {"users": ["a"], "groupsPrefix": ""}}, "/console/impersonate/groupsPrefix", id="no prefix"
        ),
    ],
)
def test_values_that_cannot_work_are_refused(console: Json, problem: str) -> None:
    base = values()["console"]
    merged = {
        name: {**base.get(name, {}), **each} if isinstance(each, dict) else each for name, each in console.items()
    }
    with pytest.raises(HelmError) as error:
        template(changed(**merged))
    assert problem in str(error.value)
