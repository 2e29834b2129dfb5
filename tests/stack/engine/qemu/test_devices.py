"""Hotplugs of a domain: what libvirt is asked to attach and to detach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poolhouse.api.kubevirt.fields import VMI_SPEC
from poolhouse.stack.engine.qemu.devices import plan_devices, read_devices
from poolhouse.stack.engine.qemu.domain_xml import VolumeFile
from poolhouse.stack.engine.vmi.devices import DeviceReport
from tests.kubevirt.nulls import with_nulls

Json = dict[str, Any]

RUNNING = """<domain><devices>
  <disk type='file'><target dev='vda' bus='virtio'/><alias name='ua-root'/></disk>
  <disk type='file'><target dev='vdc' bus='virtio'/><alias name='ua-data'/></disk>
  <interface type='user'><mac address='52:54:00:00:00:01'/><alias name='ua-net'/></interface>
  <controller type='pci' index='0'><alias name='pcie.0'/></controller>
</devices></domain>"""
FILES = {name: VolumeFile(Path(f"/disks/{name}.qcow2")) for name in ("root", "data", "more")}


def vmi(disks: list[str], nics: list[Json]) -> Json:
    listed = [{"name": name, "disk": {"bus": "virtio", "pciAddress": "0000:0a:00.0"}} for name in disks]
    return {"spec": {"domain": {"devices": {"disks": listed, "interfaces": nics}}}}


NET: Json = {"name": "net", "bridge": {}}


@pytest.mark.parametrize(
    ("wanted", "pending", "detach", "attach"),
    [
        pytest.param(vmi(["root", "data"], [NET]), (), [], [], id="nothing has changed"),
        pytest.param(vmi(["root"], [NET]), (), ["ua-data"], [], id="a disk is gone"),
        pytest.param(vmi(["root", "data"], []), (), ["ua-net"], [], id="a NIC is gone"),
        pytest.param(vmi(["root", "data"], [{**NET, "state": "absent"}]), (), ["ua-net"], [], id="a NIC is absent"),
        pytest.param(vmi(["root", "data", "more"], [NET]), (), [], ["ua-more", "vdb", "0x0a"], id="a new disk"),
        pytest.param(vmi(["root", "data", "more"], [NET]), ("more",), [], [], id="its volume is not ready"),
        pytest.param(
            vmi(["root", "data"], [NET, {"name": "second", "pciAddress": "0000:02:00.0"}]),
            (),
            [],
            ["ua-second", "0x02"],
            id="a new NIC",
        ),
    ],
)
def test_the_domain_follows_the_vmi(wanted: Json, pending: Any, detach: list[str], attach: list[str]) -> None:
    changes = plan_devices(RUNNING, wanted, FILES, pending)
    nulled = {"spec": with_nulls(wanted["spec"], VMI_SPEC)}
    assert plan_devices(RUNNING, nulled, FILES, pending) == changes
    assert len(changes.detach) == bool(detach)
    assert len(changes.attach) == bool(attach)
    assert all(text in "".join(changes.detach) for text in detach)
    assert all(text in "".join(changes.attach) for text in attach)


def test_devices_of_a_running_domain() -> None:
    assert read_devices(RUNNING, "no") == DeviceReport(
        {"root": "vda", "data": "vdc"}, {"net": "52:54:00:00:00:01"}, "no"
    )
