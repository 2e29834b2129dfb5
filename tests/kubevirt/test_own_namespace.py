"""References with and without the namespace of the VM mean the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from poolhouse.api.kubevirt import own_namespace
from poolhouse.api.kubevirt.fields import declared_fields
from poolhouse.api.kubevirt.meaning import DATA_VOLUME_SPEC, POOL_CONTENT, VM_TEMPLATE, VMI_TEMPLATE, mean_the_same
from poolhouse.api.kubevirt.own_namespace import without_own_namespace

HERE = "shop"


def clone(kind: str, namespace: Any) -> dict[str, Any]:
    return {"source": {kind: {"name": "golden", "namespace": namespace}}}


def source_ref(**fields: Any) -> dict[str, Any]:
    return {"sourceRef": {"kind": "DataSource", "name": "debian", **fields}}


def claim(**fields: Any) -> dict[str, Any]:
    return {"pvc": {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "golden", **fields}}}


def network(name: Any) -> dict[str, Any]:
    return {"spec": {"networks": [{"name": "blue", "multus": {"networkName": name}}]}}


def near(**fields: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", **fields}
    return {"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}


def disk(spec: Any) -> dict[str, Any]:
    return {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": spec}]}}


SAME = [
    pytest.param(DATA_VOLUME_SPEC, clone("pvc", HERE), clone("pvc", ""), id="a claim"),
    pytest.param(DATA_VOLUME_SPEC, clone("snapshot", HERE), clone("snapshot", None), id="a snapshot"),
    pytest.param(DATA_VOLUME_SPEC, source_ref(namespace=HERE), source_ref(), id="a DataSource"),
    pytest.param(DATA_VOLUME_SPEC, claim(namespace=HERE), claim(), id="the data source of a claim"),
    pytest.param(VMI_TEMPLATE, network(f"{HERE}/blue"), network("blue"), id="a network"),
    pytest.param(VMI_TEMPLATE, near(namespaces=[HERE]), near(), id="Pods of the namespace"),
    pytest.param(VM_TEMPLATE, disk(source_ref(namespace=HERE)), disk(source_ref()), id="inside of a template"),
    pytest.param(
        POOL_CONTENT,
        {"template": disk(clone("pvc", HERE))},
        {"template": disk(clone("pvc", ""))},
        id="inside of what a pool stores",
    ),
]
OTHER = [
    pytest.param(DATA_VOLUME_SPEC, clone("pvc", "images"), clone("pvc", ""), id="another namespace"),
    pytest.param(DATA_VOLUME_SPEC, source_ref(name=HERE), source_ref(), id="a name that equals the namespace"),
    pytest.param(VMI_TEMPLATE, network(f"{HERE}s/blue"), network("blue"), id="a network elsewhere"),
    pytest.param(VMI_TEMPLATE, network(f"{HERE}-blue"), network("blue"), id="another network"),
    pytest.param(VMI_TEMPLATE, near(namespaces=[HERE, "b"]), near(), id="Pods of two namespaces"),
    pytest.param(
        VMI_TEMPLATE,
        near(namespaces=[HERE], namespaceSelector={}),
        near(namespaceSelector={}),
        id="Pods of selected namespaces too",
    ),
    pytest.param("", {"namespace": HERE}, {}, id="a field of an unknown type"),
]


def same(type_name: str, one: Any, other: Any, namespace: str = HERE) -> bool:
    local = (without_own_namespace(each, type_name, namespace) for each in (one, other))
    return mean_the_same(*local, type_name)


@pytest.mark.parametrize(("type_name", "one", "other"), SAME)
def test_the_own_namespace_does_not_count(type_name: str, one: Any, other: Any) -> None:
    before = copy.deepcopy((one, other))
    assert same(type_name, one, other)
    assert (one, other) == before
    assert not same(type_name, one, other, "elsewhere"), "it counts in another namespace"


@pytest.mark.parametrize(("type_name", "one", "other"), OTHER)
def test_a_near_miss_counts(type_name: str, one: Any, other: Any) -> None:
    assert not same(type_name, one, other)


def test_the_tables_name_declared_fields() -> None:
    for owner, name in (*own_namespace._NAMESPACES, *own_namespace._NAMES):
        assert name in declared_fields(owner), (owner, name)
