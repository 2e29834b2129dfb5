"""Whom a pool lets run programs: claims of Pods, and others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.claim.plan import plan
from controllers.claim.steps import UpdateStatus
from controllers.warmpool.warm_vm import Owner
from tests.controllers.claim.builders import a_claim, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool

EC2 = {"imageID": "ami-1", "instanceType": "m5.large", "subnets": ["subnet-a"], "protocol": "GRPC", "port": 8200}
POD = Owner("Pod", "web-0", "u", "v1")


@pytest.mark.parametrize(
    ("policy", "pod", "refused"),
    [
        pytest.param({"allowPods": True}, POD, None, id="a Pod needs allowPods"),
        pytest.param({"allowApplication": True}, POD, "PodsNotAllowed", id="a Pod gets nothing by allowApplication"),
        pytest.param({"allowPods": True}, None, "ApplicationNotAllowed", id="nobody else gets something by allowPods"),
    ],
)
def test_whom_a_pool_lets_run_programs(policy: dict[str, bool], pod: Owner | None, refused: str | None) -> None:
    grpc = a_pool(template=None, ec2=EC2, claimPolicy=policy)
    claim = replace(a_claim(application={"containers": [{"name": "a", "image": "i"}]}), pod=pod)
    step = plan(snapshot(claim, pool=grpc), NOW)
    assert isinstance(step, UpdateStatus) is (refused is not None)
    if isinstance(step, UpdateStatus):
        assert step.event is not None
        assert step.event.reason == refused
