"""The proposal's own example and its published result, apart from versions and random values."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml
from lxml import etree

from defaulter import xml
from defaulter.libvirt_vm import build
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

EXAMPLE = yaml.safe_load(
    """
apiVersion: kubevirt.io/v1alpha1
kind: VM
metadata:
  name: testvm
spec:
  domain:
    devices:
      interfaces:
      - type: network
        source:
          network: default
    memory:
      unit: MB
      value: 64
    os:
      type:
        os: hvm
    type: qemu
"""
)

# As the proposal prints it, without the values that are versions (machine, emulator) or chance (uuid, MAC address).
PRINTED = """
<domain type='qemu'>
  <name>testvm</name>
  <uuid>a8335812-53d4-4e57-ac0b-72951c885a57</uuid>
  <memory unit='KiB'>62500</memory>
  <currentMemory unit='KiB'>62500</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc-i440fx-2.7'>hvm</type>
    <boot dev='hd'/>
  </os>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' index='0' model='piix3-uhci'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x2'/>
    </controller>
    <controller type='pci' index='0' model='pci-root'/>
    <interface type='network'>
      <mac address='52:54:00:2e:84:30'/>
      <source network='default'/>
      <model type='rtl8139'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/>
    </interface>
    <input type='mouse' bus='ps2'/>
    <input type='keyboard' bus='ps2'/>
    <memballoon model='virtio'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0'/>
    </memballoon>
  </devices>
</domain>
"""


SMALL = """
<domain type='qemu'>
  <name>testvm</name>
  <memory unit='MB'>64</memory>
  <os>
    <type>hvm</type>
  </os>
  <devices>
    <interface type='network'>
      <source network='default'/>
    </interface>
  </devices>
