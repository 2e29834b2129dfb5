"""The domain XML of VMIs against golden files, which `POOLHOUSE_REFRESH=1` rewrites."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from defaulter.contract import HARDWARE_ANNOTATION
from poolhouse.api.kubevirt.fields import VMI_SPEC
from poolhouse.stack.engine.qemu.domain_xml import (
    DomainContext,
    InvalidDomain,
    VolumeFile,
    domain_xml,
    with_recorded_hardware,
)
from poolhouse.stack.engine.qemu.guest_image import GuestImage
from tests.kubevirt.nulls import with_nulls

FILES = Path(__file__).parent / "xml"
UID = "00000000-0000-0000-0000-000000000001"


def vmi(**domain: Any) -> dict[str, Any]:
    metadata = {"name": "vm", "namespace": "default", "uid": UID}
    return {"metadata": metadata, "spec": {"domain": {"devices": {}} | domain}}


def host(**changes: Any) -> DomainContext:
    return DomainContext(**({"marker": "/dir", "console": Path("/consoles/vm.log")} | changes))


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.yaml")))
def test_domain_xml_matches_the_golden_file(name: str) -> None:
    asked = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    volumes = [volume["name"] for volume in asked["spec"].get("volumes", ())]
    sources = {volume: VolumeFile(Path(f"/disks/{volume}.qcow2")) for volume in volumes}
    guest = GuestImage(Path("/boot/vmlinuz"), Path("/boot/initrd")) if name.startswith("tiny") else None
    made = domain_xml(asked, sources, host(guest=guest, kvm="kvm" in name))
    golden = FILES / f"{name}.xml"
    if os.environ.get("POOLHOUSE_REFRESH"):
        golden.write_text(made)
    assert made == golden.read_text()
    nulled = {**asked, "spec": with_nulls(asked["spec"], VMI_SPEC)}
    assert domain_xml(nulled, sources, host(guest=guest, kvm="kvm" in name)) == made


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param({"memory": {"guest": "lots"}}, id="no memory"),
        pytest.param({"devices": {"disks": [{"name": "d", "disk": {"bus": "floppy"}}]}}, id="no such bus"),
        pytest.param({"devices": {"interfaces": [{"name": "n", "pciAddress": "1:2"}]}}, id="no such address"),
    ],
)
def test_invalid_values_are_refused(domain: dict[str, Any]) -> None:
    with pytest.raises(InvalidDomain):
        domain_xml(vmi(**domain), {"d": VolumeFile(Path("/d"))}, host())


def test_a_damaged_hardware_record_is_refused() -> None:
    asked, domain = vmi(), domain_xml(vmi(), {}, host())
    assert with_recorded_hardware(asked, domain) == domain
    asked["metadata"]["annotations"] = {HARDWARE_ANNOTATION: '{"v":1}'}
    with pytest.raises(InvalidDomain, match=f"annotation {HARDWARE_ANNOTATION}: .* damaged"):
        with_recorded_hardware(asked, domain)


def test_values_of_a_spec_are_escaped() -> None:
    made = domain_xml(vmi(firmware={"serial": '"/><evil a="'}), {}, host())
    assert "<evil" not in made


def test_commas_in_qemu_options_are_escaped() -> None:
    made = domain_xml(vmi(firmware={"serial": "a,uuid=b"}), {}, host())
    assert "serial=a,,uuid=b" in made


@pytest.mark.parametrize(
    ("domain", "answer"),
    [({}, "restart"), ({"rebootPolicy": "Reboot"}, "restart"), ({"rebootPolicy": "Terminate"}, "destroy")],
)
def test_the_reboot_policy_says_what_a_reboot_of_the_guest_does(domain: dict[str, Any], answer: str) -> None:
    assert f"<on_reboot>{answer}</on_reboot>" in domain_xml(vmi(**domain), {}, host())
