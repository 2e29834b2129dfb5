"""What the chart renders, without a cluster: who may do what, who talks to whom, and what bad values are told."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.warmpool.ec2.settings import EC2Settings, read_ec2_settings
from kinds import KINDS
from manifests import webhooks
from tests.charts.helm import CHART, NAMESPACE, RELEASE, Refused, run, template

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


def test_what_is_rendered(rendered: list[Json]) -> None:
    """A small picture of the whole: kinds and names, and whether each stays, waits or goes."""
    found = sorted(
        f"{each['kind']} {each['metadata']['name']}"
        + (" (hook)" if "helm.sh/hook" in each["metadata"].get("annotations", {}) else "")
        for each in rendered
        if each["kind"] != "CustomResourceDefinition"
    )
    assert found == (CHART.parent.parent / "tests" / "charts" / "rendered.txt").read_text().splitlines()


def test_every_kind_of_ours_is_there_and_stays(rendered: list[Json]) -> None:
    crds = named(rendered, "CustomResourceDefinition")
    assert crds.keys() == {kind.crd_name for kind in KINDS}
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in crds.values()} == {"keep"}


def test_pods_are_restricted(rendered: list[Json]) -> None:
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
        assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])


def test_a_pod_ends_later_than_any_admission(rendered: list[Json]) -> None:
    slowest = max(w["timeoutSeconds"] for c in configurations(rendered) for w in c["webhooks"])
    for deployment in named(rendered, "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pause >= 5
        assert spec["terminationGracePeriodSeconds"] > pause + slowest
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_who_waits_for_kubevirt_is_not_killed_for_it(rendered: list[Json]) -> None:
    """A pod that is alive and not ready stays as it is, however long: /readyz tells what it waits for."""
    for deployment in named(rendered, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        asked = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        assert asked == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def configurations(documents: list[Json]) -> list[Json]:
    return [each for each in documents if each["kind"].endswith("WebhookConfiguration")]


def test_webhook_configurations_are_those_of_the_kinds(rendered: list[Json]) -> None:
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


def test_budgets_and_policies_select_their_own_pods_and_no_other(rendered: list[Json]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in _pod_templates(rendered).items()}
    for name in (f"poolhouse-{service}" for service in SERVICES):
        for kind in ("PodDisruptionBudget", "Service", "NetworkPolicy"):
            spec = named(rendered, kind)[name]["spec"]
            wanted = spec.get("podSelector") or spec["selector"]
            wanted = wanted.get("matchLabels", wanted)
            assert [each for each, has in labels.items() if wanted.items() <= has.items()] == [name], kind


def _pod_templates(documents: list[Json]) -> dict[str, Json]:
    return {name: each["spec"]["template"] for name, each in named(documents, "Deployment").items()}


def test_the_defaulter_talks_to_nobody_and_has_no_token() -> None:
    rendered = template()
    policy = named(rendered, "NetworkPolicy")["poolhouse-defaulter"]["spec"]
    assert policy["egress"] == []
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (ingress,) = policy["ingress"]
    asked = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in ingress["from"]]
    assert asked == ["webhook", "controllers"]
    pod = _pod_templates(rendered)["poolhouse-defaulter"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    bound = [s["name"] for each in rendered if each["kind"].endswith("RoleBinding") for s in each["subjects"]]
    assert "poolhouse-defaulter" not in bound


def test_secrets_are_read_by_name_in_our_own_namespace_only(rendered: list[Json]) -> None:
    for role in rendered:
        for rule in role.get("rules") or () if role["kind"].endswith("Role") else ():
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert role["kind"] == "Role"
                assert set(rule["resourceNames"]) <= {"poolhouse-serving", "poolhouse-authorities"}


def test_a_kind_that_is_off_is_nowhere() -> None:
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


def test_without_a_defaulter_vms_are_not_asked_about() -> None:
    rendered = template({"defaulter": {"enabled": False}})
    assert "poolhouse-defaulter" not in named(rendered, "Deployment")
    assert {each["metadata"]["name"] for each in configurations(rendered)} == {webhooks.KINDS_CONFIGURATION}


def test_instances_of_ec2_are_held_in_a_region() -> None:
    role = "arn:aws:iam::123456789012:role/poolhouse"
    values: Json = {
        "controllers": {
            "ec2": {"region": "us-west-2", "subnet": "subnet-1"},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": role}},
        },
        "networkPolicy": {"machineCIDRs": ["10.1.0.0/16"]},
    }
    rendered = template(values)
    env = _pod_templates(rendered)["poolhouse-controllers"]["spec"]["containers"][0]["env"]
    found = {each["name"]: each.get("value") for each in env if each["name"].startswith("POOLHOUSE_EC2")}
    assert read_ec2_settings(found) == EC2Settings(region="us-west-2", subnet="subnet-1")
    accounts = named(rendered, "ServiceAccount")
    assert accounts["poolhouse-controllers"]["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role}
    assert "169.254.169.254/32" in reached(rendered)
    assert "10.1.0.0/16" in reached(rendered)


def test_the_controllers_reach_the_guests_whose_ports_they_ask(rendered: list[Json]) -> None:
    policy = named(rendered, "NetworkPolicy")["poolhouse-controllers"]["spec"]
    guests = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}}
    assert [rule for rule in policy["egress"] if guests in rule.get("to", ())] == [{"to": [guests]}]
    assert reached(rendered) == set(), "without EC2 no metadata service"
    env = _pod_templates(rendered)["poolhouse-controllers"]["spec"]["containers"][0]["env"]
    assert not [each for each in env if each["name"].startswith("POOLHOUSE_EC2")]


def test_who_may_reach_the_webhook_is_everybody_or_who_is_named(rendered: list[Json], everything: list[Json]) -> None:
    """Without the API servers' addresses a policy can only let everybody in; Prometheus is let in with them."""
    (anybody,), (named_ones,) = (
        named(each, "NetworkPolicy")["poolhouse-webhook"]["spec"]["ingress"] for each in (rendered, everything)
    )
    assert "from" not in anybody
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert named_ones["from"] == [{"ipBlock": {"cidr": "10.0.0.0/28"}}, monitoring]


