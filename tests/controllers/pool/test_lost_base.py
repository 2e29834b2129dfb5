"""What an update without the former template may have left in a VM."""

from __future__ import annotations

import pytest

from apimachinery.unstructured import Json
from controllers.pool.lost_base import show, unexplained_fields

DISK = {"name": "root", "disk": {"bus": "virtio"}}
NIC = {"name": "default", "masquerade": {}}


def vm(**spec: object) -> Json:
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"template": {"spec": spec}}}


def devices(**found: object) -> Json:
    return {"devices": found}


@pytest.mark.parametrize(
    ("live", "new", "left"),
    [
        pytest.param(vm(hostname="x"), vm(), ("hostname",), id="a field"),
        pytest.param(vm(hostname="x"), vm(hostname="y"), (), id="a changed field"),
        pytest.param(vm(hostname=""), vm(), (), id="an empty field"),
        pytest.param(vm(dnsConfig={"nameservers": ["10.0.0.1"]}), vm(), ("dnsConfig.nameservers",), id="an object"),
        pytest.param(
            vm(domain=devices(disks=[DISK, {"name": "data", "disk": {}}])),
            vm(domain=devices(disks=[DISK])),
            ("domain.devices.disks[data]",),
            id="a disk",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}, {"name": "data"}]),
            vm(volumes=[{"name": "root"}]),
            ("volumes[data]",),
            id="a volume",
        ),
        pytest.param(
            vm(domain={"firmware": {"uuid": "u", "serial": "s"}, "machine": {"type": "pc-q35-9.2"}}),
            vm(),
            (),
            id="hardware that defaulting fills",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}], domain=devices(disks=[DISK], interfaces=[NIC]), networks=[{"name": "a"}]),
            vm(volumes=[{"name": "root"}]),
            (),
            id="devices that KubeVirt adds",
        ),
        pytest.param(
            vm(volumes=[{"name": "root"}], domain=devices(disks=[DISK])),
            vm(volumes=[{"name": "root"}], domain=devices(disks=[])),
            (),
            id="a disk of a volume",
        ),
        pytest.param(
            vm(architecture="amd64", domain={"features": {"acpi": {"enabled": True}}}), vm(), (), id="virt-api"
        ),
    ],
)
def test_fields_that_nothing_explains(live: Json, new: Json, left: tuple[str, ...]) -> None:
    assert unexplained_fields(live, new) == left


def test_many_are_counted() -> None:
    assert show(tuple("abcdefg")) == "a, b, c, d, e and 2 more"
