"""Addresses of devices that are added to a VM which has its hardware already."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from defaulter import xml
from defaulter.added_devices import (
    OUTDATED_LAUNCHER,
    AddedDevice,
    Ports,
    choose_ports,
    launcher_release,
    possible_starts,
    read_ports,
)
from defaulter.vm_paths import locate
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt
from tests.defaulter.test_defaulting_properties import EXAMPLES

Json = dict[str, Any]

SMALL = Ports((2, 3, 4, 10), placeholders=3, last=10)
"""a VM with a NIC: three ports of placeholders, and the port that libvirt keeps free"""
LARGE = Ports((2, 3, 4, 10, 11, 12), placeholders=3, last=12)
FULL = Ports((), placeholders=0, last=31)


def added(kind: str) -> AddedDevice:
    """d: a disk; h: a disk with a hotpluggable volume; n: a NIC."""
    return AddedDevice((kind,), is_nic=kind == "n", hotplugged=kind in "hn")


@pytest.mark.parametrize(
    ("kinds", "next_start", "running", "expected"),
    [
        pytest.param("d", SMALL, (), [10], id="a disk gets the port that libvirt keeps free"),
        pytest.param("ddd", SMALL, (), [10, 11, 12], id="more disks get new ports, which libvirt creates at the start"),
        pytest.param("n", SMALL, (), [2], id="a NIC gets the first port of a placeholder"),
        pytest.param("nnnnn", SMALL, (), [2, 3, 4, 10, 11], id="NICs beyond the placeholders get free ports"),
        pytest.param("dn", SMALL, (), [10, 2], id="a disk and a NIC do not compete"),
        pytest.param("n", Ports((9,), 0, 9), (), [9], id="a fifth NIC has no placeholder"),
        pytest.param("h", SMALL, [SMALL], [10], id="a hotplugged disk gets an empty port of the running domain"),
        pytest.param("hh", SMALL, [SMALL], [10, 4], id="without other ports it gets the last one of a placeholder"),
        pytest.param("hhhhh", SMALL, [SMALL], [10, 4, 3, 2, None], id="libvirt has no free port either"),
        pytest.param("h", LARGE, [SMALL], [10], id="a port that only the next start has is not in the running domain"),
        pytest.param("h", LARGE, [LARGE, Ports((2, 11), 1, 12)], [11], id="the port is empty for every possible start"),
        pytest.param("h", SMALL, [FULL], [None], id="a running domain without an empty port"),
        pytest.param("hn", SMALL, None, [None, None], id="the ports of the running domain are unknown"),
        pytest.param("d", SMALL, None, [10], id="a disk that waits for the next start does not need to know them"),
        pytest.param("d", SMALL, [FULL], [10], id="a disk that waits needs no port in the running domain"),
        pytest.param("d", FULL, (), [None], id="no port is left"),
    ],
)
@pytest.mark.sentence("4.13")
def test_a_free_port_is_chosen(kinds: str, next_start: Ports, running: Any, expected: list[int | None]) -> None:
    assert [port for _, port in choose_ports(map(added, kinds), next_start, running)] == expected


def test_ports_of_a_domain() -> None:
    domain = xml.read(
        """<domain><devices>
        <controller type='pci' index='0' model='pcie-root'/>
        <controller type='pci' index='1' model='pcie-root-port'><address type='pci' bus='0x00'/></controller>
        <controller type='pci' index='2' model='pcie-root-port'/>
        <controller type='pci' index='3' model='pcie-root-port'><target chassis='3' hotplug='off'/></controller>
        <controller type='pci' index='10' model='pcie-root-port'/>
        <memballoon model='virtio'><address type='pci' bus='0x01' slot='0x00'/></memballoon>
        <disk><address type='drive' bus='0'/></disk>
        </devices></domain>"""
    )
    assert read_ports(domain, 3) == Ports((2, 10), 2, 10)


def second_nic(document: Json) -> None:
    content = inner(document)
    content["domain"]["devices"]["interfaces"].append(nic("more", model="virtio", pciAddress="0000:02:00.0"))
    content["networks"].append({"name": "more", "multus": {"networkName": "more"}})


RUNS = spec(
    disk("root", pciAddress="0000:07:00.0"),
    nic(model="virtio", pciAddress="0000:01:00.0"),
    domain={"machine": {"type": "pc-q35-7.2"}},
)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        pytest.param(lambda vmi: None, 1, id="all addresses are known"),
        pytest.param(lambda vmi: plugged(vmi, "data", "0000:0a:00.0"), 2, id="with and without a hotpluggable disk"),
        pytest.param(lambda vmi: plugged(vmi, "data", ""), None, id="libvirt has chosen the address of a disk"),
        pytest.param(second_nic, 2, id="with and without a NIC that may have been hotplugged"),
        pytest.param(
            lambda vmi: inner(vmi)["domain"]["devices"]["interfaces"].append({"name": "vf", "sriov": {}}),
            None,
            id="the address of an SR-IOV NIC is unknown",
        ),
        pytest.param(
            lambda vmi: vmi.update(status={"memory": {"guestAtBoot": "1Gi", "guestCurrent": "2Gi"}}),
            None,
            id="hotplugged memory has an address too",
        ),
        pytest.param(lambda vmi: vmi.clear(), None, id="the VMI cannot be read"),
    ],
)
def test_the_ways_in_which_a_vmi_may_have_started(change: Any, known: int | None) -> None:
    document = vmi(deepcopy(RUNS))
    location = locate(document)
    assert location is not None
    change(document)
    starts = possible_starts(document, location)
    assert (None if starts is None else len(starts)) == known


@pytest.mark.parametrize(
    ("image", "labels", "versions", "release"),
    [
        pytest.param("a/virt-launcher:v1.9.0", {}, ("v1.8.0",), (1, 9), id="the tag of the image"),
        pytest.param("a:5000/virt-launcher@sha256:1f", {}, ("v1.8.0",), (1, 8), id="the release of the cluster"),
        pytest.param("", {}, ("v1.8.0",), (1, 8), id="no image"),
        pytest.param("", {OUTDATED_LAUNCHER: ""}, ("v1.9.0",), None, id="the VM is older than the cluster's release"),
        pytest.param("", {}, ("v1.8.0", "v1.9.0"), None, id="KubeVirt is being updated"),
        pytest.param("a/virt-launcher:devel", {}, (), None, id="nothing is known"),
    ],
)
def test_the_release_that_started_a_vmi(
    image: str, labels: Json, versions: tuple[str, ...], release: tuple[int, int] | None
) -> None:
    document = {**vmi({}, labels=labels), "status": {"launcherContainerImageVersion": image}}
    assert launcher_release(document, ClusterSettings(versions=versions)) == release


def test_memory_counts_as_it_was_at_the_start() -> None:
    document = {**vmi(deepcopy(RUNS)), "status": {"memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi"}}}
    inner(document)["domain"]["memory"]["guest"] = "4Gi"
    location = locate(document)
    assert location is not None
    starts = possible_starts(document, location)
    assert starts is not None
    assert [start["domain"]["memory"]["guest"] for start in starts] == [str(1 << 30)]
    assert inner(document)["domain"]["memory"]["guest"] == "4Gi"


def plugged(document: Json, name: str, address: str) -> None:
    """Adds a virtio disk with a hotpluggable volume."""
    content = inner(document)
    place = {"pciAddress": address} if address else {}
    content["domain"]["devices"]["disks"].append(disk(name, **place))
    content["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}})


@pytest.mark.libvirt
class TestDefaulting:
    @pytest.fixture
    def stored(self, libvirt: Libvirt) -> Json:
        content = spec(disk("root"), disk("data"), nic(), domain={"devices": {"rng": {}}})
        return libvirt.default(vm(content)).object

    def test_a_disk_hotplugged_into_a_running_vm_is_not_at_the_balloon(self, libvirt: Libvirt, stored: Json) -> None:
        edited = deepcopy(stored)
        plugged(edited, "more", "")
        answer = libvirt.default(edited, oldObject=stored, vmi=vmi_of(stored))
        running = Running(libvirt.domain(vmi_of(stored)))
        assert addresses(answer.object)["more"] in running.empty
        assert not answer.warnings

    @pytest.mark.parametrize(
        ("release", "image", "found"),
        [
            pytest.param("v1.10.0", "", True, id="KubeVirt leaves ports empty"),
            pytest.param("v1.9.0", "", False, id="devices occupy the ports of older releases"),
            pytest.param("v1.10.0", "kubevirt/virt-launcher:v1.9.0", False, id="an older release started the VM"),
            pytest.param("", "kubevirt/virt-launcher:v1.10.1", True, id="the image of the VM has the release"),
            pytest.param("", "kubevirt/virt-launcher@sha256:1f", False, id="nothing has the release"),
        ],
    )
    def test_a_disk_hotplugged_beside_four_nics_needs_the_release_of_kubevirt(
        self, libvirt: Libvirt, release: str, image: str, found: bool
    ) -> None:
        nics = [nic(), *({"name": f"n{number}", "bridge": {}} for number in range(3))]
        kubevirt = {"kubevirt": {"status": {"observedKubeVirtVersion": release}}} if release else {}
        stored = libvirt.default(vm(spec(disk("root"), *nics)), **kubevirt).object
        edited = deepcopy(stored)
        plugged(edited, "more", "")
        runs = {**vmi_of(stored), "status": {"launcherContainerImageVersion": image}}
        answer = libvirt.default(edited, oldObject=stored, vmi=runs, **kubevirt)
        assert addresses(answer.object)["more"] == ("0000:09:00.0" if found else None)
        assert ("stays open until the VM stops" in str(answer.warnings)) is not found

    def test_without_the_vmi_libvirt_chooses_the_address(self, libvirt: Libvirt, stored: Json) -> None:
        edited = deepcopy(stored)
        plugged(edited, "more", "")
        inner(edited)["domain"]["devices"]["disks"].append(disk("waits"))
        inner(edited)["volumes"].append({"name": "waits", "emptyDisk": {"capacity": "1Mi"}})
        answer = libvirt.default(edited, oldObject=stored, vmi={})
        assert addresses(answer.object)["more"] is None
        assert addresses(answer.object)["waits"] is not None
        path = "spec.template.spec.domain.devices.disks[2].disk.pciAddress"
        assert [warning for warning in answer.warnings if warning.startswith(f"{path} stays open until the VM stops")]
        again = libvirt.default(answer.object, oldObject=answer.object, vmi={})
        assert again.object == answer.object
        stopped = libvirt.default(answer.object, oldObject=answer.object)
        assert addresses(stopped.object)["more"] is not None

    def test_a_nic_in_a_vmi_stays_as_its_vm_has_it(self, libvirt: Libvirt, stored: Json) -> None:
        runs = vmi_of(stored)
        edited = deepcopy(runs)
        second_nic(edited)
        del inner(edited)["domain"]["devices"]["interfaces"][-1]["pciAddress"]
        plugged(edited, "data-2", "")
        owner = {"ownerReferences": [{"kind": "VirtualMachine", "name": "a"}]}
        for metadata, kept in (({}, False), (owner, True)):
            document = {**edited, "metadata": {**edited["metadata"], **metadata}}
            found = addresses(libvirt.default(document, oldObject=runs, vmi=runs).object)
            assert found["data-2"] is not None
            assert (found["more"] is None) == kept

    def test_a_vm_takes_the_address_that_the_vmi_has(self, libvirt: Libvirt, stored: Json) -> None:
        runs, edited = vmi_of(stored), deepcopy(stored)
        plugged(runs, "more", "0000:03:00.0")
        plugged(edited, "more", "")
        answer = libvirt.default(edited, oldObject=stored, vmi=runs)
        assert addresses(answer.object)["more"] == "0000:03:00.0"

    @pytest.mark.parametrize("record", [None, "damaged"])
    def test_a_vmi_that_cannot_be_defined_is_unknown(self, libvirt: Libvirt, stored: Json, record: str | None) -> None:
        runs = vmi_of(stored)
        if record is None:
            runs["spec"]["domain"]["devices"]["disks"][0]["disk"]["pciAddress"] = addresses(stored)["data"]
        else:
            runs["metadata"]["annotations"] = {"poolhouse.dev/hardware": record}
        edited = deepcopy(stored)
        plugged(edited, "more", "")
        assert addresses(libvirt.default(edited, oldObject=stored, vmi=runs).object)["more"] is None


ROOT_VOLUME = {"volumes": [{"name": "root", "emptyDisk": {"capacity": "1Mi"}}]}
MACHINE = {"machine": {"type": "pc-q35-7.2"}, "memory": {"guest": "128Mi"}}


def implicit(**fields: Any) -> Json:
    return {"domain": {**MACHINE, "devices": {}}, **fields}


# VMs that are older than Poolhouse: virt-api or a stop has written the machine type, and nothing else is decided.
NEVER_DEFAULTED = [
    pytest.param(implicit(), {}, id="no device is listed"),
    pytest.param(implicit(**ROOT_VOLUME), {}, id="a volume without a disk, as virtctl create vm writes it"),
    pytest.param({"domain": MACHINE | {"devices": {"rng": {}}}, **ROOT_VOLUME}, {}, id="other devices"),
    pytest.param(
        spec(disk("root", pciAddress="0000:09:00.0"), disk("data"), nic(), domain=MACHINE),
        {},
        id="listed devices, one with an address",
    ),
    pytest.param(spec(disk("root"), nic(model="virtio"), domain=MACHINE), {}, id="listed devices"),
    pytest.param(spec(disk("root", bus="sata"), nic(), domain=MACHINE), {}, id="a NIC without a model beside SATA"),
    pytest.param(spec(disk("root", bus=None), nic(model="virtio"), domain=MACHINE), {}, id="a disk without a bus"),
    pytest.param(
        implicit(**ROOT_VOLUME),
        {"preference": {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}}},
        id="a preference",
    ),
    pytest.param(
        {"domain": {"machine": {"type": "pc-q35-7.2"}, "devices": {}}, **ROOT_VOLUME},
        {"instancetype": {"cpu": {"guest": 2}, "memory": {"guest": "128Mi"}}, "preference": {}},
        id="an instance type",
    ),
]


@pytest.mark.libvirt
@pytest.mark.parametrize(("content", "matched"), NEVER_DEFAULTED)
def test_a_vm_that_was_never_defaulted_keeps_the_addresses_of_kubevirt(
    libvirt: Libvirt, content: Json, matched: Json
) -> None:
    """Its guest has had them at each start, so an update must write the same ones."""
    matchers = {kind: {"name": kind} for kind in matched}
    stored = vm(deepcopy(content), runStrategy="Halted", **matchers)
    started = vm(deepcopy(content), runStrategy="Always", **matchers)
    kubevirts = where(libvirt.domain(stored, **matched))
    answer = libvirt.default(started, oldObject=stored, **matched)
    found = {name: address for name, address in addresses(answer.object).items() if address is not None}
    assert found
    assert found.items() <= kubevirts.items()
    assert where(libvirt.domain(answer.object, **matched)) == kubevirts


class Running:
    """The PCI buses of a running domain, as libvirt's hotplug uses them."""

    def __init__(self, text: str) -> None:
        self.used = set(where(text).values())
        domain = xml.read(text)
        ports = domain.findall("devices/controller[@model='pcie-root-port']")
        accepting = [port for port in ports if port.find("target[@hotplug='off']") is None]
        self.ports = sorted(f"0000:{int(port.get('index', '')):02x}:00.0" for port in accepting)

    @property
    def empty(self) -> list[str]:
        return [port for port in self.ports if port not in self.used]

    def attach(self, address: str | None) -> None:
        address = address or self.empty[0]
        assert address in self.empty
        self.used.add(address)


