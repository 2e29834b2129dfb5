"""Which of the addresses of a VM become those of its Pod."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any, cast

import pytest

from controllers.shared.vmi import VMI, parse_vmi_with_pods
from controllers.virtualnode.addresses import AddressReader
from controllers.virtualnode.pod import PodClaim, parse_claim, parse_pod
from controllers.virtualnode.pods import PodController, build
from controllers.virtualnode.sources import Sources
from controllers.warmpool.vm_agent import ConfirmedAddresses, VMAgents
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Unavailable
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.resource import Resource
from tests.controllers.virtualnode.pods import CLAIM_OF_WEB, Json, claim, pod
from tests.controllers.virtualnode.test_pod_plan import NOW, a_pool

MACHINES = (ip_network("192.168.7.0/24"), ip_network("fd00:7::/64"))
SOURCE, TARGET = "10.244.1.7", "10.244.2.2"
KEY = ("ns", "web")


def launcher(uid: str, *addresses: str) -> Json:
    return {"metadata": {"uid": uid}, "status": {"podIPs": [{"ip": each} for each in addresses]}}


FOREIGN = launcher("foreign", "10.244.9.9")


class Cluster:
    """The Pods that carry the label of a VMI, and the statuses that the Pod of the virtual node gets."""

    identity, metrics = "test", NO_METRICS

    def __init__(self, *launchers: Json) -> None:
        self.launchers, self.statuses = launchers, list[Json]()

    def now(self) -> Any:
        return NOW

    async def list(self, resource: Resource, namespace: str, **selector: str) -> tuple[list[Json], str]:
        return [FOREIGN, *self.launchers], ""

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Json, **options: str) -> None:
        self.statuses.append(patch["status"])

    def emit(self, reference: Json, type: str, reason: str, message: str, *, action: str) -> None: ...


def vmi_document(*reported: str, pods: tuple[str, ...] = ("source",), vm: str = "v") -> Json:
    owner = {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "name": "warm-1", "uid": vm, "controller": True}
    labels = {"poolhouse.dev/warm-pool": "p"}
    interfaces = [{"ipAddress": each} for each in reported]
    return {
        "metadata": {"namespace": "ns", "name": "warm-1", "uid": "vmi", "labels": labels, "ownerReferences": [owner]},
        "status": {"interfaces": interfaces, "activePods": dict.fromkeys(pods, "node-1")},
    }


def a_vmi(*reported: str, **parts: Any) -> VMI:
    return parse_vmi_with_pods(vmi_document(*reported, **parts))


def a_claim(**status: Any) -> PodClaim:
    found = parse_claim(claim(**status))
    assert found is not None
    return found


async def read(vmi: VMI | None, claim: PodClaim, *launchers: Json) -> ConfirmedAddresses | None:
    api = cast(Api, Cluster(*launchers))
    return await AddressReader(lambda key: vmi, VMAgents(api, MACHINES).addresses).read(claim)


@pytest.mark.parametrize(
    ("addresses", "confirmed"),
    [
        pytest.param([SOURCE], (SOURCE,), id="the address of the launcher Pod"),
        pytest.param(["10.244.9.9"], (), id="the address of another Pod with the label"),
        pytest.param(["10.96.0.1", SOURCE], (SOURCE,), id="the address of a Service"),
        pytest.param(["192.168.7.20", "fd00:7::1"], ("192.168.7.20", "fd00:7::1"), id="networks of machines"),
        pytest.param(["169.254.169.254", "127.0.0.1", "fe80::1%eth0"], (), id="special addresses"),
        pytest.param([], (), id="none"),
    ],
)
async def test_a_guest_does_not_choose_the_address_of_its_pod(addresses: list[str], confirmed: tuple[str, ...]) -> None:
    found = await read(a_vmi(*addresses), a_claim(addresses=["10.9.9.9"]), launcher("source", SOURCE))
    assert found == ConfirmedAddresses(confirmed)


@pytest.mark.parametrize(
    ("vmi", "claim"),
    [
        pytest.param(None, a_claim(), id="the VM does not run"),
        pytest.param(a_vmi(SOURCE, vm="other"), a_claim(), id="another VM has the name now"),
        pytest.param(a_vmi(SOURCE), a_claim(phase="Released"), id="the claim has ended"),
    ],
)
async def test_nothing_is_known_of_the_addresses_without_the_vm(vmi: VMI | None, claim: PodClaim) -> None:
    assert await read(vmi, claim, launcher("source", SOURCE)) is None


async def test_the_addresses_of_an_instance_are_those_of_ec2() -> None:
    of_instance = a_claim(addresses=["10.0.0.9"], vm="", instanceRef={"id": "i-1"})
    assert await read(None, of_instance) == ConfirmedAddresses(("10.0.0.9",))


class Stores:
    """The stores of the controller with one Pod, its claim and its VMI."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.vmi = cluster, a_vmi(SOURCE)
        self.pod = parse_pod(pod(status={"phase": "Running", "podIP": SOURCE, "podIPs": [{"ip": SOURCE}]}))
        api, vm_agents = cast(Any, cluster), VMAgents(cast(Api, cluster), MACHINES)
        found = [cast(Any, _Store(each)) for each in (self.pod, a_claim(), a_pool())]
        self.controller = PodController(api, api, *found, AddressReader(lambda key: self.vmi, vm_agents.addresses))


