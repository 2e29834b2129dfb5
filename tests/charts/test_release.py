"""The chart on a real API server, from installation to uninstallation, with the commands of the documentation.

Deployments and hooks run as processes with the tokens of their ServiceAccounts. The embedded engine replaces KubeVirt.
The tests depend on each other and run in order. $POOLHOUSE_EARLIER_CHART is the chart of a release to upgrade from.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.certificates.controller import PERIOD_SECONDS
from controllers.certificates.observe import observe
from controllers.migrationpolicy.observe import POLICIES
from defaulter.contract import undefaulted_fields
from poolhouse.api.kinds import meta
from poolhouse.manifests import admission_policy, flow_control, rbac, webhooks
from poolhouse.manifests.crd import crds
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound, Throttled
from poolhouse.runtime.resource import DEPLOYMENTS, PODS, SECRETS, VMIS, Resource
from poolhouse.service.certificates import KeyPair, join_pem
from poolhouse.stack.install import RESOURCES, SUBRESOURCES
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.charts.documentation import Shell, documented_command
from tests.charts.dry_runs import EXAMPLE, DryRuns, continuous_dry_runs
from tests.charts.helm import NAMESPACE, RELEASE, HelmError, template, without_schemas
from tests.charts.helm import run as helm
from tests.charts.kubelet import Kubelet
from tests.charts.rbac_recorder import Right
from tests.cluster.heard import heard
from tests.cluster.pooling import POOLS, VMS
from tests.conftest import stack
from tests.waiting import eventually, until

KUBEVIRT_ACCOUNT = "system:serviceaccount:kubevirt:kubevirt-controller"
Json = dict[str, Any]

WORK = "default"
SERVED = ("webhook", "controllers", "defaulter")
POLICY_CRD = "migrationpolicies.kubevirt.io"
SELECTORS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WORK}}}
POLICY = manifest(POLICIES, "slow", {"selectors": SELECTORS, "bandwidthPerMigration": "64Mi"})


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    kubelet: Kubelet
    shell: Shell

    async def run_documented(self, page: str, words: str, values: Json | None = None) -> str:
        """Runs a command of the documentation; returns its output."""
        return await self.run(documented_command(page, words), values)

    async def install(self) -> str:
        # The namespace exists already, because it contains objects of the engine.
        install = documented_command("install.md", "helm install poolhouse charts").replace(
            "kubectl create namespace", "kubectl get ns"
        )
        return await self.run(
            install.replace("charts/poolhouse", os.environ.get("POOLHOUSE_EARLIER_CHART", "charts/poolhouse"))
        )

    async def run(self, commands: str, values: Json | None = None) -> str:
        return await asyncio.to_thread(self.shell, commands, json.dumps(values or self.values()))

    def values(self, **more: Any) -> Json:
        """Values for a slow cluster whose API server cannot reach Services, and whose engine replaces KubeVirt."""
        timeout: Json = {"timeoutSeconds": 30}
        url = f"https://{self.kubelet.address('poolhouse-webhook')}"
        return {
            "webhook": {"url": url, "kinds": dict(timeout), "defaulting": dict(timeout)},
            "guard": {"copiers": [rbac.service_account_user("engine"), KUBEVIRT_ACCOUNT]},
            "defaulter": {"workers": 1},
            "identitySeed": "test",
            **more,
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the engine, but without the objects of Poolhouse."""
    paths = StackPaths(tmp_path_factory.mktemp("chart"))
    without = (option for name in ("webhook", "defaulter", "controllers") for option in ("--without", name))
    with stack(paths, "--engine", "simulated", *without):
        asyncio.run(_remove_poolhouse(paths.kubeconfig))
        with Kubelet(paths.kubeconfig, NAMESPACE, tmp_path_factory.mktemp("pods")) as kubelet:
            yield Cluster(paths.kubeconfig, kubelet, Shell(paths.kubeconfig, tmp_path_factory.mktemp("shell")))


async def _remove_poolhouse(kubeconfig: Path) -> None:
    """Deletes the objects that the stack has installed, except those of the engine."""
    installed = [
        *crds(),
        *rbac.manifests(["webhook", "controllers"]),
        *rbac.user_roles(),
        *rbac.health_role(),
        *admission_policy.documents(),
        *flow_control.for_one_machine(),
    ]
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        for document in crds():
            await eventually(partial(_lists, api, document["spec"]))
        for document in installed:
            metadata = document["metadata"]
            await api.delete(RESOURCES[document["kind"]], metadata.get("namespace"), metadata["name"])
        for document in crds():
            await until(lambda name=document["metadata"]["name"]: _exists(api, "CustomResourceDefinition", name), False)