def where(text: str) -> dict[str, str]:
    """PCI addresses of a domain's devices, by alias or kind. Root ports are not included."""
    found: dict[str, str] = {}
    for device in xml.read(text).findall("devices/*"):
        address = device.find("address[@type='pci']")
        if address is not None and device.get("model") != "pcie-root-port":
            alias = device.find("alias")
            named = alias.get("name", "") if alias is not None else ""
            key = named.removeprefix("ua-") or f"{device.tag} {device.get('type')} {device.get('index')}"
            parts = [int(address.get(part, "0"), 16) for part in ("domain", "bus", "slot", "function")]
            assert key not in found
            found[key] = "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)
    return found


def vmi_of(stored: Json) -> Json:
    content = deepcopy(inner(stored))
    return vmi(content)


LAST_PLACEHOLDER = "0000:05:00.0"

EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "rng": st.just({}),
        "watchdog": st.just({"name": "dog"}),
        "autoattachMemBalloon": st.booleans(),
        "autoattachSerialConsole": st.booleans(),
        "autoattachGraphicsDevice": st.booleans(),
        "disableHotplug": st.booleans(),
        "inputs": st.just([{"name": "tablet", "bus": "virtio", "type": "tablet"}]),
        "gpus": st.just([{"name": "gpu", "deviceName": "x/y"}]),
    },
)
STEPS = st.lists(st.sampled_from(["plug", "plug", "nic", "unplug", "restart", "disk"]), min_size=1, max_size=9)
BUSES = st.lists(st.sampled_from(["virtio", "sata", "scsi"]), max_size=4)


