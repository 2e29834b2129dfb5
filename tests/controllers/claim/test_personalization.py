"""What personalization gives to a VM, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.personalization import (
    forbidden,
    impossible,
    labels,
    personalize_template,
    personalized_condition,
)
from controllers.claim.snapshot import Failure
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import Personalization

Json = dict[str, Any]

ALL = {"hostname": "mine", "sshPublicKeySecret": "my-keys", "labels": {"team": "blue"}}
OWN = {"sshPublicKey": {"source": {"secret": {"secretName": meta.CLAIM_KEY}}, "propagationMethod": {}}}


def a_personalization(**given: Any) -> Personalization:
    return Personalization.model_validate(given)


def template(*credentials: Json, volume: str = "cloudInitNoCloud") -> Json:
    nulls = dict.fromkeys({"cloudInitNoCloud", "cloudInitConfigDrive"} - {volume})
    init = {"name": "init", **nulls, volume: {"userData": "#cloud-config"}}
    volumes = [{"name": "root", "containerDisk": {}}, init]
    instance = {"domain": {}, "accessCredentials": list(credentials), "volumes": volumes}
    return {"spec": {"template": {"spec": instance}}}


@pytest.mark.parametrize(
    ("given", "facts", "expected"),
    [
        pytest.param(ALL, {"launch_type": "Cold"}, [], id="a VM that boots for its claim gets everything"),
        pytest.param(
            ALL,
            {"launch_type": "Cold", "has_cloud_init": False},
            ["VMSecretMissing"],
            id="a VM that boots for its claim gets no keys without cloud-init or Secret",
        ),
        pytest.param(
            ALL,
            {"launch_type": "Cold", "has_cloud_init": False, "has_secret": True},
            [],
            id="keys with a Secret",
        ),
        pytest.param(ALL, {"launch_type": "Warm"}, ["VMSecretMissing"], id="a running VM gets labels only"),
        pytest.param(ALL, {"launch_type": "Resumed", "has_secret": True}, [], id="a running VM gets keys by a Secret"),
        pytest.param(
            ALL,
            {"launch_type": "Warm", "is_instance": True},
            ["UnsupportedOnEC2", "UnsupportedOnEC2"],
            id="an EC2 instance",
        ),
        pytest.param({"labels": {"team": "blue"}}, {"launch_type": "Warm"}, [], id="labels reach every VM"),
        pytest.param(
            {"labels": {meta.CLAIM_UID: "x"}}, {"launch_type": "Cold"}, ["LabelsRejected"], id="reserved labels"
        ),
        pytest.param({"labels": {"Name": "x"}}, {"launch_type": "Warm"}, [], id="Name is no reserved label of a VM"),
        pytest.param(
            {"labels": {"Name": "x"}},
            {"launch_type": "Warm", "is_instance": True},
            ["LabelsRejected"],
            id="Name is a reserved tag of an instance",
        ),
    ],
)
def test_impossible_personalization(given: Json, facts: Json, expected: list[str]) -> None:
    facts = {"is_instance": False, "has_secret": False, "has_cloud_init": True, **facts}
    found = impossible(a_personalization(**given), **facts)
    assert [each.reason for each in found] == expected


@pytest.mark.parametrize(
    ("given", "allowed", "says"),
    [
        pytest.param({"hostname": "mine"}, None, "which are: none", id="none is allowed by default"),
        pytest.param({"labels": {"team": "blue"}}, (), "personalization.labels is not one of", id="labels"),
        pytest.param(
            {"sshPublicKeySecret": "keys"}, ("labels", "hostname"), "which are: labels, hostname", id="others allowed"
        ),
        pytest.param(ALL, ("hostname", "sshPublicKeySecret", "labels"), "", id="all are allowed"),
        pytest.param({"labels": {}}, None, "", id="nothing is asked for"),
    ],
)
def test_forbidden_personalization(given: Json, allowed: tuple[str, ...] | None, says: str) -> None:
    found = forbidden(a_personalization(**given), allowed)
    assert says in found
    assert bool(found) == bool(says)


def test_reserved_labels_are_left_out() -> None:
    given = {"team": "blue", meta.CLAIM_UID: "another", "vm.kubevirt.io/name": "x", "example.com/tier": "1"}
    assert labels(a_personalization(labels=given)) == {"team": "blue", "example.com/tier": "1"}


def test_template_of_a_vm_that_is_created_for_the_claim() -> None:
    instance = personalize_template(template(), a_personalization(**ALL))["spec"]["template"]["spec"]
    assert instance["hostname"] == "mine"
    (credential,) = instance["accessCredentials"]
    assert credential["sshPublicKey"]["source"]["secret"]["secretName"] == "my-keys"


@pytest.mark.parametrize(
    ("volume", "methods"),
    [
        pytest.param("cloudInitNoCloud", [{"noCloud": {}}], id="NoCloud"),
        pytest.param("cloudInitConfigDrive", [{"configDrive": {}}], id="ConfigDrive"),
        pytest.param("sysprep", [], id="no cloud-init: KubeVirt would refuse the VM"),
    ],
)
def test_keys_by_cloud_init(volume: str, methods: list[Json]) -> None:
    instance = personalize_template(template(volume=volume), a_personalization(**ALL))["spec"]["template"]["spec"]
    assert [each["sshPublicKey"]["propagationMethod"] for each in instance["accessCredentials"]] == methods
    assert instance["hostname"] == "mine"


def test_keys_by_the_secret_of_the_vm() -> None:
    changed = personalize_template(template(OWN), a_personalization(**ALL))
    assert changed["spec"]["template"]["spec"]["accessCredentials"] == [OWN]


@pytest.mark.parametrize(
    ("given", "refused", "expected"),
    [
        pytest.param({}, (), [], id="nothing to do"),
        pytest.param(ALL, None, [], id="not tried by this process"),
        pytest.param(ALL, (), [("True", "Personalized")], id="everything was given"),
        pytest.param(
            ALL,
            (Failure("VMSecretMissing", "ssh key: no"), Failure("LabelsRejected", "labels: no")),
            [("False", "VMSecretMissing")],
            id="the reason of the first failure, the messages of all",
        ),
    ],
)
def test_personalized_condition(given: Json, refused: Any, expected: list[tuple[str, str]]) -> None:
    found = personalized_condition(a_personalization(**given), refused)
    assert [(c.status, c.reason) for c in found] == expected
    assert all(each.message in c.message for c in found for each in refused)
