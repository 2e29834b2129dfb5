"""Where the defaulter's libvirt or QEMU is newer than that of a node."""

from __future__ import annotations

import pytest

from defaulter.contract import Newer, Node, Version, newer_than_nodes
from poolhouse.api.kubevirt.versions import HYPERVISORS, MAIN, RELEASES, Release


def ours(*machines: str, libvirt: str = "9.0.0", qemu: str = "7.2.0", architecture: str = "amd64") -> Version:
    return Version(poolhouse="1", libvirt=libvirt, qemu={architecture: qemu}, machines={architecture: tuple(machines)})


def node(*machines: str, name: str = "n", architecture: str = "amd64") -> Node:
    return Node(name, architecture, frozenset(machines))


def qemu(machine: str, theirs: str) -> Newer:
    return Newer("qemu", machine, theirs)


@pytest.mark.parametrize(
    ("version", "nodes", "release", "newer"),
    [
        pytest.param(ours("pc-q35-7.2"), [], None, [], id="nothing is known of the nodes"),
        pytest.param(ours("pc-q35-7.2"), [node("pc-q35-7.2", "pc-q35-6.2")], None, [], id="the same version"),
        pytest.param(ours("pc-q35-7.2"), [node("pc-q35-10.0")], None, [], id="an older defaulter"),
        pytest.param(
            ours("pc-q35-10.1", "pc-q35-9.2"),
            [node("pc-q35-9.2", name="a"), node("pc-q35-9.10", name="b"), node("pc-q35-10.1", name="c")],
            None,
            [qemu("pc-q35-10.1", "node a has pc-q35-9.2 at most")],
            id="the node with the oldest QEMU is named",
        ),
        pytest.param(
            ours("pc-q35-rhel9.8.0"),
            [node("pc-q35-rhel9.6.0", "pc-q35-rhel9.4.0")],
            None,
            [qemu("pc-q35-rhel9.8.0", "node n has pc-q35-rhel9.6.0 at most")],
            id="builds of RHEL",
        ),
        pytest.param(
            ours("pc-q35-10.0", "pc-q35-noble"), [node("pc-q35-rhel9.6.0")], None, [], id="versions of other notations"
        ),
        pytest.param(ours("virt-10.0"), [node("virt-9.2", architecture="arm64")], None, [], id="other architectures"),
        pytest.param(
            ours("pc-q35-7.2", libvirt="11.0.0"),
            [node("pc-q35-9.2")],
            (1, 7),
            [Newer("libvirt", "11.0.0", "KubeVirt 1.7 has 10.10.0")],
            id="libvirt by the release of KubeVirt",
        ),
        pytest.param(ours(libvirt="10.10.5"), [], (1, 7), [], id="corrections of a version do not count"),
        pytest.param(
            ours("pc-q35-10.0", qemu="10.0.0"),
            [node("pc-q35-rhel9.6.0")],
            (1, 7),
            [Newer("qemu", "10.0.0", "KubeVirt 1.7 has 9.1.0")],
            id="QEMU by the release, where no labels can be compared",
        ),
        pytest.param(
            ours("pc-q35-10.0", qemu="10.0.0"),
            [node("pc-q35-10.0")],
            (1, 7),
            [],
            id="labels come first: the cluster has its own virt-launcher",
        ),
    ],
)
@pytest.mark.sentence("4.38")
def test_which_versions_are_newer_than_those_of_the_nodes(
    version: Version, nodes: list[Node], release: Release | None, newer: list[Newer]
) -> None:
    assert newer_than_nodes(version, nodes, release) == newer


def test_each_release_has_its_versions() -> None:
    assert set(HYPERVISORS) == {*RELEASES, MAIN}


def test_the_message_names_both_versions() -> None:
    assert str(Newer("libvirt", "11.0.0", "KubeVirt 1.7 has 10.10.0")) == (
        "the defaulter's libvirt is newer than that of the nodes: 11.0.0, but KubeVirt 1.7 has 10.10.0"
    )