def reached(rendered: list[Json]) -> set[str]:
    """Blocks of addresses that the controllers may go to."""
    policy = named(rendered, "NetworkPolicy")["poolhouse-controllers"]["spec"]
    return {peer["ipBlock"]["cidr"] for rule in policy["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer}


CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("certificates", "secret", "keeper"),
    [
        pytest.param({"mode": "own"}, "poolhouse-serving", True, id="our own authority"),
        pytest.param({"mode": "cert-manager"}, "poolhouse-serving", False, id="cert-manager"),
        pytest.param(
            {"mode": "secret", "secret": {"name": "mine", "caBundle": CA}}, "mine", False, id="the user's own"
        ),
    ],
)
def test_three_ways_to_certificates(certificates: Json, secret: str, keeper: bool) -> None:
    rendered = template({"certificates": certificates}, "--api-versions", "cert-manager.io/v1")
    for service in ("webhook", "controllers"):
        env = _pod_templates(rendered)[f"poolhouse-{service}"]["spec"]["containers"][0]["env"]
        assert {"name": "POOLHOUSE_TLS_SECRET", "value": secret} in env
        role = named(rendered, "Role")[f"poolhouse-{service}"]
        assert any(rule["resourceNames"] == [secret] for rule in role["rules"] if rule["resources"] == ["secrets"])
    hosts = [each for each in env if each["name"] == "POOLHOUSE_CERTIFICATE_HOSTS"]
    assert bool(hosts) is keeper
    may_sign = "poolhouse-authorities" in str(named(rendered, "Role")["poolhouse-controllers"])
    assert may_sign is keeper
    for configuration in configurations(rendered):
        injected = "cert-manager.io/inject-ca-from" in configuration["metadata"].get("annotations", {})
        assert injected is (certificates["mode"] == "cert-manager")
        for webhook in configuration["webhooks"]:
            assert ("caBundle" in webhook["clientConfig"]) is (certificates["mode"] == "secret")
    assert bool(named(rendered, "Certificate")) is (certificates["mode"] == "cert-manager")


def test_an_address_is_no_name_to_cert_manager() -> None:
    values = {"certificates": {"mode": "cert-manager"}, "webhook": {"url": "https://[fd00::1]:8443"}}
    spec = named(template(values, "--api-versions", "cert-manager.io/v1"), "Certificate")["poolhouse-serving"]["spec"]
    assert spec["ipAddresses"] == ["fd00::1"]
    assert f"poolhouse-webhook.{NAMESPACE}.svc" in spec["dnsNames"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param({"replicas": 2}, "additional properties 'replicas' not allowed", id="an unknown value"),
        pytest.param({"webhook": {"replicas": "2"}}, "got string, want integer", id="a wrong type"),
        pytest.param({"kinds": {"pools": False}}, "kinds.pools: there is no such kind; there are", id="no such kind"),
        pytest.param({"kinds": {"virtualmachineclaims": False}}, "switch off both or none", id="half of warm pools"),
        pytest.param({"certificates": {"mode": "secret"}}, "give certificates.secret.name", id="a secret unnamed"),
        pytest.param(
            {"certificates": {"own": {"authorityHours": 200}}}, "at least twice certificates.own.hours", id="lives"
        ),
        pytest.param(
            {"certificates": {"mode": "secret", "secret": {"name": "mine", "caBundle": "MIIB"}}},
            "caBundle: must be PEM",
            id="a bundle that is none",
        ),
        pytest.param(
            {"certificates": {"mode": "secret", "secret": {"name": "poolhouse-serving", "caBundle": CA}}},
            "take another",
            id="a secret of ours",
        ),
        pytest.param(
            {"certificates": {"mode": "cert-manager", "certManager": {"duration": "24h", "renewBefore": "48h"}}},
            "must be shorter than certificates.certManager.duration",
            id="renewed before it begins",
        ),
        pytest.param(
            {"certificates": {"mode": "cert-manager", "certManager": {"issuerRef": {"kind": "Issuer"}}}},
            "issuerRef: give its name",
            id="an issuer without a name",
        ),
        pytest.param({"webhook": {"hostNetwork": True, "port": 443}}, "one above 1023", id="a port of the node's"),
        pytest.param(
            {"webhook": {"hostNetwork": True, "port": 10443}},
            "would keep the webhook from the defaulter and the controllers; give networkPolicy.nodeCIDRs",
            id="a webhook behind a wall",
        ),
        pytest.param({"global": {"runAs": {"runAsUser": 0}}}, "minimum: got 0, want 1", id="root"),
        pytest.param(
            {"webhook": {"defaulting": {"failurePolicy": "Fail"}}, "defaulter": {"enabled": False}},
            "has no meaning without the defaulter",
            id="nobody to wait for",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True}}},
            "would keep Prometheus out; give networkPolicy.metricsFrom",
            id="a monitor behind a wall",
        ),
        pytest.param({"webhook": {"url": "http://a"}}, "must begin with https://", id="a webhook in clear"),
        pytest.param(
            {"webhook": {"defaulting": {"timeoutSeconds": 2}}},
            "minimum: got 2, want 3",
            id="no time for the defaulter",
        ),
        pytest.param(
            {"controllers": {"ec2": {"subnet": "subnet-1"}}}, "without controllers.ec2.region", id="no region"
        ),
        pytest.param({"controllers": {"ec2": {"region": "Oregon"}}}, "does not match pattern", id="none of AWS'"),
        pytest.param({"webhook": {"image": {"digest": "latest"}}}, "does not match pattern", id="no digest"),
    ],
)
def test_bad_values_are_told(values: Json, sentence: str) -> None:
    with pytest.raises(Refused, match=re.escape(sentence)):
        template(values)


