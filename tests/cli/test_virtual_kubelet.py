"""Import of the AWS Virtual Kubelet's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.virtual_kubelet import Imported, ImportOptions, import_config, object_name

SUBNETS = ["subnet-1234asdf", "subnet-asdf1234", "subnet-qwerty"]
MINE = {"KeyPair": "MyPreprovisionedKeypair", "ImageID": "ami-1287634276"}
OTHER = {"KeyPair": "MyOtherKeypair", "ImageID": "ami-9876789679"}
SAMPLE: list[Json] = [
    {"DesiredCount": "2", "Default": True, **MINE, "InstanceType": "mac1.metal", "Subnets": SUBNETS},
    {"DesiredCount": "5", "Default": False, **OTHER, "InstanceType": "m5.large"},
    {"DesiredCount": "3", **OTHER, "Subnets": SUBNETS},
    {"DesiredCount": "1", **MINE},
]
"""the document's, which it says does not work"""
WHOLE: Json = {
    "ManagementSubnet": "subnet-m",
    "ClusterName": "my-eks-cluster",
    "Region": "us-west-2",
    "VMConfig": {"DefaultAMI": "ami-d", "InitialSecurityGroups": ["sg-d"], "InitData": "dm0="},
    "BootstrapAgent": {"GRPCPort": 8200, "S3Bucket": "agents", "S3Key": "agent-1", "InitData": "YWdlbnQ="},
    "HealthConfig": {"UnhealthyThresholdCount": 3, "UnhealthyMaxCount": 20, "HealthCheckIntervalSeconds": 10},
    "WarmPoolConfig": [{"DesiredCount": 2, "IamInstanceProfile": "p", "KeyPair": "k", "InstanceType": "m5.large"}],
}


def of(*entries: Json, terms: ImportOptions | None = None, **whole: Any) -> Imported:
    return import_config({"WarmPoolConfig": list(entries), **whole}, terms or ImportOptions())


def paths(found: tuple[Any, ...]) -> list[str]:
    return [each.path for each in found]


@pytest.mark.parametrize("to", ["ec2", "vm"])
@pytest.mark.sentence("5.48", "5.49")
def test_the_sample_becomes_four_valid_pools(to: Any) -> None:
    found = of(*SAMPLE, terms=ImportOptions(to=to))
    assert found.problems == ()
    assert [WARM_POOL.problems(each) for each in found.manifests] == [[], [], [], []]
    assert sum(each["spec"]["replicas"] for each in found.manifests) == 11
    assert [each["spec"]["default"] for each in found.manifests] == [True, False, False, False]


@pytest.mark.sentence("5.55")
def test_all_missing_fields_are_reported_at_once() -> None:
    told = [each.removeprefix("WarmPoolConfig") for each in paths(of(*SAMPLE).remarks)]
    assert {"[1].Subnets", "[3].Subnets", "[2].InstanceType", "[3].InstanceType"} <= set(told)
    assert {f"[{index}].IamInstanceProfile" for index in range(4)} <= set(told)
    assert "[3]" in told  # it is the first one again
    assert "[2]" not in told  # another type than the second


@pytest.mark.parametrize(
    ("field", "value"), [("KeyPair", "ключ"), ("ImageID", "образ"), ("InstanceType", "--"), ("Subnets", ["s", "сеть"])]
)
def test_a_name_without_valid_characters_is_reported(field: str, value: Any) -> None:
    entry = {**SAMPLE[0], field: value}
    found = of(entry, terms=ImportOptions(to="vm"))
    (problem,) = found.problems
    assert problem.path == f"WarmPoolConfig[0].{field}"
    assert "no letter from a to z" in problem.message
    assert not [each for each in found.remarks if each.message.endswith(" ")]


@pytest.mark.sentence("5.50", "5.51", "5.53", "5.54")
def test_a_whole_configuration_supplies_missing_fields() -> None:
    found = import_config(WHOLE, ImportOptions(namespace="mac"))
    (document,) = found.manifests
    assert document["metadata"] == {"name": "warmpool-1", "namespace": "mac"}
    assert document["spec"] == {
        "replicas": 2,
        "default": True,
        "claimPolicy": {"allowPods": True},
        "incompatiblePolicy": "Orphan",
        "health": {"periodSeconds": 10, "failureThreshold": 3, "terminateThreshold": 17},
        "ec2": {
            "imageID": "ami-d",
            "instanceType": "m5.large",
            "keyPair": "k",
            "subnets": ["subnet-m"],
            "iamInstanceProfile": "p",
            "securityGroups": ["sg-d"],
            "port": 8200,
            "protocol": "GRPC",
            "initData": "dm0=",
            "bootstrapAgent": {"s3Bucket": "agents", "s3Key": "agent-1", "initData": "YWdlbnQ="},
        },
    }
    assert set(paths(found.remarks)) == {
        "WarmPoolConfig[0].ImageID",
        "WarmPoolConfig[0].Subnets",
        "WarmPoolConfig[0].Default",
        "BootstrapAgent",
        "Region",
    }


