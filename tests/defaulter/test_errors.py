"""The errors of a document: every problem at its path, with the messages of libvirt."""

from __future__ import annotations

import pytest

from tests.defaulter.builders import disk, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

D = "spec.template.spec.domain"


@pytest.mark.sentence("4.32")
def test_all_problems_are_reported_at_once_with_those_of_libvirt(libvirt: Libvirt) -> None:
    content = spec(
        disk("a", pciAddress="0000:05:01.0"),
        disk("b", bus="floppy"),
        nic("c", macAddress="zz", model="e2000"),
        domain={"machine": {"type": "q36"}, "cpu": {"cores": -1}},
    )
    assert set(libvirt.default(vm(content)).problems) == {
        f"{D}.devices.disks[0].disk.pciAddress",
        f"{D}.devices.disks[1].disk.bus",
        f"{D}.devices.interfaces[0].macAddress",
        f"{D}.devices.interfaces[0].model",
        f"{D}.machine.type",
        f"{D}.cpu.cores",
    }


def test_more_disks_than_ports_has_the_message_of_libvirt(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(spec(*(disk(f"d{index}") for index in range(250)))))
    assert answer.status == 422
    assert any("PCI" in message for message in answer.problems.values())
