from __future__ import annotations

from uuid import UUID

import pytest

from defaulter.identity import digest, firmware_id, mac_address, with_firmware_ids
from poolhouse.api.apimachinery.unstructured import Json
from tests.defaulter.builders import inner, pool, spec, vm


@pytest.mark.sentence("4.17")
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


def test_a_vm_gets_the_firmware_ids_that_defaulting_would_give_it() -> None:
    ids = inner(with_firmware_ids(vm(spec(), name="web-1"), "s"))["domain"]["firmware"]
    assert ids == {part: firmware_id("s", "ns", "web-1", part) for part in ("uuid", "serial")}


def test_firmware_ids_of_the_author_stay() -> None:
    document = vm(spec(domain={"firmware": {"uuid": "u", "bootloader": {"bios": {}}}}))
    ids = inner(with_firmware_ids(document, "s"))["domain"]["firmware"]
    assert ids == {"uuid": "u", "serial": firmware_id("s", "ns", "a", "serial"), "bootloader": {"bios": {}}}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pool(spec()), id="a template of many VMs"),
        pytest.param(vm(spec(), name=""), id="a VM without a name yet"),
        pytest.param(
            vm(spec()) | {"metadata": {"name": "a", "labels": {"poolhouse.dev/defaulting": "disabled"}}}, id="opted out"
        ),
        pytest.param({"kind": "VirtualMachine", "metadata": {"name": "a"}}, id="no spec"),
        pytest.param({"kind": "ConfigMap", "metadata": {"name": "a"}}, id="another kind"),
    ],
)
def test_no_firmware_ids_are_set(document: Json) -> None:
    assert with_firmware_ids(document, "s") == document