async def _lists(api: Api, definition: Json) -> bool:
    """Whether the API server can list the objects of a new kind. If it cannot yet when the kind is deleted, it can miss
    the event after which it would try again, and then it waits for its next resync (5 minutes)."""
    names, version = definition["names"], definition["versions"][0]["name"]
    try:
        await api.list(Resource(definition["group"], version, names["plural"], names["kind"]), None)
    except (NotFound, Throttled):
        return False
    return True


async def _exists(api: Api, kind: str, name: str) -> bool:
    try:
        await api.get(RESOURCES[kind], None, name)
    except NotFound:
        return False
    return True


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with await Api.connect(cluster.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api


def vm(name: str) -> Json:
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]
    spec = {key: value for key, value in spec.items() if key != "dataVolumeTemplates"}
    inner = spec["template"]["spec"]
    inner["volumes"] = [{"name": "datavolumedisk", "containerDisk": {"image": "x"}}]
    return manifest(VMS, name, spec, WORK)


async def running(api: Api) -> dict[str, str]:
    """The UIDs of running VMIs by name."""
    items, _ = await api.list(VMIS, WORK)
    return {e["metadata"]["name"]: e["metadata"]["uid"] for e in items if e.get("status", {}).get("phase") == "Running"}


async def test_install_does_not_change_existing_vms(cluster: Cluster, api: Api) -> None:
    await api.create(VMS, vm("before"))
    await until(lambda: _names(api), {"before"})
    spec = (await api.get(VMS, WORK, "before"))["spec"]
    assert "Installed kinds:" in await cluster.install()
    assert (await api.get(VMS, WORK, "before"))["spec"] == spec
    for deployment in SERVED:
        assert len(cluster.kubelet.pods(f"poolhouse-{deployment}")) == 2


async def test_documented_checks_pass(cluster: Cluster) -> None:
    printed = await cluster.run_documented("install.md", "kubectl get deployments")
    for word in ("poolhouse-webhook", "poolhouse-defaulter", "virtualmachinepools.kubevirt.io", "Phase:", "Succeeded"):
        assert word in printed
    checks = json.loads(await cluster.run("poolhouse doctor -o json --request-timeout 60s"))
    assert {each["check"]: each["verdict"] for each in checks if each["verdict"] != "ok"} == {}, checks


async def test_pods_comply_with_the_enforced_restricted_standard(cluster: Cluster, api: Api) -> None:
    """The documented commands have labelled the namespace, so that the API server enforces the standard."""
    deployments, _ = await api.list(DEPLOYMENTS, NAMESPACE)
    for deployment in deployments:
        template = deployment["spec"]["template"]
        pod = {"metadata": {"generateName": "try-", "namespace": NAMESPACE}, "spec": template["spec"]}
        await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, dry_run=True)
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["NET_ADMIN"]}
    with pytest.raises(Forbidden, match="violates PodSecurity"):
        await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, dry_run=True)


async def _names(api: Api) -> set[str]:
    return set(await running(api))


async def test_defaulting_pools_and_policies_work(cluster: Cluster, api: Api) -> None:
    made = await api.create(VMS, vm("after"))
    assert undefaulted_fields(made) == [], "the defaulter sets the hardware"
    await api.create(POLICIES, POLICY)
    await api.create(POOLS, {**yaml.safe_load(EXAMPLE.read_text()), "metadata": {"name": "web", "namespace": WORK}})
    await until(lambda: _count(api, "web-"), 3)
    await api.patch(POOLS, WORK, "web", {"spec": {"replicas": 2}}, subresource="scale")
    await until(lambda: _count(api, "web-"), 2)
    await until(lambda: _has_policy(api, "slow"), True)


async def _has_policy(api: Api, policy: str) -> bool:
    items, _ = await api.list(VMIS, WORK)
    return all(each["metadata"]["labels"].get("poolhouse.dev/migration-policy") == policy for each in items)


async def _count(api: Api, prefix: str) -> int:
    return sum(name.startswith(prefix) for name in await running(api))


