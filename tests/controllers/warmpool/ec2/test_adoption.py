"""Which instances a warm pool can adopt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.warmpool.ec2 import tags
from controllers.warmpool.ec2.adoption import adoption
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import a_pool
from tests.controllers.warmpool.ec2.fake_client import order

NOW = datetime(2026, 11, 21, tzinfo=UTC)
EC2 = {
    "imageID": "ami-1",
    "instanceType": "m5.large",
    "keyPair": "k",
    "subnets": ["subnet-a", "subnet-b"],
    "iamInstanceProfile": "agents",
    "securityGroups": ["sg-1", "sg-2"],
    "port": 8200,
    "protocol": "GRPC",
}
POOL = a_pool(template=None, ec2=EC2)
OURS = tags.new_tags(order(), "cluster", NOW)
ORPHANED = {**OURS, meta.ORPHANED: "PoolDeleted", tags.STATE: "Ready"}


def instance(given: dict[str, str], **facts: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-1",
        "State": {"Name": "running"},
        "ImageId": "ami-1",
        "InstanceType": "m5.large",
        "KeyName": "k",
        "SubnetId": "subnet-b",
        "IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/agents"},
        "SecurityGroups": [{"GroupId": "sg-2"}, {"GroupId": "sg-1"}],
        "LaunchTime": "2026-11-21T12:00:00Z",
        "Tags": tags.to_aws(given),
        **facts,
    }


@pytest.mark.parametrize(
    ("found", "says"),
    [
        pytest.param(instance(ORPHANED), [], id="orphaned"),
        pytest.param(instance({tags.STATE: "Ready"}), [], id="of a Virtual Kubelet"),
        pytest.param(instance({}), [], id="launched by hand"),
        pytest.param(instance({}, State={"Name": "stopped"}), ["is stopped"], id="stopped"),
        pytest.param(instance({**ORPHANED, tags.CLUSTER: "other"}), ["the cluster other"], id="another cluster"),
        pytest.param(
            instance({**OURS, meta.POOL_UID: "o"}), ["belongs to warm pool mac of namespace ns"], id="another pool"
        ),
        pytest.param(instance({**OURS, meta.POOL_UID: POOL.uid}), ["belongs to the pool already"], id="this pool"),
        pytest.param(
            instance({**ORPHANED, tags.NAMESPACE: "other"}), ["orphaned in namespace other"], id="another namespace"
        ),
        pytest.param(instance({**ORPHANED, tags.STATE: "InUse"}), ["has been used"], id="in use"),
        pytest.param(
            instance({tags.STATE: "Ready", "KubernetesPodName": "build"}), ["has been used by build"], id="of a Pod"
        ),
        pytest.param(instance({**ORPHANED, tags.STATE: "Unhealthy"}), ["has been used"], id="unhealthy"),
        pytest.param(
            instance({}, ImageId="ami-2", InstanceType="m5.xlarge", KeyName=None, SubnetId="subnet-c"),
            [
                "has image ami-2, and the pool has ami-1",
                "has type m5.xlarge, and the pool has m5.large",
                "has key pair none, and the pool has k",
                "has subnet subnet-c, and the pool has subnet-a, subnet-b",
            ],
            id="another template",
        ),
        pytest.param(
            instance({}, IamInstanceProfile=None), ["instance profile none, and the pool has agents"], id="no profile"
        ),
        pytest.param(instance({}, SecurityGroups=[{"GroupId": "sg-1"}]), ["security groups sg-1"], id="other groups"),
    ],
)
def test_what_can_be_adopted(found: dict[str, Any], says: list[str]) -> None:
    decision = adoption(found, POOL, "cluster", NOW)
    assert len(decision.problems) == len(says)
    for problem, words in zip(decision.problems, says, strict=True):
        assert words in problem
    assert bool(decision.tags) != bool(says)


def test_an_adopted_instance_is_a_new_vm_of_the_pool() -> None:
    before = instance({**ORPHANED, tags.REVISION: "7"})
    changed = adoption(before, POOL, "cluster", NOW).tags
    found = tags.parse_warm_vm({**before, "Tags": tags.to_aws({**tags.from_aws(before), **changed})})
    assert (found.name, found.pool_uid, found.orphaned, found.claim_uid) == ("mac-1", POOL.uid, "", "")
    assert found.state is WarmState.PROVISIONING, "the controllers check its health first"
    assert found.owned_by(POOL.uid)
    assert found.resource_version == "8"
    assert POOL.current(found)
    assert changed[tags.AGENT] == "GRPC:8200"


def test_the_name_of_an_instance_of_a_virtual_kubelet_is_stable() -> None:
    first, second = (adoption(instance({}), POOL, "cluster", NOW).tags[tags.NAME] for _ in range(2))
    assert first == second
    assert first.startswith("web-")
