"""The rendered chart without a cluster: rights, connections, and error messages for invalid values."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from controllers.warmpool.ec2.settings import EC2Settings
from poolhouse.api.kinds import KINDS, meta
from poolhouse.manifests import webhooks
from poolhouse.manifests.rbac import service_account_user
from poolhouse.service.prometheus import PrometheusServer
from tests.charts.helm import CHART, NAMESPACE, RELEASE, HelmError, run, template, without_schemas

Json = dict[str, Any]

SERVICES = ("webhook", "controllers", "defaulter")
EVERYTHING = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "runbookBase": "https://docs.example/alerts/"},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    },
    "global": {"imageRegistry": "registry.local:5000", "commonLabels": {"team": "vms"}},
}


@pytest.fixture(scope="module")
def rendered() -> list[Json]:
    return template(EVERYTHING)


@pytest.fixture(scope="module")
def everything() -> list[Json]:
    return template(None, "--values", str(CHART / "ci" / "everything-values.yaml"))


def named(documents: list[Json], kind: str) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def pods(documents: list[Json]) -> Iterator[Json]:
    for each in documents:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]


def test_rendered_objects(rendered: list[Json]) -> None:
    """Compares kinds and names of all rendered objects with rendered.txt."""
    found = sorted(
        f"{each['kind']} {each['metadata']['name']}"
        + (" (hook)" if "helm.sh/hook" in each["metadata"].get("annotations", {}) else "")
        for each in rendered
        if each["kind"] != "CustomResourceDefinition"
    )
    assert found == (CHART.parent.parent / "tests" / "charts" / "rendered.txt").read_text().splitlines()


GLOBALS = {
    "imageRegistry": "mirror.example:5000",
    "imagePullSecrets": [{"name": "mirror-pull"}],
    "priorityClassName": "system-cluster-critical",
    "commonLabels": {"team": "infra"},
    "commonAnnotations": {"owner": "infra"},
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "runAs": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    "logLevel": "WARNING",
}

# For each global value, whether a Pod obeys it.
OBEYS: dict[str, Callable[[Json], bool]] = {
    "imageRegistry": lambda pod: all(
        each["image"].startswith("mirror.example:5000/") for each in pod["spec"]["containers"]
    ),
    "imagePullSecrets": lambda pod: pod["spec"]["imagePullSecrets"] == GLOBALS["imagePullSecrets"],
    "priorityClassName": lambda pod: pod["spec"]["priorityClassName"] == GLOBALS["priorityClassName"],
    "commonLabels": lambda pod: pod["metadata"]["labels"]["team"] == "infra",
    "commonAnnotations": lambda pod: pod["metadata"]["annotations"]["owner"] == "infra",
    "nodeSelector": lambda pod: pod["spec"]["nodeSelector"]["pool"] == "infra",
    "tolerations": lambda pod: {"key": "infra", "operator": "Exists"} in pod["spec"]["tolerations"],
    "runAs": lambda pod: not pod["spec"]["securityContext"].keys() & {"runAsUser", "runAsGroup", "fsGroup"},
    "logLevel": lambda pod: all(
        {"name": "POOLHOUSE_LOG_LEVEL", "value": "WARNING"} in each["env"] for each in pod["spec"]["containers"]
    ),
}


def test_every_pod_obeys_every_global_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["global"]["properties"].keys() == GLOBALS.keys() == OBEYS.keys()
    found = {each["metadata"]["name"]: each for each in template({"global": GLOBALS})}
    workloads = {
        name: each["spec"]["template"] for name, each in found.items() if each["kind"] in ("Deployment", "Job")
    }
    assert len(workloads) == 5, "three services, and the Jobs of two hooks"
    refused = [(name, value) for name, pod in workloads.items() for value, obeys in OBEYS.items() if not obeys(pod)]
    assert refused == []


@pytest.mark.parametrize(
    ("values", "error"),
    [
        pytest.param({"poolhouse": {"enabled": True}}, "", id="the parent's own global values and the condition"),
        pytest.param({"poolhouse": {"enabled": True, "replicas": 2}}, "'replicas' not allowed", id="unknown value"),
    ],
)
def test_the_chart_is_a_subchart(tmp_path: Path, values: Json, error: str) -> None:
    """Helm gives the parent's `global` and `enabled` to a subchart."""
    dependency = {"name": "poolhouse", "version": "0.1.0", "condition": "poolhouse.enabled"}
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    shutil.copytree(without_schemas(), tmp_path / "charts" / "poolhouse")
    values = {"global": {"storageClass": "fast", "domain": "example.test"}, **values}
    if error:
        with pytest.raises(HelmError, match=error):
            run("template", "parent", str(tmp_path), values=values)
    else:
        assert "poolhouse-webhook" in run("template", "parent", str(tmp_path), values=values)


def log_level(pod: Json) -> Any:
    (container,) = pod["spec"]["containers"]
    return next(each["value"] for each in container["env"] if each["name"] == "POOLHOUSE_LOG_LEVEL")


@pytest.mark.parametrize(
    ("values", "obeyed", "wanted"),
    [
        pytest.param(
            {"imagePullSecrets": ["mirror-pull", {"name": "other"}]},
            lambda pod: pod["spec"]["imagePullSecrets"],
            [{"name": "mirror-pull"}, {"name": "other"}],
            id="names of Secrets, as in charts by Bitnami",
        ),
        *(
            pytest.param({"logLevel": given}, log_level, level, id=f"log level {given}")
            for given, level in (("debug", "DEBUG"), ("ERROR", "ERROR"), (0, "INFO"), (2, "INFO"), (4, "DEBUG"))
        ),
    ],
)
def test_a_global_value_may_have_the_form_of_other_charts(
    values: Json, obeyed: Callable[[Json], Any], wanted: Any
) -> None:
    """A parent chart gives each of its charts the same global values."""
    found = [obeyed(pod) for pod in pods(template({"global": values}))]
    assert len(found) == 5
    assert all(each == wanted for each in found)


@pytest.mark.parametrize("values", [{"imagePullSecrets": [""]}, {"imagePullSecrets": [{}]}, {"logLevel": "loud"}])
def test_a_global_value_without_meaning_is_refused(values: Json) -> None:
    with pytest.raises(HelmError, match=next(iter(values))):
        template({"global": values})


def test_crds_of_all_kinds_are_kept_on_uninstall(rendered: list[Json]) -> None:
    crds = named(rendered, "CustomResourceDefinition")
    assert crds.keys() == {kind.crd_name for kind in KINDS}
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in crds.values()} == {"keep"}


def test_pods_comply_with_the_restricted_standard(rendered: list[Json]) -> None:
    for pod in pods(rendered):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            assert container["image"].startswith("registry.local:5000/poolhouse/")
        assert all({"name"} < set(volume) <= {"name", "emptyDir", "secret"} for volume in spec["volumes"])


