"""An update keeps the values of the stored document where the new one leaves them unset."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt


class TestUpdate:
    """The stored document, and the one that replaces it."""

    @pytest.fixture
    def stored(self, libvirt: Libvirt) -> dict[str, Any]:
        return libvirt.default(vm(spec(disk("root"), disk("data"), nic(), domain={"machine": {"type": "q35"}}))).object

    def test_applying_the_bare_manifest_again_keeps_stored_hardware(
        self, libvirt: Libvirt, stored: dict[str, Any]
    ) -> None:
        bare = vm(spec(disk("root"), disk("data"), nic(), domain={"machine": {"type": "q35"}}))
        assert libvirt.default(bare, oldObject=stored).object["spec"] == stored["spec"]

    def test_stored_values_stay_with_another_seed(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        bare = vm(spec(disk("root"), disk("data"), nic()))
        assert libvirt.default(bare, oldObject=stored, seed="x").object["spec"] == stored["spec"]

    def test_an_older_machine_stays_though_the_alias_has_moved(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        inner(stored)["domain"]["machine"]["type"] = "pc-q35-6.0"
        bare = vm(spec(disk("root"), disk("data"), nic(), domain={"machine": {"type": "q35"}}))
        answer = libvirt.default(bare, oldObject=stored)
        assert inner(answer.object)["domain"]["machine"]["type"] == "pc-q35-6.0"
        assert [w for w in answer.warnings if "pc-q35-6.0" in w]

    def test_new_devices_take_free_places_and_nothing_else_moves(
        self, libvirt: Libvirt, stored: dict[str, Any]
    ) -> None:
        bare = vm(spec(disk("first"), disk("root"), disk("data"), nic("zero"), nic()))
        before, after = addresses(stored), addresses(libvirt.default(bare, oldObject=stored).object)
        assert {name: after[name] for name in before} == before
        assert len(set(after.values())) == 5
        assert None not in after.values()

    def test_what_is_removed_is_not_brought_back(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        answer = libvirt.default(vm(spec(disk("data"))), oldObject=stored).object
        assert addresses(answer) == {"data": addresses(stored)["data"]}

    def test_an_address_goes_with_its_bus(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        answer = libvirt.default(vm(spec(disk("root", bus="sata"), disk("data"), nic())), oldObject=stored).object
        assert addresses(answer) == {**addresses(stored), "root": None}

    def test_an_address_goes_with_its_model(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        bare = vm(spec(disk("root"), disk("data"), nic(model="rtl8139")))
        answer = libvirt.default(bare, oldObject=stored).object
        assert addresses(answer)["default"] is None
        assert inner(answer)["domain"]["devices"]["interfaces"][0]["macAddress"]

    @pytest.mark.parametrize("device", [disk("root", bus="sata"), nic(model="rtl8139")], ids=["bus", "model"])
    def test_recorded_or_not_it_is_the_same_machine(
        self, libvirt: Libvirt, recording: Libvirt, stored: dict[str, Any], device: dict[str, Any]
    ) -> None:
        given = {each["name"]: each for each in (disk("root"), disk("data"), nic(), device)}
        bare = vm(spec(*given.values()))
        recorded = recording.default(stored).object
        answer = recording.default(bare, oldObject=recorded).object
        assert inner(answer) == inner(libvirt.default(bare, oldObject=stored).object)

    def test_an_address_given_to_another_device_is_not_kept(self, libvirt: Libvirt, stored: dict[str, Any]) -> None:
        bare = vm(spec(disk("root"), disk("data"), disk("new", pciAddress="0000:07:00.0"), nic()))
        after = addresses(libvirt.default(bare, oldObject=stored).object)
        assert after["new"] == "0000:07:00.0"
        assert len(set(after.values())) == 4

    @pytest.mark.parametrize("dashed", [False, True])
    def test_a_mac_given_to_another_nic_is_not_kept(
        self, libvirt: Libvirt, stored: dict[str, Any], dashed: bool
    ) -> None:
        (before,) = inner(stored)["domain"]["devices"]["interfaces"]
        given = before["macAddress"].upper().replace(":", "-") if dashed else before["macAddress"]
        bare = vm(spec(disk("root"), disk("data"), nic(), nic("new", macAddress=given)))
        own, new = inner(libvirt.default(bare, oldObject=stored).object)["domain"]["devices"]["interfaces"]
        assert new["macAddress"] == given
        assert own["macAddress"] != before["macAddress"]

    def test_an_update_without_new_hardware_does_not_ask_libvirt(
        self, libvirt: Libvirt, stored: dict[str, Any]
    ) -> None:
        impossible = deepcopy(stored)
        inner(impossible)["domain"]["machine"]["type"] = "pc-q35-99.0"
        changed = deepcopy(impossible) | {"metadata": {"name": "a", "namespace": "ns", "labels": {"a": "b"}}}
        assert libvirt.default(changed, oldObject=impossible).object == changed


def test_a_default_that_is_new_does_not_make_a_stored_vm_restart(libvirt: Libvirt) -> None:
    stored = libvirt.default(vm(spec(disk(), nic()))).object
    del inner(stored)["domain"]["devices"]["video"]
    edited = deepcopy(stored)
    edited["spec"]["runStrategy"] = "Halted"
    assert libvirt.default(edited, oldObject=stored).object == edited
