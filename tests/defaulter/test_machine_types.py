"""Machine types where the nodes have others than this host's QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from defaulter.contract import HARDWARE_ANNOTATION, MachineTypeIndex, MachineTypes, read_node
from defaulter.hook import read_record
from defaulter.machine_types import Node, find_substitute, limited_message, resolve_alias, unavailable_message
from defaulter.worker_process import SingleWorker
from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

OURS = "pc-q35-7.2"


def offer(*everywhere: str, some: tuple[str, ...] = ()) -> MachineTypes:
    return MachineTypes(frozenset(everywhere), frozenset((*everywhere, *some)))


@pytest.mark.parametrize(
    ("alias", "configured", "offered", "real"),
    [
        pytest.param("q35", {}, None, OURS, id="the nodes are unknown"),
        pytest.param("q35", {"q35": "pc-q35-9.0"}, offer(OURS), "pc-q35-9.0", id="a configured type comes first"),
        pytest.param("q35", {}, offer("q35", OURS, "pc-q35-9.2"), OURS, id="this libvirt's type, if every node has it"),
        pytest.param(
            "q35",
            {},
            offer("q35", "pc-q35-rhel9.4.0", "pc-q35-rhel9.10.0", "pc-i440fx-rhel7.6.0"),
            "pc-q35-rhel9.10.0",
            id="the newest type of all nodes",
        ),
        pytest.param(
            "q35",
            {},
            offer("q35", "pc-q35-rhel9.4.0", some=("pc-q35-rhel9.6.0", OURS)),
            "pc-q35-rhel9.4.0",
            id="not a type of only some nodes",
        ),
        pytest.param(
            "q35",
            {},
            offer("q35", some=("pc-q35-9.1", "pc-q35-9.2")),
            "pc-q35-9.2",
            id="unless the nodes share no type",
        ),
        pytest.param("q35", {}, offer("s390-ccw-virtio-9.0"), OURS, id="types of another architecture do not count"),
    ],
)
def test_an_alias_becomes_a_type_that_the_nodes_have(
    alias: str, configured: dict[str, str], offered: MachineTypes | None, real: str
) -> None:
    assert resolve_alias(alias, OURS, configured, offered) == real


@pytest.mark.parametrize(
    ("machine", "configured", "offered", "asked"),
    [
        ("pc-q35-rhel9.6.0", {}, offer("pc-q35-rhel9.6.0"), "q35"),
        ("pc-q35-rhel9.6.0", {}, offer(some=("pc-q35-rhel9.6.0",)), "q35"),
        ("pc-q35-rhel9.6.0", {"q35": "pc-q35-rhel9.6.0"}, None, "q35"),
        ("pc-q35-rhel9.6.0", {}, offer("pc-q35-rhel9.4.0"), None),
        ("pc-q35-rhel9.6.0", {}, None, None),
        ("virt-rhel9.6.0", {}, offer("virt-rhel9.6.0"), None),
    ],
)
def test_a_type_that_only_the_nodes_have_has_a_substitute(
    machine: str, configured: dict[str, str], offered: MachineTypes | None, asked: str | None
) -> None:
    assert find_substitute(machine, {"q35", "pc"}, configured, offered) == asked


def test_messages_about_unavailable_types() -> None:
    nodes = offer("q35", "pc-q35-rhel9.4.0", some=("pc-q35-rhel9.6.0",))
    assert unavailable_message("pc-q35-7.2", nodes) == (
        "no node of the cluster can run the machine type pc-q35-7.2; all of them have pc-q35-rhel9.4.0"
    )
    assert unavailable_message("pc-q35-rhel9.6.0", nodes) is None
    assert "not every node" in str(limited_message("pc-q35-rhel9.6.0", nodes))
    assert limited_message("pc-q35-rhel9.4.0", nodes) is None
    assert unavailable_message("pc-q35-7.2", None) is None


def kubelet(name: str, *machines: str, arch: str = "amd64") -> Node:
    labels = {f"machine-type.node.kubevirt.io/{machine}": "true" for machine in machines}
    return read_node({"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch, **labels}}})


def test_machine_types_follow_the_labels_of_nodes() -> None:
    index = MachineTypeIndex()
    assert index.current() is None
    old, new = kubelet("a", "q35", "pc-q35-9.0"), kubelet("a", "q35", "pc-q35-9.0", "pc-q35-9.2")
    index.node_changed(None, old)
    index.node_changed(None, kubelet("b", "q35", "pc-q35-9.2"))
    index.node_changed(None, kubelet("not-kubevirt-s"))
    index.node_changed(None, kubelet("c", "virt-9.2", arch="arm64"))
    assert index.current() == offer("q35", "virt-9.2", some=("pc-q35-9.0", "pc-q35-9.2"))
    index.node_changed(old, new)
    assert index.current() == offer("q35", "virt-9.2", "pc-q35-9.2", some=("pc-q35-9.0",))
    index.node_changed(new, None)
    assert index.current() == offer("q35", "virt-9.2", "pc-q35-9.2")


def test_a_label_with_false_is_no_machine_type() -> None:
    labels = {"machine-type.node.kubevirt.io/q35": "false", "kubernetes.io/arch": "amd64"}
    assert read_node({"metadata": {"name": "a", "labels": labels}}).machines == frozenset()


@pytest.fixture(scope="module")
def strict(warm: Any, user: tuple[int | None, int | None]) -> Iterator[Libvirt]:
    with SingleWorker({"video": "fill", "record": True, "unavailable_machines": "refuse"}, "", user, warm) as once:
        yield Libvirt(once)


RHEL = {"everywhere": ["q35", "pc-q35-rhel9.4.0"], "somewhere": ["q35", "pc-q35-rhel9.4.0", "pc-q35-rhel9.6.0"]}


def machine(document: dict[str, Any]) -> str:
    found: str = inner(document)["domain"]["machine"]["type"]
    return found


def of(kind: str | None, *devices: dict[str, Any]) -> dict[str, Any]:
    given = {} if kind is None else {"machine": {"type": kind}}
    return vm(spec(*(devices or (disk(), nic())), domain=given))


@pytest.mark.libvirt
@pytest.mark.parametrize("kind", [None, "q35"])
def test_addresses_are_the_same_on_the_type_of_the_nodes(libvirt: Libvirt, strict: Libvirt, kind: str | None) -> None:
    answer = strict.default(of(kind), offered=RHEL)
    assert machine(answer.object) == "pc-q35-rhel9.4.0"
    assert addresses(answer.object) == addresses(libvirt.default(of(kind)).object)
    again = strict.default(answer.object, offered=RHEL)
    assert again.object == answer.object
    assert not again.warnings


@pytest.mark.libvirt
def test_the_record_has_the_machine_type_of_the_vm(strict: Libvirt) -> None:
    answer = strict.default(of(None), offered=RHEL).object
    record = read_record(answer["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION])
    assert record["machine"] == "pc-q35-rhel9.4.0"
    grown = strict.default(of(None, disk("new"), disk(), nic()), oldObject=answer, offered=RHEL).object
    assert addresses(grown).items() > addresses(answer).items()


@pytest.mark.libvirt
def test_a_type_that_no_node_has_is_an_error_or_a_warning(libvirt: Libvirt, strict: Libvirt) -> None:
    document = of("pc-q35-6.2")
    (path,) = (refused := strict.default(document, offered=RHEL)).problems
    assert path == "spec.template.spec.domain.machine.type"
    assert "no node of the cluster can run the machine type pc-q35-6.2" in refused.problems[path]
    (warning,) = libvirt.default(document, offered=RHEL).warnings
    assert warning == refused.problems[path]


@pytest.mark.libvirt
def test_a_stored_vm_stays_editable_without_nodes_of_its_type(strict: Libvirt) -> None:
    stored = strict.default(of("pc-q35-6.2")).object
    answer = strict.default(of("pc-q35-6.2", disk(), disk("more"), nic()), oldObject=stored, offered=RHEL)
    assert answer.status == 200
    assert not answer.warnings


@pytest.mark.libvirt
def test_a_type_that_only_some_nodes_have_is_a_warning(strict: Libvirt) -> None:
    answer = strict.default(of("pc-q35-rhel9.6.0"), offered=RHEL)
    assert machine(answer.object) == "pc-q35-rhel9.6.0"
    assert answer.warnings == [
        "not every node can run the machine type pc-q35-rhel9.6.0: the scheduler skips the other nodes"
    ]
    assert addresses(answer.object)["root"] is not None


@pytest.mark.libvirt
def test_a_type_without_qemu_and_node_is_invalid(libvirt: Libvirt) -> None:
    assert "does not support machine type" in str(libvirt.default(of("pc-q35-rhel9.6.0")).content)
    assert libvirt.default(of("pc-q35-rhel9.6.0"), offered=RHEL).status == 200
    again = libvirt.default(of("pc-q35-rhel9.6.0"))
    assert again.status == 422, "what was decided with the nodes' word is not remembered for those without it"