def test_grace_period_is_longer_than_every_admission_timeout(rendered: list[Json]) -> None:
    slowest = max(w["timeoutSeconds"] for c in configurations(rendered) for w in c["webhooks"])
    for deployment in named(rendered, "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pause >= 5
        assert spec["terminationGracePeriodSeconds"] > pause + slowest
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_liveness_does_not_depend_on_other_components(rendered: list[Json]) -> None:
    """Only /readyz depends on other components, so that the kubelet does not restart a Pod that waits for them."""
    for deployment in named(rendered, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def configurations(documents: list[Json]) -> list[Json]:
    return [each for each in documents if each["kind"].endswith("WebhookConfiguration")]


def test_webhook_configurations_match_the_kinds(rendered: list[Json]) -> None:
    found = {each["metadata"]["name"] + each["kind"]: each for each in configurations(rendered)}
    wanted = webhooks.configurations(service=webhooks.Service(), ca_bundle=b"")
    assert len(found) == len(wanted)
    for each in wanted:
        for webhook in each["webhooks"]:
            del webhook["clientConfig"]["caBundle"]
        has = found[each["metadata"]["name"] + each["kind"]]["webhooks"]
        for webhook in (*has, *each["webhooks"]):
            for expression in webhook.get("namespaceSelector", {}).get("matchExpressions", ()):
                expression["values"].sort()
        assert has == each["webhooks"]


def test_selectors_match_only_the_pods_of_their_component(rendered: list[Json]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in _pod_templates(rendered).items()}
    for name in (f"poolhouse-{service}" for service in SERVICES):
        for kind in ("PodDisruptionBudget", "Service", "NetworkPolicy"):
            spec = named(rendered, kind)[name]["spec"]
            wanted = spec.get("podSelector") or spec["selector"]
            wanted = wanted.get("matchLabels", wanted)
            assert [each for each, has in labels.items() if wanted.items() <= has.items()] == [name], kind


def _pod_templates(documents: list[Json]) -> dict[str, Json]:
    return {name: each["spec"]["template"] for name, each in named(documents, "Deployment").items()}


def test_defaulter_has_no_egress_and_no_token() -> None:
    rendered = template()
    policy = named(rendered, "NetworkPolicy")["poolhouse-defaulter"]["spec"]
    assert policy["egress"] == []
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (ingress,) = policy["ingress"]
    clients = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in ingress["from"]]
    assert clients == ["webhook", "controllers"]
    pod = _pod_templates(rendered)["poolhouse-defaulter"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    bound = [s["name"] for each in rendered if each["kind"].endswith("RoleBinding") for s in each["subjects"]]
    assert "poolhouse-defaulter" not in bound


def test_secrets_are_readable_only_by_name_in_the_release_namespace(rendered: list[Json]) -> None:
    for role in rendered:
        for rule in role.get("rules") or () if role["kind"].endswith("Role") else ():
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert role["kind"] == "Role"
                assert set(rule["resourceNames"]) <= {"poolhouse-serving", "poolhouse-authorities"}


def test_disabled_kind_has_no_objects() -> None:
    rendered = template({"kinds": {"migrationpolicies": False}})
    assert "migrationpolicies.kubevirt.io" not in named(rendered, "CustomResourceDefinition")
    for each in rendered:
        for rule in each.get("rules") or ():
            ours = "kubevirt.io" in rule["apiGroups"] and any("migrationpolicies" in r for r in rule["resources"])
            assert not ours, each["metadata"]["name"]
        for webhook in each.get("webhooks") or ():
            assert not any("migrationpolicies" in rule["resources"] for rule in webhook["rules"])
    env = _pod_templates(rendered)["poolhouse-controllers"]["spec"]["containers"][0]["env"]
    assert {"name": "POOLHOUSE_KINDS_OFF", "value": "migrationpolicies"} in env


def test_no_defaulting_webhook_without_the_defaulter() -> None:
    rendered = template({"defaulter": {"enabled": False}})
    assert "poolhouse-defaulter" not in named(rendered, "Deployment")
    assert {each["metadata"]["name"] for each in configurations(rendered)} == {webhooks.KINDS_CONFIGURATION}


def test_ec2_settings_and_rights() -> None:
    role = "arn:aws:iam::123456789012:role/poolhouse"
    values: Json = {
        "controllers": {
            "ec2": {"region": "us-west-2", "subnet": "subnet-1"},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": role}},
        },
        "networkPolicy": {"machineCIDRs": ["10.1.0.0/16", "10.2.0.0/16"]},
    }
    rendered = template(values)
    env = _pod_templates(rendered)["poolhouse-controllers"]["spec"]["containers"][0]["env"]
    assert {"name": "POOLHOUSE_MACHINE_CIDRS", "value": "10.1.0.0/16,10.2.0.0/16"} in env
    found = {each["name"]: each.get("value") for each in env if each["name"].startswith("POOLHOUSE_EC2")}
    assert EC2Settings.read(found) == EC2Settings(region="us-west-2", subnet="subnet-1")
    accounts = named(rendered, "ServiceAccount")
    assert accounts["poolhouse-controllers"]["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role}
    assert "169.254.169.254/32" in allowed_blocks(rendered)
    assert "10.1.0.0/16" in allowed_blocks(rendered)


def controllers_of(rendered: list[Json]) -> tuple[dict[str, Any], Json, list[Json], list[Json]]:
    """The environment, the Pod's spec, the rules for Jobs, and the egress of the controllers."""
    pod = _pod_templates(rendered)["poolhouse-controllers"]["spec"]
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    rules = named(rendered, "ClusterRole")["poolhouse-controllers"]["rules"]
    egress = named(rendered, "NetworkPolicy")["poolhouse-controllers"]["spec"]["egress"]
    return env, pod, [rule for rule in rules if "batch" in rule["apiGroups"]], egress


def test_scrapes_of_the_controllers_may_need_a_token() -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}, "tokenSecret": "scraping"}}
    documents = template(values | {"networkPolicy": EVERYTHING["networkPolicy"]})
    env, pod, _, _ = controllers_of(documents)
    assert env["POOLHOUSE_METRICS_TOKEN_FILE"] == "/run/poolhouse/metrics/token"
    mount = {"name": "metrics", "mountPath": "/run/poolhouse/metrics", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    assert {"name": "metrics", "secret": {"secretName": "scraping"}} in pod["volumes"]
    monitors = named(documents, "ServiceMonitor")
    found = {name: each["spec"]["endpoints"][0].get("authorization") for name, each in monitors.items()}
    assert found == {
        "poolhouse-webhook": None,
        "poolhouse-controllers": {"credentials": {"name": "scraping", "key": "token"}},
        "poolhouse-defaulter": None,
    }


def test_analyses_have_no_prometheus_and_no_jobs_by_default(rendered: list[Json]) -> None:
    env, pod, rules, _ = controllers_of(rendered)
    assert not [name for name in env if name.startswith("POOLHOUSE_PROMETHEUS")]
    assert [each["name"] for each in pod["volumes"] if "secret" in each] == ["identity"]
    assert rules == []


def test_the_operator_enables_queries_and_jobs_of_analyses() -> None:
    url = "https://prometheus.monitoring:9090"
    values = {"prometheus": {"url": url, "secret": "access"}, "jobs": True}
    env, pod, rules, egress = controllers_of(template({"controllers": {"analysis": values}}))
    directory = env["POOLHOUSE_PROMETHEUS_DIR"]
    assert PrometheusServer.parse("", env["POOLHOUSE_PROMETHEUS_URL"], None) == PrometheusServer(url)
    assert {"name": "prometheus", "mountPath": directory, "readOnly": True} in pod["containers"][0]["volumeMounts"]
    assert {"name": "prometheus", "secret": {"secretName": "access"}} in pod["volumes"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["cronjobs"], ["get"]),
        (["jobs"], ["get", "create"]),
    ]
    peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    assert {"to": [peer]} in egress


