from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose, excerpt
from poolhouse.api.kubevirt.versions import VIDEO_CONFIG, Release


def kubevirt(configuration: Any = None, **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "kubevirt", "name": "kubevirt", "labels": {"a": "b"}, "managedFields": [{}]}
    return {"metadata": metadata, "spec": {"configuration": configuration or {}}, "status": status}


@pytest.mark.parametrize("value", [-50, 0, "200", True])
def test_numbers_that_kubevirt_cannot_have_meant_are_its_defaults(value: Any) -> None:
    wrong = {"memoryOvercommit": value, "cpuAllocationRatio": value}
    assert ClusterSettings.of(kubevirt({"developerConfiguration": wrong})) == ClusterSettings.of(kubevirt({}))


def test_settings_are_read_from_the_kubevirt_object() -> None:
    document = kubevirt(
        {
            "network": {"defaultNetworkInterface": "masquerade"},
            "cpuModel": "Haswell",
            "architectureConfiguration": {
                "arm64": {"machineType": "virt-rhel9.6.0", "emulatedMachines": ["virt*"]},
                "defaultArchitecture": "amd64",
            },
            "cpuRequest": "250m",
            "developerConfiguration": {
                "featureGates": ["VideoConfig"],
                "disabledFeatureGates": ["Sidecar"],
                "memoryOvercommit": 150,
                "cpuAllocationRatio": 1,
            },
            "migrations": {"allowPostCopy": True},
        },
        phase="Deployed",
        observedKubeVirtVersion="v1.8.4",
        targetKubeVirtVersion="v1.8.4",
        defaultArchitecture="arm64",
        conditions=[{"type": "Available"}],
    )
    settings = ClusterSettings(
        versions=("v1.8.4",),
        feature_gates=frozenset({"VideoConfig"}),
        disabled_feature_gates=frozenset({"Sidecar"}),
        architecture="arm64",
        network="masquerade",
        cpu_model="Haswell",
        machine_types={"arm64": "virt-rhel9.6.0"},
        emulated_machines={"arm64": ("virt*",)},
        memory_overcommit=150,
        cpu_allocation_ratio=1,
        cpu_request="250m",
    )
    assert ClusterSettings.of(document) == settings
    assert ClusterSettings.of(excerpt(document)) == settings, "a client sends all that is read"
    document["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    document["spec"]["configuration"]["vmRolloutStrategy"] = "Stage"
    live = replace(settings, rollout_strategy="Stage", update_methods=frozenset({"LiveMigrate"}))
    assert ClusterSettings.of(document) == ClusterSettings.of(excerpt(document)) == live
    assert "migrations" not in excerpt(document)["spec"]["configuration"]
    assert "managedFields" not in excerpt(document)["metadata"]


def test_one_machine_type_applies_to_all_architectures() -> None:
    settings = ClusterSettings.of(kubevirt({"machineType": "q35", "emulatedMachines": ["q35*", "pc-q35-rhel9*"]}))
    assert settings.machine_types == {"amd64": "q35", "arm64": "q35", "s390x": "q35"}
    assert settings.accepts_machine_type("amd64", "pc-q35-rhel9.6.0")
    assert not settings.accepts_machine_type("amd64", "pc-q35-10.0")


@pytest.mark.parametrize("value", [None, "text", 3, ["list"], {"network": "text", "cpuModel": 3, "machineType": []}])
def test_a_wrong_type_counts_as_unset(value: Any) -> None:
    document = {"metadata": {"name": "kubevirt"}, "spec": {"configuration": value}, "status": value}
    assert ClusterSettings.of(document) == ClusterSettings.of(excerpt(document)) == ClusterSettings()


@pytest.mark.parametrize(
    ("status", "release", "video"),
    [
        pytest.param({"observedKubeVirtVersion": "v1.9.0"}, (1, 9), True, id="installed"),
        pytest.param(
            {"observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.9.0"}, (1, 8), False, id="being updated"
        ),
        pytest.param({"targetKubeVirtVersion": "v1.9.0"}, (1, 9), True, id="being installed"),
        pytest.param(
            {"observedKubeVirtVersion": "devel", "targetKubeVirtVersion": "v1.9.0"}, None, False, id="from another"
        ),
        pytest.param({}, None, False, id="unknown"),
    ],
)
def test_the_release_is_the_oldest_that_may_answer(
    status: dict[str, str], release: Release | None, video: bool
) -> None:
    settings = ClusterSettings.of(kubevirt(**status))
    assert (settings.release, settings.enables(VIDEO_CONFIG)) == (release, video)


@pytest.mark.parametrize(
    ("observed", "target", "operator", "versions"),
    [
        pytest.param("v1.8.4", "v1.8.4", "v1.8.4", ("v1.8.4",), id="a release"),
        pytest.param(
            "main", "main", "v1.9.0-beta.0-1264-gd923fdb", ("v1.9.0-beta.0-1264-gd923fdb",), id="a tag of a branch"
        ),
        pytest.param("v1.8.4", "main", "v1.9.0", ("v1.8.4", "v1.9.0"), id="an update to a branch"),
        pytest.param("main", "main", "", ("main",), id="the operator has not said its version"),
        pytest.param("main", "main", "{gitVersion}", ("main",), id="the operator does not know its version"),
        pytest.param("", "", "v1.9.0", (), id="nothing is installed yet"),
    ],
)
def test_the_operator_knows_the_release_behind_a_tag(
    observed: str, target: str, operator: str, versions: tuple[str, ...]
) -> None:
    document = kubevirt(
        observedKubeVirtVersion=observed, targetKubeVirtVersion=target, operatorVersion=operator, phase="Deployed"
    )
    assert ClusterSettings.of(document).versions == versions
    assert ClusterSettings.of(excerpt(document)).versions == versions


def test_the_object_that_the_operator_handles_configures_the_cluster() -> None:
    def named(name: str, phase: str = "", **metadata: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "n", "name": name, **metadata}, "status": {"phase": phase}}

    assert choose([]) is None
    assert choose([named("b"), named("a")]) == named("a")
    assert choose([named("a"), named("b", "Deployed")]) == named("b", "Deployed")
    going = named("a", "Deleting", deletionTimestamp="2026-01-01T00:00:00Z")
    assert choose([going, named("b")]) == named("b")
