"""Validation of claims and their updates, and overrides in annotations."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.checks.claim import with_annotation_overrides as with_annotations
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import IMAGE_ID, INSTANCE_TYPE
from tests.kinds.warm import claim

Json = dict[str, Any]


def told(document: Json) -> dict[str, str]:
    return {problem.path: problem.message for problem in CLAIM.problems(document)}


def variables(number: int) -> Json:
    """An application with as many variables, in containers of 200. A variable has two values."""
    env = [{"name": f"V{each}", "value": "x"} for each in range(number)]
    parts = [env[first : first + 200] for first in range(0, number, 200)]
    return {"containers": [{"name": f"c{each}", "image": "a", "env": part} for each, part in enumerate(parts)]}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(claim(application=variables(2000)), id="an application of 4,020 values"),
        pytest.param(claim(), id="any machine of the default pool"),
        pytest.param(claim("a" * 63, poolName="web"), id="the longest name"),
        pytest.param(claim(overrides={"image": "tiny", "placement": "a"}, ttlSeconds=60), id="one made otherwise"),
        pytest.param(claim(annotations={INSTANCE_TYPE: "m5.large"}), id="the document's annotation"),
        pytest.param(claim(personalization={"labels": {"team": "red"}}), id="one's own"),
        pytest.param(
            claim(personalization={"hostname": "mine"}, overrides={"instancetype": "large"}),
            id="a hostname of a VM that is created for the overrides",
        ),
        pytest.param(
            claim(personalization={"hostname": "mine"}, annotations={INSTANCE_TYPE: "large"}),
            id="a hostname of a VM that is created for an annotation",
        ),
        pytest.param(
            claim(personalization={"hostname": "mine"}, application={"containers": [{"name": "a", "image": "a"}]}),
            id="a hostname of a VM that is created for an application",
        ),
    ],
)
def test_a_valid_claim_has_no_problems(document: Json) -> None:
    assert told(document) == {}


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        pytest.param(claim("a" * 64), "metadata.name", "at most 63", id="a long name"),
        pytest.param(
            claim(application=variables(2050)),
            "spec.application",
            "has more than 4096 values; put variables into a ConfigMap",
            id="a write of a large application would take seconds of the API server",
        ),
        pytest.param(claim(ttlSeconds=0), "spec.ttlSeconds", "at least 1", id="no time at all"),
        pytest.param(claim(onEmpty="Wait"), "spec.onEmpty", "ColdStart, Queue or Fail", id="something else to do"),
        pytest.param(claim(pool="web"), "spec.pool", 'use "poolName"', id="another word"),
        pytest.param(
            claim(
                application={"containers": [{"name": "a", "image": "a", "env": [{"name": "A", "value": "x" * 40_000}]}]}
            ),
            "spec.application.containers[0].env[0].value",
            "at most 32768 characters",
            id="an invalid entry of a list that must have one",
        ),
        pytest.param(claim(poolName="a" * 57), "spec.poolName", "between 1 and 56 characters", id="no pool's name"),
        pytest.param(
            claim(personalization={"hostname": "mine"}),
            "spec.personalization.hostname",
            "add spec.overrides or spec.application",
            id="a hostname of a VM that has booted",
        ),
        pytest.param(
            claim(personalization={"labels": {"poolhouse.dev/claim-uid": "x"}}),
            'spec.personalization.labels["poolhouse.dev/claim-uid"]',
            "not a claim's to give",
            id="a label of ours",
        ),
        pytest.param(
            claim(personalization={"labels": {"vm.kubevirt.io/name": "x"}}),
            'spec.personalization.labels["vm.kubevirt.io/name"]',
            "not a claim's to give",
            id="a label of KubeVirt's",
        ),
        pytest.param(
            claim(annotations={IMAGE_ID: ""}),
            'metadata.annotations["poolhouse.dev/image-id"]',
            "leave the annotation out",
            id="an annotation that names nothing",
        ),
        pytest.param(
            claim(annotations={"poolhouse.dev/instanceType": "big"}),
            'metadata.annotations["poolhouse.dev/instanceType"]',
            "did you mean poolhouse.dev/instance-type?",
            id="a misspelt annotation",
        ),
        pytest.param(
            claim(annotations={"poolhouse.dev/nothing": "big"}),
            'metadata.annotations["poolhouse.dev/nothing"]',
            "claims have poolhouse.dev/instance-type, ",
            id="an unknown annotation",
        ),
        pytest.param(
            claim(annotations={"poolhouse.dev/security-groups": " , "}),
            'metadata.annotations["poolhouse.dev/security-groups"]',
            "leave the annotation out",
            id="no security group",
        ),
        pytest.param(
            claim(annotations={"compute.amazonaws.com/tags": "{}"}),
            'metadata.annotations["compute.amazonaws.com/tags"]',
            "use spec.personalization.labels",
            id="tags of a Virtual Kubelet's Pod",
        ),
        pytest.param(
            claim(annotations={"compute.amazonaws.com/imageId": "ami-1"}),
            'metadata.annotations["compute.amazonaws.com/imageId"]',
            "did you mean compute.amazonaws.com/image-id?",
            id="a misspelt annotation of a Virtual Kubelet's Pod",
        ),
    ],
)
def test_an_invalid_claim_has_a_problem_with_its_path(document: Json, path: str, words: str) -> None:
    found = told(document)
    assert list(found) == [path]
    assert words in found[path]


BEFORE = claim(poolName="web", ttlSeconds=60, release=False)
NOTED = claim(annotations={IMAGE_ID: "ami-1"}, overrides={"image": "ami-1"})


CHANGES = [
    pytest.param(BEFORE, claim(poolName="web", ttlSeconds=90, release=True), [], id="time and release may change"),
    pytest.param(BEFORE, claim(poolName="db", ttlSeconds=60), ["spec.poolName"], id="the pool"),
    pytest.param(BEFORE, claim(ttlSeconds=60), ["spec.poolName"], id="no pool any more"),
    pytest.param(
        claim(),
        claim(overrides={"image": "x"}, onEmpty="Fail"),
        ["spec.overrides", "spec.onEmpty"],
        id="two things",
    ),
    pytest.param(claim(release=True), claim(release=False), ["spec.release"], id="a release taken back"),
    pytest.param(
        NOTED,
        claim(annotations={IMAGE_ID: "ami-2"}, overrides={"image": "ami-1"}),
        ['metadata.annotations["poolhouse.dev/image-id"]'],
        id="another annotation",
    ),
    pytest.param(
        NOTED,
        claim(annotations={"compute.amazonaws.com/image-id": "ami-2"}, overrides={"image": "ami-1"}),
        ['metadata.annotations["compute.amazonaws.com/image-id"]'],
        id="another annotation of a Virtual Kubelet's Pod",
    ),
    pytest.param(NOTED, claim(overrides={"image": "ami-1"}), [], id="an annotation that had its effect goes"),
]


@pytest.mark.parametrize(("before", "after", "paths"), CHANGES)
@pytest.mark.sentence("5.39")
def test_an_update_cannot_change_what_was_claimed(before: Json, after: Json, paths: list[str]) -> None:
    assert [problem.path for problem in CLAIM.validate_update(before, after)] == paths


@pytest.mark.parametrize(
    ("document", "overrides"),
    [
        pytest.param(claim(), None, id="none"),
        pytest.param(claim(annotations={INSTANCE_TYPE: "m5.large"}), {"instancetype": "m5.large"}, id="one"),
        pytest.param(
            claim(annotations={"poolhouse.dev/security-groups": "sg-1, sg-2", "poolhouse.dev/subnet-id": "subnet-a"}),
            {"securityGroups": ["sg-1", "sg-2"], "placement": "subnet-a"},
            id="those of EC2",
            marks=pytest.mark.sentence("5.11"),
        ),
        pytest.param(
            claim(annotations={INSTANCE_TYPE: "m5.large", IMAGE_ID: "ami-2"}, overrides={"image": "ami-1"}),
            {"image": "ami-1", "instancetype": "m5.large"},
            id="a field wins",
        ),
        pytest.param(
            claim(
                annotations={
                    "compute.amazonaws.com/instance-type": "m5.large",
                    "compute.amazonaws.com/image-id": "ami-1",
                    "compute.amazonaws.com/subnet-id": "subnet-a",
                    "compute.amazonaws.com/key-pair": "k",
                    "compute.amazonaws.com/security-groups": "sg-1,sg-2",
                    "compute.amazonaws.com/instance-profile": "p",
                }
            ),
            {
                "instancetype": "m5.large",
                "image": "ami-1",
                "placement": "subnet-a",
                "keyPair": "k",
                "securityGroups": ["sg-1", "sg-2"],
                "iamInstanceProfile": "p",
            },
            id="those of a Pod of a Virtual Kubelet",
            marks=pytest.mark.sentence("5.12"),
        ),
        pytest.param(
            claim(annotations={"compute.amazonaws.com/image-id": "ami-1", IMAGE_ID: "ami-2"}),
            {"image": "ami-2"},
            id="ours win",
        ),
    ],
)
def test_annotations_become_overrides(document: Json, overrides: Json | None) -> None:
    assert with_annotations(document)["spec"].get("overrides") == overrides
