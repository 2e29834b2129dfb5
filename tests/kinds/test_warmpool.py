"""Validation and warnings of warm pools."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.warmpool import WARM_POOL, WarmPoolSpec
from tests.kinds.documents import GONE, changed
from tests.kinds.warm import ec2_pool, warm_machine, warm_pool


def told(document: Any) -> dict[str, str]:
    return {problem.path: problem.message for problem in WARM_POOL.problems(WARM_POOL.normalize(document))}


def placed(*placements: Any) -> dict[str, Any]:
    return warm_pool(placements=list(placements))


RIGHT = [
    pytest.param(warm_pool(), id="the smallest"),
    pytest.param(warm_pool(replicas=0), id="one that fills for claims only"),
    pytest.param(warm_pool("a" * 56), id="the longest name"),
    pytest.param(placed({"name": "a"}, {"name": "b", "weight": 0}), id="a placement that is emptied"),
    pytest.param(
        placed({"name": "a", "networks": [{"name": "default", "multus": {"networkName": "x"}}]}), id="a network"
    ),
    pytest.param(
        warm_pool(updateStrategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}), id="never below, one above"
    ),
    pytest.param(warm_pool(claimPolicy={"allowedOverrides": []}), id="nothing may be overridden"),
    pytest.param(warm_pool(ec2=None), id="null is absent"),
    pytest.param(ec2_pool(), id="instances, with all defaults"),
    pytest.param(
        warm_pool(template={"spec": warm_machine(livenessProbe={"guestAgentPing": {}})}, standby={"mode": "Paused"}),
        id="a probe that allows a pause",
    ),
    pytest.param(warm_pool(placements=[{"name": "a", "weight": None}]), id="a null weight"),
    pytest.param(ec2_pool(subnets=["subnet-a", "subnet-b"], port=8200, protocol="GRPC"), id="instances with an agent"),
    pytest.param(
        ec2_pool(
            bootstrapAgent={"s3Bucket": "agents", "s3Key": "agent-1", "initData": "e30="},
            initData="e30=",
            blockDevices=[{"deviceName": "/dev/sda1", "sizeGiB": 200, "type": "gp3", "kmsKeyID": "k"}],
            metadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 2},
            placement={"hostResourceGroupARN": "arn:aws:resource-groups:g", "tenancy": "host"},
            tags={"team": "red"},
        ),
        id="instances with all that RunInstances takes",
    ),
]


@pytest.mark.parametrize("document", RIGHT)
def test_a_valid_pool_has_no_problems(document: dict[str, Any]) -> None:
    assert told(document) == {}


VMI = ("spec", "template", "spec", "template", "spec")
ROLLING = "spec.updateStrategy.rollingUpdate"
WRONG = [
    pytest.param(changed(warm_pool(), GONE, "spec", "template"), {"spec": "exactly one of"}, id="neither of both"),
    pytest.param(warm_pool(ec2={"imageID": "ami-1"}), {"spec": "exactly one of"}, id="VMs and instances"),
    pytest.param(
        warm_pool(template={"spec": {**warm_machine(), "running": True}}),
        {"spec.template.spec": "spec.standby determines whether a VM runs"},
        id="running",
    ),
    pytest.param(
        warm_pool(template={"spec": {**warm_machine(), "runStrategy": "Manual"}}),
        {"spec.template.spec": "must not have running or runStrategy"},
        id="a run strategy",
    ),
    pytest.param(warm_pool("a.b"), {"metadata.name": "no dots"}, id="a name with a dot"),
    pytest.param(warm_pool("a" * 57), {"metadata.name": "at most 56"}, id="a long name"),
    pytest.param(warm_pool(replicas="2"), {"spec.replicas": "remove the quotes"}, id="the document's quoted count"),
    pytest.param(warm_pool(DesiredCount=2), {"spec.DesiredCount": 'use "replicas"'}, id="the document's word"),
    pytest.param(placed({"name": "a"}, {"name": "a"}), {"spec.placements[1].name": "taken by"}, id="placements twice"),
    pytest.param(placed({"name": "a", "weight": 0}), {"spec.placements": "all weights are 0"}, id="nowhere to go"),
    pytest.param(
        changed(placed({"name": "a"}), [{"name": {}}], *VMI, "networks"),
        {
            f"{'.'.join(VMI)}.networks[0].name": "must be text",
            f"{'.'.join(VMI)}.domain.devices.interfaces[0].name": "no network",
        },
        id="a network whose name is an object",
    ),
    pytest.param(
        placed({"name": "a", "networks": [{"name": "blue", "pod": {}}]}),
        {"spec.placements[0].networks[0].name": 'no network "blue"'},
        id="a network in nothing's place",
    ),
    pytest.param(
        warm_pool(replicas=3, maxTotal=2),
        {"spec.replicas": "more than spec.maxTotal, which is 2"},
        id="above the limit",
    ),
    pytest.param(
        warm_pool(claimPolicy={"defaultTTLSeconds": 60, "maxTTLSeconds": 30}),
        {"spec.claimPolicy.defaultTTLSeconds": "more than spec.claimPolicy.maxTTLSeconds"},
        id="a default above its limit",
    ),
    pytest.param(
        warm_pool(refill={"backoffSeconds": 60, "maxBackoffSeconds": 30}),
        {"spec.refill.backoffSeconds": "more than"},
        id="a first pause above the longest",
    ),
    pytest.param(
        warm_pool(updateStrategy={"rollingUpdate": {"maxUnavailable": "0%"}}), {ROLLING: "both 0"}, id="no way to roll"
    ),
    pytest.param(ec2_pool(imageID=None), {"spec.ec2.imageID": "is missing"}, id="no image"),
    pytest.param(ec2_pool(ImageID="ami-2"), {"spec.ec2.ImageID": 'use "imageID"'}, id="the document's spelling"),
    pytest.param(ec2_pool(subnets=["s", "s"]), {"spec.ec2.subnets[1]": "again"}, id="a subnet twice"),
    pytest.param(ec2_pool(protocol="GRPC"), {"spec.ec2.port": "needs the port"}, id="gRPC on no port"),
    pytest.param(
        ec2_pool(userData="#!/bin/sh", initData="dm0="),
        {"spec.ec2.userData": "cannot be combined with bootstrapAgent and initData"},
        id="two kinds of user data",
    ),
    pytest.param(
        ec2_pool(bootstrapAgent={"s3Bucket": "agents"}), {"spec.ec2.bootstrapAgent.s3Key": "is missing"}, id="no agent"
    ),
    pytest.param(ec2_pool(tags={"WarmPool": "Ready"}), {"spec.ec2.tags.WarmPool": "set by AWS or"}, id="a tag of ours"),
    pytest.param(
        ec2_pool(placement={"hostID": "h-1", "tenancy": "dedicated"}),
        {"spec.ec2.placement.tenancy": "hostID needs host"},
        id="a host for another tenancy",
    ),
    pytest.param(ec2_pool(secure=True, port=1), {"spec.ec2.secure": "GRPC only"}, id="TLS without gRPC"),
    pytest.param(
        ec2_pool(
            spec={"standby": {"mode": "Paused"}, "readiness": {"guestAgent": True}, "placements": [{"name": "a"}]}
        ),
        {
            "spec.standby.mode": "Running only",
            "spec.readiness.guestAgent": "is for VMs",
            "spec.placements": "for EC2 instances",
        },
        id="what only VMs can be",
    ),
    pytest.param(
        changed(
            warm_pool() | {"metadata": {"name": "web", "namespace": "default"}},
            [{"metadata": {"name": "c", "namespace": "kube-system"}, "spec": {}}],
            *("spec", "template", "spec", "dataVolumeTemplates"),
        ),
        {"spec.template.spec.dataVolumeTemplates[0].metadata.namespace": "but disks are created in the namespace"},
        id="a disk of another namespace",
    ),
    pytest.param(
        warm_pool(template={"metadata": {"labels": {"poolhouse.dev/warm-state": "Ready"}}, "spec": warm_machine()}),
        {'spec.template.metadata.labels["poolhouse.dev/warm-state"]': "written by Poolhouse"},
        id="a label of ours",
    ),
    pytest.param(
        warm_pool(
            template={"spec": warm_machine(livenessProbe={"httpGet": {"port": 80}, "guestAgentPing": None})},
            standby={"mode": "Paused"},
        ),
        {"spec.template.spec.template.spec.livenessProbe": "KubeVirt pauses no VM with a liveness probe"},
        id="a probe that allows no pause, beside a null one",
    ),
    pytest.param(
        warm_pool(template={"spec": warm_machine(livenessProbe={"httpGet": {"port": 80}})}, standby={"mode": "Paused"}),
        {"spec.template.spec.template.spec.livenessProbe": "KubeVirt pauses no VM with a liveness probe"},
        id="a probe of paused VMs",
    ),
]


WAIT = {"waitSeconds": 1}
PERIOD = {"schedule": "0 8 * * 1-5", "durationSeconds": 3600, "minReplicas": 5}


def autoscaled(**given: object) -> dict[str, Any]:
    return warm_pool(autoscaling={"maxReplicas": 10, "target": WAIT, **given})


AUTOSCALING = "spec.autoscaling"
WRONG += [
    pytest.param(autoscaled(target={}), {f"{AUTOSCALING}.target": "exactly one of"}, id="a target without a value"),
    pytest.param(
        autoscaled(target={**WAIT, "spareRatio": "20%"}), {f"{AUTOSCALING}.target": "exactly one of"}, id="two targets"
    ),
    pytest.param(
        autoscaled(target={"spareRatio": 0.2}), {f"{AUTOSCALING}.target.spareRatio": ""}, id="a ratio as a fraction"
    ),
    pytest.param(
        autoscaled(minReplicas=11), {f"{AUTOSCALING}.minReplicas": "more than spec.autoscaling.max"}, id="no such size"
    ),
    pytest.param(
        {**autoscaled(), "spec": {**autoscaled()["spec"], "maxTotal": 9}},
        {f"{AUTOSCALING}.maxReplicas": "more than spec.maxTotal"},
        id="more waiting than existing",
    ),
    pytest.param(
        autoscaled(
            maxIdleVMHoursPerDay=23,
            minReplicas=1,
            schedules=[{**PERIOD, "schedule": "0 8 * *", "timeZone": "Europe/Nowhere", "minReplicas": 11}],
        ),
        {
            f"{AUTOSCALING}.schedules[0].schedule": "has 4 fields",
            f"{AUTOSCALING}.schedules[0].timeZone": "IANA",
            f"{AUTOSCALING}.schedules[0].minReplicas": "maxReplicas, which is 10",
            f"{AUTOSCALING}.maxIdleVMHoursPerDay": "24 hours a day",
        },
        id="all problems of autoscaling at once",
    ),
]
RIGHT_AUTOSCALING = [
    autoscaled(),
    autoscaled(target={"spareRatio": "150%"}, minReplicas=1, maxIdleVMHoursPerDay=24),
    autoscaled(schedules=[{**PERIOD, "timeZone": "Europe/Berlin"}]),
]


@pytest.mark.parametrize("document", RIGHT_AUTOSCALING)
def test_valid_autoscaling_has_no_problems(document: dict[str, Any]) -> None:
    assert told(document) == {}


@pytest.mark.parametrize(("document", "problems"), WRONG)
@pytest.mark.sentence("5.62")
def test_an_invalid_pool_has_problems_with_paths(document: dict[str, Any], problems: dict[str, str]) -> None:
    found = told(document)
    assert found.keys() == problems.keys()
    for path, words in problems.items():
        assert words in found[path]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(warm_pool(standby={"hotReplicas": 2}), "all are hot", id="hot among the running"),
        pytest.param(
            warm_pool(replicas=1, standby={"mode": "Paused", "hotReplicas": 2}), "more than spec.replicas", id="too hot"
        ),
        pytest.param(warm_pool(replicas=0, claimPolicy={"onEmpty": "Fail"}), "every claim fails", id="never any"),
        pytest.param(
            warm_pool(updateStrategy={"trackDataSources": True}), "has a sourceRef", id="no DataSource to track"
        ),
        pytest.param(
            warm_pool(template={"spec": warm_machine(domian={})}),
            'template.spec.domian: KubeVirt has no such field, and ignores it; did you mean "domain"?',
            id="a misspelt field of the template",
        ),
        pytest.param(ec2_pool(), "900 is short for a Mac", id="no time to boot"),
        pytest.param(
            ec2_pool(instanceType="mac2.metal", spec={"readiness": {"timeoutSeconds": 1799}}), "1799", id="nearly"
        ),
    ],
)
def test_likely_mistakes_get_a_warning(document: dict[str, Any], words: str) -> None:
    (warning,) = WARM_POOL.warnings(document)
    assert words in warning


def test_a_usual_pool_gets_no_warning() -> None:
    patient = ec2_pool(spec={"readiness": {"timeoutSeconds": 1800}})
    assert [*WARM_POOL.warnings(warm_pool()), *WARM_POOL.warnings(patient)] == []
    assert WARM_POOL.warnings(ec2_pool(instanceType="m5.large")) == []


def test_a_vm_gets_a_placement_or_a_subnet() -> None:
    def names(document: dict[str, Any]) -> list[str]:
        return [place.name for place in WarmPoolSpec.model_validate(document["spec"]).places]

    assert names(placed({"name": "a"}, {"name": "b"})) == ["a", "b"]
    assert names(ec2_pool(subnets=["subnet-a", "subnet-b"])) == ["subnet-a", "subnet-b"]
    assert names(warm_pool()) == []


@pytest.mark.sentence("5.48")
def test_a_pool_is_not_the_default_pool_unless_it_says_so() -> None:
    assert WarmPoolSpec.model_validate(warm_pool()["spec"]).default is False
    assert WarmPoolSpec.model_validate(warm_pool(default=True)["spec"]).default is True
