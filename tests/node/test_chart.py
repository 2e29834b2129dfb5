"""The chart with its images on real nodes, from installation to uninstallation, with the commands of the documentation.

The cluster has KubeVirt's kinds, but no KubeVirt: VMs are stored and never run. The tests depend on each other and run
in order.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest
import yaml

from poolhouse.api.kinds import kubevirt, meta
from poolhouse.manifests.crd import crds
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import CONFIG_MAPS, VMS
from poolhouse.stack.install import RESOURCES, apply
from tests.builders import manifest
from tests.charts.documentation import Shell, documented_command
from tests.charts.dry_runs import EXAMPLE, DryRuns, continuous_dry_runs
from tests.charts.helm import NAMESPACE
from tests.cluster.pooling import POOLS
from tests.node import images
from tests.node.layout import Layout
from tests.node.pods import PODS, PYTHON, Json, Pod, connections, pods, run_python
from tests.resources import SERVICES
from tests.waiting import until

COMPONENTS = ("controllers", "defaulter", "webhook")
PORTS = {"controllers": 8443, "defaulter": 8085, "webhook": 8443}
WORK = "default"
# The cluster has IPv4 only, and gives such services one family.
DUAL_STACK: Json = {"ipFamilyPolicy": "PreferDualStack"}
VALUES: Json = {
    "global": {"imageRegistry": images.REGISTRY, "commonLabels": {"team": "a"}},
    # The machine is busy with its nodes.
    "webhook": {"kinds": {"timeoutSeconds": 30}, "defaulting": {"timeoutSeconds": 30}, "service": DUAL_STACK},
    "controllers": {"service": DUAL_STACK},
    "defaulter": {"service": DUAL_STACK},
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "extra", "namespace": "{{ .Release.Namespace }}"},
            "data": {"release": "{{ .Release.Name }}"},
        }
    ],
}


@pytest.fixture(scope="module")
def shell(nodes: Layout, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(nodes.paths.kubeconfig, tmp_path_factory.mktemp("shell"))


@pytest.fixture
async def api(nodes: Layout) -> AsyncIterator[Api]:
    async with await Api.connect(nodes.paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api


async def run(shell: Shell, commands: str, **more: Json) -> str:
    return await asyncio.to_thread(shell, commands, json.dumps({**VALUES, **more}))


async def kubectl(layout: Layout, *arguments: str) -> None:
    command = ["kubectl", f"--kubeconfig={layout.paths.kubeconfig}", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def vm(name: str) -> Json:
    spec = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]
    spec = {key: value for key, value in spec.items() if key != "dataVolumeTemplates"}
    spec["template"]["spec"]["volumes"] = [{"name": "datavolumedisk", "containerDisk": {"image": "x"}}]
    return manifest(VMS, name, {**spec, "runStrategy": "Halted"}, WORK)


async def ready(api: Api) -> dict[str, int]:
    """The number of ready pods of each component."""
    found = [pod.component for pod in await pods(api) if pod.ready]
    return {component: found.count(component) for component in COMPONENTS}


EVERYTHING_READY = dict.fromkeys(COMPONENTS, 2)


async def test_documented_installation_in_a_restricted_namespace(nodes: Layout, shell: Shell, api: Api) -> None:
    await apply(api, crds(kubevirt.KUBEVIRT_KINDS))
    assert "Installed kinds:" in await run(shell, documented_command("install.md", "helm install poolhouse charts"))
    assert await ready(api) == EVERYTHING_READY
    pod = {"metadata": {"generateName": "try-", "namespace": NAMESPACE}, "spec": {"containers": [{"name": "a"}]}}
    pod["spec"]["containers"][0] |= {"image": images.name_of("poolhouse")}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})


async def test_the_values_reach_the_cluster(api: Api) -> None:
    assert (await api.get(CONFIG_MAPS, NAMESPACE, "extra"))["data"] == {"release": "poolhouse"}
    services, _ = await api.list(SERVICES, NAMESPACE)
    assert {each["spec"]["ipFamilyPolicy"] for each in services} == {"PreferDualStack"}
    assert {each["metadata"]["labels"]["team"] for each in services} == {"a"}


LOOPBACK = """
import json, socket, sys
socket.create_connection(("::1", int(sys.argv[1])), timeout=4).close()
print(json.dumps("connected"))
"""


async def test_services_listen_on_ipv6(nodes: Layout, api: Api) -> None:
    for component, port in PORTS.items():
        pod, *_ = await pods(api, component)
        assert await run_python(nodes, pod.name, LOOPBACK, str(port)) == "connected", component


async def test_replicas_are_on_different_nodes(two_nodes: Layout, api: Api) -> None:
    for component in COMPONENTS:
        assert {pod.node for pod in await pods(api, component)} == {node.name for node in two_nodes.nodes}, component


CONFINEMENT = """
import json, os, pathlib
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())

def writable(directory):
    try:
        (pathlib.Path(directory) / "x").touch()
    except OSError:
        return False
    return True

