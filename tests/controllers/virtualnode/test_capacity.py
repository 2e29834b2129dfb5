"""The capacity of the virtual node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.shared.pod_claims import claim_metadata
from controllers.virtualnode.capacity import MAX_FREE, capacity
from controllers.virtualnode.pod import MAX_CREATED, parse_claim, parse_pod, parse_pool
from controllers.virtualnode.pods import build as build_pods
from controllers.virtualnode.sources import Sources
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.transport import Transport
from tests.controllers.virtualnode.pods import pod


def pool(*, ready: int = 0, claimed: int = 0, queued: int = 0, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    policy = {"allowPods": True, "onEmpty": spec.pop("onEmpty", "Fail")}
    status = {"availableReplicas": ready, "replicas": ready, "claimed": claimed, "queuedClaims": queued}
    metadata = {
        "namespace": "n",
        "name": "p",
        "uid": "p",
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
    }
    return {"metadata": metadata, "spec": {"claimPolicy": policy, **spec}, "status": status}


def claim(*, phase: str = "Ready", vm: str | None = "vmRef", of: str = "u-1") -> dict[str, Any]:
    own = claim_metadata("p", of) if of else {"name": "c"}
    status = {"phase": phase, **({vm: {"name": "x", "id": "x"}} if vm else {})}
    return {"metadata": {**own, "namespace": "n", "uid": "c"}, "status": status}


def a_pod(uid: str = "u-1", *, phase: str = "Pending", **requests: str) -> dict[str, Any]:
    asked = {name.replace("_", "-"): amount for name, amount in requests.items()}
    return pod(metadata={"uid": uid}, status={"phase": phase}, container={"resources": {"requests": asked}})


def cpus(amount: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": amount}}}


API = Api(cast(Transport, SimpleNamespace(metrics=NO_METRICS)), "tests")
NO_POLICY = {
    "metadata": {"namespace": "n", "name": "p", "uid": "p"},
    "spec": {"replicas": 5},
    "status": {"availableReplicas": 5},
}
WARM_VM = {"poolhouse.dev/warm-vm": "1"}


@pytest.mark.parametrize(
    ("pools", "claims", "pods", "warm", "places"),
    [
        pytest.param([], [], [], 0, 0, id="without a pool for Pods there is no place"),
        pytest.param([NO_POLICY], [], [], 0, 0, id="a pool is closed to Pods by default"),
        pytest.param([pool(ready=3), pool(ready=2)], [], [], 5, 5, id="each ready VM is a place"),
        pytest.param([pool(ready=3, deleted=True)], [], [], 0, 0, id="a pool that is being deleted has none"),
        pytest.param(
            [pool(ready=3)],
            [claim(), claim(vm="instanceRef", of="u-2")],
            [a_pod(), a_pod("u-2")],
            5,
            5,
            id="VMs that Pods hold stay places",
        ),
        pytest.param([pool(ready=3)], [claim(of="")], [], 3, 3, id="VMs that users hold are none"),
        pytest.param(
            [pool(ready=3)],
            [claim(phase="Released")],
            [a_pod(phase="Succeeded")],
            3,
            3,
            id="a Pod that has ended holds nothing",
        ),
        pytest.param(
            [pool(ready=1, queued=1)],
            [claim(phase="Queued", vm=None)],
            [a_pod(**WARM_VM)],
            1,
            1,
            id="a waiting Pod gets the next ready VM",
        ),
        pytest.param(
            [pool(ready=2)],
            [],
            [a_pod(**WARM_VM), a_pod("u-2")],
            3,
            4,
            id="Pods without a claim take no place from others",
        ),
        pytest.param(
            [pool(ready=1, onEmpty="ColdStart")],
            [],
            [],
            1,
            1 + MAX_CREATED,
            id="Pods may wait for VMs that a pool creates",
        ),
        pytest.param(
            [pool(ready=1, claimed=4, onEmpty="Queue", maxTotal=8)], [], [], 1, 4, id="a pool creates up to maxTotal"
        ),
        pytest.param(
            [pool(ready=1, onEmpty="Queue", paused=True)], [], [], 1, 1, id="a paused pool gives its VMs, no others"
        ),
        pytest.param(
            [pool(ready=1, onEmpty="Queue", maxTotal=2**31 - 1)], [], [], 1, 1 + MAX_CREATED, id="a huge maxTotal"
        ),
        pytest.param([pool(onEmpty="Queue")] * 100, [], [], 0, MAX_FREE, id="places are bounded"),
        pytest.param([], [], [a_pod(**{"poolhouse.dev/warm-vm": str(2**63 - 1)})], 0, 0, id="a Pod that must end"),
    ],
)
def test_vms_and_places_of_the_node(
    pools: list[Any], claims: list[Any], pods: list[Any], warm: int, places: int
) -> None:
    found = capacity(map(parse_pool, pools), map(parse_claim, claims), map(parse_pod, pods))
    assert (found["poolhouse.dev/warm-vm"], found["pods"]) == (str(warm), str(places))


@pytest.mark.parametrize(
    ("of", "before", "after"),
    [
        pytest.param("pools", pool(), pool(ready=3), id="VMs of a pool become ready"),
        pytest.param("pools", pool(ready=3), pool(ready=6), id="a pool gets more VMs"),
        pytest.param("pools", pool(onEmpty="Queue"), pool(onEmpty="Queue", queued=2), id="claims wait"),
        pytest.param("pools", NO_POLICY, {**NO_POLICY, "spec": pool()["spec"]}, id="a pool is opened to Pods"),
        pytest.param("claims", claim(vm=None), claim(), id="a Pod gets a VM"),
        pytest.param("claims", claim(), claim(phase="Released"), id="a claim ends"),
        pytest.param("pods", a_pod(**WARM_VM), a_pod(phase="Succeeded", **WARM_VM), id="a Pod ends"),
    ],
)
def test_a_change_of_the_capacity_wakes_the_node(of: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Informers call no handler for a change between equal views."""
    sources = Sources.of_node(API, "poolhouse")
    seen = []

    def changed(old: object, new: object) -> None:
        seen.append(capacity(sources.pools.store.all(), sources.claims.store.all(), sources.pods.store.all()))

    for each in sources.of_capacity:
        each.subscribe(changed)
    for document in (before, after):
        getattr(sources, of).change(("n", document["metadata"]["name"]), document)
    assert len(seen) == 2
    assert seen[0] != seen[1]


