"""VMs that have an old template: which are brought up to date. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import LabelVMI, PruneRevision, Restart, SaveRevision, Update
from controllers.pool.plan import plan
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM, join_vmi
from tests.controllers.pool.builders import NOW, REVISION, a_pool, ago, halted, leaving, old, snapshot, vm, vmi

OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
NEWEST = {"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}}
IDLE, TEST = {"tier": "idle"}, {"tier": "test"}
IDLE_FIRST = {
    "proactive": {
        "selectionPolicy": {
            "orderedPolicies": [{"labelSelector": {"matchLabels": labels}} for labels in (IDLE, TEST)],
            "basePolicy": "Oldest",
        }
    }
}
OPPORTUNISTIC: dict[str, Any] = {"opportunistic": {}}
UNMANAGED: dict[str, Any] = {"unmanaged": {}}


def begun(ordinal: int, **given: Any) -> VM:
    """It has the new template, and runs the old one."""
    return vm(ordinal, vmi=vmi(f"web-{ordinal}", revision="r0"), **given)


ENDED = vmi("web-1", revision="r0", phase="Succeeded")


def failed(of: str) -> VM:
    """It is started by hand, and its run, of this revision, has failed."""
    run = vmi("web-1", revision=of, phase="Failed")
    return join_vmi(halted(1, run_strategy="Manual"), run)


def four(*machines: VM, limit: int = 1, **given: Any) -> PoolSnapshot:
    return snapshot(a_pool(4, **{"maxUnavailable": limit, "updateStrategy": OLDEST, **given}), *machines)


def done(observed: PoolSnapshot) -> list[tuple[str, str]]:
    actions = plan(observed, NOW).actions
    assert all(isinstance(each, Update | Restart | SaveRevision) for each in actions), actions
    return [(each.verb, each.name) for each in actions]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(four(*map(vm, range(1, 5))), [], id="nothing to do"),
        pytest.param(
            four(*map(old, range(1, 5))),
            [("Update", "web-1")],
            id="one at a time, the oldest first",
            marks=pytest.mark.sentence("1.46"),
        ),
        pytest.param(
            four(*map(old, range(1, 5)), updateStrategy=NEWEST),
            [("Update", "web-4")],
            id="the newest first",
            marks=pytest.mark.sentence("1.46"),
        ),
        pytest.param(
            four(old(1), old(2, labels=TEST), old(3), old(4, labels=IDLE), limit=3, updateStrategy=IDLE_FIRST),
            [("Update", "web-4"), ("Update", "web-2"), ("Update", "web-1")],
            id="ordered policies in their order, then the base policy",
            marks=pytest.mark.sentence("1.46", "1.47", "1.49"),
        ),
        pytest.param(
            four(*map(old, range(1, 5)), limit=2), [("Update", "web-1"), ("Update", "web-2")], id="as many as may"
        ),
        pytest.param(
            four(begun(1), old(2), old(3), old(4)),
            [("Restart", "web-1")],
            id="updated, then restarted",
            marks=pytest.mark.sentence("1.10"),
        ),
        pytest.param(
            four(begun(1), begun(2), old(3), old(4)), [("Restart", "web-1")], id="two that were begun go one by one"
        ),
        pytest.param(
            four(vm(1, ready=False), old(2), old(3), old(4)), [], id="the next waits until the last is available"
        ),
        pytest.param(four(vm(1), old(2), old(3), old(4)), [("Update", "web-2")], id="the last is available: the next"),
        pytest.param(
            four(old(1), old(2), old(3), old(4, ready=False)),
            [("Update", "web-4")],
            id="the unavailable VM is updated first, and no available one",
        ),
        pytest.param(
            four(*(old(n, ready=False) for n in range(1, 5))),
            [("Update", "web-1")],
            id="where all are down, a bad template still takes no more than may be down",
        ),
        pytest.param(
            four(*(old(n, vmi=None, vmi_exists=False, ready=False) for n in range(1, 3)), old(3), old(4)),
            [("Update", "web-1"), ("Update", "web-2")],
            id="VMs that don't run yet just get it",
        ),
        pytest.param(
            snapshot(a_pool(2, updateStrategy=OLDEST), *(vm(n, revision="light") for n in (1, 2))),
            [("Update", "web-1"), ("Update", "web-2")],
            id="a change that needs no restart is made everywhere at once, and restarts nothing",
        ),
        pytest.param(
            snapshot(a_pool(2, updateStrategy=OLDEST), *(halted(n, revision="r0") for n in (1, 2))),
            [("Update", "web-1"), ("Update", "web-2")],
            id="halted VMs cost nothing",
        ),
        pytest.param(
            snapshot(a_pool(2, updateStrategy=OPPORTUNISTIC), old(1), halted(2, revision="r0")),
            [("Update", "web-2")],
            id="opportunistic takes the halted only",
            marks=pytest.mark.sentence("1.12"),
        ),
        pytest.param(
            snapshot(a_pool(2, updateStrategy=OPPORTUNISTIC), begun(1), vm(2)),
            [],
            id="opportunistic restarts nobody",
            marks=pytest.mark.sentence("1.12"),
        ),
        pytest.param(
            snapshot(a_pool(2, updateStrategy=UNMANAGED), old(1), halted(2, revision="r0")),
            [],
            id="unmanaged: nobody",
            marks=pytest.mark.sentence("1.11"),
        ),
        pytest.param(snapshot(a_pool(2, paused=True), old(1), old(2)), [], id="paused touches nobody"),
        pytest.param(
            snapshot(a_pool(1), old(1, revision="never-seen")), [("Update", "web-1")], id="an unknown one is old"
        ),
        pytest.param(
            snapshot(a_pool(1), old(1), revision_saved=False),
            [("SaveRevision", "web-r1"), ("Update", "web-1")],
            id="the new template is saved first",
        ),
        pytest.param(
            snapshot(a_pool(2, maxUnavailable=2, updateStrategy=OLDEST), old(1), old(2), burst=1),
            [("Update", "web-1")],
            id="the burst holds",
            marks=pytest.mark.sentence("1.44"),
        ),
        pytest.param(
            four(old(1), old(2), old(3), vm("db-7", revision="r0")),
            [("Update", "web-1")],
            id="a VM of a strange name is left alone and holds nobody up",
        ),
        pytest.param(
            replace(four(*map(old, range(1, 5))), refused=frozenset({"web-1@r1", "web-2@r0"})),
            [("Update", "web-2")],
            id="one whose update is refused does not take the room of the others",
        ),
        pytest.param(
            replace(four(old(1), vm(2), vm(3), vm(4)), refused=frozenset({"web-1@r1"})),
            [("Update", "web-1")],
            id="a refused update is tried again when it is its turn",
        ),
        pytest.param(
            replace(four(begun(1), old(2), old(3), old(4)), refused=frozenset({"run-web-1"})),
            [("Update", "web-2")],
            id="one whose restart is refused does not either",
        ),
        pytest.param(
            replace(four(begun(1), begun(2), old(3), old(4), limit=2), refused=frozenset({"run-web-1"})),
            [("Restart", "web-2"), ("Update", "web-3")],
            id="those that were begun and are not refused come first",
        ),
        pytest.param(
            replace(four(begun(1), vm(2), vm(3), vm(4)), refused=frozenset({"run-web-1"})),
            [("Restart", "web-1")],
            id="it is tried again after all others",
        ),
        pytest.param(
            replace(four(begun(1, ready=False), old(2), old(3), old(4)), refused=frozenset({"run-web-1"})),
            [("Restart", "web-1")],
            id="one that is down is on its way, whatever is refused",
        ),
        pytest.param(
            four(halted(1, revision="r0", vmi=ENDED, run_strategy="Once"), old(2), old(3), old(4)),
            [("Update", "web-2"), ("Update", "web-1")],
            id="one whose guest has ended costs nothing",
        ),
        pytest.param(four(halted(1, vmi=ENDED), *map(vm, (2, 3, 4))), [], id="a VM with an ended guest is not started"),
        pytest.param(
            four(failed("r1"), old(2), old(3), old(4)), [], id="the next waits for one whose new run has failed"
        ),
        pytest.param(
            four(failed("r0"), old(2), old(3), old(4)),
            [("Restart", "web-1")],
            id="one whose old run has failed is started again with the new template",
        ),
        pytest.param(snapshot(a_pool(1), begun(1, run_strategy="Once")), [], id="what runs once is not restarted"),
        pytest.param(
            four(begun(1, run_strategy="Once"), *(old(n, run_strategy="Once") for n in (2, 3, 4))),
            [("Update", "web-2"), ("Update", "web-3"), ("Update", "web-4")],
            id="VMs that run once get an update all at once, because they lose nothing by it",
        ),
        pytest.param(
            four(begun(1, run_strategy="Once"), old(2), old(3), old(4)),
            [("Update", "web-2")],
            id="a VM that runs once does not hold up others while it runs",
        ),
        pytest.param(
            four(begun(1, run_strategy="Once", ready=False), old(2), old(3), old(4)),
            [],
            id="a VM that runs once and is not available holds up others",
        ),
    ],
)
def test_an_update(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert done(observed) == expected


def test_a_missing_vm_counts_as_unavailable() -> None:
    observed = four(old(1), old(2), old(3), leaving(4))
    assert done(observed) == []
    assert {each.reason for each in plan(observed, NOW).waits} == {"1 VM is in progress, maxUnavailable is 1"}


@pytest.mark.parametrize(
    ("strategy", "asks"),
    [
        pytest.param("Always", False, id="KubeVirt starts it again by itself", marks=pytest.mark.sentence("1.41")),
        pytest.param("Manual", True, id="nobody would start it again"),
        pytest.param("RerunOnFailure", True, id="a run that was ended is no failure"),
    ],
)
def test_how_a_vm_is_restarted(strategy: str, asks: bool) -> None:
    (restart,) = plan(snapshot(1, begun(1, run_strategy=strategy)), NOW).actions
    assert isinstance(restart, Restart)
    assert restart.by_subresource is asks
    assert restart.vmi_uid == "run-web-1"


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(
            snapshot(a_pool(1, updateStrategy=UNMANAGED), old(1)), "the update strategy is unmanaged", id="mine"
        ),
        pytest.param(four(vm(1, ready=False), old(2)), "3 VMs are in progress, maxUnavailable is 1", id="under way"),
        pytest.param(
            four(begun(1), begun(2), vm(3), vm(4)),
            "3 VMs are available, 3 must stay available, maxUnavailable is 1",
            id="available",
        ),
    ],
)
def test_why_a_vm_waits(observed: PoolSnapshot, reason: str) -> None:
    assert [each.reason for each in plan(observed, NOW).waits] == [reason]


def after(seconds: float, *machines: VM, **given: Any) -> PoolSnapshot:
    """A pool that last got on so many seconds ago, and has lacked a VM since."""
    goal = {"observedGeneration": 1, "updateRevision": "web-r1", "replicas": 4, "unavailableReplicas": 1}
    status = {**goal, "lastProgressTime": ago(seconds)}
    return four(*machines, status=status, progressDeadlineSeconds=600, **given)


def test_the_pool_is_asked_again_when_a_vm_has_not_fitted_the_template_for_too_long() -> None:
    available = {"observedGeneration": 1, "updateRevision": "web-r1", "replicas": 4, "lastProgressTime": ago(500)}
    observed = four(vm(1), vm(2), vm(3), vm("db-7", revision="r0"), status=available, progressDeadlineSeconds=600)
    assert plan(observed, NOW).again_seconds == 100


def test_a_rollout_stops_at_its_progress_deadline() -> None:
    machines = vm(1, ready=False, printable_status="CrashLoopBackOff"), old(2), old(3), old(4)
    assert plan(after(500, *machines), NOW).again_seconds == 100
    observed = after(601, *machines, limit=4)
    assert done(observed) == []
    assert {each.reason for each in plan(observed, NOW).waits} == {
        "no progress for 600 s; not available: web-1 (CrashLoopBackOff)"
    }


def test_a_stopped_rollout_continues_when_its_vms_are_available() -> None:
    assert done(after(601, vm(1), old(2), old(3), old(4))) == [("Update", "web-2")]


@pytest.mark.sentence("1.9")
def test_a_rollout_never_exceeds_max_unavailable() -> None:
    """Followed step by step, as KubeVirt would: an update shows, a deleted run comes back."""
    machines = {n: old(n) for n in range(1, 9)}
    limit = 2
    for _ in range(100):
        observed = snapshot(a_pool(8, maxUnavailable=limit), *machines.values())
        actions = plan(observed, NOW).actions
        down = {n for n, m in machines.items() if not m.available}
        for n in down:
            machines[n] = vm(n)
        for each in actions:
            n = int(each.name.split("-")[1])
            if isinstance(each, Update):
                machines[n] = begun(n) if machines[n].available else vm(n)
            else:
                assert isinstance(each, Restart)
                machines[n] = vm(n, ready=False, vmi_exists=False, vmi=None)
        assert sum(not m.available for m in machines.values()) <= limit
        if not actions and not down:
            break
    assert {m.revision for m in machines.values()} == {"r1"}
    assert all(m.available for m in machines.values())


RELABELLED = replace(REVISION, name="web-r2", template_hash="m2")
"""Differs from the former revision in labels only."""


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            [vm(1, revision="r2", vmi=vmi("web-1", revision="r1"))], ["web-1"], id="a VMI of the former revision"
        ),
        pytest.param([vm(1, revision="r2")], [], id="a VMI of this revision"),
        pytest.param([vm(1)], [], id="not before its VM has the template"),
        pytest.param([halted(1, revision="r2")], [], id="no VMI"),
        pytest.param([vm(1, revision="r2", vmi=vmi("web-1", revision="r0"))], [], id="a VMI that must be restarted"),
        pytest.param(
            [vm(1, revision="r2", vmi=vmi("web-1", revision="r1", phase="Succeeded"))], [], id="a VMI that has ended"
        ),
        pytest.param(
            [vm(1, revision="r2", vmi=vmi("web-1", revision="r1"), base_name="x")], [], id="a VM without a template"
        ),
    ],
)
def test_labels_of_running_vmis(observed: list[VM], expected: list[str]) -> None:
    found = snapshot(a_pool(1), *observed, revisions=(REVISION, RELABELLED))
    actions = plan(replace(found, revision=RELABELLED), NOW).actions
    assert [each.name for each in actions if isinstance(each, LabelVMI)] == expected


SAVED = tuple(Revision(f"web-o{n}", "u-web", n, f"m{n}", f"g{n}") for n in range(-5, 0))


@pytest.mark.parametrize(
    ("limit", "vms", "expected"),
    [
        pytest.param(10, [vm(1)], [], id="as many as can be gone back to"),
        pytest.param(3, [vm(1)], ["web-o-5", "web-o-4"], id="the oldest go"),
        pytest.param(0, [vm(1)], [each.name for each in SAVED], id="none is kept"),
        pytest.param(4, [vm(1, vmi=vmi("web-1", revision="5"))], [], id="what a VM runs is kept"),
    ],
)
def test_old_revisions(limit: int, vms: list[VM], expected: list[str]) -> None:
    of = a_pool(1, revisionHistoryLimit=limit, updateStrategy={"unmanaged": {}})
    observed = snapshot(of, *vms, revisions=(*SAVED, REVISION))
    assert [each.name for each in plan(observed, NOW).actions if isinstance(each, PruneRevision)] == expected