UNUSED_RIGHTS: dict[str, str] = {
    " */finalizers update": "needed with the admission plugin OwnerReferencesPermissionEnforcement",
    "events.k8s.io events patch": "repeated events",
    "kubevirt.io virtualmachineinstancereplicasets* *": "replica sets",
    "kubevirt.io virtualmachineinstances create|update|delete": "replica sets, restarts",
    "kubevirt.io virtualmachineinstances get": "healing",
    " namespaces get": "VMs that are created while the webhook is down",
    " resourcequotas list": "raised replicas",
    "kubevirt.io virtualmachines get|update": "defaulting after creation, changed templates",
    "poolhouse.dev * *": "warm pools",
    "subresources.kubevirt.io * update": "warm pools, updates that restart VMs",
    "authorization.k8s.io subjectaccessreviews create": "references to DataSources of other namespaces",
    "apps controllerrevisions get|patch|delete": "revisions that are no longer used, or have lost their owner",
    "migrations.kubevirt.io migrationpolicies get|update|delete": "changed and deleted policies",
    "kubevirt.io migrationpolicies get": "changed policies",
    "kubevirt.io virtualmachinepools get": "conflicts of status updates, raised replicas",
    "cdi.kubevirt.io datavolumes *": "disks",
    "instancetype.kubevirt.io * get": "hardware of VMs with an instance type or a preference",
    " persistentvolumeclaims *": "disks",
    "policy poddisruptionbudgets create|patch|delete": "budgets of pools whose VMs are stopped by evictions",
    "snapshot.kubevirt.io * create|delete": "snapshots before updates",
    " pods list|patch": "lifecycle hooks, limits of retained disks",
}
"""Rights that these tests do not use, and the features that need them. Other tests use these features with the same
roles. Every other right that is granted and not used is superfluous."""


def test_roles_grant_no_superfluous_right(cluster: Cluster) -> None:
    documents = template(cluster.values())
    for service in ("webhook", "controllers"):
        name = f"poolhouse-{service}"
        seen = cluster.kubelet.recorder.seen[name].copy()  # its thread adds more
        # A Pod may start before the API server has read its role.
        refused = {each.right for each in seen if each.status == 403} - {e.right for e in seen if e.status != 403}
        assert refused == set()
        unused = sorted(_granted(documents, name) - {each.right for each in seen})
        assert [each for each in unused if not _is_expected_unused(each)] == []


def _is_expected_unused(right: Right) -> bool:
    def fits(pattern: str, text: str) -> bool:
        return any(fnmatch(text, each) for each in pattern.split("|"))

    for row in UNUSED_RIGHTS:
        group, resource, verbs = row.split(" ")
        if fits(resource, right.resource) and fits(verbs, right.verb) and (group == right.group or "/" in resource):
            return True
    return False


def _granted(documents: list[Json], name: str) -> set[Right]:
    return {
        Right(group, resource, verb)
        for each in documents
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] == name
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_upgrade_fails_no_request_and_moves_no_vm(cluster: Cluster, api: Api) -> None:
    before, webhooks_before = await running(api), set(cluster.kubelet.pods("poolhouse-webhook"))
    changed = cluster.values(exemptNamespaces=["exempt"])
    changed["webhook"] |= {"podLabels": {"tier": "new"}}
    changed["webhook"]["defaulting"] |= {"failurePolicy": "Fail"}
    async with continuous_dry_runs(api, WORK) as dry_runs:
        await cluster.run_documented("upgrade.md", "helm upgrade", changed)
        await until(lambda: _tiers(cluster), ["new", "new"])
    assert dry_runs.refused == []
    assert dry_runs.accepted > 20
    assert not webhooks_before & set(cluster.kubelet.pods("poolhouse-webhook")), "every Pod is replaced"
    assert await running(api) == before
    configuration = await api.get(RESOURCES["MutatingWebhookConfiguration"], None, webhooks.DEFAULTING_CONFIGURATION)
    (webhook,) = configuration["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["clientConfig"]["caBundle"], "Helm keeps the published authority"
    assert "exempt" in json.dumps(webhook["namespaceSelector"])


async def test_no_upgrade_changes_the_identity_seed(cluster: Cluster, api: Api) -> None:
    def rendered(seed: str) -> str:
        """What an upgrade would send. `helm upgrade --dry-run=server` also sends the schemas of all CRDs."""
        values = cluster.values(identitySeed=seed)
        arguments = (RELEASE, str(without_schemas()), "--namespace", NAMESPACE, "--is-upgrade", "--dry-run=server")
        return helm("template", *arguments, values=values, kubeconfig=cluster.kubeconfig)

    seed = base64.b64encode(b"test").decode()
    for given in ("", "test"):
        assert f'seed: "{seed}"' in await asyncio.to_thread(rendered, given)
    with pytest.raises(HelmError, match="identitySeed: must not change: the Secret poolhouse-identity"):
        await asyncio.to_thread(rendered, "another")
    # As Argo CD would, which cannot look up the Secret.
    with pytest.raises(Invalid, match="immutable"):
        await api.patch(SECRETS, NAMESPACE, "poolhouse-identity", {"data": {"seed": ""}})


async def test_documented_command_disables_admission_permanently(cluster: Cluster, api: Api) -> None:
    await cluster.run_documented("emergency.md", "kubectl delete mutating")
    await heard(api)
    made = await api.create(VMS, vm("in-emergency"))
    assert undefaulted_fields(made)
    await api.delete(VMS, WORK, "in-emergency")
    await api.delete(RESOURCES["CustomResourceDefinition"], None, POLICY_CRD)  # simulates a mistake
    await asyncio.sleep(PERIOD_SECONDS + 1)
    assert await _registered(api) == []


async def _registered(api: Api) -> list[str]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    found = [item for kind in kinds for item in (await api.list(RESOURCES[kind]))[0]]
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("zz-poolhouse")]


