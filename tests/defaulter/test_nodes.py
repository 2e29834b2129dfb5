"""What the labels of nodes say about machine types, CPU models and features."""

from __future__ import annotations

from defaulter.contract import CPUs, Node, NodeIndex, read_node
from tests.defaulter.test_machine_types import offer


def kubelet(name: str, *machines: str, arch: str = "amd64") -> Node:
    labels = {f"machine-type.node.kubevirt.io/{machine}": "true" for machine in machines}
    return read_node({"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch, **labels}}})


def test_machine_types_follow_the_labels_of_nodes() -> None:
    index = NodeIndex()
    assert index.machine_types() is None
    old, new = kubelet("a", "q35", "pc-q35-9.0"), kubelet("a", "q35", "pc-q35-9.0", "pc-q35-9.2")
    index.node_changed(None, old)
    index.node_changed(None, kubelet("b", "q35", "pc-q35-9.2"))
    index.node_changed(None, kubelet("not-kubevirt-s"))
    index.node_changed(None, kubelet("c", "virt-9.2", arch="arm64"))
    assert index.machine_types() == offer("q35", "virt-9.2", some=("pc-q35-9.0", "pc-q35-9.2"))
    index.node_changed(old, new)
    assert index.machine_types() == offer("q35", "virt-9.2", "pc-q35-9.2", some=("pc-q35-9.0",))
    index.node_changed(new, None)
    assert index.machine_types() == offer("q35", "virt-9.2", "pc-q35-9.2")


def test_a_label_with_false_is_no_machine_type() -> None:
    labels = {"machine-type.node.kubevirt.io/q35": "false", "kubernetes.io/arch": "amd64"}
    assert read_node({"metadata": {"name": "a", "labels": labels}}).machines == frozenset()


def test_cpus_follow_the_labels_of_nodes() -> None:
    def node(name: str, *labels: str) -> Node:
        return read_node({"metadata": {"name": name, "labels": dict.fromkeys(labels, "true")}})

    index = NodeIndex()
    assert index.cpus() is None
    first = node("a", "cpu-model.node.kubevirt.io/Haswell", "cpu-feature.node.kubevirt.io/avx512f")
    index.node_changed(None, first)
    index.node_changed(None, node("b", "cpu-model.node.kubevirt.io/Haswell"))
    index.node_changed(None, node("c", "cpu-model-migration.node.kubevirt.io/EPYC-v9"))
    index.node_changed(None, node("d", "host-model-cpu.node.kubevirt.io/GraniteRapids"))
    assert index.cpus() == CPUs(frozenset({"Haswell", "EPYC-v9", "GraniteRapids"}), frozenset({"avx512f"}))
    index.node_changed(first, None)
    assert index.cpus() == CPUs(frozenset({"Haswell", "EPYC-v9", "GraniteRapids"}), frozenset())
    assert index.machine_types() is None
