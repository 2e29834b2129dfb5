from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from defaulter.json_paths import DocumentEditor
from defaulter.kubevirt_defaults import ClusterConfig, set_kubevirt_defaults, with_input_device
from defaulter.vm_paths import locate
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.defaulter.builders import disk, inner, nic, pool, spec, vm, vmi


def decided(content: dict[str, Any], cluster: ClusterConfig | None = None, **fields: Any) -> dict[str, Any]:
    document = vm(content, **fields)
    where = locate(document)
    assert where is not None
    draft = DocumentEditor(document)
    set_kubevirt_defaults(draft, where, cluster or ClusterConfig())
    return inner(draft.document)


@pytest.mark.parametrize(
    ("given", "topology"),
    [
        pytest.param({}, (1, 1, 1), id="nothing is one of each"),
        pytest.param({"cpu": {"cores": 2}}, (None, 2, 1), id="cores alone leave sockets, which would allow hotplug"),
        pytest.param({"cpu": {"threads": 2}}, (None, 1, 2), id="threads alone leave sockets too"),
        pytest.param({"cpu": {"sockets": 2}}, (2, 1, 1), id="sockets alone"),
        pytest.param({"cpu": {"cores": 0, "sockets": 0}}, (1, 1, 1), id="0 counts as unset"),
        pytest.param({"resources": {"requests": {"cpu": "2"}}}, (2, 1, 1), id="requests become sockets"),
        pytest.param({"resources": {"requests": {"cpu": "1500m"}}}, (2, 1, 1), id="rounded up"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}, (4, 1, 1), id="limits before requests"
        ),
    ],
)
def test_topology(given: dict[str, Any], topology: tuple[int | None, int, int]) -> None:
    cpu = decided(spec(domain=given))["domain"]["cpu"]
    assert (cpu.get("sockets"), cpu["cores"], cpu["threads"]) == topology


@pytest.mark.parametrize(
    ("given", "memory"),
    [
        ({"resources": {"requests": {"memory": "1G"}, "limits": {"memory": "2G"}}}, "1G"),
        ({"resources": {"limits": {"memory": "2G"}}}, "2G"),
        ({"memory": {"hugepages": {"pageSize": "2Mi"}}}, "2Mi"),
        ({"memory": {"guest": "64Mi"}, "resources": {"requests": {"memory": "1G"}}}, "64Mi"),
    ],
)
def test_guest_memory_has_the_source_that_kubevirt_uses(given: dict[str, Any], memory: str) -> None:
    content = spec(domain={"memory": {}, **given})
    assert decided(content)["domain"]["memory"]["guest"] == memory


@pytest.mark.parametrize(("architecture", "bus"), [("amd64", "sata"), ("arm64", "virtio"), ("s390x", "virtio")])
def test_the_bus_of_a_disk_follows_the_architecture(architecture: str, bus: str) -> None:
    content = decided(spec(disk(bus=None), {"name": "cd", "cdrom": {}}, architecture=architecture))
    disks = content["domain"]["devices"]["disks"]
    assert disks[0]["disk"]["bus"] == bus
    assert disks[1]["cdrom"] == {"bus": bus, "readonly": True, "tray": "closed"}


def test_a_volume_without_a_device_gets_a_disk_of_its_name() -> None:
    content = spec(disk())
    content["volumes"] += [{"name": "data"}, {"name": "share"}, {"name": "dump", "memoryDump": {}}]
    content["volumes"] += [{"name": "nulled", "memoryDump": None}]
    content["domain"]["devices"]["filesystems"] = [{"name": "share", "virtiofs": {}}]
    names = [d["name"] for d in decided(content)["domain"]["devices"]["disks"]]
    assert names == ["root", "data", "nulled"]


@pytest.mark.parametrize("binding", ["bridge", "masquerade"])
def test_a_vm_without_interfaces_gets_the_pod_network(binding: Any) -> None:
    content = decided({"domain": {"devices": {}}}, ClusterConfig(binding=binding))
    assert content["networks"] == [{"name": "default", "pod": {}}]
    assert content["domain"]["devices"]["interfaces"] == [{"name": "default", binding: {}, "model": "virtio"}]


def test_no_interface_is_added_where_it_is_turned_off() -> None:
    assert "networks" not in decided({"domain": {"devices": {"autoattachPodInterface": False}}})
    assert "networks" not in decided({"domain": {"devices": {}}}, ClusterConfig(binding="leave"))
    assert "networks" not in decided({"domain": {"devices": {}}}, preference={"name": "x"})


def test_secure_boot_is_the_default_of_efi() -> None:
    efi = {"firmware": {"bootloader": {"efi": {}}}}
    assert decided(spec(domain=efi))["domain"]["firmware"]["bootloader"]["efi"] == {"secureBoot": True}
    arm = decided(spec(architecture="arm64"))["domain"]["firmware"]
    assert arm == {"bootloader": {"efi": {"secureBoot": False}}}


