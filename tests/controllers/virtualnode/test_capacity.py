"""The capacity of the virtual node."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.virtualnode.capacity import MAX_CREATED, capacity, parse_claim, parse_pool


def pool(*, ready: int = 0, claimed: int = 0, queued: int = 0, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    policy = {"allowPods": True, "onEmpty": spec.pop("onEmpty", "Fail")}
    status = {"availableReplicas": ready, "replicas": ready, "claimed": claimed, "queuedClaims": queued}
    metadata = {"name": "p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    return {"metadata": metadata, "spec": {"claimPolicy": policy, **spec}, "status": status}


def claim(*, phase: str = "Ready", owner: str = "Pod", vm: str | None = "vmRef") -> dict[str, Any]:
    owners = [{"kind": owner, "name": "p", "uid": "u", "controller": True}]
    return {"metadata": {"ownerReferences": owners}, "status": {"phase": phase, **({vm: {"name": "x"}} if vm else {})}}


NO_POLICY = {"metadata": {"name": "p"}, "spec": {"replicas": 5}, "status": {"availableReplicas": 5}}


@pytest.mark.parametrize(
    ("pools", "claims", "warm", "pods"),
    [
        pytest.param([], [], 0, 0, id="without a pool for Pods there is no place"),
        pytest.param([NO_POLICY], [], 0, 0, id="a pool is closed to Pods by default"),
        pytest.param([pool(ready=3), pool(ready=2)], [], 5, 5, id="each ready VM is a place"),
        pytest.param([pool(ready=3, deleted=True)], [], 0, 0, id="a pool that is being deleted has none"),
        pytest.param([pool(ready=3)], [claim(), claim(vm="instanceRef")], 5, 5, id="VMs that Pods hold stay places"),
        pytest.param([pool(ready=3)], [claim(owner="Build")], 3, 3, id="VMs that other owners hold are none"),
        pytest.param([pool(ready=3)], [claim(phase="Released")], 3, 3, id="a finished claim holds nothing"),
        pytest.param(
            [pool(ready=1, queued=1)], [claim(phase="Queued", vm=None)], 1, 1, id="a waiting Pod gets the next ready VM"
        ),
        pytest.param(
            [pool(ready=1, onEmpty="ColdStart")], [], 1, 1 + MAX_CREATED, id="Pods may wait for VMs that a pool creates"
        ),
        pytest.param(
            [pool(ready=1, claimed=4, onEmpty="Queue", maxTotal=8)], [], 1, 4, id="a pool creates VMs up to maxTotal"
        ),
        pytest.param(
            [pool(ready=1, onEmpty="Queue", paused=True)], [], 1, 1, id="a paused pool gives its VMs and creates none"
        ),
    ],
)
def test_resources_of_the_node(pools: list[Any], claims: list[Any], warm: int, pods: int) -> None:
    found = capacity(map(parse_pool, pools), map(parse_claim, claims))
    assert found["poolhouse.dev/warm-vm"] == str(warm)
    assert found["pods"] == str(pods)
    assert found["cpu"] == str(64 * pods)
    assert found["memory"] == f"{256 * pods}Gi"
    assert found["ephemeral-storage"] == f"{1024 * pods}Gi"
