"""What `poolhouse why pod/NAME` says."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.cli.why_pod import facts, headline, pod_name

CONDITION = {"type": "poolhouse.dev/warm-vm", "status": "False", "reason": "Queued", "message": "no VM is ready"}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
NO_PODMAN = {"reason": "ImageNotSupported", "message": "it needs podman"}
BOUND = {"phase": "Ready", "boundAt": "2026-03-01T11:00:00Z", "vmRef": {"name": "web-x1"}, "launchType": "Warm"}


def pod(*, node: str = "poolhouse", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p1"}, "spec": {"nodeName": node} if node else {}, "status": status}


def claim(**status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p1", "uid": "u-1", "controller": True}
    metadata = {"name": "p1-c0ffee", "creationTimestamp": "2026-03-01T11:00:00Z", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"poolName": "ci"}, "status": status}


@pytest.mark.parametrize(
    ("text", "name"), [("pod/p1", "p1"), ("pods/p1", "p1"), ("po/p1", "p1"), ("p1", ""), ("vm/p1", ""), ("pod/a/b", "")]
)
def test_the_name_of_a_pod_in_an_argument(text: str, name: str) -> None:
    assert pod_name(text) == name


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(pod(phase="Running"), "Pod p1 is Running", id="it runs"),
        pytest.param(
            pod(phase="Failed", reason="VMLost", message="the VM is gone"),
            "Pod p1 is Failed: VMLost: the VM is gone",
            id="it has failed",
        ),
        pytest.param(
            pod(node="", conditions=[UNSCHEDULED]), "Pod p1 is Pending: Unschedulable: 0/3 nodes", id="it has no node"
        ),
    ],
)
def test_the_headline_of_a_pod(found: dict[str, Any], said: str) -> None:
    assert headline(found) == said


@pytest.mark.parametrize(
    ("found", "its_claim", "said"),
    [
        pytest.param(pod(node=""), None, ["the scheduler has bound it to no node yet"], id="it has no node"),
        pytest.param(
            pod(node="node-1"),
            None,
            ["it is on node node-1. Poolhouse runs only Pods of the virtual node, and has done nothing for this one"],
            id="it is on another node",
        ),
        pytest.param(pod(conditions=[CONDITION]), None, [], id="no claim is created, and the headline says why"),
        pytest.param(
            pod(),
            claim(**BOUND),
            [
                "its VM is web-x1: `poolhouse why web-x1` explains the VM",
                "its claim is p1-c0ffee: web-x1 is yours: Warm",
                "claim p1-c0ffee: it was created at 2026-03-01T11:00:00Z",
                "claim p1-c0ffee: it ends with Pod p1",
            ],
            id="it has a VM",
        ),
        pytest.param(
            pod(containerStatuses=[{"name": "main", "state": {"waiting": NO_PODMAN}}]),
            claim(**BOUND),
            [
                "its VM is web-x1: `poolhouse why web-x1` explains the VM",
                "container main waits: ImageNotSupported: it needs podman",
                "its claim is p1-c0ffee: web-x1 is yours: Warm",
                "claim p1-c0ffee: it was created at 2026-03-01T11:00:00Z",
                "claim p1-c0ffee: it ends with Pod p1",
            ],
            id="a container waits",
        ),
        pytest.param(
            pod(conditions=[CONDITION]),
            claim(phase="Queued", queuePosition=2),
            [
                "its claim is p1-c0ffee: Queued, position 2 in the queue",
                "claim p1-c0ffee: it was created at 2026-03-01T11:00:00Z",
                "claim p1-c0ffee: it waits for a VM of the warm pool ci; `poolhouse warmpool why ci` explains the pool",
            ],
            id="it waits",
        ),
        pytest.param(
            pod(reason="Queued", message="no VM is ready", conditions=[CONDITION]),
            claim(phase="Queued", conditions=[{**CONDITION, "type": "Bound"}]),
            [
                "its claim is p1-c0ffee: Queued",
                "claim p1-c0ffee: it was created at 2026-03-01T11:00:00Z",
                "claim p1-c0ffee: it waits for a VM of the warm pool ci; `poolhouse warmpool why ci` explains the pool",
            ],
            id="the headline has the reason already",
        ),
        pytest.param(
            pod(conditions=[CONDITION]),
            claim(phase="Queued", conditions=[{**CONDITION, "type": "Bound"}]),
            [
                "its claim is p1-c0ffee: Queued: no VM is ready",
                "claim p1-c0ffee: it was created at 2026-03-01T11:00:00Z",
                "claim p1-c0ffee: it waits for a VM of the warm pool ci; `poolhouse warmpool why ci` explains the pool",
            ],
            id="the Pod does not say it yet",
        ),
    ],
)
def test_facts_about_a_pod(found: dict[str, Any], its_claim: dict[str, Any] | None, said: list[str]) -> None:
    assert list(facts(found, its_claim)) == said