@pytest.mark.parametrize("file", sorted((CHART / "ci").glob("*-values.yaml")), ids=lambda file: file.stem)
def test_values_that_people_use_are_good_ones(file: Path) -> None:
    """Helm's own lint, strictly; a release of the chart is tried with the same files by chart-testing."""
    run("lint", "--strict", "--quiet", str(CHART), "--values", str(file))
    assert named(template(None, "--values", str(file)), "Deployment")


def test_who_is_asked_about_can_be_narrowed_and_not_widened(everything: list[Json]) -> None:
    found = [
        w
        for c in configurations(everything)
        if c["metadata"]["name"] == webhooks.DEFAULTING_CONFIGURATION
        for w in c["webhooks"]
    ]
    assert len(found) == 2
    for webhook in found:
        assert webhook["namespaceSelector"]["matchLabels"] == {"vms": "decided"}
        left_out = webhook["namespaceSelector"]["matchExpressions"][0]
        assert left_out["operator"] == "NotIn"
        assert {"kube-system", NAMESPACE, "openshift-cnv"} == set(left_out["values"])
        assert {"key": "legacy", "operator": "DoesNotExist"} in webhook["objectSelector"]["matchExpressions"]
        assert [each["name"] for each in webhook["matchConditions"]] == ["stays", "changes", "people"]


