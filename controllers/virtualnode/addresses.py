"""Confirms the addresses that VMs report, before they become those of Pods.

A guest may have reported the addresses in the status of its claim. Services send the requests of others to the address
of a Pod, so a guest must not choose it, as it must not choose the address of its agent.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from controllers.shared.vmi import VMI, parse_vmi_with_pods
from controllers.virtualnode.pod import PodClaim
from controllers.warmpool.probe_address import MAX_KNOWN
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS

Addresses = tuple[str, ...]


@dataclass(frozen=True)
class AddressReader:
    api: Api
    confirmed: Callable[[VMI], Awaitable[list[str]]]
    """the reported addresses that the VM really has"""
    _known: dict[str, tuple[Addresses, Addresses]] = field(default_factory=dict)
    """reported and confirmed addresses, by UID of the claim"""

    async def read(self, claim: PodClaim) -> Addresses:
        """The confirmed addresses of the claim's VM. EC2 reports those of instances, not the guest."""
        if claim.on_ec2 or claim.finished or not claim.vm or not claim.addresses:
            self._known.pop(claim.uid, None)
            return claim.addresses if claim.on_ec2 else ()
        reported, found = self._known.get(claim.uid, ((), ()))
        if reported == claim.addresses:
            return found
        try:
            vmi = parse_vmi_with_pods(await self.api.get(VMIS, claim.namespace, claim.vm))
        except NotFound:
            return ()
        found = tuple(await self.confirmed(vmi))
        if found:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[claim.uid] = claim.addresses, found
        return found
