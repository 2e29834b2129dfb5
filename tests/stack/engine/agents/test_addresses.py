"""Each simulated guest has an address of its own."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

from poolhouse.stack.engine.agents.addresses import NETWORK, GuestAddresses
from poolhouse.stack.engine.vmi.devices import interface_status
from tests.stack.engine.builders import vmi

GUESTS = 5000


def test_guests_never_share_an_address() -> None:
    addresses = GuestAddresses()
    given = [addresses.address(f"uid-{number}", "default") for number in range(GUESTS)]
    assert len(set(given)) == GUESTS
    assert all(ip_address(each) in NETWORK for each in given)
    drawn_alone = [GuestAddresses().address(f"uid-{number}", "default") for number in range(GUESTS)]
    assert len(set(drawn_alone)) < GUESTS, "some of these guests would have shared an address"


def test_an_address_stays_and_is_free_again_after_its_guest() -> None:
    first = GuestAddresses().address("a", "default")
    guest = replace(vmi(), uid="b", status={"interfaces": [interface_status("default", "", first)]})
    restarted = GuestAddresses()
    restarted.vmi_changed(None, guest)
    assert restarted.owner(first) == "b"
    assert restarted.address("a", "default") != first, "a guest of before the restart has it"
    restarted.vmi_changed(guest, None)
    assert restarted.owner(first) == ""
