"""Values of the KubeVirt object and of the defaulter's settings that no node knows: warnings, never errors."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from tests.defaulter.builders import disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

D = "spec.template.spec.domain"
NODES = {
    "cpus": {"models": ["Haswell"], "features": []},
    "offered": {"everywhere": ["q35", "pc-q35-9.0"], "somewhere": ["q35", "pc-q35-9.0"]},
}
PLAIN: Json = {
    "domain": {"memory": {"guest": "256Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
    "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/guest"}}],
}


def cluster(**configuration: Any) -> Json:
    return {"spec": {"configuration": configuration}, "status": {"observedKubeVirtVersion": "v1.8.4"}}


def with_domain(**fields: Any) -> Json:
    return {**PLAIN, "domain": {**PLAIN["domain"], **fields}}


@pytest.mark.parametrize(
    ("given", "configuration", "names", "stored"),
    [
        pytest.param(
            PLAIN, {"cpuModel": "CascadelakeServer"}, "spec.configuration.cpuModel", {"cpu.model": None}, id="CPU model"
        ),
        pytest.param(
            with_domain(cpu={"cores": 2}),
            {"cpuModel": "Nehalem IBRS"},
            "cpuModel",
            {"cpu.model": None},
            id="cores",
        ),
        pytest.param(
            with_domain(machine={"type": "pc-q35-rhel99.9.0"}),
            {"machineType": "pc-q35-rhel99.9.0"},
            "spec.configuration of the KubeVirt object sets this machine type",
            {"machine.type": "pc-q35-rhel99.9.0"},
            id="machine type, which virt-api has written into the VM",
        ),
        pytest.param(
            PLAIN,
            {"architectureConfiguration": {"amd64": {"machineType": "pc-q35-99.9"}}},
            "spec.configuration of the KubeVirt object sets this machine type",
            {"machine.type": "pc-q35-99.9"},
            id="machine type of the architecture, which virt-api writes later",
        ),
        pytest.param(PLAIN, {"network": {"defaultNetworkInterface": "slirp"}}, "", {}, id="default network"),
        pytest.param(PLAIN, {"emulatedMachines": ["none*"]}, "", {"machine.type": None}, id="emulated machines"),
    ],
)
def test_a_value_of_the_cluster_is_a_warning(
    libvirt: Libvirt, given: Json, configuration: Json, names: str, stored: dict[str, Any]
) -> None:
    answer = libvirt.default(vm(given, name="plain"), kubevirt=cluster(**configuration), **NODES)
    assert answer.status == 200, answer.content
    assert names in " ".join(answer.warnings)
    domain = inner(answer.object)["domain"]
    for path, value in stored.items():
        first, last = path.split(".")
        assert domain.get(first, {}).get(last) == value
    assert domain["firmware"]["uuid"]
    assert domain["devices"]["disks"][0]["disk"]["pciAddress"]


@pytest.mark.parametrize(
    ("configuration", "status", "names"),
    [
        pytest.param({"machineType": "riscv-virt-1.0"}, {}, "sets this machine type", id="machine type of no family"),
        pytest.param({"machineType": "microvm"}, {}, "sets this machine type", id="machine type without PCI"),
        pytest.param({"machineType": "q35 "}, {}, "sets this machine type", id="machine type with a space"),
        pytest.param({}, {"defaultArchitecture": "riscv64"}, "riscv64", id="architecture"),
    ],
)
def test_what_cannot_be_decided_for_the_cluster_is_left_to_kubevirt(
    libvirt: Libvirt, configuration: Json, status: Json, names: str
) -> None:
    found = cluster(**configuration)
    answer = libvirt.default(vm(PLAIN), kubevirt={**found, "status": {**found["status"], **status}}, **NODES)
    assert answer.status == 501, "the webhook stores the VM without defaults"
    assert names in str(answer.content)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(with_domain(cpu={"model": "Haswell"}), id="a model of its own"),
        pytest.param({**with_domain(cpu={"model": "host-passthrough"})}, id="the host's"),
    ],
)
def test_a_vm_with_a_model_of_its_own_needs_no_warning(libvirt: Libvirt, given: Json) -> None:
    answer = libvirt.default(vm(given), kubevirt=cluster(cpuModel="CascadelakeServer"), **NODES)
    assert answer.status == 200
    assert "cpuModel" not in " ".join(answer.warnings)
    assert inner(answer.object)["domain"]["cpu"]["model"] == given["domain"]["cpu"]["model"]


@pytest.mark.parametrize(
    ("cpu", "warned"),
    [
        pytest.param({"guest": 1}, True, id="the type has no model"),
        pytest.param({"guest": 1, "model": "Haswell"}, False, id="the type has one"),
    ],
)
def test_an_instance_type_without_model_gets_that_of_the_cluster(libvirt: Libvirt, cpu: Json, warned: bool) -> None:
    document = vm({"domain": {"devices": {}}}, instancetype={"name": "small"})
    sent = {"instancetype": {"cpu": cpu, "memory": {"guest": "128Mi"}}}
    answer = libvirt.default(document, kubevirt=cluster(cpuModel="CascadelakeServer"), **sent, **NODES)
    assert answer.status == 200, answer.content
    assert ("spec.configuration.cpuModel" in " ".join(answer.warnings)) is warned


@pytest.mark.parametrize("machine", ["pc-i440fx-7.2", "pc"])
def test_a_vm_that_the_cluster_s_machine_type_rejects_is_left_to_kubevirt(libvirt: Libvirt, machine: str) -> None:
    secure = with_domain(firmware={"bootloader": {"efi": {"secureBoot": True}}}, features={"smm": {"enabled": True}})
    answer = libvirt.default(vm(secure), kubevirt=cluster(machineType=machine))
    assert answer.status == 501, answer.content
    assert "sets this machine type" in str(answer.content)
    own = {**secure, "domain": {**secure["domain"], "machine": {"type": "pc-i440fx-7.2"}}}
    assert libvirt.default(vm(own), kubevirt=cluster()).status == 422, "the author's own mistake"


def test_a_model_of_the_cluster_is_named_where_nodes_are_unknown(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(PLAIN), kubevirt=cluster(cpuModel="CascadelakeServer"))
    assert "spec.configuration.cpuModel of the KubeVirt object sets this model" in " ".join(answer.warnings)
    assert inner(answer.object)["domain"]["cpu"]["model"] == "CascadelakeServer"


def test_a_model_that_no_xml_can_contain_is_not_set(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(PLAIN), kubevirt=cluster(cpuModel="Haswell\n\x00"))
    assert answer.status == 200, answer.content
    assert "spec.configuration.cpuModel" in " ".join(answer.warnings)
    assert "model" not in inner(answer.object)["domain"]["cpu"]


def test_an_author_s_own_wrong_value_stays_an_error(libvirt: Libvirt) -> None:
    wrong = with_domain(cpu={"model": "CascadelakeServer"}, machine={"type": "pc-q35-99.9"})
    answer = libvirt.default(vm(wrong), kubevirt=cluster(), **NODES)
    assert set(answer.problems) == {f"{D}.cpu.model", f"{D}.machine.type"}


def test_an_update_is_stored_after_the_administrator_s_mistake_and_after_its_correction(libvirt: Libvirt) -> None:
    broken, mended = cluster(cpuModel="CascadelakeServer"), cluster(cpuModel="Haswell")
    stored = libvirt.default(vm(spec(disk(), nic())), kubevirt=broken, **NODES).object
    changed = {**stored, "metadata": {**stored["metadata"], "labels": {"tier": "web"}}}
    again = libvirt.default(changed, oldObject=stored, kubevirt=broken, **NODES)
    assert again.object == changed
    assert "cpuModel" in " ".join(again.warnings)
    filled = libvirt.default(changed, oldObject=stored, kubevirt=mended, **NODES)
    assert inner(filled.object)["domain"]["cpu"]["model"] == "Haswell"
