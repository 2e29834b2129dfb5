"""What of a machine can be made its claimant's own, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.personalization import impossible, labels, personalize_template, personalized_condition
from controllers.claim.snapshot import Failure
from kinds import meta
from kinds.claim import Personalization

Json = dict[str, Any]

ALL = {"hostname": "mine", "sshPublicKeySecret": "my-keys", "labels": {"team": "blue"}}
OWN = {"sshPublicKey": {"source": {"secret": {"secretName": meta.CLAIM_KEY}}, "propagationMethod": {}}}


def wish(**given: Any) -> Personalization:
    return Personalization.model_validate(given)


def template(*credentials: Json, volume: str = "cloudInitNoCloud") -> Json:
    volumes = [{"name": "root", "containerDisk": {}}, {"name": "init", volume: {"userData": "#cloud-config"}}]
    instance = {"domain": {}, "accessCredentials": list(credentials), "volumes": volumes}
    return {"spec": {"template": {"spec": instance}}}


@pytest.mark.parametrize(
    ("wished", "facts", "expected"),
    [
        pytest.param(ALL, {"launch_type": "Cold"}, [], id="what boots for its claim gets all"),
        pytest.param(
            ALL,
            {"launch_type": "Cold", "has_cloud_init": False},
            ["VMSecretMissing"],
            id="but keys where nothing tells the guest",
        ),
        pytest.param(
            ALL,
            {"launch_type": "Cold", "has_cloud_init": False, "has_secret": True},
            [],
            id="which a Secret of its own does",
        ),
        pytest.param(
            ALL, {"launch_type": "Warm"}, ["AlreadyBooted", "VMSecretMissing"], id="what has booted gets labels"
        ),
        pytest.param(
            ALL, {"launch_type": "Resumed", "has_secret": True}, ["AlreadyBooted"], id="and keys, if made for it"
        ),
        pytest.param(
            ALL, {"launch_type": "Warm", "is_instance": True}, ["AlreadyBooted", "UnsupportedOnEC2"], id="an instance"
        ),
        pytest.param({"labels": {"team": "blue"}}, {"launch_type": "Warm"}, [], id="labels reach all"),
        pytest.param({"labels": {meta.CLAIM_UID: "x"}}, {"launch_type": "Cold"}, ["LabelsRejected"], id="but not ours"),
        pytest.param({"labels": {"Name": "x"}}, {"launch_type": "Warm"}, [], id="what is no label of a VM's"),
        pytest.param(
            {"labels": {"Name": "x"}},
            {"launch_type": "Warm", "is_instance": True},
            ["LabelsRejected"],
            id="but an instance's tag",
        ),
    ],
)
def test_impossible_wishes(wished: Json, facts: Json, expected: list[str]) -> None:
    facts = {"is_instance": False, "has_secret": False, "has_cloud_init": True, **facts}
    found = impossible(wish(**wished), **facts)
    assert [each.reason for each in found] == expected


def test_labels_of_ours_are_never_given() -> None:
    given = {"team": "blue", meta.CLAIM_UID: "another", "vm.kubevirt.io/name": "x", "example.com/tier": "1"}
    assert labels(wish(labels=given)) == {"team": "blue", "example.com/tier": "1"}


def test_a_machine_that_is_made_for_the_claim_boots_with_its_keys_and_name() -> None:
    instance = personalize_template(template(), wish(**ALL))["spec"]["template"]["spec"]
    assert instance["hostname"] == "mine"
    (credential,) = instance["accessCredentials"]
    assert credential["sshPublicKey"]["source"]["secret"]["secretName"] == "my-keys"


@pytest.mark.parametrize(
    ("volume", "methods"),
    [
        pytest.param("cloudInitNoCloud", [{"noCloud": {}}], id="cloud-init's own"),
        pytest.param("cloudInitConfigDrive", [{"configDrive": {}}], id="OpenStack's"),
        pytest.param("sysprep", [], id="none: KubeVirt would refuse the VM"),
    ],
)
def test_keys_come_by_the_volume_that_there_is(volume: str, methods: list[Json]) -> None:
    instance = personalize_template(template(volume=volume), wish(**ALL))["spec"]["template"]["spec"]
    assert [each["sshPublicKey"]["propagationMethod"] for each in instance["accessCredentials"]] == methods
    assert instance["hostname"] == "mine"


def test_where_the_template_asks_for_a_secret_of_its_own_keys_come_by_it() -> None:
    changed = personalize_template(template(OWN), wish(**ALL))
    assert changed["spec"]["template"]["spec"]["accessCredentials"] == [OWN]


@pytest.mark.parametrize(
    ("wished", "refused", "expected"),
    [
        pytest.param({}, (), [], id="nothing was wished"),
        pytest.param(ALL, None, [], id="not tried by this process"),
        pytest.param(ALL, (), [("True", "Personalized")], id="all was granted"),
        pytest.param(
            ALL,
            (Failure("AlreadyBooted", "hostname: no"), Failure("InvalidPublicKeys", "ssh key: no")),
            [("False", "AlreadyBooted")],
            id="the first reason, and all of them in words",
        ),
    ],
)
def test_personalized_condition(wished: Json, refused: Any, expected: list[tuple[str, str]]) -> None:
    found = personalized_condition(wish(**wished), refused)
    assert [(c.status, c.reason) for c in found] == expected
    assert all(each.message in c.message for c in found for each in refused)
