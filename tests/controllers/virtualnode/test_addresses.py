"""Which of the addresses of a VM become those of its Pod."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any, cast

import pytest

from controllers.virtualnode.addresses import AddressReader
from controllers.virtualnode.pod import PodClaim, parse_claim
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import Resource
from tests.controllers.virtualnode.pods import Json, claim

MACHINES = (ip_network("192.168.7.0/24"), ip_network("fd00:7::/64"))
LAUNCHER = {"metadata": {"uid": "launcher"}, "status": {"podIPs": [{"ip": "10.244.1.7"}]}}
FOREIGN = {"metadata": {"uid": "foreign"}, "status": {"podIPs": [{"ip": "10.244.9.9"}]}}


class Cluster:
    """A VMI whose guest reports addresses, and the Pods that carry its label."""

    def __init__(self, *reported: str) -> None:
        self.reported, self.reads = reported, 0

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        self.reads += 1
        if not self.reported:
            raise NotFound("gone")
        status = {"interfaces": [{"ipAddress": each} for each in self.reported], "activePods": {"launcher": "node-1"}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": "vmi"}, "status": status}

    async def list(self, resource: Resource, namespace: str, **selector: str) -> tuple[list[Json], str]:
        return [FOREIGN, LAUNCHER], ""


def reported(*addresses: str, **status: Any) -> PodClaim:
    found = parse_claim(claim(addresses=list(addresses), **status))
    assert found is not None
    return found


def reader(cluster: Cluster) -> AddressReader:
    api = cast(Api, cluster)
    return AddressReader(api, VMAgents(api, MACHINES).addresses)


@pytest.mark.parametrize(
    ("addresses", "confirmed"),
    [
        pytest.param(["10.244.1.7"], ("10.244.1.7",), id="the address of the launcher Pod"),
        pytest.param(["10.244.9.9"], (), id="the address of another Pod with the label"),
        pytest.param(["10.96.0.1", "10.244.1.7"], ("10.244.1.7",), id="the address of a Service"),
        pytest.param(["192.168.7.20", "fd00:7::1"], ("192.168.7.20", "fd00:7::1"), id="networks of machines"),
        pytest.param(["169.254.169.254", "127.0.0.1", "fe80::1%eth0"], (), id="special addresses"),
        pytest.param([], (), id="none"),
    ],
)
async def test_a_guest_does_not_choose_the_address_of_its_pod(addresses: list[str], confirmed: tuple[str, ...]) -> None:
    assert await reader(Cluster(*addresses)).read(reported(*addresses)) == confirmed


async def test_a_vmi_is_read_once_for_its_addresses() -> None:
    cluster = Cluster("10.244.1.7")
    addresses = reader(cluster)
    for _ in range(3):
        assert await addresses.read(reported("10.244.1.7")) == ("10.244.1.7",)
    assert cluster.reads == 1
    cluster.reported = ("10.244.1.7", "192.168.7.20")
    assert len(await addresses.read(reported(*cluster.reported))) == 2


async def test_a_vm_that_has_gone_has_no_address() -> None:
    assert await reader(Cluster()).read(reported("10.244.1.7")) == ()
    assert await reader(Cluster()).read(reported("10.244.1.7", phase="Released")) == ()


async def test_the_addresses_of_an_instance_are_those_of_ec2() -> None:
    of_instance = reported("10.0.0.9", vm="", instanceRef={"id": "i-1"})
    cluster = Cluster("10.0.0.9")
    assert (await reader(cluster).read(of_instance), cluster.reads) == (("10.0.0.9",), 0)