def test_there_is_no_virtual_node_by_default(rendered: list[Json]) -> None:
    env, *_ = controllers_of(rendered)
    assert "POOLHOUSE_VIRTUAL_NODE" not in env
    assert "VIRTUAL_NODE" not in json.dumps(rendered)
    assert "poolhouse-virtual-node" not in named(rendered, "ValidatingAdmissionPolicy")
    assert {each["metadata"]["namespace"] for each in rendered if each["kind"] == "Role"} == {NAMESPACE}


def test_certificates_of_agents_are_issued_only_in_listed_namespaces() -> None:
    def roles(**values: Any) -> dict[str, list[Json]]:
        documents = template({"controllers": {"agentCertificates": values}})
        return {
            each["metadata"]["namespace"]: [rule for rule in each["rules"] if rule["resources"] == ["secrets"]]
            for each in documents
            if each["kind"] == "Role" and each["metadata"]["name"] == "poolhouse-controllers"
        }

    create = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    named_secret = {**create, "resourceNames": [meta.AGENT_CA_SECRET], "verbs": ["get", "update"]}
    off, on = roles(), roles(enabled=True, namespaces=["builds", "ci"])
    assert on == {NAMESPACE: [*off[NAMESPACE], named_secret, create], "builds": [create], "ci": [create]}
    assert off.keys() == {NAMESPACE}


EXEC = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}


@pytest.mark.parametrize(
    ("values", "where", "setting"),
    [
        pytest.param({}, set(), None, id="nowhere by default"),
        pytest.param({"readDomains": {"enabled": True}}, {"cluster"}, "*", id="in all namespaces"),
        pytest.param(
            {
                "readDomains": {"enabled": True, "namespaces": ["builds", "shop"]},
                "agentCertificates": {"enabled": True, "namespaces": ["builds"]},
            },
            {"builds", "shop"},
            "builds,shop",
            id="in listed namespaces, of which one has certificates too",
        ),
    ],
)
def test_domains_are_read_where_the_operator_allows_it(values: Json, where: set[str], setting: str | None) -> None:
    documents = template({"controllers": values})
    env, *_ = controllers_of(documents)
    roles = [each for each in documents if each["kind"] in ("Role", "ClusterRole") and EXEC in each["rules"]]
    assert {each["metadata"].get("namespace", "cluster") for each in roles} == where
    assert env.get("POOLHOUSE_READ_DOMAINS") == setting
    assert ("poolhouse-domains" in named(documents, "ValidatingAdmissionPolicy")) == bool(where)
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in documents]
    assert len(names) == len(set(names))


def test_the_operator_names_the_virtual_node() -> None:
    documents = template({"controllers": {"virtualNode": {"enabled": True, "name": "warm-1"}}})
    env, *_ = controllers_of(documents)
    assert env["POOLHOUSE_VIRTUAL_NODE"] == "warm-1"
    text = json.dumps(documents)
    assert "VIRTUAL_NODE" not in text.replace("POOLHOUSE_VIRTUAL_NODE", "")
    rules = named(documents, "ClusterRole")["poolhouse-controllers"]["rules"]
    assert {tuple(rule["resources"]) for rule in rules if rule.get("resourceNames") == ["warm-1"]} == {
        ("nodes",),
        ("nodes/status",),
    }
    policy = named(documents, "ValidatingAdmissionPolicy")["poolhouse-virtual-node"]["spec"]
    user = service_account_user("controllers")
    assert policy["matchConditions"] == [
        {"name": "controllers", "expression": f"request.userInfo.username == '{user}'"}
    ]
    assert all("'warm-1'" in validation["expression"] for validation in policy["validations"])
    assert {each["metadata"]["namespace"] for each in documents if each["kind"] == "Role"} == {
        NAMESPACE,
        "kube-node-lease",
        "kube-system",
    }


@pytest.mark.parametrize("peers", [[], [{"ipBlock": {"cidr": "10.0.0.0/28"}}]], ids=["everybody", "only API servers"])
def test_api_servers_reach_the_kubelet_endpoint(peers: list[Json]) -> None:
    values = {"controllers": {"virtualNode": {"enabled": True, "port": 10260}}}
    documents = template({**values, "networkPolicy": {"webhookFrom": peers}})
    env, pod, *_ = controllers_of(documents)
    assert env["POOLHOUSE_VIRTUAL_NODE_LISTEN"] == "[::]:10260"
    assert {"name": "kubelet", "containerPort": 10260, "protocol": "TCP"} in pod["containers"][0]["ports"]
    ingress = named(documents, "NetworkPolicy")["poolhouse-controllers"]["spec"]["ingress"]
    assert {"ports": [{"port": 10260, "protocol": "TCP"}], **({"from": peers} if peers else {})} in ingress


def test_controllers_may_connect_to_vms_for_readiness_checks(rendered: list[Json]) -> None:
    policy = named(rendered, "NetworkPolicy")["poolhouse-controllers"]["spec"]
    launchers = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}}
    assert [rule for rule in policy["egress"] if launchers in rule.get("to", ())] == [{"to": [launchers]}]
    assert allowed_blocks(rendered) == set(), "the metadata service is allowed only with EC2"
    env = _pod_templates(rendered)["poolhouse-controllers"]["spec"]["containers"][0]["env"]
    assert not [each for each in env if each["name"].startswith("POOLHOUSE_EC2")]


def test_webhook_from_restricts_connections_to_the_webhook(rendered: list[Json], everything: list[Json]) -> None:
    """Without webhookFrom every address is allowed. With it, the peers of metricsFrom are allowed too."""
    (unrestricted,), (restricted,) = (
        named(each, "NetworkPolicy")["poolhouse-webhook"]["spec"]["ingress"] for each in (rendered, everything)
    )
    assert "from" not in unrestricted
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert restricted["from"] == [{"ipBlock": {"cidr": "10.0.0.0/28"}}, monitoring]