async def test_rollback_restores_the_earlier_values(cluster: Cluster, api: Api) -> None:
    await until(lambda: _gone(api, "in-emergency"), True)
    before = await running(api)
    await cluster.run_documented("upgrade.md", "helm rollback")
    configuration = await api.get(RESOURCES["MutatingWebhookConfiguration"], None, webhooks.DEFAULTING_CONFIGURATION)
    assert configuration["webhooks"][0]["failurePolicy"] == "Ignore"
    await api.create(POLICIES, {**POLICY, "metadata": {"name": "back"}})
    await until(lambda: _has_policy(api, "back"), True)
    assert await running(api) == before
    assert _tiers(cluster) == [None, None]


def _tiers(cluster: Cluster) -> list[str | None]:
    """The label of each Pod of the webhook that the upgrade sets."""
    return [pod.labels.get("tier") for pod in cluster.kubelet.pods("poolhouse-webhook")]


async def _gone(api: Api, name: str) -> bool:
    return name not in await running(api)


async def test_distrusting_an_authority(cluster: Cluster, api: Api) -> None:
    before, gone = await running(api), {each.pair.certificate for each in (await observe(api, NAMESPACE)).cas}
    webhooks_before = set(cluster.kubelet.pods("poolhouse-webhook"))
    first, delete, rest = documented_command("reference/certificates.md", "kubectl scale deployment").partition(
        "kubectl delete secret"
    )
    await cluster.run(first)
    # This cluster has no Pod objects, so `kubectl wait` returns at once. The test waits for the processes instead.
    await until(lambda: _processes(cluster, "controllers"), 0)
    await cluster.run(delete + rest)

    async def new_authority_published() -> bool:
        state = await observe(api, NAMESPACE)
        bundles = [join_pem(state.bundle), *(bundle for where in state.configurations for bundle in where.bundles)]
        assert not any(certificate in bundle for certificate in gone for bundle in bundles), (
            "the old authority is published again"
        )
        return state.certificate is not None and all(state.certificate.is_trusted_by(bundle) for bundle in bundles)

    async def new_certificates_served() -> bool:
        """Whether all processes are new and serve certificates of the new authority."""
        pods = [pod for name in ("webhook", "controllers") for pod in cluster.kubelet.pods(f"poolhouse-{name}")]
        if len(pods) < 4 or not all(pod.ready for pod in pods) or webhooks_before & set(pods):
            return False
        trusted = join_pem((await observe(api, NAMESPACE)).bundle)
        addresses = [("127.0.0.1", pod.port) for pod in pods]
        try:
            leaves = [await asyncio.to_thread(ssl.get_server_certificate, address) for address in addresses]
        except OSError:
            return False
        return all(KeyPair(leaf.encode(), b"").is_trusted_by(trusted) for leaf in leaves)

    assert gone
    await until(new_authority_published, True)
    await until(new_certificates_served, True)
    await until(DryRuns(api, WORK).once, True)
    assert await running(api) == before


def _processes(cluster: Cluster, *deployments: str) -> int:
    """The number of processes, including terminating ones."""
    names = [f"poolhouse-{each}" for each in deployments]
    return sum(len(cluster.kubelet.pods(name)) + len(cluster.kubelet.ending(name)) for name in names)