def test_an_instance_type_sets_the_cpu() -> None:
    assert "cpu" not in decided(spec(nic()), instancetype={"name": "small"})["domain"]


@pytest.mark.parametrize(
    ("architecture", "watchdog"),
    [("amd64", {"i6300esb": {"action": "reset"}}), ("s390x", {"diag288": {"action": "reset"}}), ("arm64", {})],
)
def test_the_watchdog_follows_the_architecture(architecture: str, watchdog: dict[str, Any]) -> None:
    content = spec(domain={"devices": {"watchdog": {"name": "w"}}}, architecture=architecture)
    assert decided(content)["domain"]["devices"]["watchdog"] == {"name": "w", **watchdog}


@pytest.mark.parametrize(
    ("content", "cluster", "adapter"),
    [
        pytest.param(spec(), ClusterConfig(), {"type": "vga"}, id="a PC has a VGA card"),
        pytest.param(
            spec(domain={"firmware": {"bootloader": {"efi": {}}}}),
            ClusterConfig(),
            {"type": "bochs"},
            id="with EFI another",
        ),
        pytest.param(spec(architecture="arm64"), ClusterConfig(), {"type": "virtio"}, id="arm64 has no VGA"),
        pytest.param(
            spec(domain={"devices": {"video": {"type": "ramfb"}}}),
            ClusterConfig(),
            {"type": "ramfb"},
            id="what is given",
        ),
        pytest.param(
            spec(domain={"devices": {"autoattachGraphicsDevice": False}}),
            ClusterConfig(),
            None,
            id="no graphics, no adapter",
        ),
        pytest.param(spec(), ClusterConfig(video="leave"), None, id="a KubeVirt that refuses the field"),
    ],
)
def test_the_display_adapter(content: dict[str, Any], cluster: ClusterConfig, adapter: Any) -> None:
    assert decided(content, cluster)["domain"]["devices"].get("video") == adapter


def test_a_preference_may_choose_the_display_adapter() -> None:
    assert "video" not in decided(spec(), preference={"name": "p"})["domain"]["devices"]


ASKING: dict[str, Any] = {"devices": {"autoattachInputDevice": True}}
LISTED = [{"name": "mine", "bus": "virtio", "type": "tablet"}]


@pytest.mark.parametrize(
    ("document", "inputs"),
    [
        pytest.param(vm(spec(domain=ASKING)), ["default-0"], id="a VM that asks for it"),
        pytest.param(pool(spec(domain=ASKING)), ["default-0"], id="the VMs of a pool"),
        pytest.param(vm(spec()), [], id="not requested"),
        pytest.param(vm(spec(domain={"devices": {"autoattachInputDevice": False}})), [], id="it is not wanted"),
        pytest.param(
            vm(spec(domain={"devices": {**ASKING["devices"], "inputs": LISTED}})), ["mine"], id="one is there"
        ),
        pytest.param(vm(spec(domain=ASKING), preference={"name": "p"}), ["default-0"], id="a preference sets its bus"),
        pytest.param(vm(spec(domain=ASKING, architecture="s390x")), [], id="no USB"),
        pytest.param(vmi(spec(domain=ASKING)), [], id="a VMI stays as it is"),
    ],
)
def test_the_input_device_that_kubevirt_adds(document: dict[str, Any], inputs: list[str]) -> None:
    where = locate(document)
    assert where is not None
    found = with_input_device(inner(document), where)["domain"]["devices"].get("inputs", [])
    assert [each["name"] for each in found] == inputs


KUBEVIRT_1_8 = ClusterSettings(versions=("v1.8.4",), architecture="arm64", network="masquerade", cpu_model="Haswell")


@pytest.mark.parametrize(
    ("settings", "overrides", "expected"),
    [
        pytest.param(None, {}, ("amd64", "bridge", "host-model", "leave"), id="nothing is known"),
        pytest.param(
            KUBEVIRT_1_8, {}, ("arm64", "masquerade", "Haswell", "leave"), id="the object decides; 1.8 has a gate"
        ),
        pytest.param(
            replace(KUBEVIRT_1_8, feature_gates=frozenset({"VideoConfig"})),
            {"cpu_model": "Skylake-Server"},
            ("arm64", "masquerade", "Skylake-Server", "fill"),
            id="a setting takes precedence, and the gate is enabled",
        ),
        pytest.param(
            replace(KUBEVIRT_1_8, versions=("v1.9.0",), network="slirp"),
            {"video": "leave"},
            ("arm64", "leave", "Haswell", "leave"),
            id="an interface that KubeVirt no longer has is left to KubeVirt",
        ),
    ],
)
def test_the_configuration_of_a_cluster(
    settings: ClusterSettings | None, overrides: dict[str, Any], expected: tuple[str, ...]
) -> None:
    cluster = ClusterConfig.of(settings, overrides)
    assert (cluster.architecture, cluster.binding, cluster.cpu_model, cluster.video) == expected
    assert cluster.settings == (settings or ClusterSettings())