def allowed_blocks(rendered: list[Json]) -> set[str]:
    """The address blocks that the controllers may connect to."""
    policy = named(rendered, "NetworkPolicy")["poolhouse-controllers"]["spec"]
    return {peer["ipBlock"]["cidr"] for rule in policy["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer}


CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("certificates", "secret", "own_authority"),
    [
        pytest.param({"mode": "own"}, "poolhouse-serving", True, id="own"),
        pytest.param({"mode": "cert-manager"}, "poolhouse-serving", False, id="cert-manager"),
        pytest.param({"mode": "secret", "secret": {"name": "mine", "caBundle": CA}}, "mine", False, id="secret"),
    ],
)
def test_certificate_modes(certificates: Json, secret: str, own_authority: bool) -> None:
    rendered = template({"certificates": certificates}, "--api-versions", "cert-manager.io/v1")
    for service in ("webhook", "controllers"):
        env = _pod_templates(rendered)[f"poolhouse-{service}"]["spec"]["containers"][0]["env"]
        assert {"name": "POOLHOUSE_TLS_SECRET", "value": secret} in env
        role = named(rendered, "Role")[f"poolhouse-{service}"]
        assert any(rule["resourceNames"] == [secret] for rule in role["rules"] if rule["resources"] == ["secrets"])
    hosts = [each for each in env if each["name"] == "POOLHOUSE_CERTIFICATE_HOSTS"]
    assert bool(hosts) is own_authority
    can_sign = "poolhouse-authorities" in str(named(rendered, "Role")["poolhouse-controllers"])
    assert can_sign is own_authority
    for configuration in configurations(rendered):
        injected = "cert-manager.io/inject-ca-from" in configuration["metadata"].get("annotations", {})
        assert injected is (certificates["mode"] == "cert-manager")
        for webhook in configuration["webhooks"]:
            assert ("caBundle" in webhook["clientConfig"]) is (certificates["mode"] == "secret")
    assert bool(named(rendered, "Certificate")) is (certificates["mode"] == "cert-manager")


def test_addresses_are_ip_addresses_of_the_cert_manager_certificate() -> None:
    values = {"certificates": {"mode": "cert-manager"}, "webhook": {"url": "https://[fd00::1]:8443"}}
    spec = named(template(values, "--api-versions", "cert-manager.io/v1"), "Certificate")["poolhouse-serving"]["spec"]
    assert spec["ipAddresses"] == ["fd00::1"]
    assert f"poolhouse-webhook.{NAMESPACE}.svc" in spec["dnsNames"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param({"replicas": 2}, "additional properties 'replicas' not allowed", id="unknown value"),
        pytest.param({"webhook": {"replicas": "2"}}, "got string, want integer", id="wrong type"),
        pytest.param(
            {"kinds": {"pools": False}}, "kinds.pools: Unsupported value: supported kinds are", id="unknown kind"
        ),
        pytest.param(
            {"kinds": {"virtualmachineclaims": False}}, "set both to false or neither", id="warm pools without claims"
        ),
        pytest.param(
            {"certificates": {"mode": "secret"}}, "secret requires certificates.secret.name", id="secret without a name"
        ),
        pytest.param(
            {"certificates": {"own": {"authorityHours": 200}}},
            "at least twice certificates.own.hours",
            id="authority expires too early",
        ),
        pytest.param(
            {"certificates": {"mode": "secret", "secret": {"name": "mine", "caBundle": "MIIB"}}},
            "caBundle: must be PEM",
            id="bundle is not PEM",
        ),
        pytest.param(
            {"certificates": {"mode": "secret", "secret": {"name": "poolhouse-serving", "caBundle": CA}}},
            "choose another name",
            id="name of a Secret of Poolhouse",
        ),
        pytest.param(
            {"certificates": {"mode": "cert-manager", "certManager": {"duration": "24h", "renewBefore": "48h"}}},
            "must be shorter than certificates.certManager.duration",
            id="renewed before it is valid",
        ),
        pytest.param(
            {"certificates": {"mode": "cert-manager", "certManager": {"issuerRef": {"kind": "Issuer"}}}},
            "issuerRef.name: Required value",
            id="issuer without a name",
        ),
        pytest.param(
            {"webhook": {"hostNetwork": True, "port": 443}}, "choose a port above 1023", id="privileged port of a node"
        ),
        pytest.param(
            {"webhook": {"hostNetwork": True, "port": 10443}},
            "would block the webhook's connections to the defaulter and the controllers; set networkPolicy.nodeCIDRs",
            id="host network without node networks",
        ),
        pytest.param({"global": {"runAs": {"runAsUser": 0}}}, "minimum: got 0, want 1", id="root"),
        pytest.param(
            {"webhook": {"defaulting": {"failurePolicy": "Fail"}}, "defaulter": {"enabled": False}},
            "Fail requires the defaulter",
            id="failure policy Fail without the defaulter",
        ),
        pytest.param(
            {"webhook": {"defaulting": {"strict": True}}, "defaulter": {"enabled": False}},
            "webhook.defaulting.strict requires the defaulter",
            id="strict defaulting without the defaulter",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True}}},
            "would block Prometheus; set networkPolicy.metricsFrom",
            id="Prometheus without a network peer",
        ),
        pytest.param(
            {"webhook": {"apiServerCertificate": {"caBundle": "MIIB"}}},
            "apiServerCertificate.caBundle: must be PEM",
            id="authority of API servers is not PEM",
        ),
        pytest.param(
            {"webhook": {"apiServerCertificate": {"commonNames": ["kube-apiserver"]}}},
            "requires webhook.apiServerCertificate.caBundle",
            id="name of API servers without an authority",
        ),
        pytest.param({"webhook": {"url": "http://a"}}, "must begin with https://", id="URL without TLS"),
        pytest.param(
            {"webhook": {"defaulting": {"timeoutSeconds": 2}}},
            "minimum: got 2, want 3",
            id="timeout too short for the defaulter",
        ),
        pytest.param(
            {"controllers": {"ec2": {"subnet": "subnet-1"}}},
            "requires controllers.ec2.region",
            id="subnet without a region",
        ),
        pytest.param(
            {"controllers": {"analysis": {"prometheus": {"url": "prometheus:9090"}}}},
            "does not match pattern",
            id="Prometheus without a scheme",
        ),
        pytest.param(
            {"controllers": {"analysis": {"prometheus": {"secret": "access"}}}},
            "requires controllers.analysis.prometheus.url",
            id="Secret without a Prometheus",
        ),
        pytest.param(
            {"controllers": {"virtualNode": {"enabled": True, "name": "Warm"}}},
            "does not match pattern",
            id="no name of a node",
        ),
        pytest.param(
            {
                "controllers": {"virtualNode": {"enabled": True}},
                "kinds": {"virtualmachinewarmpools": False, "virtualmachineclaims": False},
            },
            "requires kinds.virtualmachinewarmpools",
            id="a virtual node without warm pools",
        ),
        pytest.param(
            {"controllers": {"agentCertificates": {"namespaces": ["builds"]}}},
            "requires controllers.agentCertificates.enabled",
            id="namespaces of certificates that nobody issues",
        ),
        pytest.param(
            {"controllers": {"agentCertificates": {"enabled": True, "namespaces": [NAMESPACE]}}},
            f"must not contain {NAMESPACE}",
            id="certificates in the namespace of Poolhouse",
        ),
        pytest.param(
            {"controllers": {"readDomains": {"namespaces": ["shop"]}}},
            "requires controllers.readDomains.enabled",
            id="namespaces of domains that nobody reads",
        ),
        pytest.param(
            {"controllers": {"readDomains": {"enabled": True, "namespaces": [NAMESPACE]}}},
            f"must not contain {NAMESPACE}",
            id="commands in the Pods of Poolhouse",
        ),
        pytest.param(
            {"controllers": {"readDomains": {"enabled": True}}, "defaulter": {"enabled": False}},
            "controllers.readDomains.enabled: requires the defaulter",
            id="domains for no defaulter",
        ),
        pytest.param({"controllers": {"ec2": {"region": "Oregon"}}}, "does not match pattern", id="unknown AWS region"),
        pytest.param({"webhook": {"image": {"digest": "latest"}}}, "does not match pattern", id="not a digest"),
        pytest.param(
            {"defaulter": {"dnsPolicy": "None"}},
            "defaulter.dnsPolicy: None requires defaulter.dnsConfig.nameservers",
            id="no DNS at all",
        ),
        pytest.param(
            {"webhook": {"service": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}}},
            "webhook.service.ipFamilies: SingleStack allows one family",
            id="two families of one",
        ),
        pytest.param(
            {"controllers": {"dnsConfig": {"servers": ["10.0.0.10"]}}}, "value must be one of", id="unknown DNS field"
        ),
        pytest.param({"webhook": {"hostAliases": [{"ip": "10.0.0.9"}]}}, "hostnames", id="an address without a name"),
        pytest.param(
            {"webhook": {"autoscaling": {"minReplicas": 9}}},
            "webhook.autoscaling.maxReplicas: must be at least webhook.autoscaling.minReplicas",
            id="at least more than at most",
        ),
        pytest.param(
            {"guard": {"writers": ["system:serviceaccount:openshift-cnv:kubevirt-controller"]}},
            "openshift-cnv:kubevirt-controller, which restores VMs from snapshots that tenants may edit",
            id="KubeVirt writes labels on VMs",
        ),
    ],
)
def test_invalid_values_are_rejected(values: Json, sentence: str) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        template(values)