</domain>
"""


@pytest.mark.sentence("4.9")
def test_the_example_becomes_the_small_domain() -> None:
    domain = etree.fromstring(xml.write(build(EXAMPLE["spec"]["domain"], "testvm")))
    # By its UUID libvirt chooses none, and by the aliases the devices are found again.
    for added in (*domain.iter("uuid"), *domain.iter("alias")):
        parent = added.getparent()
        parent.remove(added)
    expected = etree.fromstring(SMALL, etree.XMLParser(remove_blank_text=True))
    assert etree.tostring(domain) == etree.tostring(expected)


@pytest.mark.sentence("4.3", "4.8", "4.10", "4.11", "4.26")
def test_the_example_gets_the_published_defaults(libvirt: Libvirt) -> None:
    answer = libvirt.default(EXAMPLE).object
    domain = answer["spec"]["domain"]
    assert domain["memory"] == {"unit": "MB", "value": 64}, "what is given is kept as it is"
    assert domain["currentMemory"] == {"unit": "KiB", "value": 62500}
    assert domain["vcpu"] == {"placement": "static", "value": 1}
    assert domain["os"]["bootOrder"] == [{"dev": "hd"}]
    assert domain["os"]["type"]["machine"].startswith("pc-i440fx-")
    assert domain["clock"] == {"offset": "utc"}
    assert (domain["onPoweroff"], domain["onReboot"], domain["onCrash"]) == ("destroy", "restart", "destroy")
    devices = domain["devices"]
    (nic,) = devices["interfaces"]
    assert nic.pop("mac")["address"]
    assert nic == {
        "type": "network",
        "source": {"network": "default"},
        "model": {"type": "rtl8139"},
        "address": {"type": "pci", "domain": "0x0000", "bus": "0x00", "slot": "0x02", "function": "0x0"},
    }
    assert devices["controllers"] == [
        {
            "type": "usb",
            "index": "0",
            "model": "piix3-uhci",
            "address": {"type": "pci", "domain": "0x0000", "bus": "0x00", "slot": "0x01", "function": "0x2"},
        },
        {"type": "pci", "index": "0", "model": "pci-root"},
    ]
    assert devices["inputs"] == [{"type": "mouse", "bus": "ps2"}, {"type": "keyboard", "bus": "ps2"}]
    assert devices["memballoon"]["address"]["slot"] == "0x03"
    assert "emulator" not in devices, "the host's side stays on the host"
    assert {key: answer[key] for key in ("apiVersion", "kind", "metadata")} == {
        key: EXAMPLE[key] for key in ("apiVersion", "kind", "metadata")
    }


@pytest.mark.sentence("4.10")
def test_the_domain_has_every_published_element(libvirt: Libvirt) -> None:
    domain = etree.fromstring(libvirt.domain(EXAMPLE))
    for element in etree.fromstring(PRINTED).iter():
        if element.tag in ("domain", "uuid", "mac", "emulator"):
            continue
        wanted = {key: value for key, value in element.attrib.items() if key != "machine"}
        found = [
            other
            for other in domain.iter(element.tag)
            if wanted.items() <= dict(other.attrib).items()
            and (other.text or "").strip() == (element.text or "").strip()
        ]
        assert found, etree.tostring(element)


@pytest.mark.sentence("4.22")
def test_defaulting_is_idempotent(libvirt: Libvirt) -> None:
    once = libvirt.default(EXAMPLE).object
    assert libvirt.default(once).object == once


@pytest.mark.sentence("4.4", "4.12", "4.36")
def test_values_that_are_set_never_change(libvirt: Libvirt) -> None:
    document = deepcopy(EXAMPLE)
    domain: dict[str, Any] = document["spec"]["domain"]
    domain |= {"future": {"x": 1}, "type": "kvm"}
    domain["devices"] |= {
        "emulator": "/somewhere/else",
        "interfaces": [
            {"type": "network", "source": {"network": "b"}, "model": {"type": "virtio"}},
            {
                "type": "bridge",
                "source": {"bridge": "a"},
                "mac": {"address": "52:54:00:00:00:07"},
                "alias": {"name": "ua-me"},
            },
        ],
        "disks": [
            {
                "type": "file",
                "device": "disk",
                "source": {"file": "/nowhere"},
                "target": {"dev": "vdb", "bus": "virtio"},
            },
            {
                "type": "file",
                "device": "disk",
                "source": {"file": "/nowhere"},
                "target": {"dev": "vda", "bus": "virtio"},
            },
        ],
    }
    del domain["devices"]["emulator"]
    answer = libvirt.default(document).object["spec"]["domain"]
    assert (answer["future"], answer["type"]) == ({"x": 1}, "kvm")
    first, second = answer["devices"]["interfaces"]
    assert (first["model"], second["mac"]) == ({"type": "virtio"}, {"address": "52:54:00:00:00:07"})
    assert second["alias"] == {"name": "ua-me"}
    assert "alias" not in first
    assert [disk["target"]["dev"] for disk in answer["devices"]["disks"]] == ["vdb", "vda"], "libvirt sorts; we do not"
    addresses = [device["address"]["slot"] for device in (*answer["devices"]["disks"], first, second)]
    assert len(set(addresses)) == 4


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"os": {"type": {"os": "hvm", "machine": "pc-i440fx-99.0"}}}, "spec.domain.os.type.machine"),
        ({"memory": "64"}, "spec.domain.memory"),
        ({"devices": {"interfaces": {}}}, "spec.domain.devices.interfaces"),
        ({"devices": {"interfaces": [3]}}, "spec.domain.devices.interfaces[0]"),
        ({"devices": {"interfaces": [{"type": ["x"]}]}}, "spec.domain.devices.interfaces[0].type"),
        ({"uuid": "a\x00b"}, "spec.domain.uuid"),
        ({"uuid": "x"}, "spec.domain.uuid"),
        ({"vcpu": {"value": 9999}}, "spec.domain.vcpu.value"),
        ({"vcpu": {"value": 999}}, "spec.domain.vcpu"),
        ({"devices": {"serials": [{"type": "pty"}] * 257}}, "spec.domain.devices.serials"),
        ({"os": {"type": {"os": "hvm"}, "loader": {"type": "pflash", "readonly": "yes"}}}, "spec.domain.os.loader"),
        ({"devices": {"hostdevs": [{"type": "mdev"}]}}, "spec.domain.devices.hostdevs[0].type"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(libvirt: Libvirt, change: dict[str, Any], path: str) -> None:
    document = deepcopy(EXAMPLE)
    document["spec"]["domain"] |= change
    assert path in libvirt.default(document).problems


@pytest.mark.parametrize("spec", [None, 3, [], {}, {"domain": None}, {"domain": []}])
def test_a_document_without_a_domain_is_invalid(libvirt: Libvirt, spec: Any) -> None:
    assert libvirt.default({**EXAMPLE, "spec": spec}).problems


def example(**domain: Any) -> dict[str, Any]:
    document = deepcopy(EXAMPLE)
    document["spec"]["domain"] |= domain
    return document


def virtio_disk(name: str) -> dict[str, Any]:
    return {"device": "disk", "target": {"dev": name, "bus": "virtio"}}


def places(document: dict[str, Any]) -> dict[str, str]:
    """The PCI slots of the disks, the NICs and the balloon."""
    devices = document["spec"]["domain"]["devices"]
    found = {disk["target"]["dev"]: disk["address"] for disk in devices.get("disks", ())}
    found |= {f"nic {index}": nic["address"] for index, nic in enumerate(devices["interfaces"])}
    return {name: each["slot"] for name, each in {**found, "balloon": devices["memballoon"]["address"]}.items()}


NIC = {"type": "network", "source": {"network": "default"}}


@pytest.mark.sentence("4.35")
def test_devices_keep_their_hardware_when_the_manifest_gets_another(libvirt: Libvirt) -> None:
    before = libvirt.default(example(devices={"disks": [virtio_disk("vdb")], "interfaces": [NIC]})).object
    manifest = example(devices={"disks": [virtio_disk("vda"), virtio_disk("vdb")], "interfaces": [NIC, NIC]})
    after = libvirt.default(manifest, oldObject=before).object
    kept = places(before)
    assert places(after).items() >= kept.items()
    assert places(libvirt.default(manifest).object) != places(after), "without the stored VM, they are elsewhere"
    assert len(set(places(after).values())) == 5
    (nic, _), (old_nic,) = (each["spec"]["domain"]["devices"]["interfaces"] for each in (after, before))
    assert nic["mac"] == old_nic["mac"]


@pytest.mark.sentence("4.37")
def test_a_device_of_the_stored_vm_is_removed_with_its_entry(libvirt: Libvirt) -> None:
    disks = [virtio_disk("vda"), virtio_disk("vdb")]
    before = libvirt.default(example(devices={"disks": disks, "interfaces": [NIC]})).object
    after = libvirt.default(example(devices={"disks": disks[1:], "interfaces": [NIC]}), oldObject=before).object
    kept = places(before)
    assert places(after) == {name: slot for name, slot in kept.items() if name != "vda"}


def test_an_object_that_the_author_changes_is_chosen_anew(libvirt: Libvirt) -> None:
    before = libvirt.default(EXAMPLE).object
    after = libvirt.default(example(memory={"unit": "MiB", "value": 128}), oldObject=before).object["spec"]["domain"]
    assert after["currentMemory"] == {"unit": "KiB", "value": 128 * 1024}
    other = libvirt.default(example(os={"type": {"os": "hvm", "machine": "q35"}}), oldObject=before).object
    (nic,), (old_nic,) = (each["spec"]["domain"]["devices"]["interfaces"] for each in (other, before))
    assert nic["mac"] == old_nic["mac"]
    assert nic["address"] != old_nic["address"], "it is behind a bridge of another machine"


def test_an_address_that_the_author_takes_from_another_device_is_chosen_anew(libvirt: Libvirt) -> None:
    before = libvirt.default(example(devices={"disks": [virtio_disk("vda")], "interfaces": [NIC]})).object
    taken = before["spec"]["domain"]["devices"]["disks"][0]["address"]
    edit = example(devices={"disks": [virtio_disk("vda")], "interfaces": [{**NIC, "address": taken}]})
    answer = libvirt.default(edit, oldObject=before)
    assert places(answer.object)["nic 0"] == taken["slot"]
    (warning,) = answer.warnings
    assert "chosen anew, because libvirt refuses the edit: XML error: Attempted double use of PCI" in warning


@pytest.mark.parametrize("stored", [{}, {"spec": {"domain": 3}}, {"spec": {"domain": {"devices": {"disks": 3}}}}])
def test_a_stored_document_without_a_valid_domain_is_ignored(libvirt: Libvirt, stored: dict[str, Any]) -> None:
    assert libvirt.default(EXAMPLE, oldObject=stored).object == libvirt.default(EXAMPLE).object


@pytest.mark.parametrize("key", ["shmems", "smartcards", "memorys"])
def test_a_device_that_the_defaulter_does_not_know_is_refused(libvirt: Libvirt, key: str) -> None:
    problems = libvirt.default(example(devices={key: [{}]})).problems
    assert "is no device that the defaulter knows" in problems[f"spec.domain.devices.{key}"]


def test_a_field_that_libvirt_does_not_get_is_named(libvirt: Libvirt) -> None:
    answer = libvirt.default(example(sysinfo={"type": "smbios"}))
    assert answer.warnings == [
        "spec.domain.sysinfo: libvirt does not get this field, and chooses the other values without it"
    ]
    assert answer.object["spec"]["domain"]["sysinfo"] == {"type": "smbios"}


HYPERV = {"relaxed": {"state": "on"}, "vendorId": {"state": "on", "value": "poolhouse"}}


@pytest.mark.parametrize(
    ("domain", "element"),
    [
        ({"devices": {"hostdevs": [{"mode": "subsystem", "type": "pci", "source": {}}]}}, "devices/hostdev/address"),
        ({"devices": {"hostdevs": [{"mode": "subsystem", "type": "usb", "source": {}}]}}, "devices/hostdev"),
        ({"devices": {"tpms": [{"model": "tpm-crb", "backend": {"type": "emulator"}}]}}, "devices/tpm"),
        ({"devices": {"filesystems": [{"type": "mount", "target": {"dir": "a"}}]}}, "devices/filesystem/address"),
        (
            {"devices": {"filesystems": [{"type": "mount", "driver": {"type": "virtiofs"}, "target": {"dir": "a"}}]}},
            "devices/filesystem/address",
        ),
        ({"devices": {"vsock": {"model": "virtio"}}}, "devices/vsock/address"),
        (
            {
                "os": {"type": {"os": "hvm"}, "loader": {"path": "/x", "type": "pflash", "readonly": "yes"}},
                "features": {"acpi": {}},
            },
            "os/loader",
        ),
        ({"clock": {"timers": [{"name": "hpet", "present": "no"}]}}, "clock/timer[@present='no']"),
        ({"features": {"hyperv": HYPERV}}, "features/hyperv/vendor_id[@value='poolhouse']"),
    ],
)
def test_libvirt_gets_each_part_of_the_domain(libvirt: Libvirt, domain: dict[str, Any], element: str) -> None:
    assert etree.fromstring(libvirt.domain(example(**domain))).find(element) is not None
    answer = libvirt.default(example(**domain))
    assert answer.warnings == []
    assert libvirt.default(answer.object).object == answer.object


@pytest.mark.parametrize("arch", ["aarch64", "s390x"])
def test_a_vm_of_another_architecture_stays_the_same(libvirt: Libvirt, arch: str) -> None:
    document = example(
        os={"type": {"os": "hvm", "arch": arch}},
        devices={"interfaces": [{"type": "user"}], "disks": [virtio_disk("vda")]},
        clock={"timers": [{"name": "hpet", "present": "no"}]},
    )
    once = libvirt.default(document)
    if once.status == 501:
        assert once.problems == {"": f"there is no emulator for {arch} here"}
        pytest.skip(f"there is no emulator for {arch} here")
    assert libvirt.default(once.object).object == once.object


def test_a_size_without_a_value_gets_libvirt_s_unit_too(libvirt: Libvirt) -> None:
    answer = libvirt.default(example(currentMemory={"unit": "GiB"}))
    assert answer.object["spec"]["domain"]["currentMemory"] == {"unit": "KiB", "value": 62500}
    assert libvirt.default(answer.object).object == answer.object


def test_an_empty_uuid_is_derived_from_the_name(libvirt: Libvirt) -> None:
    uuids = {str(libvirt.default(example(uuid=each)).object["spec"]["domain"]["uuid"]) for each in ({}, None)}
    assert uuids == {libvirt.default(EXAMPLE).object["spec"]["domain"]["uuid"]}
