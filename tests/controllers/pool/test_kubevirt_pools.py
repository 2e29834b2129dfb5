from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.kubevirt_pools import FAILING_STATUSES, convert, is_named, parse_duration, pool_metadata
from poolhouse.api.kinds.pool import PoolSpec

Json = dict[str, Any]


def spec(**others: Any) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"running": True, "template": {"spec": {}}}}
    return {"selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": template, **others}


def converted(*drops: str, **others: Any) -> Json:
    found = convert({"spec": spec(**others)}, drops)
    assert found.refusals == []
    PoolSpec.model_validate(found.spec)
    return {key: value for key, value in found.spec.items() if key != "template"}


def policy(**values: Any) -> Json:
    return {"proactive": {"selectionPolicy": values}}


UNSET = {"replicas": 1, "maxUnavailable": "100%"}
HEALING = {"failingStatuses": list(FAILING_STATUSES)}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param({}, {}, id="the defaults of KubeVirt"),
        pytest.param({"replicas": 0}, {"replicas": 0}, id="no VMs"),
        pytest.param({"replicas": 20}, {"replicas": 20}, id="replicas"),
        pytest.param({"paused": True}, {"paused": True}, id="a paused pool stays paused"),
        pytest.param({"paused": False}, {}, id="a pool that is not paused"),
        pytest.param({"maxUnavailable": "30%"}, {"maxUnavailable": "30%"}, id="a percentage"),
        pytest.param({"maxUnavailable": 2}, {"maxUnavailable": 2}, id="a number"),
        pytest.param({"maxUnavailable": "30"}, {"maxUnavailable": "30%"}, id="KubeVirt reads a text as a percentage"),
        pytest.param({"maxUnavailable": 0}, {"maxUnavailable": 1}, id="none is one"),
        pytest.param({"maxUnavailable": "0%"}, {"maxUnavailable": 1}, id="no percent is one VM"),
        pytest.param(
            {"nameGeneration": {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}},
            {
                "nameGeneration": {
                    "appendPostfixToConfigMapReferences": True,
                    "appendPostfixToSecretReferences": True,
                }
            },
            id="names of ConfigMaps and Secrets",
        ),
        pytest.param({"nameGeneration": {"appendIndexToSecretRefs": False}}, {}, id="no names are changed"),
        *(
            pytest.param({field: {"unmanaged": {}}}, {field: {"unmanaged": {}}}, id=f"{field} is unmanaged")
            for field in ("updateStrategy", "scaleInStrategy")
        ),
        pytest.param({"updateStrategy": {"opportunistic": {}}}, {"updateStrategy": {"opportunistic": {}}}, id="halted"),
        *(
            pytest.param({field: policy(sortPolicy=order)}, {field: policy(basePolicy=order)}, id=f"{field}, {order}")
            for field in ("updateStrategy", "scaleInStrategy")
            for order in ("Oldest", "Newest", "Random")
        ),
        pytest.param({"updateStrategy": {"proactive": {}}}, {"updateStrategy": {"proactive": {}}}, id="proactive"),
        *(
            pytest.param(
                {"scaleInStrategy": {strategy: {"statePreservation": value}}},
                {"scaleInStrategy": {strategy: {"statePreservation": after}}},
                id=f"{strategy}, {value}",
            )
            for strategy in ("opportunistic", "proactive")
            for value, after in (("Disabled", "Disabled"), ("Offline", "Offline"), ("Online", "Offline"))
        ),
        pytest.param({"autohealing": {}}, {"autohealing": {**HEALING, "failingStatusSeconds": 300}}, id="healing"),
        pytest.param(
            {"autohealing": {"startUpFailureThreshold": 5, "minFailingToStartDuration": "1m30s"}},
            {"autohealing": {**HEALING, "failingStatusSeconds": 90, "startupFailureThreshold": 5}},
            id="thresholds of healing",
        ),
    ],
)
def test_each_field_keeps_its_meaning(others: Json, expected: Json) -> None:
    assert converted(**others) == {**UNSET, **expected}


SYSPREP = {"spec": {"template": {"spec": {"volumes": [{"name": "answers", "sysprep": {"secret": {"name": "a"}}}]}}}}
META = {"cloudInitNoCloud": {"metaDataSecretRef": {"name": "a"}}, "name": "init"}
PROACTIVE = "spec.scaleInStrategy.proactive.selectionPolicy"