@pytest.mark.parametrize("file", sorted((CHART / "ci").glob("*-values.yaml")), ids=lambda file: file.stem)
def test_example_values_are_valid(file: Path) -> None:
    """Runs `helm lint --strict`. chart-testing installs the chart with the same files."""
    run("lint", "--strict", "--quiet", str(CHART), "--values", str(file))
    assert named(template(None, "--values", str(file)), "Deployment")


def test_the_webhook_knows_the_certificate_of_api_servers(everything: list[Json]) -> None:
    pod = _pod_templates(everything)["poolhouse-webhook"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    (volume,) = (each for each in pod["volumes"] if each["name"] == "clients")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "clients")
    (file,) = named(everything, "ConfigMap")[volume["configMap"]["name"]]["data"]
    assert variables["POOLHOUSE_CLIENT_CA"] == f"{mount['mountPath']}/{file}"
    assert variables["POOLHOUSE_CLIENT_NAMES"] == "kube-apiserver"
    assert variables["POOLHOUSE_UNKNOWN_CALLERS"] == "refuse"


def _env(documents: list[Json], deployment: str) -> dict[str, str]:
    (container,) = _pod_templates(documents)[deployment]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_callers_without_a_certificate_are_limited_until_all_api_servers_show_one() -> None:
    certificate = {"caBundle": "-----BEGIN CERTIFICATE-----\nMIIB\n", "unknownCallers": "limit"}
    found = template({"webhook": {"apiServerCertificate": certificate}})
    assert _env(found, "poolhouse-webhook")["POOLHOUSE_UNKNOWN_CALLERS"] == "limit"


def test_a_machine_type_that_no_node_has_is_refused_where_the_values_say_so(rendered: list[Json]) -> None:
    found = template({"defaulter": {"unavailableMachineTypes": "refuse"}})
    assert _env(found, "poolhouse-defaulter")["POOLHOUSE_UNAVAILABLE_MACHINE_TYPES"] == "refuse"
    assert _env(rendered, "poolhouse-defaulter")["POOLHOUSE_UNAVAILABLE_MACHINE_TYPES"] == "warn"


def test_without_a_certificate_the_webhook_answers_everybody(rendered: list[Json]) -> None:
    (container,) = _pod_templates(rendered)["poolhouse-webhook"]["spec"]["containers"]
    assert not any(each["name"].startswith("POOLHOUSE_CLIENT") for each in container["env"])


def test_defaulting_selectors_add_to_the_exemptions(everything: list[Json]) -> None:
    found = [
        w
        for c in configurations(everything)
        if c["metadata"]["name"] == webhooks.DEFAULTING_CONFIGURATION
        for w in c["webhooks"]
    ]
    assert len(found) == 2
    for webhook in found:
        assert webhook["namespaceSelector"]["matchLabels"] == {"vms": "decided"}
        exempt = webhook["namespaceSelector"]["matchExpressions"][0]
        assert exempt["operator"] == "NotIn"
        assert {"kube-system", NAMESPACE, "openshift-cnv"} == set(exempt["values"])
        assert {"key": "legacy", "operator": "DoesNotExist"} in webhook["objectSelector"]["matchExpressions"]
    conditions = [[each["name"] for each in webhook["matchConditions"]] for webhook in found]
    assert conditions == [
        ["stays", "changes", "people"],
        ["stays", "changes", "incomplete", "people"],
    ]


