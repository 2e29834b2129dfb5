"""Instance types and preferences, with the values that KubeVirt 1.9 gives a VMI."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.contract import MatchedSpecs, expand, forbidden_changes, undefaulted_fields
from defaulter.instancetypes import apply_specs, collapse
from poolhouse.api.apimachinery.unstructured import at
from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

Json = dict[str, Any]

SMALL = {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}}
NAMED = {"preference": {"name": "p"}}


def devices(**preferred: Any) -> Json:
    return {"devices": preferred}


def vmi_spec(devices: Json | None = None, **domain: Any) -> Json:
    return {"domain": {**domain, **({"devices": devices} if devices else {})}}


@pytest.mark.parametrize(
    ("given", "preference", "path", "expected"),
    [
        pytest.param(
            vmi_spec({"disks": [{"name": "d", "disk": {}}]}),
            devices(preferredDiskBus="virtio", preferredDiskCache="none", preferredDiskDedicatedIoThread=True),
            ("domain", "devices", "disks", 0),
            {"name": "d", "disk": {"bus": "virtio"}, "cache": "none", "dedicatedIOThread": True},
            id="a disk",
        ),
        pytest.param(
            vmi_spec({"disks": [{"name": "d"}]}),
            devices(preferredDiskBus="virtio"),
            ("domain", "devices", "disks", 0),
            {"name": "d", "disk": {"bus": "virtio"}},
            id="a disk that names no device",
        ),
        pytest.param(
            vmi_spec({"disks": [{"name": "d", "disk": {"bus": "sata"}, "io": "native"}]}),
            devices(preferredDiskBus="virtio", preferredDiskIO="threads", preferredDiskDedicatedIoThread=True),
            ("domain", "devices", "disks", 0),
            {"name": "d", "disk": {"bus": "sata"}, "io": "native"},
            id="a disk that is complete",
        ),
        pytest.param(
            vmi_spec({"disks": [{"name": "c", "cdrom": {}}, {"name": "l", "lun": {}}]}),
            devices(preferredDiskBus="virtio", preferredCdromBus="scsi", preferredLunBus="sata", preferredDiskIO="io"),
            ("domain", "devices", "disks"),
            [{"name": "c", "cdrom": {"bus": "scsi"}}, {"name": "l", "lun": {"bus": "sata"}}],
            id="a CD-ROM drive and a LUN have their own bus",
        ),
        pytest.param(
            {**vmi_spec({"interfaces": [{"name": "n"}, {"name": "m"}]}), "networks": [{"name": "n", "pod": {}}]},
            devices(preferredInterfaceModel="e1000", preferredInterfaceMasquerade={}),
            ("domain", "devices", "interfaces"),
            [{"name": "n", "model": "e1000", "masquerade": {}}, {"name": "m", "model": "e1000"}],
            id="only an interface on the pod network gets the preferred binding",
        ),
        pytest.param(
            vmi_spec({"inputs": [{"name": "i"}], "sound": {"name": "s"}}),
            devices(preferredInputBus="virtio", preferredInputType="tablet", preferredSoundModel="ac97"),
            ("domain", "devices"),
            {"inputs": [{"name": "i", "bus": "virtio", "type": "tablet"}], "sound": {"name": "s", "model": "ac97"}},
            id="an input and a sound card",
        ),
        pytest.param(
            vmi_spec(),
            devices(preferredSoundModel="ac97", preferredInputBus="usb", preferredRng={}, preferredTPM={}),
            ("domain", "devices"),
            {"rng": {}, "tpm": {}},
            id="a preference adds a random number generator and a TPM, but no sound card and no input",
        ),
        pytest.param(
            vmi_spec({"panicDevices": [{}, {"model": "isa"}]}),
            devices(preferredPanicDeviceModel="hyperv"),
            ("domain", "devices", "panicDevices"),
            [{"model": "hyperv"}, {"model": "isa"}],
            id="panic devices",
        ),
        pytest.param(
            vmi_spec(),
            devices(preferredPanicDeviceModel="hyperv"),
            ("domain", "devices", "panicDevices"),
            [{"model": "hyperv"}],
            id="a preference adds a panic device",
        ),
        pytest.param(
            vmi_spec({"disableHotplug": True, "useVirtioTransitional": False, "autoattachMemBalloon": False}),
            devices(
                preferredDisableHotplug=False, preferredUseVirtioTransitional=True, preferredAutoattachMemBalloon=True
            ),
            ("domain", "devices"),
            {"disableHotplug": False, "useVirtioTransitional": False, "autoattachMemBalloon": False},
            id="a preference overrides only disableHotplug",
        ),
        pytest.param(
            vmi_spec({"video": {}}),
            devices(preferredVideoType="virtio"),
            ("domain", "devices", "video"),
            {"type": "virtio"},
            id="the display adapter",
        ),
        pytest.param(
            vmi_spec(features={"acpi": {"enabled": True}, "hyperv": {"vapic": {"enabled": False}}}),
            {
                "features": {
                    "preferredAcpi": {"enabled": False},
                    "preferredSmm": {},
                    "preferredHyperv": {"vapic": {}, "relaxed": {}},
                }
            },
            ("domain", "features"),
            {
                "acpi": {"enabled": False},
                "smm": {},
                "hyperv": {"vapic": {"enabled": False}, "relaxed": {}},
            },
            id="features, of which acpi is overridden",
        ),
        pytest.param(
            vmi_spec(),
            {"firmware": {"preferredEfi": {"persistent": True}, "preferredUseSecureBoot": True}},
            ("domain", "firmware", "bootloader"),
            {"efi": {"persistent": True}},
            id="preferredEfi excludes preferredUseSecureBoot",
        ),
        pytest.param(
            vmi_spec(),
            {"firmware": {"preferredUseEfi": True, "preferredUseSecureBoot": False}},
            ("domain", "firmware", "bootloader"),
            {"efi": {"secureBoot": False}},
            id="EFI by its deprecated fields",
        ),
        pytest.param(
            vmi_spec(firmware={"bootloader": {"bios": {}}}),
            {"firmware": {"preferredUseBiosSerial": True, "preferredEfi": {}, "preferredUseEfi": True}},
            ("domain", "firmware", "bootloader"),
            {"bios": {"useSerial": True}},
            id="a BIOS stays",
        ),
        pytest.param(
            vmi_spec(firmware={"bootloader": {"efi": {}}}),
            {"firmware": {"preferredUseBios": True, "preferredUseSecureBoot": True}},
            ("domain", "firmware", "bootloader"),
            {"efi": {"secureBoot": True}},
            id="EFI stays",
        ),
        pytest.param(
            vmi_spec(clock={"timezone": "Europe/Berlin"}),
            {"clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hpet": {"present": False}}}},
            ("domain", "clock"),
            {"timezone": "Europe/Berlin", "timer": {"hpet": {"present": False}}},
            id="the clock",
        ),
        pytest.param(
            vmi_spec(cpu={"features": [{"name": "vmx", "policy": "disable"}]}),
            {"cpu": {"preferredCPUFeatures": [{"name": "vmx", "policy": "require"}, {"name": "aes"}]}},
            ("domain", "cpu", "features"),
            [{"name": "vmx", "policy": "disable"}, {"name": "aes"}],
            id="CPU features by name",
        ),
        pytest.param(
            vmi_spec(machine={"type": "pc-q35-6.2"}),
            {"machine": {"preferredMachineType": "q35"}, "preferredArchitecture": "arm64"},
            (),
            {"domain": {"machine": {"type": "pc-q35-6.2"}}, "architecture": "arm64"},
            id="machine type and architecture",
        ),
    ],
)
def test_a_preference_fills_what_is_unset(given: Json, preference: Json, path: tuple[Any, ...], expected: Any) -> None:
    assert at(apply_specs(given, MatchedSpecs(preference=preference)), *path) == expected


@pytest.mark.parametrize(
    ("count", "preference", "expected"),
    [
        (1, {"cpu": {"preferredCPUTopology": "cores"}}, (1, 1, 1)),
        (6, None, (6, 1, 1)),
        (6, {"cpu": {"preferredCPUTopology": "any"}}, (6, 1, 1)),
        (6, {"cpu": {"preferredCPUTopology": "preferCores"}}, (1, 6, 1)),
        (6, {"cpu": {"preferredCPUTopology": "threads"}}, (1, 1, 6)),
        (6, {"cpu": {"preferredCPUTopology": "spread"}}, (3, 2, 1)),
        (6, {"cpu": {"preferredCPUTopology": "preferSpread"}, "preferSpreadSocketToCoreRatio": 3}, (2, 3, 1)),
        (8, {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}}, (1, 4, 2)),
        (
            12,
            {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCoresThreads", "ratio": 3}}},
            (2, 3, 2),
        ),
    ],
)
def test_the_topology_of_an_instance_type(count: int, preference: Json | None, expected: tuple[int, int, int]) -> None:
    found = apply_specs(vmi_spec(), MatchedSpecs({"cpu": {"guest": count}}, preference))
    assert tuple(found["domain"]["cpu"][part] for part in ("sockets", "cores", "threads")) == expected


def test_an_instance_type_sets_processors_memory_and_host_devices() -> None:
    instancetype = {
        "cpu": {"guest": 4, "model": "Nehalem", "maxSockets": 8, "dedicatedCPUPlacement": True},
        "memory": {"guest": "4Gi", "overcommitPercent": 50, "maxGuest": "8Gi", "hugepages": {"pageSize": "2Mi"}},
        "gpus": [{"name": "g", "deviceName": "v/g"}],
        "hostDevices": [{"name": "h", "deviceName": "v/h"}],
        "ioThreadsPolicy": "auto",
        "ioThreads": {"supplementalPoolThreadCount": 4},
        "launchSecurity": {"sev": {}},
        "nodeSelector": {"zone": "a"},
        "schedulerName": "other",
    }
    assert apply_specs(vmi_spec(), MatchedSpecs(instancetype)) == {
        "domain": {
            "cpu": {
                **{"sockets": 4, "cores": 1, "threads": 1, "maxSockets": 8},
                **{"model": "Nehalem", "dedicatedCpuPlacement": True},
            },
            "memory": {"guest": "4Gi", "maxGuest": "8Gi", "hugepages": {"pageSize": "2Mi"}},
            "resources": {"requests": {"memory": "2147483648"}},
            "devices": {"gpus": instancetype["gpus"], "hostDevices": instancetype["hostDevices"]},
            "ioThreads": {"supplementalPoolThreadCount": 4},
            "ioThreadsPolicy": "auto",
            "launchSecurity": {"sev": {}},
        },
        "nodeSelector": {"zone": "a"},
        "schedulerName": "other",
    }


def test_a_template_is_expanded_with_its_annotations() -> None:
    matched = MatchedSpecs({"annotations": {"a": "instancetype"}}, {"annotations": {"a": "preference", "b": "p"}})
    template = {"metadata": {"labels": {"l": "1"}, "annotations": {"c": "own"}}, "spec": vmi_spec()}
    assert expand(template, matched)["metadata"] == {
        "labels": {"l": "1"},
        "annotations": {"a": "instancetype", "b": "p", "c": "own"},
    }
    assert "annotations" not in template["spec"]


@pytest.mark.parametrize(
    ("given", "expanded", "defaulted", "expected"),
    [
        pytest.param(
            {"devices": {"disks": [{"name": "d", "disk": {}}]}},
            {"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}, "cache": "none"}]}},
            {"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio", "pciAddress": "a"}, "cache": "none"}]}},
            {"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio", "pciAddress": "a"}}]}},
            id="the bus that the address needs, and no cache",
        ),
        pytest.param(
            {},
            {"firmware": {"bootloader": {"efi": {"persistent": True}}}, "features": {"smm": {}}},
            {
                "firmware": {"uuid": "u", "bootloader": {"efi": {"persistent": True, "secureBoot": True}}},
                "features": {"smm": {}, "acpi": {"enabled": True}},
            },
            {"firmware": {"uuid": "u"}, "features": {"acpi": {"enabled": True}}},
            id="no part of a bootloader that the preference brings, which it would then not complete",
        ),
        pytest.param(
            {"firmware": {"bootloader": {"efi": {}}}},
            {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
            {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
            {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
            id="secure boot of the VM's own bootloader",
        ),
        pytest.param(
            {"devices": {}},
            {"devices": {"inputs": [{"name": "default-0"}], "panicDevices": [{"model": "isa"}], "rng": {}}},
            {
                "devices": {
                    "inputs": [{"name": "default-0", "bus": "usb"}],
                    "panicDevices": [{"model": "isa"}],
                    "rng": {},
                }
            },
            {"devices": {}},
            id="no device that KubeVirt adds at each start",
        ),
        pytest.param(
            {"machine": {}},
            {"machine": {"type": "q35"}, "devices": {"video": {"type": "virtio"}, "useVirtioTransitional": True}},
            {
                "machine": {"type": "pc-q35-7.2"},
                "devices": {"video": {"type": "virtio"}, "useVirtioTransitional": True},
            },
            {
                "machine": {"type": "pc-q35-7.2"},
                "devices": {"video": {"type": "virtio"}, "useVirtioTransitional": True},
            },
            id="the resolved machine type, the display adapter and the kind of virtio",
        ),
    ],
)
def test_what_a_vm_gets_of_its_preference(given: Json, expanded: Json, defaulted: Json, expected: Json) -> None:
    specs = ({"domain": each} for each in (given, expanded, defaulted))
    assert collapse(*specs, has_instancetype=False) == {"domain": expected}


def test_a_vm_gets_no_cpu_and_no_memory_beside_an_instance_type() -> None:
    given: Json = {"domain": {"cpu": {"features": []}}}
    expanded = {"domain": {"cpu": {"features": [], "sockets": 2}, "memory": {"guest": "4Gi"}}}
    defaulted = {"domain": {"cpu": {"features": [], "sockets": 2, "model": "x"}, "memory": {"guest": "4Gi"}}}
    assert collapse(given, expanded, defaulted, has_instancetype=True) == given


@pytest.mark.parametrize("seconds", [0, 30])
def test_a_vm_gets_no_termination_grace_period_of_its_preference(seconds: int) -> None:
    expanded = apply_specs(vmi_spec(), MatchedSpecs(preference={"preferredTerminationGracePeriodSeconds": seconds}))
    assert expanded["terminationGracePeriodSeconds"] == seconds
    assert collapse(vmi_spec(), expanded, expanded, has_instancetype=False) == vmi_spec()


def stopped(*parts: Json, domain: Json | None = None, **fields: Any) -> Json:
    found = vm(spec(*parts, domain=domain), **{**NAMED, **fields})
    if "instancetype" in fields:
        del inner(found)["domain"]["memory"]
    return found


@pytest.mark.libvirt
@pytest.mark.parametrize(
    ("document", "preference", "expected"),
    [
        pytest.param(
            stopped(disk(bus=None), nic()),
            devices(preferredDiskBus="virtio", preferredRng={}),
            {"root": "0000:07:00.0", "default": "0000:01:00.0"},
            id="addresses that fit the preferred devices",
        ),
        pytest.param(
            stopped(disk(), nic(), domain={"devices": {"autoattachInputDevice": True}}),
            devices(preferredInputBus="virtio", preferredDisableHotplug=True),
            {"root": "0000:06:00.0", "default": "0000:01:00.0"},
            id="no SCSI controller, and a tablet that is not on USB",
        ),
        pytest.param(
            stopped(disk(), nic()),
            devices(preferredUseVirtioTransitional=True),
            {"root": None, "default": None},
            id="transitional devices are behind a bridge",
        ),
        pytest.param(
            stopped(disk(), nic(), instancetype={"name": "small"}),
            devices(preferredDiskBus="sata"),
            {"root": "0000:07:00.0", "default": "0000:01:00.0"},
            id="what the VM sets stays",
        ),
    ],
)
def test_addresses_equal_those_of_kubevirts_expansion(
    libvirt: Libvirt, document: Json, preference: Json, expected: Json
) -> None:
    given = {"preference": preference, **({"instancetype": SMALL} if "instancetype" in document["spec"] else {})}
    answer = libvirt.default(document, **given)
    assert addresses(answer.object) == expected
    assert forbidden_changes(document, answer.object) == []
    assert undefaulted_fields(answer.object) == []
    assert libvirt.domain(document, **given) == libvirt.domain(answer.object, **given)
    assert libvirt.default(answer.object, **given).object == answer.object


@pytest.mark.libvirt
def test_the_stored_hardware_stays_with_another_preference(libvirt: Libvirt) -> None:
    document = stopped(disk(bus=None), nic())
    stored = libvirt.default(document, preference=devices(preferredDiskBus="virtio")).object
    other = devices(preferredDiskBus="scsi", preferredInterfaceModel="e1000")
    assert libvirt.default(document, oldObject=stored, preference=other).object == stored
    assert libvirt.default(document, oldObject=stored, unread="it is gone").object == stored


@pytest.mark.libvirt
def test_a_preference_makes_a_vm_valid(libvirt: Libvirt) -> None:
    document = stopped(disk(), domain={"firmware": {"bootloader": {"efi": {}}}})
    assert libvirt.default(document, preference={}).status == 422
    answer = libvirt.default(document, preference={"features": {"preferredSmm": {}}})
    domain = inner(answer.object)["domain"]
    assert domain["firmware"]["bootloader"] == {"efi": {"secureBoot": True}}
    assert "smm" not in domain["features"]


@pytest.mark.libvirt
def test_a_lun_gets_the_preferred_bus(libvirt: Libvirt) -> None:
    lun = {"name": "lun", "lun": {}}
    answer = libvirt.default(stopped(disk(), lun), preference=devices(preferredLunBus="scsi"))
    assert inner(answer.object)["domain"]["devices"]["disks"][1]["lun"] == {"bus": "scsi"}


@pytest.mark.libvirt
def test_the_preferred_pod_network_is_respected(libvirt: Libvirt) -> None:
    document = stopped(disk())
    del inner(document)["domain"]["devices"]["autoattachPodInterface"]
    without = libvirt.default(document, preference=devices(preferredAutoattachPodInterface=False)).object
    assert not inner(without)["domain"]["devices"].get("interfaces")
    nics = inner(libvirt.default(document, preference=devices(preferredInterfaceModel="e1000e")).object)
    assert nics["domain"]["devices"]["interfaces"][0]["model"] == "e1000e"


@pytest.mark.libvirt
def test_hardware_is_left_to_kubevirt_without_the_preference(libvirt: Libvirt) -> None:
    parts = {"firmware": {"bootloader": {"efi": {}}}, "machine": {"type": "q35"}}
    given = {"sound": {"name": "card"}, "panicDevices": [{}]}
    document = stopped(disk(), {"name": "lun", "lun": {}}, nic(), domain={**parts, "devices": given})
    answer = libvirt.default(document, unread="the VirtualMachineClusterPreference p does not exist")
    domain = inner(answer.object)["domain"]
    assert "does not exist" in answer.content["undecided"]
    assert answer.content["undecided"] in answer.warnings
    assert addresses(answer.object) == {"root": None, "lun": None, "default": None}
    assert domain["firmware"]["bootloader"] == {"efi": {}}
    assert {**given, "disks": domain["devices"]["disks"]} == {
        key: domain["devices"][key] for key in ("sound", "panicDevices", "disks")
    }
    assert domain["machine"]["type"].startswith("pc-q35-")
    assert domain["firmware"]["uuid"]
    assert undefaulted_fields(answer.object), "the controller completes the VM when the preference is known"
    preference = {**devices(preferredLunBus="scsi"), "features": {"preferredSmm": {}}}
    known = libvirt.default(answer.object, oldObject=answer.object, preference=preference)
    assert known.content["undecided"] == ""
    assert None not in {addresses(known.object)[name] for name in ("root", "default")}