def test_an_agent_without_a_bucket_is_a_problem() -> None:
    found = import_config({**WHOLE, "BootstrapAgent": {"S3Key": "agent-1"}}, ImportOptions())
    assert [(each.path, each.message.split(";")[0]) for each in found.problems] == [
        ("BootstrapAgent.S3Bucket", "is missing")
    ]


def test_the_bootstrap_of_instances_is_no_bootstrap_of_vms() -> None:
    found = import_config(WHOLE, ImportOptions(to="vm"))
    assert "BootstrapAgent" in paths(found.remarks)
    assert found.manifests


def test_macs_have_time_to_boot() -> None:
    patience = [each["spec"].get("readiness") for each in of(*SAMPLE).manifests]
    assert patience == [{"timeoutSeconds": 3600}, None, {"timeoutSeconds": 3600}, {"timeoutSeconds": 3600}]


def test_vms_take_over_the_names() -> None:
    (first, *_) = of(*SAMPLE, terms=ImportOptions(to="vm")).manifests
    spec = first["spec"]["template"]["spec"]
    assert spec["instancetype"] == {"name": "mac1.metal"}
    assert spec["dataVolumeTemplates"][0]["spec"]["sourceRef"] == {"kind": "DataSource", "name": "ami-1287634276"}
    assert [each["name"] for each in first["spec"]["placements"]] == SUBNETS
    assert object_name("My Key_Pair") == "my-key-pair"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        pytest.param([], {"": "an object"}, id="no configuration"),
        pytest.param({}, {"WarmPoolConfig": "is missing"}, id="none of warm pools"),
        pytest.param({"WarmPoolConfig": []}, {"WarmPoolConfig": "is empty"}, id="no pool"),
        pytest.param({"WarmPoolConfig": ["x"]}, {"WarmPoolConfig[0]": "an object"}, id="a pool that is none"),
        pytest.param(
            {"WarmPoolConfig": [{}, {}]},
            {
                "WarmPoolConfig[0].DesiredCount": "is missing",
                "WarmPoolConfig[0].ImageID": "is missing",
                "WarmPoolConfig[1].DesiredCount": "is missing",
                "WarmPoolConfig[1].ImageID": "is missing",
                "WarmPoolConfig": "none does",
            },
            id="all at once",
        ),
        pytest.param(
            {"WarmPoolConfig": [{**SAMPLE[0]}, {**SAMPLE[1], "Default": True}]},
            {"WarmPoolConfig": "WarmPoolConfig[0], WarmPoolConfig[1]"},
            id="two defaults",
            marks=pytest.mark.sentence("5.47"),
        ),
        pytest.param(
            {"WarmPoolConfig": [{**SAMPLE[0], "DesiredCount": "-1", "Default": "yes", "Subnets": ["a", "a", ""]}]},
            {
                "WarmPoolConfig[0].DesiredCount": "at least 0",
                "WarmPoolConfig[0].Default": "true or false",
                "WarmPoolConfig[0].Subnets[1]": "there already",
                "WarmPoolConfig[0].Subnets[2]": "is empty",
            },
            id="values that are none",
        ),
        pytest.param(
            {"WarmPoolConfig": [{**SAMPLE[0], "Subnet": ["a"], "Colour": "red"}]},
            {"WarmPoolConfig[0].Subnet": 'mean "Subnets"', "WarmPoolConfig[0].Colour": "there are DesiredCount"},
            id="fields that are none",
        ),
        pytest.param(
            {"WarmPoolConfig": [{**SAMPLE[0], "DesiredCount": True}]},
            {"WarmPoolConfig[0].DesiredCount": "not true"},
            id="true is no number",
        ),
    ],
)
def test_an_invalid_entry_has_a_problem_with_its_path(config: Any, told: dict[str, str]) -> None:
    found = import_config(config, ImportOptions())
    assert found.manifests == ()
    for path, words in told.items():
        assert any(p.path == path and words in p.message for p in found.problems), (path, found.problems)
    assert set(told) <= set(paths(found.problems))


def test_field_names_match_in_any_case() -> None:
    (document,) = of({"desiredcount": " 2 ", "DEFAULT": "true", "imageId": "ami-1", "subnets": "s"}).manifests
    assert document["spec"]["replicas"] == 2
    assert document["spec"]["default"] is True
    assert document["spec"]["ec2"]["subnets"] == ["s"]


def test_options_supply_missing_fields() -> None:
    terms = ImportOptions(prefix="mac", management_subnet="subnet-o", iam_instance_profile="p")
    found = of(SAMPLE[0], SAMPLE[1], terms=terms)
    assert [each["metadata"]["name"] for each in found.manifests] == ["mac-1", "mac-2"]
    assert found.manifests[1]["spec"]["ec2"]["subnets"] == ["subnet-o"]
    assert {each["spec"]["ec2"]["iamInstanceProfile"] for each in found.manifests} == {"p"}


def test_an_invalid_pool_name_is_reported() -> None:
    found = of(SAMPLE[0], terms=ImportOptions(prefix="My.Pool"))
    assert found.manifests == ()
    assert all("metadata.name" in problem.message for problem in found.problems)
