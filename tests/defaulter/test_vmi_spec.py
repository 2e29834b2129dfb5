"""Which specs hold PCI addresses, and the aliases of devices with unusual names."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.undefaulted import undefaulted_fields
from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt


@pytest.mark.parametrize(
    ("content", "annotations"),
    [
        pytest.param(spec(disk(), nic()), {"kubevirt.io/placePCIDevicesOnRootComplex": "true"}, id="root complex"),
        pytest.param(spec(disk(), nic(model="e1000")), None, id="conventional PCI NIC"),
        pytest.param(spec(disk(), nic(), architecture="s390x"), None, id="s390x"),
    ],
)
def test_no_address_is_missing_where_the_spec_cannot_hold_it(
    content: dict[str, Any], annotations: dict[str, Any] | None
) -> None:
    assert not [path for path in undefaulted_fields(vm(content, annotations=annotations)) if "pciAddress" in path]


@pytest.mark.libvirt
@pytest.mark.parametrize(
    ("content", "annotations"),
    [
        pytest.param(spec(disk(), nic()), {"kubevirt.io/placePCIDevicesOnRootComplex": "true"}, id="root complex"),
        pytest.param(spec(disk(), nic(model="e1000")), None, id="conventional PCI NIC"),
    ],
)
def test_no_address_is_set_where_the_next_define_would_reject_it(
    libvirt: Libvirt, content: dict[str, Any], annotations: dict[str, Any] | None
) -> None:
    answer = libvirt.default(vm(content, annotations=annotations))
    assert set(addresses(answer.object).values()) == {None}
    assert [w for w in answer.warnings if "PCI addresses are not set" in w]
    assert libvirt.default(answer.object).object == answer.object


@pytest.mark.libvirt
@pytest.mark.parametrize("name", ["<b>", "a&b", "]]>", "'\"", "a" * 300, "ä", "../../etc", "a b", "%s%n", "\u202e"])
def test_markup_in_names_and_serials_stays_text(libvirt: Libvirt, name: str) -> None:
    answer = libvirt.default(vm(spec(disk(name), domain={"firmware": {"serial": name}})))
    device = inner(answer.object)["domain"]["devices"]["disks"][0]
    assert device["name"] == name
    assert device["disk"]["pciAddress"]
