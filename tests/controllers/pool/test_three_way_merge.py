"""A new template in a VM that lives. Rows are: live, the old template, the new one, the result."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.pool.three_way_merge import merge_template

Json = dict[str, Any]


def vm(domain: Json | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    inner = {"domain": {"devices": {}, **(domain or {})}}
    return {"metadata": {"name": "web-1", **(metadata or {})}, "spec": {"template": {"spec": inner}, **spec}}


def devices(**kinds: list[Json]) -> Json:
    return {"devices": kinds}


DECIDED = {"machine": {"type": "pc-q35-7.2"}, "firmware": {"uuid": "u", "serial": "s"}}
NIC = {"name": "default", "masquerade": {}}
MAC = {**NIC, "macAddress": "02:00:00:00:00:01", "model": "virtio", "pciAddress": "0000:01:00.0"}


@pytest.mark.parametrize(
    ("live", "base", "new", "expected"),
    [
        pytest.param(
            vm({"cpu": {"cores": 1, "model": "host-model"}, **DECIDED}),
            vm({"cpu": {"cores": 1}}),
            vm({"cpu": {"cores": 2}}),
            vm({"cpu": {"cores": 2, "model": "host-model"}, **DECIDED}),
            id="what the author changed is changed, what was decided for the VM stays",
        ),
        pytest.param(
            vm({"machine": {"type": "pc-q35-7.2"}}),
            vm({"machine": {"type": "q35"}}),
            vm({"machine": {"type": "q35"}, "memory": {"vmi": "2Gi"}}),
            vm({"machine": {"type": "pc-q35-7.2"}, "memory": {"vmi": "2Gi"}}),
            id="a machine type that was made exact stays exact",
        ),
        pytest.param(
            vm(DECIDED),
            vm(),
            vm({"firmware": {"uuid": "mine"}}),
            vm({**DECIDED, "firmware": {"uuid": "mine", "serial": "s"}}),
            id="unless the template names another value",
        ),
        pytest.param(
            vm({"firmware": {"bootloader": {"efi": {}}, "uuid": "u"}}),
            vm({"firmware": {"bootloader": {"efi": {}}}}),
            vm(),
            vm({"firmware": {"uuid": "u"}}),
            id="what the author took away goes, what others put beside it stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[{"name": "new", "bridge": {}}, NIC])),
            vm(devices(interfaces=[{"name": "new", "bridge": {}}, MAC])),
            id="a new interface leaves the others' addresses alone",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[{**NIC, "model": "e1000e"}])),
            vm(devices(interfaces=[{**NIC, "macAddress": MAC["macAddress"], "model": "e1000e"}])),
            id="another model: the PCI address goes, the MAC stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC, {"name": "users", "bridge": {}}])),
            vm(devices(interfaces=[NIC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[MAC, {"name": "users", "bridge": {}}])),
            id="a device that a user added stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[MAC])),
            id="a device that the author took away goes",
        ),
        pytest.param(
            vm(devices(disks=[{"name": "root", "disk": {"bus": "virtio", "pciAddress": "0000:02:00.0"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "virtio"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "sata"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "sata"}}])),
            id="another bus: the address goes",
        ),
        pytest.param(
            vm(devices(disks=[{"name": "iso", "disk": {"bus": "virtio", "pciAddress": "0000:02:00.0"}}])),
            vm(devices(disks=[{"name": "iso", "disk": {"bus": "virtio"}}])),
            vm(devices(disks=[{"name": "iso", "cdrom": {"bus": "sata"}}])),
            vm(devices(disks=[{"name": "iso", "cdrom": {"bus": "sata"}}])),
            id="a disk that becomes a CD-ROM is a disk no longer",
        ),
        pytest.param(
            vm(running=False), vm(running=True), vm({"cpu": {"cores": 2}}, running=True),
            vm({"cpu": {"cores": 2}}, running=False),
            id="a VM that somebody stopped stays stopped",
        ),
        pytest.param(
            vm(runStrategy="Always"),
            vm(running=False),
            vm(running=True),
            vm(running=True),
            id="running and runStrategy are never both there",
        ),
        pytest.param(
            vm(metadata={"labels": {"a": "1", "users": "x"}, "annotations": {"users": "y"}}),
            vm(metadata={"labels": {"a": "1"}}),
            vm(metadata={"labels": {"b": "2"}}),
            vm(metadata={"labels": {"users": "x", "b": "2"}, "annotations": {"users": "y"}}),
            id="labels and annotations of others stay",
        ),
        pytest.param(
            vm({"cpu": {"cores": 1}, **DECIDED}, metadata={"labels": {"a": "1"}}),
            None,
            vm({"cpu": {"cores": 2}}, metadata={"labels": {"b": "2"}}),
            vm({"cpu": {"cores": 2}, **DECIDED}, metadata={"labels": {"a": "1", "b": "2"}}),
            id="where the old template is lost, nothing is taken away",
        ),
        pytest.param(
            vm(dataVolumeTemplates=[{"metadata": {"name": "root-1"}, "spec": {"size": 1}}]),
            vm(dataVolumeTemplates=[{"metadata": {"name": "root-1"}, "spec": {"size": 1}}]),
            vm(
                dataVolumeTemplates=[
                    {"metadata": {"name": "data-1"}, "spec": {}},
                    {"metadata": {"name": "root-1"}, "spec": {"size": 1}},
                ]
            ),
            vm(
                dataVolumeTemplates=[
                    {"metadata": {"name": "data-1"}, "spec": {}},
                    {"metadata": {"name": "root-1"}, "spec": {"size": 1}},
                ]
            ),
            id="a further disk comes beside those there are",
        ),
        pytest.param(
            vm({"x": ["a", "b", "mine"]}), vm({"x": ["a"]}), vm({"x": ["c"]}), vm({"x": ["c"]}),
            id="a list without names is taken as a whole",
        ),
        pytest.param(
            vm({"x": ["a", "mine"]}), vm({"x": ["a"]}), vm({"x": ["a"], "y": 1}), vm({"x": ["a", "mine"], "y": 1}),
            id="and left alone as a whole",
        ),
    ],
)  # fmt: skip
def test_an_update(live: Json, base: Json | None, new: Json, expected: Json) -> None:
    before = copy.deepcopy((live, base, new))
    assert merge_template(live, base, new) == expected
    assert (live, base, new) == before, "nothing that was given is changed"


def test_an_equal_template_changes_nothing() -> None:
    live = vm({**DECIDED, **devices(interfaces=[MAC])}, metadata={"labels": {"users": "x"}})
    assert merge_template(live, vm(), vm()) == live


def test_a_second_merge_changes_nothing() -> None:
    live, base = vm({"cpu": {"cores": 1}, **DECIDED}), vm({"cpu": {"cores": 1}})
    new = vm({"cpu": {"cores": 2}, "memory": {"vmi": "1Gi"}})
    once = merge_template(live, base, new)
    assert merge_template(once, new, new) == once
    assert merge_template(once, base, new) == once
