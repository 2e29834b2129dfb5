"""Confirms the addresses that VMs report, before they become those of Pods.

A guest may have reported the addresses of its VM. Services send the requests of others to the address of a Pod, so a
guest must not choose it, as it must not choose the address of its agent.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from controllers.shared.vmi import VMI
from controllers.virtualnode.pod import PodClaim
from controllers.warmpool.vm_agent import ConfirmedAddresses
from poolhouse.runtime.resource import Key


@dataclass(frozen=True)
class AddressReader:
    vmi_of: Callable[[Key], VMI | None]
    confirm: Callable[[VMI], Awaitable[ConfirmedAddresses]]

    async def read(self, claim: PodClaim) -> ConfirmedAddresses | None:
        """The confirmed addresses of the claim's VM; None if the VM does not run. EC2 reports those of instances, not
        the guest. Raises the API server's error."""
        if claim.on_ec2:
            return ConfirmedAddresses(claim.addresses or ())
        vmi = self.vmi_of((claim.namespace, claim.vm))
        if claim.finished or vmi is None or vmi.owner_uid != claim.vm_uid:
            return None
        return await self.confirm(vmi)
