"""Validation of replica sets."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds import meta
from poolhouse.api.kinds.meta import is_installed_by_us
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.manifests.crd import crd
from tests.kinds.documents import GONE, changed

Json = dict[str, Any]


def replica_set(selector: Any = None, labels: Any = None, **spec: Any) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1alpha2",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "myreplicaset"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"mylabel": "mylabel"}} if selector is None else selector,
            "template": {
                "metadata": {"name": "test", "labels": {"mylabel": "mylabel"} if labels is None else labels},
                "spec": {"domain": {"devices": {}}},
            },
            **spec,
        },
    }


def expression(**parts: Any) -> Json:
    return {"matchExpressions": [{"key": "mylabel", **parts}]}


RIGHT = [
    pytest.param(replica_set(), id="the document's"),
    pytest.param({**replica_set(), "apiVersion": "kubevirt.io/v1"}, id="KubeVirt's version"),
    pytest.param(changed(replica_set(), GONE, "spec", "replicas"), id="one by default"),
    pytest.param(replica_set(expression(operator="In", values=["x", "mylabel"])), id="one of several values"),
    pytest.param(replica_set(expression(operator="NotIn", values=["x"])), id="none of several values"),
    pytest.param(replica_set(expression(operator="Exists")), id="any value"),
    pytest.param(
        replica_set({"matchLabels": {"spare": True}}, {"spare": True}), id="labels that YAML took for booleans"
    ),
]


@pytest.mark.parametrize("document", RIGHT)
def test_a_valid_replica_set_has_no_problems(document: Json) -> None:
    assert REPLICA_SET.problems(REPLICA_SET.normalize(document)) == []


WRONG = [
    pytest.param(changed(replica_set(), GONE, "spec", "selector"), {"spec.selector": "is missing"}, id="no selector"),
    pytest.param(replica_set({}), {"spec.selector": "selects everything"}, id="a selector of everything"),
    pytest.param(
        replica_set(labels={"mylabel": "other"}),
        {"spec.selector.matchLabels": '"mylabel" is "mylabel", and the template has "other"'},
        id="another value",
        marks=pytest.mark.sentence("2.3"),
    ),
    pytest.param(
        replica_set(labels={}),
        {"spec.selector.matchLabels": "does not have that label"},
        id="a template with no labels",
        marks=pytest.mark.sentence("2.3"),
    ),
    pytest.param(
        replica_set(expression(operator="DoesNotExist")),
        {"spec.selector.matchExpressions[0]": "does not match"},
        id="a label that must not be there",
    ),
    pytest.param(
        replica_set(expression(operator="In")),
        {
            "spec.selector.matchExpressions[0].values": "at least one",
            "spec.selector.matchExpressions[0]": "does not match",
        },
        id="one of no values",
    ),
    pytest.param(
        changed(replica_set(), [{"name": "a"}], "spec", "template", "spec", "domain", "devices", "disks"),
        {"spec.template.spec.domain.devices.disks[0].name": 'no volume "a"'},
        id="a disk without a volume",
    ),
    pytest.param(
        changed(replica_set(), GONE, "spec", "template", "spec"), {"spec.template.spec": "is missing"}, id="no spec"
    ),
    pytest.param(
        changed(replica_set(), "My VM", "spec", "template", "metadata", "name"),
        {"spec.template.metadata.name": "VMIs are named after it"},
        id="a name that no instance can have",
    ),
]


@pytest.mark.parametrize(("document", "expected"), WRONG)
def test_an_invalid_replica_set_has_problems_with_paths(document: Json, expected: dict[str, str]) -> None:
    found = {problem.path: problem.message for problem in REPLICA_SET.problems(REPLICA_SET.normalize(document))}
    assert found.keys() == expected.keys()
    for path, words in expected.items():
        assert words in found[path]


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        pytest.param({}, True, id="as we install it"),
        pytest.param({meta.MANAGED_BY: "Helm"}, True, id="as our chart does"),
        pytest.param({meta.MANAGED_BY: "virt-operator"}, False, id="taken over by KubeVirt"),
        pytest.param({meta.PART_OF: "kubevirt"}, False, id="of a KubeVirt that names its product"),
        pytest.param({meta.PART_OF: None}, False, id="of nobody in particular"),
    ],
)
def test_a_crd_is_ours_until_kubevirt_manages_it(labels: Json, ours: bool) -> None:
    found = crd(REPLICA_SET)
    found["metadata"]["labels"] |= labels
    assert is_installed_by_us(found) is ours


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


def with_disk(volume: Json, disk: Json | None) -> Json:
    spec = {
        "domain": {"devices": {"disks": [] if disk is None else [{"name": "data", **disk}]}},
        "volumes": [{"name": "data", **volume}],
    }
    return changed(replica_set(), spec, "spec", "template", "spec")


@pytest.mark.parametrize(
    ("volume", "disk", "warned"),
    [
        pytest.param(CLAIM, {"disk": {}}, "persistentVolumeClaim", id="a writable disk"),
        pytest.param(CLAIM, {}, "persistentVolumeClaim", id="a disk without a type"),
        pytest.param(CLAIM, {"lun": {}}, "persistentVolumeClaim", id="a writable LUN"),
        pytest.param({"dataVolume": {"name": "data"}}, {"disk": {}}, "dataVolume", id="the claim of a DataVolume"),
        pytest.param(CLAIM, {"cdrom": {"readonly": False}}, "persistentVolumeClaim", id="a writable CD-ROM"),
        pytest.param(CLAIM, {"cdrom": {}}, None, id="a CD-ROM"),
        pytest.param(CLAIM, {"disk": {"readonly": True}}, None, id="a disk that guests only read"),
        pytest.param(CLAIM, {"lun": {"readonly": True}}, None, id="a LUN that guests only read"),
        pytest.param(CLAIM, {"disk": {}, "shareable": True}, None, id="a disk that the author shares"),
        pytest.param(CLAIM, None, None, id="a claim without a disk"),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"disk": {}},
            None,
            id="a mount to read",
        ),
        pytest.param({"ephemeral": CLAIM}, {"disk": {}}, None, id="a copy for each VMI"),
        pytest.param({"containerDisk": {"image": "x"}}, {"disk": {}}, None, id="an image"),
    ],
)
def test_a_claim_that_several_vmis_would_write_to(volume: Json, disk: Json | None, warned: str | None) -> None:
    document = with_disk(volume, disk)
    assert REPLICA_SET.problems(document) == []
    paths = [each.partition(": ")[0] for each in REPLICA_SET.warnings(document)]
    assert paths == ([f"spec.template.spec.volumes[0].{warned}"] if warned else [])


@pytest.mark.parametrize("name", [{}, []])
def test_a_name_that_is_no_text_is_a_problem(name: Any) -> None:
    document = with_disk({**CLAIM, "name": name}, {"name": name})
    paths = {problem.path for problem in REPLICA_SET.problems(document)}
    assert "spec.template.spec.volumes[0].name" in paths
    assert [*REPLICA_SET.warnings(document)], "warnings are shown beside problems"