@pytest.fixture
async def in_use(cluster: Cluster, api: Api) -> None:
    """An installation with a pool and a policy. Earlier tests leave it, unless only some tests are selected."""
    if not await _exists(api, "CustomResourceDefinition", POLICY_CRD):
        await cluster.install()
    if not (await api.list(POLICIES))[0]:
        await api.create(POLICIES, POLICY)
    pool = yaml.safe_load(EXAMPLE.read_text())
    with suppress(AlreadyExists):
        await api.create(POOLS, {**pool, "metadata": {"name": "web", "namespace": WORK}})
    await api.patch(POOLS, WORK, "web", {"spec": {"replicas": 2}}, subresource="scale")
    await until(lambda: _count(api, "web-"), 2)


async def test_cluster_works_while_poolhouse_is_down(cluster: Cluster, api: Api, in_use: None) -> None:
    before = await running(api)
    await cluster.run_documented("emergency.md", "kubectl scale deployment -n poolhouse-system --replicas 0")
    await until(lambda: _processes(cluster, *SERVED), 0)
    made = await api.create(VMS, vm("while-down"))
    assert undefaulted_fields(made), "stored without defaulting"
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(POOLS, WORK, "web", {"spec": {"template": {"spec": {"runStrategy": "Halted"}}}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.create(POLICIES, {**POLICY, "metadata": {"name": "another"}})
    await api.patch(POOLS, WORK, "web", {"spec": {"replicas": 3}}, subresource="scale")
    await api.patch(POOLS, WORK, "web", {"status": {"replicas": 2}}, subresource="status")
    await _evict_a_pod(api)
    assert "failed   webhook: " in await cluster.run("poolhouse doctor --request-timeout 60s || test $? = 1")
    for each in (await api.list(POLICIES))[0]:
        await api.delete(POLICIES, None, each["metadata"]["name"])
    await api.delete(VMS, WORK, "while-down")
    await until(lambda: _gone(api, "while-down"), True)
    assert await running(api) == before, "no controller acts on the changes"
    await cluster.run_documented("emergency.md", "kubectl scale deployment -n poolhouse-system --replicas 2")
    await until(lambda: _count(api, "web-"), 3)
    assert before.items() <= (await running(api)).items()


async def _evict_a_pod(api: Api) -> None:
    """Evicts a Pod of Poolhouse as a drain does."""
    named = {"name": "drained", "namespace": NAMESPACE}
    deployments, _ = await api.list(DEPLOYMENTS, NAMESPACE)
    await api.create(PODS, manifest(PODS, spec=deployments[0]["spec"]["template"]["spec"], **named))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}
    eviction["deleteOptions"] = {"gracePeriodSeconds": 0}
    await api.request("POST", f"{PODS.path(NAMESPACE, 'drained')}/eviction", body=eviction)


async def test_uninstall_keeps_vms_and_pools_and_deletes_the_rest(cluster: Cluster, api: Api) -> None:
    before = await running(api)
    await cluster.run_documented("install.md", "helm uninstall")
    await cluster.run_documented("install.md", "kubectl delete secret")
    assert await running(api) == before
    assert (await api.get(POOLS, WORK, "web"))["spec"]["replicas"] == 3
    left = []
    for resource in RESOURCES.values():
        items, _ = await api.list(resource, label_selector="app.kubernetes.io/part-of=poolhouse")
        left += [(resource.kind, item["metadata"]["name"], item["metadata"].get("namespace")) for item in items]
    known = {"CustomResourceDefinition", "Namespace"}
    stacks = {("APIService", SUBRESOURCES, None), *((kind, meta.CONTROLLERS, WORK) for kind in ("Role", "RoleBinding"))}
    assert {each for each in left if each[0] not in known and "engine" not in each[1]} == stacks
    secrets, _ = await api.list(SECRETS, NAMESPACE)
    assert not {each["metadata"]["name"] for each in secrets} & {meta.CA_SECRET, meta.SERVING_SECRET}
    # The documented command also deletes what a failed hook has left.
    labels = {meta.PART_OF: meta.POOLHOUSE, meta.COMPONENT: "hook"}
    for kind, where in (("ServiceAccount", {"namespace": NAMESPACE}), ("ClusterRole", {})):
        await api.create(RESOURCES[kind], {"metadata": {"name": "poolhouse-retire", "labels": labels, **where}})
    await cluster.run(documented_command("emergency.md", "--no-hooks").partition("--wait\n")[2])
    for kind in ("ServiceAccount", "ClusterRole"):
        items, _ = await api.list(RESOURCES[kind], label_selector=f"{meta.COMPONENT}=hook")
        assert items == []
    # Admission no longer changes VMs.
    await api.create(VMS, vm("later"))
    await until(lambda: _names(api), {*before, "later"})