class _Store:
    def __init__(self, found: Any) -> None:
        self.found = found

    def get(self, key: Any) -> Any:
        return self.found

    def by(self, index: str, value: str) -> list[Any]:
        return [self.found]


async def test_the_target_of_a_migration_gets_its_address_later() -> None:
    """The launcher Pod of the target has no address when the VMI names it, and no event says when it gets one."""
    cluster = Cluster(launcher("source", SOURCE), launcher("target"))
    stores = Stores(cluster)
    stores.vmi = a_vmi(TARGET, pods=("source", "target"))
    pauses = [await stores.controller.reconcile(KEY) or 0.0 for _ in range(12)]
    assert 0.5 < pauses[0] <= 1 < pauses[1] <= 2
    assert 30 < max(pauses) <= 60
    assert cluster.statuses[0]["podIP"] is None, "the guest does not have the address any more"
    cluster.launchers = launcher("source", SOURCE), launcher("target", TARGET)
    assert await stores.controller.reconcile(KEY) is None
    assert cluster.statuses[-1]["podIP"] == TARGET
    cluster.launchers = launcher("target"), launcher("source")
    assert await stores.controller.reconcile(KEY) is None, "the addresses of Pods that were seen do not change"


async def test_an_address_is_kept_while_the_api_server_says_nothing() -> None:
    stores = Stores(Cluster())

    async def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable("etcdserver: request timed out")

    stores.cluster.list = fail  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await stores.controller.reconcile(KEY)
    assert stores.cluster.statuses == []


async def test_a_migration_wakes_the_pod() -> None:
    api = cast(Api, Cluster())
    sources = Sources.of_node(api, "poolhouse")
    controller = build(api, cast(Any, None), sources, VMAgents(api))
    claimed = claim()
    sources.claims.change(("ns", CLAIM_OF_WEB), claimed)
    changes = [
        (vmi_document(), True),
        (vmi_document(SOURCE), True),
        (vmi_document(SOURCE) | {"spec": {"evictionStrategy": "LiveMigrate"}}, False),
        (vmi_document(SOURCE, pods=("source", "target")), True),
        (vmi_document(TARGET, pods=("target",)), True),
    ]
    while len(controller.queue):
        controller.queue.done(await controller.queue.get())
    for document, wakes in changes:
        sources.vmis.change(("ns", "warm-1"), document)
        assert len(controller.queue) == wakes
        if wakes:
            assert await controller.queue.get() == KEY
            controller.queue.done(KEY)
