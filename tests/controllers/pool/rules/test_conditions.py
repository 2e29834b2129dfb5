"""Conditions of the rules with all their values: the message is what users read in the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.conditions import conditions
from controllers.pool.plan import plan
from controllers.pool.restores import LOST
from controllers.pool.rules.evictions import EVICTIONS
from controllers.pool.rules.holds import holds
from controllers.pool.rules.membership import MEMBERSHIP
from controllers.pool.rules.outdated_disks import OUTDATED_DISKS
from controllers.pool.rules.rule import Rule
from controllers.pool.rules.scale_in import SCALE_IN
from controllers.pool.rules.stored_revisions import REVISIONS
from controllers.pool.rules.stored_snapshots import SNAPSHOTS
from controllers.pool.rules.table import RULES
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot, snapshot_name
from controllers.shared.vm import VM, LifecycleHold
from poolhouse.api.kinds.conditions import conditions_of
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.resource_types import POOLS
from tests.controllers.pool.builders import NOW, OLD, a_pool, ago, halted, snapshot, vm, with_new_disk

HOLDS = holds(lambda: RULES)
HOOKS = [{"name": name, "transition": "Restarting", "timeoutSeconds": 600} for name in ("drain", "tell")]
HOLD = LifecycleHold("Restarting", ago(60), "", (("drain", ago(-540)), ("tell", ago(-540))))
RECREATE = {"proactive": {"replacePolicy": "Recreate"}}
SURGE = {"proactive": {"maxSurge": 1}}
SNAPSHOT = {"proactive": {"snapshotBeforeUpdate": True}}
BEHIND = vm(1, revision=OLD.label), vm(2, revision=OLD.label)
NOT_SERVED = (
    "the cluster does not serve virtualmachinesnapshots.snapshot.kubevirt.io/v1beta1, which KubeVirt has since 1.3: "
    "install it, or set snapshotBeforeUpdate to false"
)
DELETED_WITH_NEW = "a VM that is deleted is created with new disks."
KEPT = "no update replaces the disks, because poolhouse.dev/scale-in protects the VM or the disks have other names"


def old_disk(ordinal: int, **given: Any) -> VM:
    return vm(ordinal, disk_templates="root=h0", **given)


def failed(of: VM) -> VMSnapshot:
    facts = {"vm_name": of.name, "vm_uid": of.uid, "revision": of.revision, "update": 1, "created_at": ago(60)}
    return VMSnapshot("default", snapshot_name(of), f"u-{of.name}", failed=True, problem="no space", **facts)


def unrestored(*names: str) -> tuple[VMRestore, ...]:
    return tuple(
        VMRestore(
            *("default", f"r-{name}", "u", "web", name, f"u-{name}", "r", f"s-{name}"),
            failed=True,
            problem="full",
        )
        for name in names
    )


@pytest.mark.parametrize(
    ("rule", "observed", "expected"),
    [
        pytest.param(MEMBERSHIP, snapshot(1), ("UnownedVMs", "False", "NoUnownedVMs", ""), id="each VM has an owner"),
        pytest.param(
            MEMBERSHIP,
            snapshot(1, unowned=("web-8", "web-9")),
            (
                "UnownedVMs",
                "True",
                "NoOwner",
                "web-8, web-9: the name and the label of this pool, but no owner. The pool neither counts nor changes "
                "them, and Services may select them. `poolhouse attach` takes them into the pool; without the label "
                "poolhouse.dev/pool they are VMs of their own",
            ),
            id="VMs without an owner",
        ),
        pytest.param(
            OUTDATED_DISKS, snapshot(1, vm(1)), ("DisksOutdated", "False", "DisksUpToDate", ""), id="disks are new"
        ),
        pytest.param(
            OUTDATED_DISKS,
            with_new_disk(2, old_disk(1), vm(2, disk_templates="root=h1")),
            (
                "DisksOutdated",
                "True",
                "DiskTemplateChanged",
                "1 of 2 VMs has disks that were created from an older template: web-1. web-1: replacePolicy is Never, "
                f"so no update replaces the disks; {DELETED_WITH_NEW}",
            ),
            id="disks are kept",
        ),
        pytest.param(
            OUTDATED_DISKS,
            with_new_disk(a_pool(3, updateStrategy=RECREATE), *map(old_disk, (1, 2)), old_disk(3, scale_in="Protect")),
            (
                "DisksOutdated",
                "True",
                "DiskTemplateChanged",
                "3 of 3 VMs have disks that were created from an older template: web-1, web-2, web-3. Updates replace "
                f"the disks of 2 VMs. web-3: {KEPT}; {DELETED_WITH_NEW}",
            ),
            id="disks are replaced, but not those of a protected VM",
        ),
        pytest.param(
            OUTDATED_DISKS,
            with_new_disk(a_pool(2, updateStrategy=SURGE), old_disk(1), old_disk(2, scale_in="Protect")),
            (
                "DisksOutdated",
                "True",
                "DiskTemplateChanged",
                "2 of 2 VMs have disks that were created from an older template: web-1, web-2. Updates replace 1 VM. "
                f"web-2: {KEPT}; {DELETED_WITH_NEW}",
            ),
            id="VMs are replaced, but not a protected one",
        ),
        pytest.param(
            OUTDATED_DISKS,
            with_new_disk(a_pool(1, updateStrategy=RECREATE), old_disk(1)),
            (
                "DisksOutdated",
                "True",
                "DiskTemplateChanged",
                "1 of 1 VM has disks that were created from an older template: web-1. Updates replace the disks of "
                "1 VM.",
            ),
            id="all disks are replaced",
        ),
        pytest.param(
            REVISIONS, snapshot(1, vm(1)), ("RevisionLost", "False", "NoRevisionLost", ""), id="no revision is lost"
        ),
        pytest.param(
            REVISIONS,
            snapshot(2, vm(2, left_fields="subdomain"), vm(1, left_fields="hostname")),
            (
                "RevisionLost",
                "True",
                "RevisionLost",
                "web-1, web-2: the ControllerRevision of the former template was gone, so that an update removed "
                "nothing. It may have left hostname: remove these fields and the VM's annotation "
                "poolhouse.dev/left-fields, or delete the VM",
            ),
            id="a revision was lost",
        ),
        pytest.param(HOLDS, snapshot(1, vm(1)), ("VMsHeld", "False", "NoVMsHeld", ""), id="no VM is held"),
        pytest.param(
            HOLDS,
            snapshot(a_pool(2, lifecycleHooks=HOOKS), vm(1, hold=replace(HOLD, vmi_uid="run-web-1")), vm(2)),
            ("VMsHeld", "True", "WaitingForHooks", "1 VM waits for lifecycle hooks: web-1 (drain, tell)"),
            id="a VM is held",
        ),
        pytest.param(
            HOLDS,
            snapshot(
                a_pool(2, lifecycleHooks=HOOKS),
                vm(1, hold=replace(HOLD, vmi_uid="run-web-1", hooks=HOLD.hooks[:1])),
                vm(2, hold=replace(HOLD, vmi_uid="run-web-2", hooks=())),
            ),
            ("VMsHeld", "True", "WaitingForHooks", "2 VMs wait for lifecycle hooks: web-1 (drain), web-2 (all ended)"),
            id="two VMs are held, of which one may be restarted",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(a_pool(2, updateStrategy=SNAPSHOT), *BEHIND),
            ("SnapshotFailure", "False", "NoSnapshotFailure", ""),
            id="snapshots are taken",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(2, vm(1), vm(2), serves_snapshots=False),
            ("SnapshotFailure", "False", "NoSnapshotFailure", ""),
            id="no snapshot is needed",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(a_pool(1, updateStrategy=SNAPSHOT), BEHIND[0], serves_snapshots=False),
            ("SnapshotFailure", "True", "SnapshotsNotServed", f"1 VM is not updated: {NOT_SERVED}"),
            id="the cluster has no snapshots",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(a_pool(2, updateStrategy=SNAPSHOT), *BEHIND, serves_snapshots=False),
            ("SnapshotFailure", "True", "SnapshotsNotServed", f"2 VMs are not updated: {NOT_SERVED}"),
            id="two VMs wait for snapshots that the cluster does not have",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(2, vm(1), vm(2), restores=unrestored("web-1", "web-2")),
            ("SnapshotFailure", "True", "RestoreFailed", "the restore failed of web-1 (full), web-2 (full)"),
            id="restores failed",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(2, vm(1), vm(2), restores=tuple(replace(each, failed=False) for each in unrestored("web-1"))),
            ("SnapshotFailure", "True", "RestoreFailed", "the restore failed of web-1 (its snapshot s-web-1 is gone)"),
            id="the snapshot is gone that is to be restored",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(2, halted(1, restore="r", run_strategy_before="Always"), vm(2)),
            ("SnapshotFailure", "True", "RestoreFailed", f"the restore failed of web-1 ({LOST})"),
            id="the snapshot and the restore are gone",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(a_pool(2, updateStrategy=SNAPSHOT), *BEHIND, vm_snapshots=tuple(map(failed, BEHIND))),
            (
                "SnapshotFailure",
                "True",
                "SnapshotFailed",
                "not updated because of failed snapshots: web-1, web-2; its snapshot web-1-2250e34ba0 failed: no space",
            ),
            id="snapshots failed",
        ),
        pytest.param(
            SNAPSHOTS,
            snapshot(
                a_pool(2, updateStrategy=SNAPSHOT),
                vm(1),
                BEHIND[1],
                vm_snapshots=(failed(vm(1)), replace(failed(BEHIND[1]), failed=False)),
            ),
            ("SnapshotFailure", "False", "NoSnapshotFailure", ""),
            id="the snapshot failed of a VM that is up to date again",
        ),
        pytest.param(
            EVICTIONS,
            snapshot(1, vm(1)),
            ("EvictionBudgetFailure", "False", "NoEvictionBudgetFailure", ""),
            id="no eviction budget is needed",
        ),
    ],
)
def test_conditions_with_their_messages(
    rule: Rule, observed: PoolSnapshot, expected: tuple[str, str, str, str]
) -> None:
    assert [outline(each) for each in rule.conditions(observed, plan(observed, NOW), NOW)] == [expected]


@pytest.mark.parametrize(
    ("observed", "status", "reason"),
    [
        pytest.param(snapshot(0, vm(1)), "False", "NotBlocked", id="scale-in goes on"),
        pytest.param(snapshot(0, vm(1, scale_in="Protect")), "True", "NoCandidates", id="no VM may be deleted"),
        pytest.param(
            snapshot(a_pool(2, maxUnavailable=1), vm(1), *(vm(n, ready=False, scale_in="Protect") for n in (2, 3))),
            "True",
            "WaitingForDisruptionBudget",
            id="the VMs that may be deleted are the last that are available",
        ),
    ],
)
def test_the_condition_of_scale_in(observed: PoolSnapshot, status: str, reason: str) -> None:
    found = plan(observed, NOW)
    expected = "ScaleInBlocked", status, reason, found.blocked
    assert [outline(each) for each in SCALE_IN.conditions(observed, found, NOW)] == [expected]


def outline(each: Condition) -> tuple[str, str, str | None, str | None]:
    return each.type, each.status, each.reason, each.message


def test_the_declared_conditions_of_a_pool_are_those_that_it_has() -> None:
    observed = snapshot(1, vm(1))
    made = {each.type for each in conditions(observed, plan(observed, NOW), NOW)}
    beside = {"Ready", "Reconciling", "Stalled", "Healing"}  # the last only with autohealing
    assert made | beside == {each.name for each in conditions_of(POOLS)}
