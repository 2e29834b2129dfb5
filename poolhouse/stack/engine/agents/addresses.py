"""Gives each NIC of a simulated guest an address of its own."""

import hashlib
from ipaddress import IPv4Network
from itertools import count

from poolhouse.stack.engine.objects import VMI

NETWORK = IPv4Network("198.18.0.0/15")
"""a network for benchmarks (RFC 2544), which no router forwards: no real machine has one of its addresses"""


class GuestAddresses:
    """The addresses of all guests. An address depends on the VMI's UID, unless another guest has it."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str]] = {}
        """UID of the VMI and name of the NIC, by address"""

    def address(self, uid: str, nic: str) -> str:
        for attempt in count():
            drawn = hashlib.sha256(f"{uid}/{nic}/{attempt}".encode()).digest()
            found = str(NETWORK[1 + int.from_bytes(drawn[:8]) % (NETWORK.num_addresses - 2)])
            if self._owners.setdefault(found, (uid, nic)) == (uid, nic):
                return found
        raise AssertionError("count never ends")

    def owner(self, address: str) -> str:
        """The UID of the VMI with this address. Empty without one."""
        return self._owners.get(address, ("", ""))[0]

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            for address, _ in _addresses(old):
                if self.owner(address) == old.uid:
                    del self._owners[address]
        if new is not None:
            for address, nic in _addresses(new):
                self._owners.setdefault(address, (new.uid, nic))


def _addresses(vmi: VMI) -> list[tuple[str, str]]:
    given = vmi.status.get("interfaces") or ()
    return [(str(each["ipAddress"]), str(each.get("name"))) for each in given if each.get("ipAddress")]
