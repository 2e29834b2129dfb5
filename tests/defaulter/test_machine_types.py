"""Machine types where the nodes have others than this host's QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from defaulter.contract import HARDWARE_ANNOTATION, MachineTypes, with_machine_type
from defaulter.hook import read_record
from defaulter.machine_types import (
    find_substitute,
    is_canonical,
    is_version_of,
    limited_message,
    resolve_alias,
    unavailable_message,
)
from defaulter.worker_process import SingleWorker
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.defaulter.builders import addresses, disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

OURS = "pc-q35-7.2"


def offer(*everywhere: str, some: tuple[str, ...] = ()) -> MachineTypes:
    return MachineTypes(frozenset(everywhere), frozenset((*everywhere, *some)))


@pytest.mark.parametrize(
    ("machine", "canonical", "alias"),
    [
        ("pc-q35-7.2", True, "q35"),
        ("pc-q35-rhel9.6.0", True, "q35"),
        ("pc-q35-noble", True, "q35"),
        ("pc-i440fx-rhel7.6.0", True, "pc"),
        ("pc-1.3", True, None),
        ("virt-rhel9.6.0", True, "virt"),
        ("s390-ccw-virtio-9.2", True, "s390-ccw-virtio"),
        ("pseries-rhel9.0.0", True, None),
        ("q35", False, None),
        ("pc", False, None),
        ("virt", False, None),
        ("s390-ccw-virtio", False, None),
        ("ubuntu-q35", False, None),
        ("microvm", False, None),
        ("", False, None),
    ],
)
def test_a_canonical_type_has_a_version(machine: str, canonical: bool, alias: str | None) -> None:
    assert is_canonical(machine) is canonical
    found = [name for name in ("q35", "pc", "virt", "s390-ccw-virtio", "") if is_version_of(name, machine)]
    assert found == ([] if alias is None else [alias])


@pytest.mark.parametrize(
    ("alias", "configured", "offered", "real"),
    [
        pytest.param("q35", {}, None, OURS, id="the nodes are unknown"),
        pytest.param("virt", {}, None, None, id="the nodes are unknown, and this QEMU has no such alias"),
        pytest.param("q35", {"q35": "pc-q35-9.0"}, offer(OURS), "pc-q35-9.0", id="a configured type comes first"),
        pytest.param("q35", {}, offer("q35", OURS, "pc-q35-9.2"), "pc-q35-9.2", id="the nodes' newest, not ours"),
        pytest.param("q35", {}, offer("q35", "pc-q35-6.2"), "pc-q35-6.2", id="nodes that are older"),
        pytest.param("q35", {}, offer("pc-q35-9.2", "pc-q35-10.0"), "pc-q35-10.0", id="10 is newer than 9"),
        pytest.param("q35", {}, offer("pc-q35-4.0", "pc-q35-4.0.1"), "pc-q35-4.0.1", id="a patch is newer"),
        pytest.param(
            "q35",
            {},
            offer("q35", "pc-q35-rhel9.4.0", "pc-q35-rhel9.10.0", "pc-i440fx-rhel7.6.0"),
            "pc-q35-rhel9.10.0",
            id="CentOS and RHEL",
        ),
        pytest.param(
            "q35",
            {},
            offer("q35", "ubuntu-q35", "pc-q35-noble", "pc-q35-jammy-maxcpus", "pc-q35-8.2", "pc-q35-8.1"),
            "pc-q35-8.2",
            id="Ubuntu's q35 is upstream's newest",
        ),
        pytest.param("ubuntu-q35", {}, offer("ubuntu-q35", "pc-q35-noble"), None, id="Ubuntu's own alias stays"),
        pytest.param("pc", {}, offer("pc", "pc-i440fx-9.2", "pc-q35-10.0"), "pc-i440fx-9.2", id="an older PC"),
        pytest.param("virt", {}, offer("virt", "virt-9.2", "virt-rhel9.6.0"), "virt-9.2", id="arm64"),
        pytest.param("s390-ccw-virtio", {}, offer("s390-ccw-virtio-9.2"), "s390-ccw-virtio-9.2", id="s390x"),
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
            id="a type of only some nodes, if they share none",
        ),
        pytest.param("q35", {}, offer("q35"), None, id="nodes that name only the alias"),
        pytest.param("q35", {}, offer("s390-ccw-virtio-9.0"), None, id="types of another architecture do not count"),
    ],
)
@pytest.mark.sentence("4.40")
def test_an_alias_becomes_what_the_nodes_would_make_of_it(
    alias: str, configured: dict[str, str], offered: MachineTypes | None, real: str | None
) -> None:
    assert resolve_alias(alias, OURS if alias == "q35" else None, configured, offered) == real


@pytest.mark.parametrize(
    ("patterns", "offered", "real"),
    [
        (("q35*", "pc-q35*"), offer(OURS, "pc-q35-9.2"), "pc-q35-9.2"),
        (("q35", "pc-q35-8.*"), offer("pc-q35-8.1", "pc-q35-8.2", "pc-q35-9.2"), "pc-q35-8.2"),
        (("q35", "pc-q35-rhel*"), None, None),
        (("q35",), offer("pc-q35-9.2"), None),
    ],
)
def test_only_a_type_that_kubevirt_accepts_is_chosen(
    patterns: tuple[str, ...], offered: MachineTypes | None, real: str | None
) -> None:
    settings = ClusterSettings(emulated_machines={"amd64": patterns})
    assert resolve_alias("q35", OURS, {}, offered, partial(settings.accepts_machine_type, "amd64")) == real


@pytest.mark.parametrize(
    ("machine", "asked"),
    [
        ("pc-q35-rhel9.6.0", "q35"),
        ("pc-q35-99.0", "q35"),
        ("pc-i440fx-rhel7.6.0", "pc"),
        ("virt-rhel9.6.0", None),
        ("pc-1.3", None),
        ("q36", None),
        ("q35", None),
    ],
)
def test_a_type_that_this_qemu_lacks_has_a_substitute_of_its_family(machine: str, asked: str | None) -> None:
    assert find_substitute(machine, {"q35", "pc"}) == asked


@pytest.mark.parametrize(
    ("given", "ran", "expected"),
    [
        pytest.param("q35", "pc-q35-10.0", "pc-q35-10.0", id="an alias"),
        pytest.param(None, "pc-q35-10.0", "pc-q35-10.0", id="no type"),
        pytest.param("q35", "q35", "q35", id="KubeVirt does not know the type yet"),
        pytest.param("pc-q35-9.0", "pc-q35-10.0", "pc-q35-9.0", id="the author wrote another"),
        pytest.param("pc", "pc-q35-10.0", "pc", id="the author changed the family"),
    ],
)
def test_a_vm_keeps_the_type_that_its_guest_ran(given: str | None, ran: str, expected: str) -> None:
    vmi = {"status": {"machine": {"type": ran}}}
    assert machine(with_machine_type(of(given), vmi)) == expected
    assert with_machine_type(of(given), None) == of(given)
    assert with_machine_type(of(given), {}) == of(given)


def test_messages_about_unavailable_types() -> None:
    nodes = offer("q35", "pc-q35-rhel9.4.0", some=("pc-q35-rhel9.6.0",))
    assert unavailable_message("pc-q35-7.2", nodes) == (
        "no node of the cluster can run the machine type pc-q35-7.2; all of them have pc-q35-rhel9.4.0"
    )
    assert unavailable_message("pc-q35-rhel9.6.0", nodes) is None
    assert "not every node" in str(limited_message("pc-q35-rhel9.6.0", nodes))
    assert limited_message("pc-q35-rhel9.4.0", nodes) is None
    assert unavailable_message("pc-q35-7.2", None) is None


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


NEWEST = "pc-q35-99.0"
"""a machine type that no QEMU of a test has"""
NEWER = {"everywhere": ["q35", NEWEST], "somewhere": ["q35", NEWEST]}
OLDER = {"everywhere": ["q35", "pc-q35-7.2"], "somewhere": ["q35", "pc-q35-7.2"]}


@pytest.mark.libvirt
@pytest.mark.parametrize(
    "cpu",
    [
        pytest.param({"sockets": 2, "cores": 128, "threads": 2}, id="more CPUs than the machine type has here"),
        pytest.param({"sockets": 256}, id="more CPUs than work without an IOMMU"),
        pytest.param({"sockets": 1, "maxSockets": 600}, id="more CPUs to hotplug"),
    ],
)
def test_limits_of_this_qemu_are_not_those_of_newer_nodes(libvirt: Libvirt, cpu: dict[str, int]) -> None:
    large = vm(spec(disk(), nic(), domain={"cpu": cpu}))
    answer = libvirt.default(large, offered=NEWER)
    assert machine(answer.object) == NEWEST
    assert cpu.items() <= inner(answer.object)["domain"]["cpu"].items()
    assert addresses(answer.object) == addresses(libvirt.default(of(None)).object)
    fits = libvirt.default(large).status == 200  # as with QEMU 10
    assert fits != any("cpu" in each and "is not checked" in each for each in answer.warnings)
    again = libvirt.default(answer.object, offered=NEWER)
    assert again.object == answer.object
    if cpu != {"sockets": 256} or not fits:  # libvirt adds the IOMMU since 10.10
        refused = libvirt.default(large, offered=OLDER)
        assert next(iter(refused.problems)).startswith("spec.template.spec.domain.cpu")


@pytest.mark.libvirt
@pytest.mark.parametrize("kind", [None, "q35"])
def test_the_limits_are_those_of_the_nodes_machine_type(libvirt: Libvirt, kind: str | None) -> None:
    oldest = {"everywhere": ["q35", "pc-q35-2.6"], "somewhere": ["q35", "pc-q35-2.6"]}
    large = vm(spec(disk(), nic(), domain={"cpu": {"sockets": 256}, "machine": {"type": kind}}))
    problems = libvirt.default(large, offered=oldest).problems
    assert "greater than specified machine type limit 255" in problems["spec.template.spec.domain.cpu"]


@pytest.mark.libvirt
def test_the_record_has_the_machine_type_of_the_vm(strict: Libvirt) -> None:
    answer = strict.default(of(None), offered=RHEL).object
    record = read_record(answer["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION])
    assert record["machine"] == "pc-q35-rhel9.4.0"
    grown = strict.default(of(None, disk("new"), disk(), nic()), oldObject=answer, offered=RHEL).object
    assert addresses(grown).items() > addresses(answer).items()


@pytest.mark.libvirt
@pytest.mark.sentence("4.41")
def test_a_type_that_no_node_has_is_an_error_or_a_warning(libvirt: Libvirt, strict: Libvirt) -> None:
    document = of("pc-q35-6.2")
    (path,) = (refused := strict.default(document, offered=RHEL)).problems
    assert path == "spec.template.spec.domain.machine.type"
    assert "no node of the cluster can run the machine type pc-q35-6.2" in refused.problems[path]
    (warning,) = libvirt.default(document, offered=RHEL).warnings
    assert warning == refused.problems[path]
    unknown = libvirt.default(of("pc-q35-99.0"), offered=RHEL)
    assert list(unknown.problems) == [path], "neither this QEMU nor a node has it"


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
def test_a_type_that_this_qemu_lacks_is_a_warning_where_the_nodes_are_unknown(libvirt: Libvirt) -> None:
    document = of("pc-q35-rhel9.6.0")
    answer = libvirt.default(document)
    assert machine(answer.object) == "pc-q35-rhel9.6.0"
    assert addresses(answer.object) == addresses(libvirt.default(of("q35")).object)
    (warning,) = answer.warnings
    assert "does not have the machine type pc-q35-rhel9.6.0" in warning
    with_nodes = libvirt.default(document, offered={**RHEL, "everywhere": ["pc-q35-rhel9.6.0"]})
    assert with_nodes.object == answer.object
    assert not with_nodes.warnings


@pytest.mark.libvirt
@pytest.mark.parametrize("kind", ["q36", "q36-1.0", "virt-9.2"])
def test_a_type_of_a_family_that_this_qemu_lacks(libvirt: Libvirt, kind: str) -> None:
    (path,) = (refused := libvirt.default(of(kind))).problems
    assert path == "spec.template.spec.domain.machine.type"
    assert "does not support the machine type" in refused.problems[path]
    here = {"everywhere": [kind], "somewhere": [kind]}
    assert libvirt.default(of(kind), offered=here).status == 501, "the webhook lets it pass, undefaulted"


@pytest.mark.libvirt
@pytest.mark.parametrize("kind", [None, "q35"])
def test_the_alias_of_a_guest_that_may_have_run_stays(libvirt: Libvirt, strict: Libvirt, kind: str | None) -> None:
    for worker, offered in ((libvirt, None), (libvirt, RHEL), (strict, RHEL)):
        answer = worker.default(of(kind), mayHaveRun=True, **({"offered": offered} if offered else {}))
        assert inner(answer.object)["domain"].get("machine", {}).get("type") == kind
        assert addresses(answer.object) == addresses(libvirt.default(of(kind)).object)
        assert not answer.warnings
    known = with_machine_type(of(kind), {"status": {"machine": {"type": "pc-q35-10.0"}}})
    assert machine(libvirt.default(known, mayHaveRun=True).object) == "pc-q35-10.0"


@pytest.mark.libvirt
def test_the_kubevirt_object_has_the_type_of_a_vm_without_one(libvirt: Libvirt) -> None:
    def kubevirt(**configuration: Any) -> dict[str, Any]:
        return {"spec": {"configuration": configuration}}

    assert machine(libvirt.default(of(None), kubevirt=kubevirt(machineType="pc-q35-rhel9.4.0")).object) == (
        "pc-q35-rhel9.4.0"
    )
    only_rhel = kubevirt(architectureConfiguration={"amd64": {"emulatedMachines": ["q35", "pc-q35-rhel*"]}})
    assert machine(libvirt.default(of("q35"), kubevirt=only_rhel).object) == "q35", "virt-api would refuse ours"
    assert machine(libvirt.default(of("q35"), kubevirt=only_rhel, offered=RHEL).object) == "pc-q35-rhel9.4.0"