print(json.dumps({
    "user": os.getuid(),
    "groups": os.getgroups(),
    "capabilities": [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")],
    "gains privileges": status["NoNewPrivs"] == "0",
    "seccomp": int(status["Seccomp"]),
    "writable": [each for each in ("/", "/etc", "/opt/poolhouse", "/usr", "/var/lib") if writable(each)],
    "devices": [each for each in ("/dev/kvm", "/dev/vda", "/dev/fuse", "/dev/kmsg") if os.path.exists(each)],
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
}))
"""


async def test_pods_are_confined(nodes: Layout, api: Api) -> None:
    for component in COMPONENTS:
        pod, *_ = await pods(api, component)
        assert await run_python(nodes, pod.name, CONFINEMENT) == {
            "user": 65532,
            "groups": [65532],
            "capabilities": [0, 0, 0, 0],
            "gains privileges": False,
            "seccomp": 2,
            "writable": [],
            "devices": [],
            "token": component != "defaulter",
        }, component


async def test_documented_checks_pass(shell: Shell) -> None:
    printed = await run(shell, documented_command("install.md", "kubectl get deployments"))
    for word in ("poolhouse-webhook", "poolhouse-defaulter", "virtualmachinepools.kubevirt.io", "Phase:", "Succeeded"):
        assert word in printed


async def test_vms_get_defaults_and_pools_create_vms(api: Api) -> None:
    made = await api.create(VMS, vm("first"))
    assert made["spec"]["template"]["spec"]["domain"]["machine"]["type"].startswith("pc-q35-")
    await api.create(POOLS, {**yaml.safe_load(EXAMPLE.read_text()), "metadata": {"name": "web", "namespace": WORK}})
    await until(lambda: _vms(api, "web-"), 3)
    # No KubeVirt runs the VMs, so the pool is never ready.
    await until(
        lambda: _conditions(api), {"Available": "False", "Progressing": "True", "Ready": "False", "Reconciling": "True"}
    )


async def _conditions(api: Api) -> dict[str, str]:
    """The conditions of the pool that describe its present generation."""
    pool = await api.get(POOLS, WORK, "web")
    generation = pool["metadata"]["generation"]
    found = pool.get("status", {}).get("conditions", ())
    return {each["type"]: each["status"] for each in found if each["observedGeneration"] == generation}


async def _vms(api: Api, prefix: str) -> int:
    items, _ = await api.list(VMS, WORK)
    return sum(each["metadata"]["name"].startswith(prefix) for each in items)


def listener(name: str, node: str, labels: dict[str, str]) -> Json:
    """A pod that is not part of Poolhouse, and listens on port 9000."""
    container = {
        "name": "listener",
        "image": images.name_of("poolhouse"),
        "imagePullPolicy": "Never",
        "command": [PYTHON, "-m", "http.server", "9000"],
        "workingDir": "/tmp",
        "readinessProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": WORK, "labels": labels},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


@pytest.fixture
async def others(nodes: Layout, api: Api) -> AsyncIterator[dict[str, str]]:
    """The addresses of two pods of other users."""
    there = nodes.nodes[-1].name
    listeners = {"stranger": {}, "launcher": {"kubevirt.io": "virt-launcher"}}
    for name, labels in listeners.items():
        await api.create(PODS, listener(name, there, labels))
    try:
        await until(lambda: _ready_in_work(api), set(listeners))
        yield {pod.name: pod.address for pod in await pods(api, namespace=WORK)}
    finally:
        for name in listeners:
            await api.delete(PODS, WORK, name)


async def test_network_policies_allow_what_is_needed_and_nothing_else(
    nodes: Layout, api: Api, others: dict[str, str]
) -> None:
    address = {component: (await pods(api, component))[0].address for component in COMPONENTS}
    targets = {
        "webhook": f"{address['webhook']}:8443",
        "controllers": f"{address['controllers']}:8443",
        "defaulter": f"{address['defaulter']}:8085",
        "API server": "10.0.0.1:443",
        "DNS": "10.0.0.10:53",
        "launcher": f"{others['launcher']}:9000",
        "stranger": f"{others['stranger']}:9000",
        "kubelet": f"{nodes.nodes[0].address}:10250",
    }
    cluster = {"API server", "DNS"}
    allowed = {
        "webhook": cluster | {"controllers", "defaulter"},
        "controllers": cluster | {"defaulter", "launcher"},
        "defaulter": set(),
        "stranger": cluster | {"webhook", "launcher", "stranger", "kubelet"},
    }
    for client, expected in allowed.items():
        # Another replica than the target's, because a pod always reaches itself.
        name, namespace = (client, WORK) if client == "stranger" else ((await pods(api, client))[1].name, NAMESPACE)
        found = await connections(nodes, name, list(targets.values()), namespace)
        assert {target for target in targets if found[targets[target]]} == expected, client


async def _ready_in_work(api: Api) -> set[str]:
    return {pod.name for pod in await pods(api, namespace=WORK) if pod.ready}


async def test_rollout_fails_no_request(two_nodes: Layout, shell: Shell, api: Api) -> None:
    before = {pod.name for pod in await pods(api)}
    changed = {**VALUES["webhook"], "replicas": 3, "podLabels": {"tier": "new"}}
    async with continuous_dry_runs(api, WORK) as dry_runs:
        more = {"webhook": changed, "defaulter": {**VALUES["defaulter"], "podLabels": {"tier": "new"}}}
        await run(shell, documented_command("upgrade.md", "helm upgrade"), **more)
    assert dry_runs.refused == []
    assert dry_runs.accepted > 20
    assert await ready(api) == EVERYTHING_READY | {"webhook": 3}
    assert not before & {pod.name for pod in await pods(api) if pod.component != "controllers"}
    await run(shell, documented_command("upgrade.md", "helm rollback"))
    await until(lambda: ready(api), EVERYTHING_READY)


async def test_drain_fails_no_request(two_nodes: Layout, api: Api) -> None:
    drained = two_nodes.nodes[-1].name
    async with continuous_dry_runs(api, WORK) as dry_runs:
        await kubectl(two_nodes, "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
        await until(lambda: ready(api), EVERYTHING_READY)
    await kubectl(two_nodes, "uncordon", drained)
    assert dry_runs.refused == []
    assert dry_runs.accepted > 20
    assert drained not in {pod.node for pod in await pods(api)}


STOP = """
for process in /proc/[0-9]*; do
  if grep -q "pod$1" "$process/cgroup" && grep -q poolhouse "$process/cmdline"; then kill -STOP "${process#/proc/}"; fi
done
"""


async def test_probes_take_a_hung_pod_out_of_service_and_restart_it(two_nodes: Layout, api: Api) -> None:
    hung, *_ = await pods(api, "defaulter")
    stop = [*two_nodes.inside(hung.node), "sh", "-c", STOP, "sh", hung.uid]
    await asyncio.to_thread(subprocess.run, stop, check=True, timeout=30)
    await until(lambda: _state(api, hung), (0, False))
    await until(lambda: _consecutive_defaults(api), True)
    await until(lambda: _state(api, hung), (1, True))


async def _consecutive_defaults(api: Api) -> bool:
    """Whether five VMs in a row get defaults. If the hung pod were asked, about half of them would not."""
    for _ in range(5):
        made = await api.create(VMS, vm("while-one-hangs"), dry_run=True)
        if "machine" not in made["spec"]["template"]["spec"]["domain"]:
            return False
    return True


async def _state(api: Api, former: Pod) -> tuple[int, bool]:
    """Restarts and readiness of the pod now."""
    return next((pod.restarts, pod.ready) for pod in await pods(api, former.component) if pod.uid == former.uid)


async def test_everything_returns_after_a_node_crashes(two_nodes: Layout, api: Api) -> None:
    node = two_nodes.nodes[-1].name
    # The supervisor starts the node again.
    await asyncio.to_thread(
        subprocess.run, ["kill", "-KILL", two_nodes.pid_file(node).read_text().strip()], check=True, timeout=10
    )
    await until(lambda: _node_ready(api, node), True)
    await until(lambda: ready(api), EVERYTHING_READY)
    await until(DryRuns(api, WORK).once, True)
    await api.patch(POOLS, WORK, "web", {"spec": {"replicas": 4}}, subresource="scale")
    await until(lambda: _vms(api, "web-"), 4)


async def _node_ready(api: Api, name: str) -> bool:
    return all(pod.ready for pod in await pods(api, namespace="kube-system") if pod.node == name)


async def test_uninstallation_keeps_vms_and_deletes_the_rest(nodes: Layout, shell: Shell, api: Api) -> None:
    before = await _vms(api, "")
    await run(shell, documented_command("install.md", "helm uninstall"))
    await run(shell, documented_command("install.md", "kubectl delete secret"))
    await until(lambda: pods(api), [])
    assert await _vms(api, "") == before
    left = set()
    for resource in RESOURCES.values():
        items, _ = await api.list(resource, label_selector=meta.OURS)
        left |= {resource.kind for _ in items}
    assert left == {"CustomResourceDefinition"}
    made = await api.create(VMS, vm("later"))
    assert "machine" not in made["spec"]["template"]["spec"]["domain"], "admission no longer changes VMs"


async def test_second_installation_continues_with_the_pools(nodes: Layout, shell: Shell, api: Api) -> None:
    install = documented_command("install.md", "helm install poolhouse charts")
    await run(shell, install.replace("kubectl create namespace", "kubectl get namespace"))
    assert await ready(api) == EVERYTHING_READY
    await api.delete(VMS, WORK, "web-1")
    await until(lambda: _vms(api, "web-"), (await api.get(POOLS, WORK, "web"))["spec"]["replicas"])
    await run(shell, documented_command("install.md", "helm uninstall"))
