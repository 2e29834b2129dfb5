"""Decides to which address of a VM a readiness check connects.

The address in a VMI's status may be the guest's own word, by its agent. The controllers reach more than a tenant does,
such as the API server, metadata services of the cloud and other tenants' Pods, so that a guest must not direct them.
"""

import socket
from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import PODS

Network = IPv4Network | IPv6Network

MAX_KNOWN = 20_000


def probe_address(reported: Iterable[str], of_pods: Collection[str], machines: Sequence[Network]) -> str:
    """The first of the confirmed addresses, or an empty string."""
    return next(iter(confirmed_addresses(reported, of_pods, machines)), "")


def confirmed_addresses(reported: Iterable[str], of_pods: Collection[str], machines: Sequence[Network]) -> list[str]:
    """The reported addresses that a Pod of the VM has, or that are in a network of machines."""
    known = {parse_address(each) for each in of_pods}
    found = filter(None, map(parse_address, reported))
    return [str(each) for each in found if each in known or any(each in network for network in machines)]


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """None for addresses of the reader's own host and link, and for a host name, which a name server would resolve to
    any address."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    address = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    return None if _is_near(address) else address


def _is_near(address: IPv4Address | IPv6Address) -> bool:
    scoped = isinstance(address, IPv6Address) and address.scope_id is not None
    special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    return scoped or special


def is_own(address: str) -> bool:
    """Whether this process would connect to its own Pod or host. No packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
        except OSError:  # no route: the check itself reports this
            return False


class PodAddresses:
    """Reads the addresses that Kubernetes gave to the launcher Pods of VMIs. Any user may create a Pod with the label
    of such a Pod, so only those count that KubeVirt names in the VMI's status."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """UIDs of the Pods and their addresses, by UID of the VMI"""

    async def __call__(self, vmi: VMI) -> tuple[str, ...]:
        """Raises the API server's error."""
        if self.knows_all(vmi):
            return self._known[vmi.uid][1] if vmi.active_pods else ()
        pods, _ = await self._api.list(PODS, vmi.namespace, label_selector=f"{meta.KUBEVIRT_CREATED_BY}={vmi.uid}")
        active = {pod["metadata"]["uid"]: pod for pod in pods if pod["metadata"]["uid"] in vmi.active_pods}
        given = {uid: addresses for uid, pod in active.items() if (addresses := _addresses(pod))}
        found = tuple(
            each for uid, addresses in given.items() if not _in_host_network(active[uid]) for each in addresses
        )
        if len(given) == len(vmi.active_pods):
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[vmi.uid] = vmi.active_pods, found
        return found

    def knows_all(self, vmi: VMI) -> bool:
        """Whether each launcher Pod of the VMI had an address when it was read. The target of a live migration has none
        at first."""
        return not vmi.active_pods or self._known.get(vmi.uid, ((), ()))[0] == vmi.active_pods


def _addresses(pod: Json) -> list[str]:
    return [each["ip"] for _, each in entries(pod, "status", "podIPs") if isinstance(each.get("ip"), str)]


def _in_host_network(pod: Json) -> bool:
    """Whether the address of the Pod is that of its node."""
    return at(pod, "spec", "hostNetwork") is True