async def test_only_another_policy_of_a_pool_wakes_its_pods() -> None:
    sources = Sources.of_node(API, "poolhouse")
    sources.pools.change(("n", "p"), pool())
    waiting = pod(metadata={"namespace": "n"})
    sources.pods.change(("n", "web"), waiting)
    queue = build_pods(API, cast(EventRecorder, None), sources, VMAgents(API)).queue
    queue.done(await queue.get())
    sources.pools.change(("n", "p"), pool(ready=3))
    assert len(queue) == 0
    sources.pools.change(("n", "p"), pool(ready=3, default=True))
    assert len(queue) == 1


def test_a_pod_takes_no_cpu_and_no_memory_from_others() -> None:
    greedy = a_pod(cpu="9999500m", memory="5Ti", ephemeral_storage="1.5Mi")
    found = capacity([parse_pool(pool(ready=1))], [], [parse_pod(greedy)])
    assert found["cpu"] == str(64 + 10_000)
    assert found["memory"] == f"{(256 + 5 * 1024) * 1024}Mi"
    assert found["ephemeral-storage"] == f"{1024 * 1024 + 2}Mi"


def test_the_amounts_stay_within_64_bits() -> None:
    endless = a_pod(cpu="9e15", memory="9223372036854775807", ephemeral_storage="7Ei")
    most = a_pod(cpu="16384", memory="32Ti", ephemeral_storage="32Ti")
    pools = [parse_pool(pool(onEmpty="Queue"))] * 100
    found = capacity(pools, [], [parse_pod(endless), *[parse_pod(most)] * 200_000])
    assert found["pods"] == str(MAX_FREE + 200_000)
    for name in ("memory", "ephemeral-storage"):
        assert 200_000 * (32 << 40) < (to_fraction(found[name]) or 0) < 2**63


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        pytest.param({"containers": [cpus("1"), cpus("500m")]}, 2, id="containers run together"),
        pytest.param(
            {"containers": [cpus("1")], "initContainers": [cpus("3"), cpus("4")]}, 4, id="init containers do not"
        ),
        pytest.param(
            {"containers": [cpus("1")], "initContainers": [{**cpus("2"), "restartPolicy": "Always"}, cpus("3")]},
            5,
            id="an init container that restarts runs beside those that come later",
        ),
        pytest.param(
            {"containers": [cpus("4")], "initContainers": [{**cpus("2"), "restartPolicy": "Always"}, cpus("3")]},
            6,
            id="and beside the containers",
        ),
        pytest.param({"containers": [cpus("1")], "resources": cpus("7")["resources"]}, 7, id="the Pod's own"),
        pytest.param({"containers": [cpus("1")], "overhead": {"cpu": "2"}}, 3, id="with the overhead"),
        pytest.param({"containers": [{"name": "c"}]}, 0, id="nothing"),
    ],
)
def test_what_the_scheduler_counts_for_a_pod(spec: dict[str, Any], cpus: int) -> None:
    assert parse_pod(pod(**spec)).requests.get("cpu", 0) == cpus
