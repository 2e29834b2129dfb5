"""To which addresses of a VM the controllers connect: never to one that only its guest names."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_network
from typing import Any

import pytest

from controllers.shared.subresources import Subresources
from controllers.warmpool.probe_address import Network, PodAddresses, is_own, probe_address
from controllers.warmpool.vm_agent import FOREIGN
from controllers.warmpool.vm_backend import VMBackend
from poolhouse.api.kinds.warm_readiness import Readiness, TcpProbe
from poolhouse.runtime.errors import Forbidden
from poolhouse.stack.engine.vmi.devices import interface_status
from poolhouse.stack.services import GUEST_NETWORK
from tests.controllers.warmpool.builders import NOW, a_vm, a_vmi

POD = "10.244.1.7"
MACHINES = (ip_network("192.168.7.0/24"), ip_network("fd00:7::/64"))


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        pytest.param([POD], POD, id="the Pod's address"),
        pytest.param(["10.244.9.9"], "", id="another Pod"),
        pytest.param(["10.244.9.9", POD], POD, id="the first that is its own"),
        pytest.param(["192.168.7.20"], "192.168.7.20", id="a network of machines"),
        pytest.param(["fd00:7::1"], "fd00:7::1", id="a network of machines, IPv6"),
        pytest.param(["127.0.0.1"], "", id="loopback"),
        pytest.param(["::1"], "", id="loopback, IPv6"),
        pytest.param(["::ffff:127.0.0.1"], "", id="loopback, mapped"),
        pytest.param([f"::ffff:{POD}"], POD, id="the Pod's address, mapped"),
        pytest.param(["169.254.169.254"], "", id="metadata service of a cloud"),
        pytest.param(["fe80::1"], "", id="link-local"),
        pytest.param(["192.168.7.1%eth0"], "", id="with a zone"),
        pytest.param(["fd00:7::1%1"], "", id="with a zone, IPv6"),
        pytest.param(["0.0.0.0"], "", id="no address"),
        pytest.param(["224.0.0.1"], "", id="multicast"),
        pytest.param(["kubernetes.default.svc"], "", id="a host name"),
        pytest.param([f"{POD}:80@10.244.9.9"], "", id="no address but text"),
        pytest.param([], "", id="none"),
    ],
)
def test_only_addresses_of_the_vm_are_probed(reported: list[str], found: str) -> None:
    assert probe_address(reported, [POD], MACHINES) == found


def test_special_addresses_are_never_probed() -> None:
    """Neither a Pod in a strange network nor a setting that is too wide leads to them."""
    everything: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    for address in ("127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "::"):
        assert probe_address([address], [address], everything) == ""


def test_vms_of_the_engine_have_addresses_that_may_be_probed() -> None:
    reported = interface_status("default", "52:54:00:00:00:01")["ipAddress"]
    assert probe_address([reported], (), (ip_network(GUEST_NETWORK),)) == reported


def test_own_addresses() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
        outside.connect(("192.0.2.1", 9))
        assert is_own(outside.getsockname()[0]), "of this machine"


def a_pod(uid: str, *addresses: str, host: bool = False) -> Any:
    status = {"podIPs": [{"ip": each} for each in addresses]}
    return {"metadata": {"uid": uid}, "spec": {"hostNetwork": True} if host else {}, "status": status}


class Pods:
    """An API server with these Pods."""

    def __init__(self, *pods: Any) -> None:
        self.pods, self.lists = pods, 0

    async def list(self, resource: Any, namespace: str, *, label_selector: str) -> Any:
        assert (namespace, label_selector) == ("ns", "kubevirt.io/created-by=vmi")
        self.lists += 1
        return list(self.pods), "1"


async def test_only_pods_that_kubevirt_names_give_addresses() -> None:
    """Any user may create a Pod with the label of a launcher Pod, also in the network of its node."""
    server = Pods(a_pod("own", POD, "fd00::7"), a_pod("forged", "10.244.9.9"), a_pod("node", "10.0.0.1", host=True))
    addresses = PodAddresses(server)
    assert await addresses(a_vmi(active_pods=("node", "own"))) == (POD, "fd00::7")
    assert await addresses(a_vmi(active_pods=("node", "own"))) == (POD, "fd00::7")
    assert server.lists == 1, "the addresses of a Pod never change"
    server.pods = (*server.pods, a_pod("target", "10.244.2.2"))
    assert await addresses(a_vmi(active_pods=("own", "target"))) == (POD, "fd00::7", "10.244.2.2"), "migrating"
    assert await addresses(a_vmi()) == ()
    assert server.lists == 2


async def test_the_target_of_a_migration_is_read_until_it_has_an_address() -> None:
    server = Pods(a_pod("source", POD), a_pod("target"))
    addresses, vmi = PodAddresses(server), a_vmi(active_pods=("source", "target"))
    assert (await addresses(vmi), addresses.knows_all(vmi)) == ((POD,), False)
    server.pods = (a_pod("source", POD), a_pod("target", "10.244.2.2"))
    assert (await addresses(vmi), addresses.knows_all(vmi)) == ((POD, "10.244.2.2"), True)


async def test_pods_without_addresses_are_read_again() -> None:
    server = Pods(a_pod("own"))
    addresses = PodAddresses(server)
    assert await addresses(a_vmi(active_pods=("own",))) == ()
    server.pods = (a_pod("own", POD),)
    assert await addresses(a_vmi(active_pods=("own",))) == (POD,)


def backend(server: Any, *machines: Network) -> VMBackend:
    api = server
    return VMBackend(api, server, Subresources(api, lambda: 0.0), lambda: NOW, machines)


async def test_a_guest_cannot_direct_a_probe_to_the_controllers() -> None:
    connected = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        readiness = Readiness(tcp=TcpProbe(port=listening.sockets[0].getsockname()[1]))
        vm = a_vm("a", vmi=a_vmi(addresses=("127.0.0.1",), active_pods=("own",)))
        found = await backend(Pods(a_pod("own", POD)), ip_network("0.0.0.0/0")).check(vm, readiness)
    assert (found.verdict, found.reason, found.message) == ("Failed", "ForeignAddress", FOREIGN)
    assert not connected.is_set()


async def test_checks_without_an_address_or_a_readable_pod() -> None:
    readiness = Readiness(tcp=TcpProbe(port=9))

    class Refusing:
        async def list(self, *given: Any, **options: Any) -> Any:
            raise Forbidden("no")

    vm = a_vm("a", vmi=a_vmi(active_pods=("own",)))
    assert (await backend(Refusing()).check(vm, readiness)).verdict == "Unable", "the VM may be healthy"
    assert (await backend(Refusing()).check(vm, Readiness())).verdict == "Healthy", "nothing connects"
    without = a_vm("a", vmi=a_vmi(addresses=()))
    assert (await backend(Pods()).check(without, readiness)).reason == "NoAddress"
