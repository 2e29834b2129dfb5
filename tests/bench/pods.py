"""Measures the time from the creation of a Pod until its container runs in a warm VM.

    python -m tests.bench.pods [--dir DIR] [--rounds 30] [--node KUBECONFIG [--image IMAGE]]

Kubernetes' scheduler binds the Pod to the virtual node, and the Pod gets a VM of the simulated engine, whose agent
starts containers at once. So the time is that of Kubernetes and Poolhouse alone. In alternating rounds: a claim that
starts the same application, which needs no scheduler and no Pod; and a bare client that creates a Pod, binds it, and
writes its status. One after another, with a full pool before each, so that no time is that of a queue.

With `--node`, in the same rounds also an ordinary Pod of another cluster, whose kubelet starts a container on a real
node. Its image is pulled before the first round that counts.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import PODS, Resource
from tests.bench import harness
from tests.bench.claim import claim, ready_vms, report_spread
from tests.builders import vmi_spec
from tests.resources import SERVICE_ACCOUNTS

VMS = 3
POOL: Json = {
    "replicas": VMS,
    "agent": {"port": 8200},
    "claimPolicy": {"allowPods": True, "allowApplication": True},
    "template": {
        "metadata": {"annotations": {"sim.poolhouse.dev/application": "true"}},
        "spec": {"template": {"spec": vmi_spec({}, nics=["default"])}},
    },
}
CONTAINERS = [{"name": "main", "image": "registry.example/app:1"}]
TOLERATION = {"key": meta.WARM_VM, "operator": "Exists"}


ON_NODE = "a Pod on a real node"
PAUSE = "registry.k8s.io/pause:3.10"


def pod(namespace: str, name: str, **spec: object) -> Json:
    wanted = {"containers": CONTAINERS, "terminationGracePeriodSeconds": 0, **spec}
    return harness.document(PODS, name, wanted, namespace, annotations={meta.WARM_POOL: "warm"})


async def first_time(api: Api, resource: Resource, document: Json, holds: Callable[[Json], bool]) -> float:
    """Creates an object, and returns the seconds until a watch shows a state."""
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    _, version = await api.list(resource, namespace)
    begun = time.perf_counter()
    await api.create(resource, document)
    events = api.watch(resource, namespace, resource_version=version, timeout_seconds=harness.DEADLINE_SECONDS)
    async with aclosing(events):
        async for _, found in events:
            if (found.get("metadata") or {}).get("name") == name and holds(found):
                return time.perf_counter() - begun
    raise AssertionError(f"{resource.kind} {name} did not get there")


def runs(document: Json) -> bool:
    statuses = at(document, "status", "containerStatuses") or at(document, "status", "application", "containers") or ()
    return any(at(each, "state", "running") is not None for each in statuses)


class Bench:
    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    async def full(self) -> None:
        async def ready() -> bool:
            return await ready_vms(self.api, self.namespace, "warm") == VMS

        await harness.poll(ready, every_seconds=0.1)

    async def of_pod(self, name: str) -> float:
        await self.full()
        document = pod(self.namespace, name, tolerations=[TOLERATION], nodeSelector={"type": "virtual-kubelet"})
        seconds = await first_time(self.api, PODS, document, runs)
        await self.api.delete(PODS, self.namespace, name)
        return seconds

    async def of_claim(self, name: str) -> float:
        await self.full()
        application = {"containers": CONTAINERS}
        document = claim(self.namespace, name, "warm", application=application)
        seconds = await first_time(self.api, CLAIMS, document, runs)
        await self.api.delete(CLAIMS, self.namespace, name)
        return seconds

    async def bare(self, name: str) -> float:
        """A scheduler of another name leaves the Pod to this client."""
        begun = time.perf_counter()
        await self.api.create(PODS, pod(self.namespace, name, schedulerName="none"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "bare"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.api.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", body=binding)
        running = {
            "name": "main",
            "ready": True,
            "restartCount": 0,
            "image": "",
            "imageID": "",
            "state": {"running": {}},
        }
        status = {"phase": "Running", "containerStatuses": [running]}
        await self.api.patch(PODS, self.namespace, name, {"status": status}, subresource="status")
        seconds = time.perf_counter() - begun
        await self.api.delete(PODS, self.namespace, name)
        return seconds


@dataclass(frozen=True)
class RealNode:
    """A cluster whose nodes run containers."""

    api: Api
    namespace: str
    image: str

    async def of_pod(self, name: str) -> float:
        container = {"name": "main", "image": self.image, "imagePullPolicy": "IfNotPresent"}
        document = pod(self.namespace, name, containers=[container])
        seconds = await first_time(self.api, PODS, document, runs)
        await self.api.delete(PODS, self.namespace, name)
        return seconds


@asynccontextmanager
async def real_node(kubeconfig: str, image: str) -> AsyncIterator[RealNode]:
    async with await harness.connect(Path(kubeconfig)) as api, harness.new_namespace(api) as namespace:

        async def has_account() -> bool:
            return bool((await api.list(SERVICE_ACCOUNTS, namespace))[0])

        await harness.poll(has_account)
        yield RealNode(api, namespace, image)


async def measure(directory: Path, rounds: int, kubeconfig: str, image: str) -> None:
    async with AsyncExitStack() as opened:
        api = await opened.enter_async_context(await harness.connect(directory / "kubeconfig"))
        namespace = await opened.enter_async_context(harness.new_namespace(api))
        await api.create(WARM_POOLS, harness.document(WARM_POOLS, "warm", POOL, namespace))
        bench = Bench(api, namespace)
        kinds: dict[str, Callable[[str], Awaitable[float]]] = {
            "bare writes": bench.bare,
            "a claim": bench.of_claim,
            "a Pod": bench.of_pod,
        }
        if kubeconfig:
            kinds[ON_NODE] = (await opened.enter_async_context(real_node(kubeconfig, image))).of_pod
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(rounds + 1):
            for name, one in kinds.items():
                seconds = await one(f"{name.split()[-1].lower()}-{number}")
                if number:  # the first round opens connections
                    found[name].append(seconds)
        await api.delete(WARM_POOLS, namespace, "warm")
    harness.section(f"until the container runs, {rounds} times each, one after another")
    for name, times in found.items():
        report_spread(name, times)
    for name in ("a claim", "a Pod"):
        medians = [harness.percentile(found[each], 50) for each in ("bare writes", name)]
        harness.report_ratio(f"{name} and the bare writes, medians", *medians)
    if kubeconfig:
        medians = [harness.percentile(found[each], 50) for each in (ON_NODE, "a Pod")]
        harness.report_ratio(f"a Pod and {ON_NODE}, medians", *medians)
    else:
        print(
            "  --node KUBECONFIG adds a Pod on a real node of that cluster: `python -m tests.node.main up` starts one"
        )


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, rounds=30, node="", image=PAUSE)
    with harness.stack(options.dir, "--virtual-node", "--engine", "simulated", without=()) as directory:
        asyncio.run(measure(directory, options.rounds, options.node, options.image))


if __name__ == "__main__":
    main()
