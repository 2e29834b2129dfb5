"""The manifests for clusters without Helm, and the priority level of Poolhouse, on a real API server."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.api.kinds import meta
from poolhouse.manifests import flow_control
from poolhouse.runtime.api import Api
from poolhouse.stack import install
from poolhouse.stack.helm.plain import HELM_LABELS, main
from tests.charts.helm import template
from tests.resources import SERVICE_ACCOUNTS
from tests.tokens import token_of
from tests.waiting import until

Json = dict[str, Any]
Flow = tuple[str | None, str | None]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    main(directory)
    return directory


def test_manifests_have_no_helm_labels_or_hooks(plain: Path) -> None:
    text = (plain / "install.yaml").read_text()
    assert "helm.sh/" not in text
    documents = [each for each in yaml.safe_load_all(text) if each]
    assert not [each for each in documents if set(HELM_LABELS) & set(each["metadata"].get("labels", {}))]
    assert [each["kind"] for each in documents].count("Job") == 0, "hooks do not run without Helm"
    assert "poolhouse-test" not in text, "the rights of a hook"
    assert documents[0]["kind"] == "Namespace"
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "CustomResourceDefinition"}
    assert "virtualmachinepools.kubevirt.io" in names
    assert "virtualmachineinstancereplicasets.kubevirt.io" not in names, "KubeVirt installs this CRD"


def test_kubectl_applies_the_kustomization(plain: Path, control_plane: Any) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(plain)],
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied") > 25


def test_the_chart_has_the_priority_level_of_the_embedded_stack() -> None:
    expected = {each["kind"] + each["metadata"]["name"]: each["spec"] for each in flow_control.manifests(shares=7)}
    assert flow_specs() == expected


def test_the_priority_level_follows_the_namespace_of_the_release() -> None:
    found = flow_specs("--namespace", "other")
    for schema, account in (("poolhouse", "poolhouse-webhook"), ("poolhouse-controllers", "poolhouse-controllers")):
        (rule,) = found[f"FlowSchema{schema}"]["rules"]
        assert [each["serviceAccount"] for each in rule["subjects"]] == [{"name": account, "namespace": "other"}]
        assert rule["resourceRules"][0]["namespaces"] == ["*"]
    (of_lease,) = found["FlowSchemapoolhouse-leases"]["rules"]
    assert of_lease["resourceRules"][0]["namespaces"] == ["other"]


def flow_specs(*options: str) -> dict[str, Json]:
    documents = template({"apiPriorityAndFairness": {"enabled": True, "shares": 7}}, *options)
    ours = [each for each in documents if each["apiVersion"] == flow_control.API_VERSION]
    return {each["kind"] + each["metadata"]["name"]: each["spec"] for each in ours}


POOL_PATH = f"/apis/kubevirt.io/v1/namespaces/{meta.NAMESPACE}/virtualmachinepools"
CLAIM_PATH = f"/apis/poolhouse.dev/v1alpha1/namespaces/{meta.NAMESPACE}/virtualmachineclaims"
VM_PATH = f"/apis/kubevirt.io/v1/namespaces/{meta.NAMESPACE}/virtualmachines"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{meta.NAMESPACE}/leases/poolhouse-controllers"
FLOWS = (
    ("GET", "poolhouse-controllers", POOL_PATH, "poolhouse-controllers", "poolhouse"),
    ("POST", "poolhouse-controllers", POOL_PATH, "poolhouse-controllers", "poolhouse"),
    ("GET", "poolhouse-controllers", LEASE_PATH, "poolhouse-leases", "leader-election"),
    ("GET", "poolhouse-webhook", POOL_PATH, "poolhouse", "poolhouse"),
    ("POST", "poolhouse-engine", POOL_PATH, "poolhouse-engine", "workload-low"),
    ("POST", "default", POOL_PATH, "poolhouse-pools", "poolhouse-pools"),
    ("DELETE", "default", f"{POOL_PATH}/web", "poolhouse-pools", "poolhouse-pools"),
    ("POST", "default", CLAIM_PATH, "poolhouse-claims", "poolhouse-claims"),
    ("POST", "default", VM_PATH, "poolhouse-clients", "poolhouse-clients"),
    ("GET", "default", POOL_PATH, "poolhouse-lists", "poolhouse-lists"),
    ("GET", "default", f"{POOL_PATH}/web", "service-accounts", "workload-low"),
)
"""requests of ServiceAccounts of the namespace, and the FlowSchema and the priority level that they have"""


async def test_requests_have_the_priority_levels_of_their_clients(control_plane: Any) -> None:
    async with await Api.connect(control_plane.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        accounts = {account for _, account, *_ in FLOWS}
        for name in accounts:
            await api.patch(SERVICE_ACCOUNTS, meta.NAMESPACE, name, _account(name), kind="apply", field_manager="tests")
        tokens = {name: await token_of(api, meta.NAMESPACE, name) for name in accounts}

        async def uid(kind: str, name: str) -> str:
            return str((await api.get(install.RESOURCES[kind], None, name))["metadata"]["uid"])

        async def flow(method: str, account: str, path: str) -> Flow:
            return await asyncio.to_thread(classified, control_plane.kubeconfig, tokens[account], path, method)

        for method, account, path, schema, level in FLOWS:
            expected = await uid("FlowSchema", schema), await uid("PriorityLevelConfiguration", level)
            await until(partial(flow, method, account, path), expected)


def classified(kubeconfig: Path, token: str, path: str, method: str) -> Flow:
    """Sends a request; returns the UIDs of its FlowSchema and its priority level."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    request = urllib.request.Request(
        f"{cluster['server']}{path}", headers={"Authorization": f"Bearer {token}"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as response:
            answer = response.headers
    except urllib.error.HTTPError as error:
        answer = error.headers
    return answer.get("X-Kubernetes-PF-FlowSchema-UID"), answer.get("X-Kubernetes-PF-PriorityLevel-UID")


def _account(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": meta.NAMESPACE}}
