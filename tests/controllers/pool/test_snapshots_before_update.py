"""Snapshots before updates, and their restores. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import LabelState, PruneSnapshot, Restore, TakeSnapshot, Update
from controllers.pool.plan import plan
from controllers.pool.progress import deadline_exceeded
from controllers.pool.restores import NO_STATE_CLAIM
from controllers.pool.rollback import abort_of
from controllers.pool.rules.stored_snapshots import prune_snapshots
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.snapshots_before_update import before_update
from controllers.pool.status import pool_status
from controllers.pool.vm_snapshots import (
    VMRestore,
    VMSnapshot,
    parse_restore,
    parse_snapshot,
    restore_name,
    snapshot_name,
    with_restores,
)
from controllers.pool.writes.snapshots import build_restore, build_snapshot
from controllers.shared.vm import VM
from tests.controllers.pool.builders import (
    LIGHT,
    NOW,
    OLD,
    REVISION,
    a_pool,
    ago,
    done,
    halted,
    old,
    snapshot,
    vm,
    waits,
)

PROACTIVE = {"selectionPolicy": {"basePolicy": "Oldest"}, "snapshotBeforeUpdate": True}
REQUEST = f"web-r1={ago(60)}"


def taken(of: VM, **given: Any) -> VMSnapshot:
    facts: dict[str, Any] = {
        "name": snapshot_name(of),
        "uid": f"s-{of.name}",
        "vm_uid": of.uid,
        "revision": of.revision,
        "update": of.updates + 1,
        "created_at": ago(120),
        "ready": True,
        **given,
    }
    return VMSnapshot(namespace="default", pool_name="web", vm_name=of.name, **facts)


def three(*vms: VM, limit: int = 1, proactive: Any = PROACTIVE, **given: Any) -> PoolSnapshot:
    spec = {"maxUnavailable": limit, "updateStrategy": {"proactive": proactive}, **given.pop("spec", {})}
    pool = a_pool(3, **spec)
    if "request" in given:
        pool = replace(pool, restore=given.pop("request"))
    return snapshot(pool, *with_restores(vms), **given)


FIRST = old(1)
UPDATED = vm(1, updates=1)
ONCE_OLD = taken(FIRST)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(three(FIRST, old(2), old(3)), [("TakeSnapshot", "web-1")], id="the snapshot comes first"),
        pytest.param(
            three(FIRST, old(2), old(3), limit=2),
            [("TakeSnapshot", "web-1"), ("TakeSnapshot", "web-2")],
            id="as many snapshots at once as VMs may be away",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, ready=False),)),
            [],
            id="a snapshot that is not ready holds its VM, and its place in the budget",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(ONCE_OLD,)),
            [("Update", "web-1")],
            id="the VM is updated when its snapshot is ready",
        ),
        pytest.param(
            three(old(1, snapshot_in_progress="s"), old(2), old(3), vm_snapshots=(ONCE_OLD,)),
            [],
            id="the VM is not updated before KubeVirt allows changes of it again",
        ),
        pytest.param(
            three(old(1), old(2), old(3), vm_snapshots=(taken(old(3)),)),
            [("Update", "web-3")],
            id="a VM with a snapshot is updated before a VM without",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, ready=False, failed=True),)),
            [("TakeSnapshot", "web-2")],
            id="a failed snapshot holds its VM, and frees its place for another",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, failed=True, created_at=ago(601)),)),
            [("PruneSnapshot", "web-1-"), ("TakeSnapshot", "web-2")],
            id="a failed snapshot is taken again after a pause",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, failed=True, created_at=ago(599)),)),
            [("TakeSnapshot", "web-2")],
            id="a failed snapshot is not taken again before the pause",
        ),
        pytest.param(
            three(old(1, ready=False), old(2), old(3)),
            [("TakeSnapshot", "web-1")],
            id="a VM that is down has a snapshot too",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, created_at=ago(86400)),)),
            [("PruneSnapshot", "web-1-")],
            id="a snapshot of yesterday is taken again",
        ),
        pytest.param(
            three(halted(1, revision="r0"), halted(2, revision="r0"), vm(3)),
            [("TakeSnapshot", "web-1"), ("TakeSnapshot", "web-2")],
            id="halted VMs need no budget",
        ),
        pytest.param(
            three(vm(1, revision="light"), vm(2), vm(3)), [("Update", "web-1")], id="a change of labels needs none"
        ),
        pytest.param(
            three(vm(1, revision="unknown"), vm(2), vm(3)),
            [("TakeSnapshot", "web-1")],
            id="an unknown template may differ in anything",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), proactive={"selectionPolicy": {"basePolicy": "Oldest"}}),
            [("Update", "web-1")],
            id="no snapshot without the field",
        ),
        pytest.param(
            three(
                old(1, updates=2),
                old(2),
                old(3),
                vm_snapshots=(taken(FIRST),),
            ),
            [("TakeSnapshot", "web-1")],
            id="a snapshot of an earlier stay at the template does not count",
        ),
        pytest.param(
            three(old(1, uid="another"), old(2), old(3), vm_snapshots=(ONCE_OLD,)),
            [("TakeSnapshot", "web-1")],
            id="a snapshot of an earlier VM of the name does not count",
        ),
        pytest.param(three(FIRST, old(2), old(3), serves_snapshots=False), [], id="no update where none can be taken"),
        pytest.param(
            three(
                FIRST,
                vm(2, start_failures=9, ready=False),
                old(3),
                vm_snapshots=(taken(FIRST, ready=False, failed=True),),
                spec={"autohealing": {}},
            ),
            [("Heal", "web-2")],
            id="a failed snapshot does not hold up healing",
        ),
        pytest.param(
            three(vm(1), vm(2), vm(3), vm_snapshots=(taken(FIRST), taken(old(1, updates=2), uid="s-newer"))),
            [("PruneSnapshot", "web-1-")],
            id="of two snapshots of a VM with one template, the newer is kept",
        ),
    ],
)
def test_updates_with_snapshots(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    found = done(observed)
    assert len(found) == len(expected), found
    for (verb, name), (wanted, prefix) in zip(found, expected, strict=True):
        assert verb == wanted
        assert name == prefix or (prefix.endswith("-") and name.startswith(prefix))


@pytest.mark.parametrize(
    ("observed", "name", "reason"),
    [
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, ready=False, problem="Source locked"),)),
            "web-1",
            f"its snapshot {ONCE_OLD.name} is not ready yet: Source locked",
            id="in progress",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), vm_snapshots=(taken(FIRST, failed=True, problem="deadline exceeded"),)),
            "web-1",
            f"its snapshot {ONCE_OLD.name} failed: deadline exceeded",
            id="failed",
        ),
        pytest.param(
            three(FIRST, old(2), old(3), serves_snapshots=False),
            "web-1",
            "the cluster does not serve virtualmachinesnapshots.snapshot.kubevirt.io/v1beta1, which KubeVirt has since"
            " 1.3: install it, or set snapshotBeforeUpdate to false",
            id="not served",
        ),
    ],
)
def test_reasons_to_wait(observed: PoolSnapshot, name: str, reason: str) -> None:
    assert waits(observed)[name] == reason


def test_an_update_counts_so_that_its_snapshot_is_not_used_again() -> None:
    (update,) = plan(three(FIRST, old(2), old(3), vm_snapshots=(ONCE_OLD,)), NOW).actions
    assert isinstance(update, Update)
    assert update.counts
    assert snapshot_name(replace(FIRST, updates=1)) != snapshot_name(FIRST)


@pytest.mark.parametrize(
    ("policy", "kept", "action"),
    [
        pytest.param("Recreate", {}, "TakeSnapshot", id="an update that replaces only a disk takes a snapshot"),
        pytest.param("Recreate", {"scale_in": "Protect"}, "Update", id="a protected VM keeps its disks"),
        pytest.param("Never", {}, "Update", id="all VMs keep their disks by default"),
    ],
)
def test_a_vm_gets_a_snapshot_before_an_update_replaces_its_disks(policy: str, kept: Any, action: str) -> None:
    former, wanted = replace(LIGHT, disks=(("root", "h1"),)), replace(REVISION, disks=(("root", "h2"),))
    (machine,) = (vm(1, revision="light", disk_templates="root=h1", **kept),)
    proactive = {**PROACTIVE, "replacePolicy": policy}
    observed = three(machine, vm(2), vm(3), proactive=proactive, revision=wanted, revisions=(former, wanted))
    assert done(observed)[0][0] == action


def test_restored_disks_are_not_replaced_again() -> None:
    wanted, stopped = replace(REVISION, disks=(("root", "h1"),)), replace(STOPPED, disk_templates="root=h2")
    restores, proactive = (replace(BEGUN, complete=True),), {**PROACTIVE, "replacePolicy": "Recreate"}
    given: Any = {"revision": wanted, "revisions": (wanted,), "request": REQUEST, "restores": restores}
    (update,) = plan(three(stopped, vm(2), vm(3), proactive=proactive, **given), NOW).actions
    assert isinstance(update, Update)
    assert update.disk_templates == "root=h1"


def test_the_pool_comes_back_when_a_snapshot_is_too_old() -> None:
    paused = {**PROACTIVE, "steps": [{"pause": {}}]}
    fresh = taken(FIRST, created_at=ago(86_400 - 1))
    assert plan(three(FIRST, old(2), old(3), vm_snapshots=(fresh,), proactive=paused), NOW).again_seconds == 1


def test_an_update_without_snapshots_writes_no_count() -> None:
    (update,) = plan(three(FIRST, old(2), old(3), proactive={"selectionPolicy": {"basePolicy": "Oldest"}}), NOW).actions
    assert isinstance(update, Update)
    assert not update.counts


def test_a_failed_snapshot_ends_an_update_at_its_deadline_and_rolls_it_back() -> None:
    status = {
        "updateRevision": "web-r1",
        "currentRevision": "web-r0",
        "observedGeneration": 1,
        "unavailableReplicas": 1,
        "lastProgressTime": ago(601),
    }
    failed = taken(FIRST, ready=False, failed=True, problem="no room")
    observed = three(
        FIRST, old(2), old(3), vm_snapshots=(failed,), proactive={**PROACTIVE, "rollback": {}}, spec={"status": status}
    )
    abort = abort_of(observed, NOW)
    assert abort.message == f"no progress for 600 s; web-1 waits: its snapshot {failed.name} failed: no room"
    aborted = replace(observed, revision=OLD, aborted=(REVISION, abort))
    assert not [each for each in plan(aborted, NOW).actions if isinstance(each, TakeSnapshot)]


@pytest.mark.parametrize(
    ("age", "exceeded"),
    [pytest.param(601, True, id="after the deadline"), pytest.param(599, False, id="not before")],
)
def test_a_failed_snapshot_ends_an_update_though_all_vms_are_available(age: int, exceeded: bool) -> None:
    status = {"updateRevision": "web-r1", "observedGeneration": 1, "lastProgressTime": ago(age)}
    failed = taken(FIRST, ready=False, failed=True, problem="no room")
    observed = three(FIRST, vm(2), vm(3), vm_snapshots=(failed,), spec={"status": status})
    assert (deadline_exceeded(observed, NOW) != "") == exceeded


def test_the_condition_names_the_vms_that_failed_snapshots_hold() -> None:
    failed = taken(FIRST, ready=False, failed=True, problem="no room")
    observed = three(FIRST, old(2), old(3), vm_snapshots=(failed,))
    status = pool_status(observed, plan(observed, NOW), NOW)
    (condition,) = (each for each in status.conditions if each.type == "SnapshotFailure")
    assert (condition.status, condition.reason) == ("True", "SnapshotFailed")
    assert condition.message == (
        f"not updated because of failed snapshots: web-1; its snapshot {failed.name} failed: no room"
    )
    assert status.snapshots == 1


def test_the_condition_says_that_the_cluster_serves_no_snapshots() -> None:
    observed = three(FIRST, old(2), old(3), serves_snapshots=False)
    (condition,) = (
        each for each in pool_status(observed, plan(observed, NOW), NOW).conditions if each.type == "SnapshotFailure"
    )
    assert condition.reason == "SnapshotsNotServed"
    assert condition.message.startswith("3 VMs are not updated: the cluster does not serve virtualmachinesnapshots")


RESTORABLE = taken(UPDATED, revision="r1", update=1, name="before")
SECOND = vm(2, updates=1)
BEFORE_SECOND = taken(SECOND, revision="r1", update=1, name="before-2")
BEGUN = VMRestore("default", restore_name(UPDATED, REQUEST), "r-1", "web", "web-1", "u-web-1", REQUEST, "before")
DURING = {"vm_snapshots": (RESTORABLE,), "restores": (BEGUN,), "request": REQUEST}
STATE = "persistent-state-for-web-1-x"
"""the claim with the VM's TPM and EFI variables"""
HEALED = {"autohealing": {}}
UNMANAGED = {"updateStrategy": {"unmanaged": {}}}
FAILING = {"ready": False, "start_failures": 3, "printable_status": "CrashLoopBackOff"}
NOTED = {"restore": REQUEST, "run_strategy_before": "Always"}
STOPPED = halted(1, updates=1, revision="r0", run_strategy="Halted", **NOTED)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [], id="a restore without them"),
        pytest.param({"state_claim": STATE, "problem": "Creating new PVCs"}, [], id="it makes progress"),
        pytest.param({"problem": NO_STATE_CLAIM}, [], id="KubeVirt restores none"),
        pytest.param({"state_claim": STATE, "problem": NO_STATE_CLAIM, "complete": True}, [], id="it is complete"),
        pytest.param({"state_claim": STATE, "problem": NO_STATE_CLAIM}, [STATE], id="KubeVirt does not find them"),
    ],
)
def test_restored_tpm_and_efi_variables_get_their_label(given: dict[str, Any], expected: list[str]) -> None:
    observed = three(STOPPED, vm(2), vm(3), restores=(replace(BEGUN, **given),), request=REQUEST)
    assert [each.claim for each in plan(observed, NOW).actions if isinstance(each, LabelState)] == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            three(old(1, updates=1), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST, proactive={}),
            [("Restore", "web-1")],
            id="a VM of the undone update gets its snapshot",
        ),
        pytest.param(
            three(UPDATED, vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [("Restore", "web-1")],
            id="a VM that was rolled back before gets its snapshot",
        ),
        pytest.param(
            three(vm(1, updates=0), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [],
            id="a VM that was not updated since its snapshot keeps its disks",
        ),
        pytest.param(
            three(old(1, updates=1), vm(2), vm(3), vm_snapshots=(RESTORABLE,), proactive={}),
            [("Update", "web-1")],
            id="without a request the VM gets only its template again",
        ),
        pytest.param(
            three(
                old(1, updates=1), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=f"web-r0={ago(60)}", proactive={}
            ),
            [("Update", "web-1")],
            id="a request for another revision has no effect",
        ),
        pytest.param(
            three(
                old(1, updates=1), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=f"web-r1={ago(600)}", proactive={}
            ),
            [("Update", "web-1")],
            id="a request for a revision has no effect on newer snapshots",
        ),
        pytest.param(
            three(UPDATED, vm(2, ready=False), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [],
            id="a restore waits for the budget",
        ),
        pytest.param(
            three(halted(1, updates=1), vm(2, ready=False), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [("Restore", "web-1")],
            id="that of a halted VM does not",
        ),
        pytest.param(
            three(replace(UPDATED, ready=False), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [("Restore", "web-1")],
            id="a VM that does not start with its disks does not wait for itself",
        ),
        pytest.param(
            three(STOPPED, old(2), old(3), proactive={}, **DURING),
            [],
            id="a VM that is being restored is away, though KubeVirt has halted it",
        ),
        pytest.param(
            three(STOPPED, vm(2), vm(3), restores=(replace(BEGUN, complete=True),), request=REQUEST),
            [("Update", "web-1")],
            id="after the restore the VM gets its revision and its run strategy",
        ),
        pytest.param(
            three(
                replace(STOPPED, name="db-2", base_name="db", ordinal=2),
                vm(2),
                vm(3),
                restores=(replace(BEGUN, complete=True),),
            ),
            [],
            id="a VM with another name does not get the template with the disks of its number",
        ),
        pytest.param(
            three(
                replace(STOPPED, name="db", base_name="db", ordinal=None),
                vm(2),
                vm(3),
                restores=(replace(BEGUN, complete=True),),
            ),
            [],
            id="a VM without a number does not stop the plan",
        ),
        pytest.param(
            three(STOPPED, vm(2), vm(3), restores=(replace(BEGUN, failed=True),), request=REQUEST),
            [],
            id="a failed restore waits for a user",
        ),
        pytest.param(
            three(replace(UPDATED, **FAILING), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST, spec=HEALED),
            [("Restore", "web-1")],
            id="healing deletes no VM whose disks are to be restored",
        ),
        pytest.param(
            three(replace(STOPPED, **FAILING), vm(2), vm(3), spec=HEALED, **DURING),
            [],
            id="healing deletes no VM whose disks are being restored",
        ),
        pytest.param(
            three(STOPPED, vm(2), vm(3), restores=(replace(BEGUN, complete=True),), request=REQUEST, spec=UNMANAGED),
            [("Update", "web-1")],
            id="a restore that has begun is completed, whatever the strategy is now",
        ),
        pytest.param(
            three(STOPPED, vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [("Restore", "web-1")],
            id="a restore that is gone begins again",
        ),
        pytest.param(
            three(STOPPED, SECOND, vm(3), vm_snapshots=(RESTORABLE, BEFORE_SECOND), request=REQUEST),
            [("Restore", "web-1")],
            id="a restore that is gone begins again before another VM is stopped, because its VM is away",
        ),
        pytest.param(
            three(STOPPED, vm(2), vm(3), request=REQUEST, spec=HEALED),
            [],
            id="a VM without its restore and the snapshot is not started or replaced, because its disks may be halves",
        ),
        pytest.param(
            three(replace(UPDATED, **NOTED), vm(2), vm(3)),
            [("ForgetRestore", "web-1")],
            id="if somebody starts the VM, the wait ends",
        ),
        pytest.param(
            three(replace(UPDATED, **NOTED), vm(2), vm(3), **DURING), [], id="until KubeVirt has stopped it, it waits"
        ),
        pytest.param(
            three(replace(UPDATED, restored=REQUEST), vm(2), vm(3), restores=(replace(BEGUN, complete=True),)),
            [("PruneRestore", BEGUN.name)],
            id="a complete restore is deleted",
        ),
        pytest.param(
            three(replace(UPDATED, restored=REQUEST), vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST),
            [],
            id="a request is served once",
        ),
    ],
)
def test_restores(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert done(observed) == expected


OLDEST = {"selectionPolicy": {"basePolicy": "Oldest"}}


def test_a_vm_that_awaits_its_restore_is_not_updated_yet() -> None:
    observed = three(UPDATED, vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST)
    status = pool_status(observed, plan(observed, NOW), NOW)
    (progressing,) = (each for each in status.conditions if each.type == "Progressing")
    assert (status.updated_replicas, progressing.reason) == (2, "UpdatingVMs")


def test_a_simulated_undo_restores_each_vm_within_the_budget() -> None:
    vms = tuple(old(n, updates=1) for n in (1, 2, 3))
    before = tuple(taken(each, revision="r1", update=1, name=f"before-{each.name}", uid=each.name) for each in vms)
    found = simulate(three(*vms, vm_snapshots=before, request=REQUEST, proactive=OLDEST), NOW)
    assert found.complete
    assert [(row["action"], row["vm"]) for row in rows(found)] == [
        (action, f"web-{n}") for n in (1, 2, 3) for action in ("Restore", "Update")
    ]


def test_a_plan_shows_the_snapshots_and_what_they_hold() -> None:
    disk = {"metadata": {"name": "root"}, "spec": {"storage": {"resources": {"requests": {"storage": "2Gi"}}}}}
    template = {"spec": {"running": True, "template": {}, "dataVolumeTemplates": [disk]}}
    first = next(rows(simulate(three(FIRST, vm(2), vm(3), spec={"template": template}), NOW)))
    reason = "before the update, of disks with 2Gi"
    assert first == {"step": 1, "action": "TakeSnapshot", "vm": "web-1", "reason": reason}


def test_a_snapshot_belongs_to_the_revision_of_the_vm() -> None:
    action = TakeSnapshot("web-1", "u-web-1", "web-1-abc", "r0", "web-r0", "uid-r0", 4, "")
    document = build_snapshot(a_pool(), action)
    assert document["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "ControllerRevision", "name": "web-r0", "uid": "uid-r0"}
    ]
    found = parse_snapshot({**document, "status": {"readyToUse": True, "phase": "Succeeded"}})
    assert (found.vm_uid, found.revision, found.update, found.usable) == ("u-web-1", "r0", 4, True)
    orphan = build_snapshot(a_pool(), replace(action, owner="", owner_uid="", revision=""))
    assert orphan["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachinePool"


def test_a_restore_names_its_request_and_its_snapshot() -> None:
    document = build_restore(a_pool(), Restore("web-1", "u-web-1", "r", "s", REQUEST, "Manual", ""))
    found = parse_restore(document)
    assert (found.request, found.snapshot) == (REQUEST, "s")
    assert document["spec"]["volumeRestorePolicy"] == "InPlace"


@pytest.mark.parametrize(
    ("machine", "noted"),
    [
        pytest.param(UPDATED, "Always", id="it runs"),
        pytest.param(halted(1, updates=1), "Halted/halted", id="it is halted"),
        pytest.param(halted(1, updates=1, run_strategy="Manual"), "Manual/halted", id="a user has stopped it"),
        pytest.param(STOPPED, "Always", id="an earlier restore has stopped it"),
        pytest.param(
            replace(STOPPED, restore="r0=x", run_strategy_before="Manual"), "Manual", id="one of another request"
        ),
    ],
)
def test_a_vm_notes_its_run_strategy_before_a_restore(machine: VM, noted: str) -> None:
    observed = three(machine, vm(2), vm(3), vm_snapshots=(RESTORABLE,), request=REQUEST)
    (action,) = (each for each in plan(observed, NOW).actions if isinstance(each, Restore))
    assert action.run_strategy == noted


@pytest.mark.parametrize(
    ("machine", "strategy", "start"),
    [
        pytest.param(STOPPED, "Always", True, id="it ran"),
        pytest.param(replace(STOPPED, run_strategy_before="Manual/halted"), "Manual", False, id="it did not run"),
        pytest.param(replace(STOPPED, run_strategy_before=""), "Halted", True, id="a user has removed the note"),
    ],
)
def test_a_restored_vm_gets_what_it_has_noted(machine: VM, strategy: str, start: bool) -> None:
    observed = three(machine, vm(2), vm(3), restores=(replace(BEGUN, complete=True),))
    (action,) = (each for each in plan(observed, NOW).actions if isinstance(each, Update))
    assert (action.run_strategy, action.start) == (strategy, start)


@pytest.mark.parametrize(
    ("strategy", "noted", "runs"),
    [
        pytest.param("Halted", "Always", True, id="a restore has stopped it"),
        pytest.param("Manual", "Manual", True, id="by a request"),
        pytest.param("Manual", "Manual/halted", False, id="it was stopped before"),
        pytest.param("RerunOnFailure", "Always", False, id="a user has given it another run strategy meanwhile"),
    ],
)
def test_a_vm_that_a_restore_has_stopped_should_run(strategy: str, noted: str, runs: bool) -> None:
    (found,) = with_restores([replace(STOPPED, run_strategy=strategy, run_strategy_before=noted)])
    assert found.should_run is runs
    (done,) = with_restores([replace(found, restored=REQUEST, should_run=False)])
    assert not done.should_run


def test_a_restore_names_the_claim_of_the_tpm_and_the_efi_variables() -> None:
    metadata = {"name": "r", "namespace": "default"}
    restores = [
        {"volumeName": "root", "persistentVolumeClaim": "root-1"},
        {"volumeName": "persistent-state-for-web-1", "persistentVolumeClaim": STATE},
    ]
    assert parse_restore({"metadata": metadata, "status": {"restores": restores}}).state_claim == STATE
    assert parse_restore({"metadata": metadata, "status": {"restores": restores[:1]}}).state_claim == ""


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


@pytest.mark.parametrize(
    ("status", "ready", "failed", "problem"),
    [
        pytest.param({}, False, False, "", id="new"),
        pytest.param(
            {"phase": "InProgress", "conditions": [condition("Progressing", "False", "Source not locked")]},
            False,
            False,
            "Source not locked",
            id="KubeVirt waits",
        ),
        pytest.param(
            {"phase": "Failed", "conditions": [condition("Failure", "True", "snapshot deadline exceeded")]},
            False,
            True,
            "snapshot deadline exceeded",
            id="late",
        ),
        pytest.param(
            {"phase": "InProgress", "error": {"message": "no class"}},
            False,
            False,
            "no class",
            id="an error that may pass",
        ),
    ],
)
def test_states_of_snapshots(status: Any, ready: bool, failed: bool, problem: str) -> None:
    found = parse_snapshot({"metadata": {"name": "s", "uid": "u"}, "status": status})
    assert (found.ready, found.failed, found.problem) == (ready, failed, problem)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        pytest.param({}, "", id="ready"),
        pytest.param({"deleting": True}, "its snapshot {name} is being deleted", id="deleted"),
        pytest.param({"failed": True}, "its snapshot {name} failed: no reason given", id="failed"),
        pytest.param(
            {"failed": True, "problem": "it is full"}, "its snapshot {name} failed: it is full", id="a reason"
        ),
        pytest.param({"ready": False}, "its snapshot {name} is not ready yet", id="taken now"),
        pytest.param(
            {"ready": False, "problem": "frozen"}, "its snapshot {name} is not ready yet: frozen", id="with a problem"
        ),
        pytest.param({"created_at": ago(86399)}, "", id="almost a day old"),
        pytest.param(
            {"created_at": ago(86400)}, "its snapshot {name} is a day old, and is taken again", id="a day old"
        ),
    ],
)
def test_an_update_waits_for_its_snapshot(given: Any, answer: str) -> None:
    snapshot_of_it = taken(FIRST, **given)
    observed = three(FIRST, vm_snapshots=(snapshot_of_it,))
    assert before_update(observed, FIRST, NOW) == answer.format(name=snapshot_of_it.name)


def test_an_update_waits_for_what_else_it_needs() -> None:
    locked = old(1, snapshot_in_progress="web-1-s")
    observed = three(locked, vm_snapshots=(taken(locked),))
    assert before_update(observed, locked, NOW) == "KubeVirt has not released it after snapshot web-1-s"
    assert before_update(three(FIRST, serves_snapshots=False), FIRST, NOW) == (
        "the cluster does not serve virtualmachinesnapshots.snapshot.kubevirt.io/v1beta1, which KubeVirt has since 1.3:"
        " install it, or set snapshotBeforeUpdate to false"
    )


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        pytest.param(
            (taken(FIRST, failed=True, created_at=ago(600)),),
            [(snapshot_name(FIRST), "it failed, and is taken again if it is needed")],
            id="failed",
        ),
        pytest.param((taken(FIRST, failed=True, created_at=ago(599)),), [], id="failed a moment ago"),
        pytest.param(
            (taken(FIRST, created_at=ago(86400)),),
            [(snapshot_name(FIRST), "it is a day old, and its VM is not updated yet")],
            id="too old",
        ),
        pytest.param(
            (taken(FIRST, name="a", update=1), taken(FIRST, name="c", update=3), taken(FIRST, name="b", update=2)),
            [("a", "b is newer"), ("b", "c is newer")],
            id="of one revision",
        ),
        pytest.param((taken(FIRST, name="a"), taken(FIRST, name="b", revision="r9")), [], id="of two revisions"),
        pytest.param((taken(FIRST, name="a"), taken(FIRST, name="b", vm_uid="u-2")), [], id="of two VMs"),
        pytest.param((taken(FIRST, name="a", deleting=True), taken(FIRST, name="b")), [], id="one is being deleted"),
        pytest.param((taken(FIRST, name="a", ready=False), taken(FIRST, name="b")), [], id="one is not ready"),
    ],
)
def test_snapshots_are_deleted_for_a_reason(snapshots: Any, expected: list[tuple[str, str]]) -> None:
    found = list(prune_snapshots(three(FIRST, vm_snapshots=snapshots), NOW))
    assert found == [PruneSnapshot(name, f"s-{FIRST.name}", reason) for name, reason in expected]
