from __future__ import annotations

from uuid import UUID

from defaulter.identity import digest, firmware_id, mac_address


def test_the_same_vm_always_gets_the_same_identity() -> None:
    assert mac_address("s", "ns", "a", "default") == mac_address("s", "ns", "a", "default")
    assert firmware_id("s", "ns", "a", "uuid") == firmware_id("s", "ns", "a", "uuid")


def test_any_difference_gives_another_identity() -> None:
    ways = [
        ("s", "ns", "a", "d"),
        ("t", "ns", "a", "d"),
        ("s", "nt", "a", "d"),
        ("s", "ns", "b", "d"),
        ("s", "ns", "a", "e"),
    ]
    assert len({mac_address(*way) for way in ways}) == len(ways)
    assert len({firmware_id(*way) for way in ways}) == len(ways)


def test_the_border_between_parts_matters() -> None:
    assert digest("ab", "c") != digest("a", "bc")


def test_addresses_are_locally_administered_and_unicast() -> None:
    for index in range(2000):
        first = int(mac_address("s", "ns", f"vm-{index}", "default")[:2], 16)
        assert first & 0b11 == 0b10
        assert first != 0xFE, "libvirt keeps those for the host's side"


def test_fifty_thousand_vms_have_different_addresses() -> None:
    assert len({mac_address("s", "ns", f"vm-{index}", "default") for index in range(50_000)}) == 50_000


def test_a_taken_address_is_not_used_again() -> None:
    first = mac_address("s", "ns", "a", "default")
    assert mac_address("s", "ns", "a", "default", frozenset({first})) != first


def test_firmware_ids_are_uuids_of_the_custom_version() -> None:
    assert UUID(firmware_id("s", "ns", "a", "uuid")).version == 8


def test_a_lone_surrogate_in_a_name_is_hashed_like_any_other() -> None:
    assert mac_address("s", "ns", "\ud800", "default")
