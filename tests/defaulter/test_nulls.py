"""Null means the same as no value, in every field of a VM."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.added_devices import possible_starts
from defaulter.inventory import devices_of_spec
from defaulter.vm_paths import locate
from poolhouse.api.apimachinery.unstructured import at, replaced, without_nulls
from poolhouse.api.kubevirt.fields import VMI_SPEC
from tests.defaulter import goldens
from tests.defaulter.builders import spec, vm, vmi
from tests.defaulter.conftest import Libvirt
from tests.kubevirt.nulls import with_nulls


def nulled(document: Any) -> Any:
    where = locate(document)
    return replaced(document, with_nulls(at(document, *where.spec), VMI_SPEC), *where.spec)


NAMES = [name for name in goldens.NAMES if locate(goldens.given(name)) is not None]


@pytest.mark.parametrize("name", NAMES)
def test_the_domain_of_a_vm_with_nulls_is_the_same(name: str) -> None:
    document = goldens.given(name)
    assert goldens.asked(nulled(document)) == goldens.asked(document)


@pytest.mark.parametrize("name", NAMES)
def test_the_devices_of_a_vm_with_nulls_are_the_same(name: str) -> None:
    document = goldens.given(name)
    assert devices_of_spec(nulled(document)) == devices_of_spec(document)


def test_a_running_vmi_with_nulls_started_like_one_without() -> None:
    disk = {"name": "data", "disk": {"bus": "virtio", "pciAddress": "0000:08:00.0"}}
    nics = [
        {"name": name, "bridge": {}, "model": "virtio", "pciAddress": f"0000:0{bus}:00.0"}
        for bus, name in ((1, "default"), (2, "blue"), (9, "red"))
    ]
    content = {
        "domain": {"machine": {"type": "q35"}, "devices": {"disks": [disk], "interfaces": nics}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}],
        "networks": [
            {"name": "default", "pod": {}},
            *({"name": name, "multus": {"networkName": name}} for name in ("blue", "red")),
        ],
    }
    document = vmi(content)
    where = locate(document)
    assert where is not None
    plain, found = possible_starts(document, where), possible_starts(nulled(document), where)
    assert plain
    assert len(plain) > 1
    assert without_nulls(found) == plain


@pytest.mark.libvirt
def test_sriov_null_beside_a_binding(libvirt: Libvirt) -> None:
    plain = {"name": "default", "masquerade": {}}
    answers = []
    for interface in (plain, {**plain, "sriov": None}):
        document = vm(spec(domain={"devices": {"interfaces": [interface]}}, networks=[{"name": "default", "pod": {}}]))
        answer = libvirt.default(document, seed="s").object
        (nic,) = at(answer, "spec", "template", "spec", "domain", "devices", "interfaces")
        answers.append(without_nulls(nic))
    assert answers[0] == answers[1]
    assert answers[1]["model"] == "virtio"
    assert answers[1]["pciAddress"] == "0000:01:00.0"
    assert answers[1]["macAddress"]
