"""The launcher Pods of a VMI, and what their deletion does to its guest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.stack.engine.hypervisor import Domain
from poolhouse.stack.engine.launcher.pods import (
    EXTRA_SECONDS,
    Action,
    CreateLauncher,
    RemoveLauncher,
    SetReady,
    new_pod,
    plan_launchers,
    pod_status,
    shut_down_at,
)
from poolhouse.stack.engine.objects import VMI, Launcher, read_launcher
from poolhouse.stack.engine.vmi.phases import Destroy, PressPower, VMISnapshot, plan_vmi
from tests.stack.engine.builders import NOW, ago, vmi

POD = Launcher("default", "virt-launcher-vm", "pod-uid", controller_uid="vmi-uid", vmi=("default", "vm"))
HERE = replace(POD, node="node-1", ready=True)
THERE = replace(HERE, node="node-2")
MOVING = {"migrationState": {"sourceNode": "node-1", "targetNode": "node-2"}}
MOVED = {"nodeName": "node-2", "migrationState": {**MOVING["migrationState"], "completed": True}}
EVICTED = replace(HERE, deleted=ago(-EXTRA_SECONDS - 30))


@pytest.mark.parametrize(
    ("of", "pods", "expected"),
    [
        pytest.param(vmi("Scheduled"), [], [CreateLauncher("node-1")], id="a VMI on a node"),
        pytest.param(vmi("Scheduling"), [], [], id="a VMI without a node"),
        pytest.param(vmi(), [HERE], [], id="a VMI with its Pod"),
        pytest.param(vmi(), [replace(HERE, ready=False)], [SetReady(replace(HERE, ready=False), True)], id="ready"),
        pytest.param(vmi(deleted=NOW), [HERE], [SetReady(HERE, False)], id="a VMI that ends is not ready"),
        pytest.param(vmi(status=MOVING), [HERE], [CreateLauncher("node-2")], id="a migration has two Pods"),
        pytest.param(vmi(status=MOVED), [HERE, THERE], [RemoveLauncher(HERE)], id="after a migration, one Pod is left"),
        pytest.param(vmi(), [EVICTED], [], id="an evicted Pod waits for its guest"),
        pytest.param(vmi("Succeeded"), [EVICTED], [RemoveLauncher(EVICTED)], id="an evicted Pod ends after its guest"),
        pytest.param(vmi("Scheduled", deleted=NOW), [EVICTED], [], id="the guest of a deleted VMI may still start"),
        pytest.param(
            vmi("Scheduled", deleted=NOW, finalizers=("foregroundDeletion",)),
            [EVICTED],
            [RemoveLauncher(EVICTED)],
            id="a VMI that was deleted before it ran waits for its Pod only",
        ),
        pytest.param(None, [HERE], [RemoveLauncher(HERE)], id="the VMI is gone"),
        pytest.param(
            vmi(uid="next"), [HERE], [RemoveLauncher(HERE), CreateLauncher("node-1")], id="another VMI has the name"
        ),
    ],
)
def test_the_pods_of_a_vmi(of: VMI | None, pods: list[Launcher], expected: list[Action]) -> None:
    assert [*plan_launchers(of, pods, wanted=True)] == expected
    assert [*plan_launchers(of, pods, wanted=False)] == [RemoveLauncher(each) for each in pods]


def test_a_pod_without_an_owner_is_left_alone() -> None:
    assert [*plan_launchers(None, [replace(HERE, controller_uid="")], wanted=False)] == []


def test_a_new_pod_is_read_as_that_of_the_vmi() -> None:
    annotations = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "", "kubectl.kubernetes.io/last-applied": "{}"}
    document: dict[str, Any] = new_pod(vmi(), {"labels": {"app": "shop"}, "annotations": annotations}, "node-1")
    assert set(document["metadata"]["annotations"]) == {
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
        "descheduler.alpha.kubernetes.io/request-evict-only",
        "kubevirt.io/domain",
    }
    assert document["metadata"]["labels"] == {
        "app": "shop",
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": "vmi-uid",
    }
    document["metadata"]["uid"] = "pod-uid"
    found = read_launcher({**document, "status": pod_status(ready=True)})
    assert replace(found, name=HERE.name) == HERE


@pytest.mark.parametrize(
    ("pods", "domain", "phase", "actions"),
    [
        pytest.param([HERE], Domain("running"), "Running", (), id="nothing is evicted"),
        pytest.param([EVICTED], Domain("running"), "Running", (PressPower(),), id="the guest is asked to shut down"),
        pytest.param([EVICTED], Domain("off"), "Succeeded", (), id="it has shut down"),
        pytest.param(
            [replace(EVICTED, deleted=ago(-EXTRA_SECONDS))],
            Domain("running"),
            "Failed",
            (Destroy(),),
            id="it has not shut down in time",
        ),
        pytest.param(
            [replace(EVICTED, node="node-2")], Domain("running"), "Running", (), id="the target of a migration"
        ),
        pytest.param([replace(EVICTED, controller_uid="old")], Domain("running"), "Running", (), id="an earlier VMI"),
    ],
)
def test_an_eviction_stops_the_guest(pods: list[Launcher], domain: Domain, phase: str, actions: Any) -> None:
    snapshot = VMISnapshot(vmi(), domain, shut_down_at=shut_down_at(vmi(), pods))
    made = plan_vmi(snapshot, NOW)
    assert (made.status["phase"], made.actions) == (phase, actions)