def test_chart_lists_all_images() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    listed = {each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    assert listed == {c["image"] for pod in pods(template()) for c in pod["spec"]["containers"]}


def test_chart_lists_all_kinds_and_has_its_icon() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    listed = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    assert [each["name"] for each in listed] == [kind.crd_name for kind in KINDS]
    kind, _, content = chart["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(base64.b64decode(content)).tag == "{http://www.w3.org/2000/svg}svg"


def test_registry_of_an_image_takes_precedence() -> None:
    rendered = template({"global": {"imageRegistry": "a"}, "defaulter": {"image": {"registry": "b"}}})
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in named(rendered, "Deployment").values()
    }
    assert images == {"a/poolhouse/poolhouse:0.1.0", "b/poolhouse/poolhouse-defaulter:0.1.0"}


def test_objects_of_the_user_are_rendered(everything: list[Json]) -> None:
    found = named(everything, "ConfigMap")
    assert found["poolhouse-extra"]["metadata"]["namespace"] == NAMESPACE
    assert found["kinds"]["data"] == {"without": "[]"}


OWN = {"poolhouse-extra", "kinds"}


def test_common_annotations_are_on_all_objects(everything: list[Json]) -> None:
    """Annotations of the chart or of one object take precedence."""
    for each in everything:
        annotations, name = each["metadata"].get("annotations", {}), each["metadata"]["name"]
        assert (annotations.get("example.com/owner") is None) is (name in OWN), name
        stays = each["kind"] == "CustomResourceDefinition" or name == "poolhouse-identity"
        policy = "keep" if stays else None if name in OWN else "delete"
        assert annotations.get("helm.sh/resource-policy") == policy, name
    (monitor, *_) = named(everything, "ServiceMonitor").values()
    assert monitor["metadata"]["annotations"]["example.com/owner"] == "monitoring"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"][0]["scrapeTimeout"] == "10s"
    assert {"relabelings", "metricRelabelings"} <= monitor["spec"]["endpoints"][0].keys()
    crd = named(everything, "CustomResourceDefinition")["virtualmachinepools.kubevirt.io"]
    assert crd["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "ServerSideApply=true"
    assert named(everything, "PrometheusRule")["poolhouse"]["metadata"]["annotations"]["example.com/rules"] == "yes"
    board = named(everything, "ConfigMap")["poolhouse-dashboard"]["metadata"]
    assert (board["annotations"]["grafana_folder"], board["labels"]["grafana_dashboard"]) == ("KubeVirt", "1")


def test_labels_of_the_user_cannot_replace_those_that_selectors_use(everything: list[Json]) -> None:
    webhook = named(everything, "Deployment")["poolhouse-webhook"]
    labels = webhook["spec"]["template"]["metadata"]["labels"]
    assert webhook["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["sidecar.istio.io/inject"] == "false"
    annotations = webhook["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == "istio-proxy"


COMMON_TOLERATION = {"key": "system", "operator": "Exists"}


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(
            "webhook",
            {
                "nodeSelector": {"kubernetes.io/os": "linux", "pool": "system"},
                "tolerations": [COMMON_TOLERATION],
                "priorityClassName": "system-cluster-critical",
                "dnsPolicy": "ClusterFirstWithHostNet",
            },
            id="global values",
        ),
        pytest.param(
            "defaulter",
            {
                "nodeSelector": {"kubernetes.io/os": "linux", "pool": "infra"},
                "tolerations": [{"key": "infra", "operator": "Exists"}, COMMON_TOLERATION],
                "priorityClassName": "system-node-critical",
                "runtimeClassName": "gvisor",
                "dnsPolicy": None,
            },
            id="own values take precedence",
        ),
        pytest.param(
            "controllers",
            {
                "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["prometheus.example"]}],
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["10.0.0.10"], "searches": ["example.com"]},
                "runtimeClassName": None,
            },
            id="DNS and hosts",
        ),
    ],
)
def test_settings_of_pods(everything: list[Json], service: str, expected: Json) -> None:
    pod = _pod_templates(everything)[f"poolhouse-{service}"]["spec"]
    assert {name: pod.get(name) for name in expected} == expected


def test_hooks_run_where_the_services_run(everything: list[Json]) -> None:
    for job in named(everything, "Job").values():
        pod = job["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert pod["tolerations"] == [COMMON_TOLERATION]


def test_settings_of_deployments_and_services(everything: list[Json], rendered: list[Json]) -> None:
    webhook = named(everything, "Deployment")["poolhouse-webhook"]
    assert webhook["spec"]["revisionHistoryLimit"] == 2
    service = named(everything, "Service")["poolhouse-webhook"]
    assert service["metadata"]["annotations"]["service.kubernetes.io/topology-mode"] == "Auto"
    assert (service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"]) == ("PreferDualStack", ["IPv6", "IPv4"])
    usual = named(rendered, "Service")["poolhouse-webhook"]["spec"]
    assert not {"ipFamilyPolicy", "ipFamilies"} & usual.keys(), "the cluster decides"


def test_an_autoscaler_replaces_the_number_of_replicas(everything: list[Json]) -> None:
    (found,) = named(everything, "HorizontalPodAutoscaler").values()
    spec = found["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "poolhouse-defaulter"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 9)
    assert spec["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    deployments = named(everything, "Deployment")
    assert "replicas" not in deployments["poolhouse-defaulter"]["spec"]
    assert deployments["poolhouse-webhook"]["spec"]["replicas"] == 3
    assert "poolhouse-defaulter" in named(everything, "PodDisruptionBudget")


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Json], str]:
    """Renders NOTES.txt, which `helm template` leaves out, as part of an object."""
    chart = shutil.copytree(without_schemas(), tmp_path_factory.mktemp("notes") / "poolhouse")
    text = '{{ include "poolhouse.notes" . | toJson }}'
    (chart / "templates" / "notes.yaml").write_text(
        f"{{kind: ConfigMap, metadata: {{name: notes}}, data: {{text: {text}}}}}"
    )

    def render(values: Json) -> str:
        options = ("--namespace", NAMESPACE, "--show-only", "templates/notes.yaml")
        return str(yaml.safe_load(run("template", RELEASE, str(chart), *options, values=values))["data"]["text"])

    return render


PLUGINS = ("--api-versions", "plugin.kubevirt.io/v1alpha1")
POLICIES = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
PULL = {"global": {"imagePullSecrets": [{"name": "registry"}]}}
NEVER, ALWAYS = ({"defaulter": {"hardwareRecord": each}} for each in ("never", "always"))


def test_notes_are_the_named_template() -> None:
    assert (CHART / "templates" / "NOTES.txt").read_text() == '{{ include "poolhouse.notes" . }}\n'


def _conditions(values: Json) -> dict[str, str]:
    """The matchConditions of the policy of protected labels, by name."""
    policies = (each for each in template(values) if each["kind"] == "ValidatingAdmissionPolicy")
    labels = next(each for each in policies if each["metadata"]["name"] == "poolhouse-labels")
    return {each["name"]: each["expression"] for each in labels["spec"]["matchConditions"]}


def test_kubevirt_copies_protected_labels_to_vmis_and_writes_them_on_no_vm() -> None:
    kubevirt, restores = "system:serviceaccount:cnv:kubevirt-controller", "system:serviceaccount:velero:velero"
    found = _conditions({"guard": {"copiers": [kubevirt], "writers": [restores]}})
    assert found["others"].endswith(f"poolhouse-controllers', '{restores}'])")
    assert "virtualmachineinstances" in found["introduces"]
    assert found["introduces"].endswith(f"in ['{kubevirt}'])")


@pytest.mark.parametrize(
    ("values", "contains", "lacks"),
    [
        pytest.param(
            {},
            [
                "helm test poolhouse -n poolhouse-system",
                "Existing VMs run on unchanged",
                "kubectl poolhouse hardware fleet -A",
                "examples/pool.yaml",
                "kubectl get vmwp",
                "set identitySeed",
            ],
            ["because", "no KubeVirt"],
            id="defaults",
        ),
        pytest.param({"hooks": {"enabled": False}}, ["kubectl wait"], ["helm test"], id="no hooks"),
        pytest.param({}, ["must be able to pull this image"], ["Plugins or"], id="VMs get a container"),
        pytest.param(NEVER, [], ["must be able to pull"], id="VMs get no container"),
        pytest.param(
            {"kinds": {"virtualmachinewarmpools": False, "virtualmachineclaims": False}},
            ["Not installed (disabled, or provided by KubeVirt): virtualmachineclaims, virtualmachinewarmpools"],
            ["vmwp", "VirtualMachineClaim"],
            id="a kind less",
        ),
        pytest.param(
            {"defaulter": {"enabled": False}},
            ["defaulter.enabled is false"],
            ["identitySeed", "Existing VMs"],
            id="no defaulter",
        ),
        pytest.param(
            {"webhook": {"replicas": 1, "defaulting": {"failurePolicy": "Fail"}}},
            ["because webhook.defaulting.failurePolicy is Fail and webhook.replicas is 1."],
            [],
            id="one webhook that must answer",
        ),
        pytest.param(
            {"webhook": {"replicas": 1, "defaulting": {"strict": True}}},
            ["because webhook.defaulting.strict is true and webhook.replicas is 1."],
            [],
            id="strict defaulting",
        ),
        pytest.param(
            {
                "identitySeed": "berlin-1",
                "guard": {"enabled": False},
                "crds": {"enabled": False, "keep": False},
                "rbac": {"create": False, "aggregate": False},
                "networkPolicy": {"enabled": False},
                "certificates": {"mode": "secret", "secret": {"name": "mine", "caBundle": CA}},
                "metrics": {"serviceMonitor": {"enabled": True}},
            },
            [
                "guard.enabled is false",
                "poolhouse crds",
                "crds.keep is false",
                "rbac.create is false",
                "networkPolicy.enabled is false",
                "Renew the certificate in the Secret mine",
            ],
            ["identitySeed", "Nothing scrapes", "rbac.aggregate is false"],
            id="what the user has to do himself",
        ),
    ],
)
def test_notes_are_true_for_the_values(
    notes: Callable[[Json], str], values: Json, contains: list[str], lacks: list[str]
) -> None:
    text = notes(values)
    assert [each for each in contains if each not in text] == []
    assert [each for each in lacks if each in text] == []
    for file in re.findall(r"examples/[a-z-]+\.yaml", text):
        assert (CHART.parent.parent / file).is_file()


@pytest.mark.parametrize(
    ("values", "options", "record", "image", "plugin"),
    [
        pytest.param({}, (), "auto", True, False, id="a cluster without plugins"),
        pytest.param({}, (*PLUGINS, *POLICIES), "auto", True, True, id="a cluster with plugins"),
        pytest.param({}, PLUGINS, "auto", True, False, id="plugins, but no policies that mutate"),
        pytest.param(PULL, (*PLUGINS, *POLICIES), "false", False, False, id="VMs cannot pull the image"),
        pytest.param(PULL | ALWAYS, (*PLUGINS, *POLICIES), "true", True, True, id="they can, says the user"),
        pytest.param(ALWAYS, (), "true", True, False, id="always"),
        pytest.param(NEVER, (*PLUGINS, *POLICIES), None, False, False, id="never"),
        pytest.param({"defaulter": {"enabled": False}}, (*PLUGINS, *POLICIES), None, False, False, id="no defaulter"),
    ],
)
def test_what_a_cluster_gets_to_hold_hardware(
    values: Json, options: tuple[str, ...], record: str | None, image: bool, plugin: bool
) -> None:
    documents = template(values, *options)
    pods = _pod_templates(documents)
    defaulter = _environment(pods["poolhouse-defaulter"]) if "poolhouse-defaulter" in pods else {}
    webhook = _environment(pods["poolhouse-webhook"])
    assert defaulter.get("POOLHOUSE_HARDWARE_RECORD") == record
    assert ("POOLHOUSE_HOOK_IMAGE" in webhook) is image
    assert webhook.get("POOLHOUSE_HOOK_PLUGIN") == (str(plugin).lower() if image else None)
    kinds = {each["kind"] for each in documents if each["metadata"]["name"] == "poolhouse-hardware"}
    assert kinds == ({"Plugin", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} if plugin else set())
    if plugin:
        policy = named(documents, "MutatingAdmissionPolicy")["poolhouse-hardware"]
        expression = policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
        assert f'image: "{webhook["POOLHOUSE_HOOK_IMAGE"]}"' in expression


def _environment(pod: Json) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(("strict", "policy", "setting"), [(True, "Fail", "true"), (False, "Ignore", None)])
def test_strict_defaulting_refuses_vms_also_while_the_webhook_is_down(
    strict: bool, policy: str, setting: str | None
) -> None:
    documents = template({"webhook": {"defaulting": {"strict": strict}}})
    (webhook,) = named(documents, "MutatingWebhookConfiguration")["zz-poolhouse-defaulting"]["webhooks"]
    assert webhook["failurePolicy"] == policy
    environment = _environment(_pod_templates(documents)["poolhouse-webhook"])
    assert environment.get("POOLHOUSE_STRICT_DEFAULTING") == setting


def test_webhook_on_the_host_network_uses_its_port(everything: list[Json]) -> None:
    pod = _pod_templates(everything)["poolhouse-webhook"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (container,) = pod["containers"]
    assert container["ports"][0]["containerPort"] == 10443
    assert {"name": "POOLHOUSE_LISTEN", "value": "[::]:10443"} in container["env"]
    assert {"name": "more", "mountPath": "/more"} in container["volumeMounts"]
    assert {"name": "more", "emptyDir": {}} in pod["volumes"]


def test_webhook_on_the_host_network_reaches_other_services(everything: list[Json], rendered: list[Json]) -> None:
    nodes = [{"ipBlock": {"cidr": "10.0.0.0/16"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    for name in ("poolhouse-defaulter", "poolhouse-controllers"):
        (ingress,) = named(everything, "NetworkPolicy")[name]["spec"]["ingress"]
        assert [each for each in ingress["from"] if "ipBlock" in each] == nodes
        (ingress,) = named(rendered, "NetworkPolicy")[name]["spec"]["ingress"]
        assert not [each for each in ingress["from"] if "ipBlock" in each], (
            "the Pod selector is enough without hostNetwork"
        )


def test_rolling_update_is_without_downtime_except_on_the_host_network(everything: list[Json]) -> None:
    found = {name: each["spec"]["strategy"]["rollingUpdate"] for name, each in named(everything, "Deployment").items()}
    usual = {"maxUnavailable": 0, "maxSurge": 1}
    assert found == {
        "poolhouse-webhook": {"maxUnavailable": 1, "maxSurge": 0},
        "poolhouse-controllers": usual,
        "poolhouse-console": usual,
        "poolhouse-defaulter": usual,
    }
    own = {"type": "Recreate"}
    assert (
        named(template({"controllers": {"strategy": own}}), "Deployment")["poolhouse-controllers"]["spec"]["strategy"]
        == own
    )


def test_user_and_group_ids_can_be_left_to_the_cluster(rendered: list[Json]) -> None:
    ids = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
    always = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert all(pod["spec"]["securityContext"] == {**always, **ids} for pod in pods(rendered))
    openshift = template({"global": {"runAs": dict.fromkeys(ids)}, "networkPolicy": {"dnsPorts": [53, 5353]}})
    assert all(pod["spec"]["securityContext"] == always for pod in pods(openshift))
    for name in ("poolhouse-webhook", "poolhouse-controllers"):
        names = named(openshift, "NetworkPolicy")[name]["spec"]["egress"][0]
        assert {(each["port"], each["protocol"]) for each in names["ports"]} == {
            (port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")
        }


def test_helm_test_runs_the_probe(rendered: list[Json]) -> None:
    probe = named(rendered, "Job")["poolhouse-probe"]
    assert "test" in probe["metadata"]["annotations"]["helm.sh/hook"].split(",")
    hooks = [(each["kind"], each["metadata"].get("annotations", {}).get("helm.sh/hook", "")) for each in rendered]
    assert [kind for kind, when in hooks if "test" in when] == ["Job"], "`helm test` lists each hook as a test suite"


def test_schema_has_every_value() -> None:
    """The schema and values.yaml have the same fields, and all are required: `helm upgrade --reuse-values` uses the
    defaults of the earlier chart, and the error has to name the fields that they lack."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(_missing(values, schema, schema["$defs"])) == ["enabled"], "a parent chart sets it"
    schema["properties"]["global"]["additionalProperties"] = False  # a parent chart has global values of its own
    assert list(_missing(values, schema, schema["$defs"])) == ["enabled"]


def _missing(values: Json, schema: Json, defined: Json, path: str = "") -> Iterator[str]:
    schema = defined[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    known = schema.get("properties")
    if known is None or schema.get("additionalProperties") is not False or not values:
        return
    for name in (values.keys() ^ known.keys()) | (values.keys() ^ schema["required"]):
        yield f"{path}{name}"
    for name in values.keys() & known.keys():
        if isinstance(values[name], dict):
            yield from _missing(values[name], known[name], defined, f"{path}{name}.")


def test_defaults_of_an_earlier_chart_are_rejected(tmp_path: Path) -> None:
    """`helm upgrade --reuse-values` uses these defaults."""
    earlier = shutil.copytree(without_schemas(), tmp_path / "poolhouse")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    del values["controllers"]["ec2"], values["apiPriorityAndFairness"]
    (earlier / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError) as refused:
        run("template", RELEASE, str(earlier))
    assert "missing property 'apiPriorityAndFairness'" in str(refused.value)
    assert "'/controllers': missing property 'ec2'" in str(refused.value)


def test_alerts_link_their_runbooks(rendered: list[Json]) -> None:
    (rule,) = named(rendered, "PrometheusRule").values()
    alerts = [r for group in rule["spec"]["groups"] for r in group["rules"] if "alert" in r]
    assert alerts
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"https://docs.example/alerts/{alert['alert']}"
        assert (CHART.parent.parent / "docs" / "alerts" / f"{alert['alert']}.md").is_file()


def test_objects_have_labels_and_the_release_namespace(rendered: list[Json]) -> None:
    for each in rendered:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "poolhouse", each["metadata"]["name"]
        assert labels["team"] == "vms"
        assert each["metadata"].get("namespace", NAMESPACE) == NAMESPACE


PREFERENCES = "preferredDuringSchedulingIgnoredDuringExecution"


def test_replicas_prefer_different_nodes_and_zones(rendered: list[Json]) -> None:
    for service in SERVICES:
        deployment = named(rendered, "Deployment")[f"poolhouse-{service}"]["spec"]
        terms = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][PREFERENCES]
        keys = {each["podAffinityTerm"]["topologyKey"] for each in terms}
        assert keys == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        assert all(each["podAffinityTerm"]["labelSelector"] == deployment["selector"] for each in terms)


@pytest.mark.parametrize(
    "chosen",
    [{"affinity": {"nodeAffinity": {}}}, {"topologySpreadConstraints": [{"maxSkew": 1}]}],
    ids=["affinity", "topologySpreadConstraints"],
)
def test_chosen_placement_replaces_the_default(chosen: Json) -> None:
    pod = named(template({"webhook": chosen}), "Deployment")["poolhouse-webhook"]["spec"]["template"]["spec"]
    assert {key: pod[key] for key in ("affinity", "topologySpreadConstraints") if key in pod} == chosen


def test_the_identity_seed_is_in_an_immutable_secret_and_in_no_environment() -> None:
    rendered = template({"identitySeed": "berlin-1"})
    secret = named(rendered, "Secret")["poolhouse-identity"]
    assert (secret["immutable"], secret["data"]) == (True, {"seed": base64.b64encode(b"berlin-1").decode()})
    for each in named(rendered, "Deployment").values():
        spec = each["spec"]["template"]["spec"]
        assert "berlin-1" not in json.dumps(spec)
        assert {"name": "identity", "secret": {"secretName": "poolhouse-identity"}} in spec["volumes"]
        environment = {env["name"]: env.get("value") for env in spec["containers"][0]["env"]}
        assert environment["POOLHOUSE_IDENTITY_DIR"] == "/run/poolhouse/identity"


def test_rendering_without_a_cluster_is_repeatable() -> None:
    first, second = (named(template(), "Secret")["poolhouse-identity"] for _ in range(2))
    assert first == second
    assert first["data"] == {"seed": ""}


def test_a_secret_of_the_user_has_the_seed() -> None:
    rendered = template({"identitySecret": "mine"})
    assert "poolhouse-identity" not in named(rendered, "Secret")
    for each in named(rendered, "Deployment").values():
        assert {"name": "identity", "secret": {"secretName": "mine"}} in each["spec"]["template"]["spec"]["volumes"]
    with pytest.raises(HelmError, match="identitySeed: must be empty with identitySecret"):
        template({"identitySecret": "mine", "identitySeed": "x"})
