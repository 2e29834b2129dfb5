"""Pods on warm VMs: a stack with Kubernetes' scheduler and controllers of Pods, and the examples of the task page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from controllers.claim.snapshot import CLAIMS
from controllers.shared.sources import CRON_JOBS, JOBS
from controllers.virtualnode.pod import TERMINAL
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import DEPLOYMENTS, NAMESPACES, PODS, VMS, Resource
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.cluster.processes import kill_controllers
from tests.resources import SERVICE_ACCOUNTS, SERVICES
from tests.waiting import eventually, until

Json = dict[str, Any]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pods"
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
KINDS = (PODS, JOBS, CRON_JOBS, DEPLOYMENTS, STATEFUL_SETS, SERVICES, WARM_POOLS)
RESOURCES = {each.kind: each for each in KINDS}


@dataclass(frozen=True)
class Shop:
    """A namespace with a warm pool for Pods."""

    api: Api
    namespace: str

    async def create(self, document: Json) -> Json:
        metadata = {**document["metadata"], "namespace": self.namespace}
        return await self.api.create(RESOURCES[document["kind"]], {**document, "metadata": metadata})

    async def pool(self, **faults: str) -> None:
        """The pool of the example, whose guests start quickly."""
        document = example("pool.yaml")[0]
        quick = {"start-seconds": "0.2", "stop-seconds": "0.1", **faults}
        annotations = {meta.SIM_PREFIX + key: value for key, value in quick.items()}
        document["spec"]["template"]["metadata"] = {"annotations": annotations}
        await self.create(document)

    async def pod(self, name: str = "hello", **changed: Any) -> Json:
        annotations = changed.pop("annotations", None)
        spec = {
            "nodeSelector": {"type": "virtual-kubelet"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.example/main:1"}],
            **changed,
        }
        return await self.create(manifest(PODS, name, spec, annotations=annotations))

    async def status(self, name: str = "hello") -> Json:
        found: Json = (await self.api.get(PODS, self.namespace, name)).get("status", {})
        return found

    async def all(self, resource: Resource) -> list[Json]:
        return (await self.api.list(resource, self.namespace))[0]

    async def names(self, resource: Resource) -> list[str]:
        return sorted(each["metadata"]["name"] for each in await self.all(resource))

    async def vm_of(self, pod: str) -> str:
        found = await self.api.get(PODS, self.namespace, pod)
        return str(found["metadata"]["annotations"][meta.VM])

    async def is_running(self, name: str = "hello") -> bool:
        return (await self.status(name)).get("phase") == "Running"


def example(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@pytest_asyncio.fixture
async def shop(whole: StackPaths) -> AsyncIterator[Shop]:
    async with await Api.connect(whole.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        made = await api.create(NAMESPACES, {"metadata": {"generateName": "pods-"}})
        found = Shop(api, made["metadata"]["name"])

        async def has_account() -> bool:
            return "default" in await found.names(SERVICE_ACCOUNTS)

        await eventually(has_account)
        yield found
        await api.delete(NAMESPACES, None, found.namespace)


async def test_a_pod_runs_in_a_vm_of_its_own_until_it_is_deleted(shop: Shop) -> None:
    await shop.pool()
    await shop.pod()
    await eventually(shop.is_running)
    status, vm = await shop.status(), await shop.vm_of("hello")
    assert status["podIP"] == status["hostIP"]
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["containerStatuses"][0]["ready"]
    assert vm in await shop.names(VMS)
    await shop.api.delete(PODS, shop.namespace, "hello")
    await until(lambda: shop.names(PODS), [])
    assert vm not in await shop.names(VMS)
    await until(lambda: shop.names(CLAIMS), [])  # they go with their owner


async def test_a_job_completes_through_a_crash_of_the_controllers(shop: Shop, whole: StackPaths) -> None:
    await shop.pool(**{"application-seconds": "1"})
    (job,) = example("job.yaml")
    await shop.create(job)
    await eventually(lambda: shop.names(CLAIMS))
    await asyncio.to_thread(kill_controllers, whole)

    async def succeeded() -> int:
        found = await shop.api.get(JOBS, shop.namespace, "build")
        return int(found.get("status", {}).get("succeeded", 0))

    await until(succeeded, 8)
    pods = await shop.all(PODS)
    assert len(pods) == 8
    assert len({each["metadata"]["annotations"][meta.VM] for each in pods}) == 8

    async def holders() -> list[str]:
        return [each["metadata"]["name"] for each in await shop.all(CLAIMS) if each["status"]["phase"] != "Released"]

    await until(holders, [])


async def test_a_deployment_rolls_and_a_service_has_the_addresses(shop: Shop) -> None:
    await shop.pool()
    for document in example("web.yaml"):
        await shop.create(document)

    async def ready(image: str) -> set[str]:
        """The addresses of the Pods with this image that are ready, once there are no others."""
        pods = await shop.all(PODS)
        if any(each["spec"]["containers"][0]["image"] != image for each in pods):
            return set()
        return {each["status"].get("podIP", "") for each in pods}

    async def endpoints() -> set[str]:
        slices = await shop.all(ENDPOINT_SLICES)
        found = [each for each_slice in slices for each in each_slice.get("endpoints") or ()]
        return {each["addresses"][0] for each in found if each["conditions"].get("ready")}

    async def serves(image: str) -> bool:
        addresses = await ready(image)
        return len(addresses) == 2 and "" not in addresses and addresses == await endpoints()

    await eventually(lambda: serves("registry.example/web:1"))
    change = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/web:2"}]
    await shop.api.patch(DEPLOYMENTS, shop.namespace, "web", change, kind="json")
    await eventually(lambda: serves("registry.example/web:2"))


async def test_a_stateful_set_has_its_pods_in_order_and_gives_the_name_of_a_lost_one_again(shop: Shop) -> None:
    await shop.pool()
    (web, _) = example("web.yaml")
    spec = {**web["spec"], "serviceName": "web"}
    await shop.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec})

    async def running() -> dict[str, Json]:
        """The Pods, by name, if they are all ready."""
        pods = {each["metadata"]["name"]: each for each in await shop.all(PODS)}
        return pods if len(pods) == 2 and all(map(ready_at, pods.values())) else {}

    before = await eventually(running)
    assert before.keys() == {"db-0", "db-1"}
    assert ready_at(before["db-0"]) <= before["db-1"]["metadata"]["creationTimestamp"]
    vm = await shop.vm_of("db-0")
    await shop.api.delete(VMS, shop.namespace, vm)

    async def replaced() -> dict[str, Json]:
        pods = await running()
        return pods if pods and uid_of(pods["db-0"]) != uid_of(before["db-0"]) else {}

    after = await eventually(replaced)
    assert await shop.vm_of("db-0") != vm
    assert uid_of(after["db-1"]) == uid_of(before["db-1"])


def uid_of(document: Json) -> str:
    return str(document["metadata"]["uid"])


def ready_at(pod: Json) -> str:
    """Since when the Pod is ready; empty if it is not."""
    found = (
        each for each in pod["status"].get("conditions", ()) if (each["type"], each["status"]) == ("Ready", "True")
    )
    return next((str(each["lastTransitionTime"]) for each in found), "")


async def test_a_cron_job_completes_the_run_that_is_due(shop: Shop) -> None:
    """A run was due since the last one, and the next one is due after the test."""
    await shop.pool(**{"application-seconds": "1"})
    (job,) = example("job.yaml")
    run = {"spec": {**job["spec"], "completions": 1, "parallelism": 1}}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": run}
    await shop.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "night"}, "spec": spec})
    last = {"status": {"lastScheduleTime": "2020-06-01T00:00:00Z"}}
    await shop.api.patch(CRON_JOBS, shop.namespace, "night", last, subresource="status")

    async def completed() -> bool:
        found = (await shop.api.get(CRON_JOBS, shop.namespace, "night")).get("status", {})
        return "lastSuccessfulTime" in found and not found.get("active")

    await eventually(completed)
    (made,) = await shop.all(JOBS)
    assert made["status"]["succeeded"] == 1


async def reason(shop: Shop) -> str:
    return str((await shop.status()).get("reason", ""))


async def test_a_pod_that_no_vm_can_run_stays_pending_and_says_all_that_is_wrong(shop: Shop) -> None:
    await shop.pool()
    await shop.pod(hostPID=True, volumes=[{"name": "h", "hostPath": {"path": "/"}}])
    await until(lambda: reason(shop), "FieldsNotSupported")
    status = await shop.status()
    assert status["phase"] == "Pending"
    assert {"spec.hostPID", "spec.volumes[0].hostPath"} <= set(status["message"].partition(": ")[2].split(", "))
    assert await shop.names(CLAIMS) == []
    await shop.api.delete(PODS, shop.namespace, "hello")
    await until(lambda: shop.names(PODS), [])


async def test_a_pod_waits_for_a_pool_that_takes_pods(shop: Shop) -> None:
    """`nodeName` binds it without a scheduler, which sees no room on the node while there is no pool."""
    await shop.pod(nodeName=meta.POOLHOUSE)
    await until(lambda: reason(shop), "NoWarmPool")
    assert await shop.names(CLAIMS) == []
    await shop.pool()
    await eventually(shop.is_running)


async def test_a_pod_fails_with_its_vm(shop: Shop) -> None:
    await shop.pool()
    await shop.pod()
    await eventually(shop.is_running)
    await shop.api.delete(VMS, shop.namespace, await shop.vm_of("hello"))
    await until(lambda: reason(shop), "VMLost")
    assert (await shop.status())["phase"] == "Failed"


async def test_a_pod_whose_claim_is_deleted_fails_and_gets_no_other_claim(shop: Shop) -> None:
    """Another claim would launch the application a second time."""
    await shop.pool()
    await shop.pod()
    await eventually(shop.is_running)
    (claim,) = await shop.names(CLAIMS)
    await shop.api.delete(CLAIMS, shop.namespace, claim)
    await until(lambda: reason(shop), "ClaimLost")
    assert (await shop.status())["phase"] == "Failed"
    assert await shop.names(CLAIMS) == []


@pytest.mark.parametrize("grace_seconds", [None, 0])
async def test_no_vm_outlives_a_pod_whose_claim_the_garbage_collector_orphans(
    shop: Shop, grace_seconds: int | None
) -> None:
    """`kubectl delete pod --cascade=orphan`, also with `--force`."""
    await shop.pool()
    await shop.pod()
    await eventually(shop.is_running)
    vm = await shop.vm_of("hello")
    await shop.api.delete(PODS, shop.namespace, "hello", propagation="Orphan", grace_seconds=grace_seconds)
    await until(lambda: shop.names(PODS), [])
    await until(lambda: shop.names(CLAIMS), [])
    assert vm not in await shop.names(VMS)


async def test_a_pod_ends_with_its_vm_if_its_claim_is_taken_from_it(shop: Shop) -> None:
    await shop.pool()
    await shop.pod()
    await eventually(shop.is_running)
    vm, (claim,) = await shop.vm_of("hello"), await shop.names(CLAIMS)
    await shop.api.patch(CLAIMS, shop.namespace, claim, {"metadata": {"ownerReferences": None}})
    await until(lambda: shop.names(CLAIMS), [])
    assert vm not in await shop.names(VMS)

    async def has_ended() -> bool:
        return (await shop.status())["phase"] in TERMINAL

    await eventually(has_ended)