@pytest.mark.libvirt
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(BUSES, st.integers(0, 5), EXTRAS, st.sampled_from(["128Mi", "3Gi"]), STEPS)
def test_hotplugs_find_their_ports_empty_and_survive_restarts(
    libvirt: Libvirt, buses: list[str], nics: int, extras: Json, memory: str, steps: list[str]
) -> None:
    devices = [disk(f"disk-{index}", bus) for index, bus in enumerate(buses)]
    devices += [nic(f"nic-{index}") for index in range(nics)]
    created = libvirt.default(vm(spec(*devices, domain={"memory": {"guest": memory}, "devices": extras})))
    stored, runs = created.object, vmi_of(created.object)
    domain = libvirt.domain(runs)
    running, hardware = Running(domain), where(domain)
    # libvirt puts the watchdog behind a bridge, whose number depends on the root ports.
    moved = has_bridge = "watchdog" in extras
    for number, step in enumerate([*steps, "restart"]):
        edited = deepcopy(stored)
        content, name = inner(edited), f"new-{number}"
        match step:
            case "plug" if running.empty:
                plugged(edited, name, "")
            case "nic" if running.empty:
                content["domain"]["devices"]["interfaces"].append(nic(name, model="virtio"))
                content["networks"].append({"name": name, "multus": {"networkName": name}})
            case "disk":
                content["domain"]["devices"]["disks"].append(disk(name))
                content["volumes"].append({"name": name, "emptyDisk": {"capacity": "1Mi"}})
            case "restart":
                # The controller fills what was left open when the VM has stopped.
                stored = libvirt.default(stored, oldObject=stored).object
                runs = vmi_of(stored)
                domain = libvirt.domain(runs)
                now = where(domain)
                named = {key: address for key, address in addresses(stored).items() if address is not None}
                assert named.items() <= now.items()
                stays = [key for key in hardware if key in named or not moved]
                assert {key: now[key] for key in stays} == {key: hardware[key] for key in stays}
                running, hardware, moved = Running(domain), now, has_bridge
                continue
            case _:
                continue
        answer = libvirt.default(edited, oldObject=stored, vmi=runs)
        before, stored = addresses(stored), answer.object
        assert before.items() <= addresses(stored).items()
        chosen = addresses(stored)[name]
        if step == "disk":
            assert chosen is not None
            continue
        running.attach(chosen)
        source = "disks" if step == "plug" else "interfaces"
        runs["spec"]["domain"]["devices"][source].append(inner(stored)["domain"]["devices"][source][-1])
        runs["spec"]["volumes" if step == "plug" else "networks"].append(
            inner(stored)["volumes" if step == "plug" else "networks"][-1]
        )
        if chosen is not None:
            hardware[name] = chosen
        # A disk on a placeholder's port moves the placeholders. A VM without a NIC had none.
        moved = (
            moved or (step == "nic" and nics == 0) or (step == "plug" and (chosen is None or chosen < LAST_PLACEHOLDER))
        )