@pytest.mark.parametrize(
    ("others", "paths"),
    [
        *(
            pytest.param({"scaleInStrategy": policy(sortPolicy=order)}, [f"{PROACTIVE}.sortPolicy"], id=order)
            for order in ("AscendingOrder", "DescendingOrder")
        ),
        pytest.param(
            {"scaleInStrategy": policy(selectors={"labelSelector": {}, "nodeSelectorRequirementMatcher": []})},
            [f"{PROACTIVE}.selectors.labelSelector", f"{PROACTIVE}.selectors.nodeSelectorRequirementMatcher"],
            id="filters",
        ),
        pytest.param(
            {"autohealing": {}, "scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}},
            ["spec.autohealing"],
            id="healing that keeps disks",
        ),
        pytest.param(
            {"virtualMachineTemplate": SYSPREP, "nameGeneration": {"appendIndexToSecretRefs": True}},
            ["spec.nameGeneration.appendIndexToSecretRefs"],
            id="names that KubeVirt leaves alone",
        ),
        pytest.param(
            {
                "virtualMachineTemplate": {"spec": {"template": {"spec": {"volumes": [META]}}}},
                "nameGeneration": {"appendIndexToSecretRefs": True},
            },
            ["spec.nameGeneration.appendIndexToSecretRefs"],
            id="a Secret that KubeVirt leaves alone",
        ),
        pytest.param({"maxUnavailable": "many"}, ["spec.maxUnavailable"], id="an invalid number"),
        pytest.param(
            {"autohealing": {"minFailingToStartDuration": "soon"}},
            ["spec.autohealing.minFailingToStartDuration"],
            id="an invalid duration",
        ),
        pytest.param(
            {"future": 1, "updateStrategy": {"other": {}}, "autohealing": {"more": 1}, "nameGeneration": {"all": True}},
            ["spec.nameGeneration.all", "spec.updateStrategy.other", "spec.autohealing.more", "spec.future"],
            id="fields of a newer KubeVirt",
        ),
    ],
)
def test_all_fields_without_counterpart_refuse_the_import_until_each_is_dropped(others: Json, paths: list[str]) -> None:
    assert [each.path for each in convert({"spec": spec(**others)}).refusals] == paths
    dropped = convert({"spec": spec(**others)}, paths)
    assert (dropped.refusals, dropped.unused_drops()) == ([], [])
    assert [each.path for each in dropped.changes if "dropped" in each.note] == paths


def test_owners_and_finalizers_of_others_refuse_the_import() -> None:
    metadata = {
        "ownerReferences": [{"kind": "Site", "name": "a"}],
        "finalizers": ["pool.kubevirt.io/finalizer", "example.com/x"],
    }
    found = convert({"metadata": metadata, "spec": spec()}).refusals
    assert [each.path for each in found] == ["metadata.ownerReferences", "metadata.finalizers"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (f"{PROACTIVE}.sortPolicy", True),
        (PROACTIVE.removeprefix("spec."), True),
        ("sortPolicy", True),
        ("selectionPolicy.sortPolicy", True),
        ("sort", False),
        ("updateStrategy", False),
    ],
)
def test_a_field_is_named_by_its_path_by_one_around_it_or_by_its_end(named: str, expected: bool) -> None:
    assert is_named(f"{PROACTIVE}.sortPolicy", named) is expected


def test_a_drop_of_a_field_that_stops_nothing_is_unused() -> None:
    assert convert({"spec": spec()}, ["sortPolicy"]).unused_drops() == ["sortPolicy"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 300),
        ("5m0s", 300),
        ("1h", 3600),
        ("1.5h", 5400),
        ("500ms", 1),
        ("0", 1),
        ("", None),
        ("5", None),
        (5, None),
    ],
)
def test_durations_of_go(text: Any, seconds: int | None) -> None:
    assert parse_duration(text) == seconds


def test_marks_of_tools_that_would_delete_the_new_pool_are_left_out() -> None:
    annotations = {"argocd.argoproj.io/tracking-id": "a", "team": "shop"}
    assert pool_metadata({"metadata": {"labels": {"a": "b"}, "annotations": annotations}}) == {
        "labels": {"a": "b"},
        "annotations": {"team": "shop"},
    }


def test_changes_are_said_field_by_field() -> None:
    assert [str(each) for each in convert({"spec": spec(paused=True, autohealing={})}).changes] == [
        "spec.replicas: not set -> spec.replicas: 1 (KubeVirt's default)",
        'spec.selector: {"matchLabels": {"app": "web"}} -> left out (a pool owns its VMs by reference)',
        "spec.virtualMachineTemplate: the template -> spec.template: the same template",
        "spec.maxUnavailable: not set -> spec.maxUnavailable: 100% (KubeVirt's default; it also limits healing and"
        " scale-in)",
        'spec.autohealing: {} -> spec.autohealing: {"failingStatuses": ["CrashLoopBackOff", "DataVolumeError",'
        ' "ErrImagePull", "ErrorPvcNotFound", "ErrorUnschedulable", "ImagePullBackOff"], "failingStatusSeconds": 300}',
    ]