def test_the_images_are_listed_for_clusters_without_the_internet() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    listed = {each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    assert listed == {c["image"] for pod in pods(template()) for c in pod["spec"]["containers"]}


def test_an_images_own_registry_wins() -> None:
    rendered = template({"global": {"imageRegistry": "a"}, "defaulter": {"image": {"registry": "b"}}})
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in named(rendered, "Deployment").values()
    }
    assert images == {"a/poolhouse/poolhouse:0.1.0", "b/poolhouse/poolhouse-defaulter:0.1.0"}


def test_a_webhook_on_the_nodes_network_keeps_its_port(everything: list[Json]) -> None:
    pod = _pod_templates(everything)["poolhouse-webhook"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (container,) = pod["containers"]
    assert container["ports"][0]["containerPort"] == 10443
    assert {"name": "POOLHOUSE_LISTEN", "value": "0.0.0.0:10443"} in container["env"]
    assert {"name": "more", "mountPath": "/more"} in container["volumeMounts"]
    assert {"name": "more", "emptyDir": {}} in pod["volumes"]


def test_a_webhook_on_the_nodes_network_reaches_whom_it_asks(everything: list[Json], rendered: list[Json]) -> None:
    nodes = [{"ipBlock": {"cidr": "10.0.0.0/16"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    for name in ("poolhouse-defaulter", "poolhouse-controllers"):
        (ingress,) = named(everything, "NetworkPolicy")[name]["spec"]["ingress"]
        assert [each for each in ingress["from"] if "ipBlock" in each] == nodes
        (ingress,) = named(rendered, "NetworkPolicy")[name]["spec"]["ingress"]
        assert not [each for each in ingress["from"] if "ipBlock" in each], "otherwise it is known by its pod"


def test_no_pod_ends_before_its_successor_is_ready_unless_that_one_wants_its_port(everything: list[Json]) -> None:
    found = {name: each["spec"]["strategy"]["rollingUpdate"] for name, each in named(everything, "Deployment").items()}
    usual = {"maxUnavailable": 0, "maxSurge": 1}
    assert found == {
        "poolhouse-webhook": {"maxUnavailable": 1, "maxSurge": 0},
        "poolhouse-controllers": usual,
        "poolhouse-defaulter": usual,
    }
    own = {"type": "Recreate"}
    assert (
        named(template({"controllers": {"strategy": own}}), "Deployment")["poolhouse-controllers"]["spec"]["strategy"]
        == own
    )


def test_who_pods_run_as_can_be_left_to_the_cluster(rendered: list[Json]) -> None:
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


def test_each_configuration_is_asked_about_by_helm_test(rendered: list[Json]) -> None:
    probe = named(rendered, "Job")["poolhouse-probe"]
    assert "test" in probe["metadata"]["annotations"]["helm.sh/hook"].split(",")


def test_every_value_has_a_type() -> None:
    """The schema knows each default, and nothing that is no value. Each has to be there: `helm upgrade --reuse-values`
    comes with the defaults of the chart before, and must hear what they lack."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(_missing(values, schema, schema["$defs"])) == []


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


def test_the_defaults_of_an_earlier_chart_are_refused_in_words(tmp_path: Path) -> None:
    """What `--reuse-values` upgrades with."""
    earlier = shutil.copytree(CHART, tmp_path / "poolhouse")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    del values["controllers"]["ec2"], values["apiPriorityAndFairness"]
    (earlier / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(Refused) as refused:
        run("template", RELEASE, str(earlier))
    assert "missing property 'apiPriorityAndFairness'" in str(refused.value)
    assert "'/controllers': missing property 'ec2'" in str(refused.value)


def test_alerts_say_where_their_runbooks_are(rendered: list[Json]) -> None:
    (rule,) = named(rendered, "PrometheusRule").values()
    alerts = [r for group in rule["spec"]["groups"] for r in group["rules"] if "alert" in r]
    assert alerts
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"https://docs.example/alerts/{alert['alert']}"
        assert (CHART.parent.parent / "docs" / "alerts" / f"{alert['alert']}.md").is_file()


def test_everything_is_labelled_and_in_our_namespace(rendered: list[Json]) -> None:
    for each in rendered:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "poolhouse", each["metadata"]["name"]
        assert labels["team"] == "vms"
        assert each["metadata"].get("namespace", NAMESPACE) == NAMESPACE
