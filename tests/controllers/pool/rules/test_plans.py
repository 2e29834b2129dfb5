"""What a plan does to a VM, with all values of its actions, and the sentences about VMs that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import (
    Action,
    Create,
    Delete,
    DiskReplacement,
    Heal,
    PinMachineType,
    PruneSnapshot,
    Restart,
    RetainDisks,
    SaveRevision,
    TakeSnapshot,
    Update,
)
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import VMSnapshot, snapshot_name
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM
from tests.controllers.pool.builders import (
    NOW,
    OLD,
    REVISION,
    a_pool,
    ago,
    halted,
    old,
    snapshot,
    template,
    vm,
    vmi,
    with_new_disk,
)

RECREATE = {"proactive": {"replacePolicy": "Recreate"}}
SURGE = {"proactive": {"maxSurge": 1}}
SNAPSHOT = {"proactive": {"snapshotBeforeUpdate": True}}
UNMANAGED: dict[str, Any] = {"unmanaged": {}}
OPPORTUNISTIC: dict[str, Any] = {"opportunistic": {}}
CONFLICT = Failure("DiskConflict", "root is also pool db's")
REBOOTS = vmi("web-1", revision="r0", phase="Running", ends_at_reboot=True)
FAILING = {"ready": False, "start_failures": 3, "printable_status": "CrashLoopBackOff"}
RUNNING_OLD = vmi("web-1", revision="r0")
WITH_SIZES = template(
    dataVolumeTemplates=[
        {"metadata": {"name": "root"}, "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}}},
        {"metadata": {"name": "data"}, "spec": {"pvc": {"resources": {"requests": {"storage": "5Gi"}}}}},
    ]
)
UPDATE = Update("web-1", "u-web-1", 1, "r0", "r1", "the template has changed", "")
NEW_DISK = DiskReplacement("root", "root-1", "root-df16b4d76e-1", False)


def exchanged(uses: str, **given: Any) -> VM:
    """An update has replaced its disk root-1 by new-1, and its VMI uses one of them."""
    facts = {"disks": ("new-1",), "disk_templates": "root=h1", "replaced_disks": "root-1=h0"}
    return vm(1, vmi=vmi("web-1", revision="r1", disks=(uses,)), **facts, **given)


def power(before: str, now: str, *vms: VM) -> PoolSnapshot:
    """The author of the pool has changed the run strategy."""
    former, new = replace(OLD, run_strategy=before), replace(REVISION, run_strategy=now)
    return snapshot(1, *vms, revision=new, revisions=(former, new))


def taken(of: VM, age: float, **given: Any) -> VMSnapshot:
    facts = {"name": snapshot_name(of), "uid": "u-s", "update": 1, **given}
    return VMSnapshot("default", vm_name=of.name, vm_uid=of.uid, revision=of.revision, created_at=ago(age), **facts)


def with_snapshots(of: VM, *found: VMSnapshot) -> PoolSnapshot:
    return snapshot(a_pool(1, updateStrategy=UNMANAGED), of, vm_snapshots=found)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        # Updates
        pytest.param(snapshot(1, old(1)), [UPDATE], id="an update that a restart follows"),
        pytest.param(
            snapshot(1, vm(1, revision="light")),
            [replace(UPDATE, before="light", reason="the change needs no restart")],
            id="an update of labels",
        ),
        pytest.param(
            snapshot(1, halted(1, revision="r0")),
            [replace(UPDATE, reason="it is halted")],
            id="an update of a halted VM",
        ),
        pytest.param(
            snapshot(1, old(1, vmi=None, vmi_exists=False, ready=False)),
            [replace(UPDATE, reason="it is not running yet")],
            id="an update of a VM that does not run yet",
        ),
        pytest.param(
            snapshot(1, old(1, run_strategy="Once")),
            [replace(UPDATE, reason="its run strategy is Once: it gets the new template at its next start")],
            id="an update of a VM that runs once",
        ),
        pytest.param(
            power("Halted", "Always", halted(1, revision="r0")),
            [replace(UPDATE, reason="it is halted: the update starts it")],
            id="an update that starts a VM",
        ),
        pytest.param(
            power("Always", "Halted", old(1)),
            [replace(UPDATE, reason="the template has changed: it halts the VM", halts=True)],
            id="an update that halts a VM",
        ),
        pytest.param(
            with_new_disk(a_pool(1, updateStrategy=RECREATE), old(1)),
            [
                replace(
                    UPDATE,
                    reason="the template has changed; disk root-1 is retained, and the new disk root-df16b4d76e-1 "
                    "takes its place",
                    disk_templates="root=h1",
                    replacements=(NEW_DISK,),
                    replaced_disks="root-1=h0",
                )
            ],
            id="an update that replaces a disk",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=OPPORTUNISTIC), old(1, vmi=REBOOTS)),
            [replace(UPDATE, reason="its guest gets the template when it reboots")],
            id="an opportunistic update of a VM that starts anew when its guest reboots",
        ),
        pytest.param(
            snapshot(1, old(1), disk_conflict=CONFLICT),
            [UPDATE],
            id="an update that adds no disk to a conflict of names",
        ),
        pytest.param(
            snapshot(1, old(1), revision_saved=False),
            [SaveRevision("web-r1", 1, "the template has changed"), UPDATE],
            id="the first update to a template",
        ),
        pytest.param(
            snapshot(1, vm(1), revision_saved=False),
            [SaveRevision("web-r1", 1, "the template has changed")],
            id="somebody has deleted a revision that a VM has",
        ),
        # Restarts
        pytest.param(
            snapshot(1, vm(1, vmi=RUNNING_OLD)),
            [Restart("web-1", "run-web-1", False, "the template has changed", False)],
            id="the restart after an update",
        ),
        pytest.param(
            snapshot(1, vm(1, vmi=RUNNING_OLD, ready=False)),
            [Restart("web-1", "run-web-1", False, "the template has changed", True)],
            id="the restart of a VM that must not become available meanwhile",
        ),
        pytest.param(
            snapshot(
                a_pool(1, maxLifetimeSeconds=86400),
                vm(1, vmi=vmi("web-1", revision="r1", created_at=ago(86400))),
            ),
            [
                Restart(
                    "web-1",
                    "run-web-1",
                    False,
                    "its VMI is older than maxLifetimeSeconds allows since 2026-03-01T11:29:10Z",
                    False,
                )
            ],
            id="the restart at the end of a lifetime",
        ),
        # Deletions
        pytest.param(
            snapshot(replace(a_pool(1), removals=frozenset({"u-web-1"})), vm(1), vm(2)),
            [Delete("web-1", "u-web-1", "7", "poolhouse.dev/remove-vms names it", False, False)],
            id="a VM that a client has named",
        ),
        pytest.param(
            snapshot(1, vm(1), vm(2, ready=False, vmi=vmi("web-2", revision="r1", ready=False))),
            [Delete("web-2", "u-web-2", "7", "2 VMs exist, 1 is wanted", False, True)],
            id="a VM above replicas that stays if it becomes available meanwhile",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=SURGE), old(1), vm(2)),
            [
                Delete(
                    "web-1",
                    "u-web-1",
                    "7",
                    "another VM has taken its place: 2 VMs exist, 1 is wanted",
                    False,
                    False,
                )
            ],
            id="a VM that an update has replaced",
        ),
        pytest.param(
            snapshot(a_pool(2, autohealing={}), vm(1, **FAILING), vm(2)),
            [Heal("web-1", "u-web-1", "3 starts in a row failed (CrashLoopBackOff)", True)],
            id="a VM that fails",
        ),
        # Replaced disks
        pytest.param(
            with_new_disk(a_pool(1, updateStrategy=RECREATE), exchanged("new-1")),
            [RetainDisks("web-1", "u-web-1", (("root-1", "h0"),), "u-web", "root-1: an update has replaced the disk")],
            id="a replaced disk that no VMI uses",
        ),
        pytest.param(
            with_new_disk(a_pool(0), exchanged("root-1")),
            [RetainDisks("web-1", "u-web-1", (("root-1", "h0"),), "u-web", "root-1: the VM is about to be deleted")],
            id="a replaced disk before the deletion of its VM",
        ),
        pytest.param(
            with_new_disk(
                replace(a_pool(0, lifecycleHooks=[]), removals=frozenset({"u-web-1"})), exchanged("new-1", ready=False)
            ),
            [RetainDisks("web-1", "u-web-1", (("root-1", "h0"),), "u-web", "root-1: an update has replaced the disk")],
            id="a disk that is being retained anyway",
        ),
        pytest.param(
            with_new_disk(a_pool(2, autohealing={}), exchanged("root-1", **FAILING), vm(2, disk_templates="root=h1")),
            [RetainDisks("web-1", "u-web-1", (("root-1", "h0"),), "u-web", "root-1: the VM is about to be replaced")],
            id="a replaced disk before the replacement of its VM",
        ),
        # Creations, revisions and snapshots
        pytest.param(
            snapshot(2, vm(1)),
            [Create("web-2", 2, "web-r1", "1 of 2 VMs exists", False, (), (), "")],
            id="a VM that is missing",
        ),
        pytest.param(
            snapshot(
                1,
                vm(1, machine_type="pc-q35-9.2"),
                revision=replace(REVISION, uid="u-r1"),
                revisions=(replace(REVISION, uid="u-r1"),),
            ),
            [PinMachineType("web-r1", "u-r1", "pc-q35-9.2", "its VMs have this machine type")],
            id="the machine type of a revision",
        ),
        pytest.param(
            snapshot(
                a_pool(1, updateStrategy=SNAPSHOT), old(1, updates=4), revisions=(replace(OLD, uid="u-r0"), REVISION)
            ),
            [
                TakeSnapshot(
                    "web-1",
                    "u-web-1",
                    "web-1-453b7aa94b",
                    "r0",
                    "web-r0",
                    "u-r0",
                    5,
                    "before the update; it has no disks",
                )
            ],
            id="the snapshot before an update",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=SNAPSHOT, template=WITH_SIZES), old(1, revision="never-seen")),
            [
                TakeSnapshot(
                    "web-1",
                    "u-web-1",
                    "web-1-1a72b6d928",
                    "never-seen",
                    "",
                    "",
                    1,
                    "before the update, of disks with 1Gi + 5Gi",
                )
            ],
            id="the snapshot of a VM whose revision is lost",
        ),
        pytest.param(
            with_snapshots(old(1), taken(old(1), 600, failed=True)),
            [PruneSnapshot("web-1-2250e34ba0", "u-s", "it failed, and is taken again if it is needed")],
            id="a snapshot that failed ten minutes ago",
        ),
        pytest.param(with_snapshots(old(1), taken(old(1), 599, failed=True)), [], id="one that failed a moment ago"),
        pytest.param(
            with_snapshots(old(1), taken(old(1), 86400, ready=True)),
            [PruneSnapshot("web-1-2250e34ba0", "u-s", "it is a day old, and its VM is not updated yet")],
            id="a snapshot that is a day old",
        ),
        pytest.param(with_snapshots(old(1), taken(old(1), 86399, ready=True)), [], id="one that is younger"),
        pytest.param(
            with_snapshots(
                vm(1),
                taken(vm(1), 9, name="c", update=3, ready=True),
                taken(vm(1), 99999, name="a", update=1, ready=True),
                taken(vm(1), 99, name="b", uid="u-b", update=2, ready=True),
                taken(vm(1), 99, name="d", update=4, ready=True, deleting=True),
            ),
            [PruneSnapshot("a", "u-s", "b is newer"), PruneSnapshot("b", "u-b", "c is newer")],
            id="snapshots that a newer one replaces",
        ),
    ],
)
def test_actions_of_a_plan(observed: PoolSnapshot, expected: list[Action]) -> None:
    assert list(plan(observed, NOW).actions) == expected


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        pytest.param([], None, id="none"),
        pytest.param([taken(old(1), 500, failed=True)], 100, id="one that failed is taken again"),
        pytest.param([taken(old(1), 600, failed=True)], None, id="one that is about to be deleted"),
        pytest.param([taken(old(1), 86000, ready=True)], 400, id="one is a day old soon"),
        pytest.param([taken(old(1), 86000, name="earlier", ready=True)], None, id="one of an earlier update"),
        pytest.param([taken(old(1), 500, failed=True, deleting=True)], None, id="one that is being deleted"),
    ],
)
def test_when_the_pool_looks_at_its_snapshots_again(found: list[VMSnapshot], seconds: float | None) -> None:
    assert plan(with_snapshots(old(1), *found), NOW).again_seconds == seconds


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(
            with_new_disk(a_pool(1), vm(1, disk_templates="root=h0")),
            "root-1: the template has changed, but not the disk. A new VM gets a new disk",
            id="a disk of an older template",
        ),
        pytest.param(
            with_new_disk(a_pool(1), vm(1, disk_templates="root=h0", scale_in="Protect")),
            "root-1: the template has changed, but not the disk. A new VM gets a new disk",
            id="no update replaces the disk, so the protection does not matter",
        ),
        pytest.param(
            with_new_disk(a_pool(1, updateStrategy=RECREATE), vm(1, disk_templates="root=h0", scale_in="Protect")),
            "root-1: the template has changed, but not the disk. poolhouse.dev/scale-in protects the VM. A new VM gets "
            "a new disk",
            id="a disk of a protected VM",
        ),
        pytest.param(
            with_new_disk(a_pool(1, updateStrategy=SURGE), vm(1, disk_templates="root=h0", scale_in="Protect")),
            "root-1: the template has changed, but not the disk. poolhouse.dev/scale-in protects the VM. A new VM gets "
            "a new disk",
            id="a disk of a protected VM that no other VM replaces",
        ),
        pytest.param(
            snapshot(1, vm("db-7", revision="r0", base_name="db")),
            "its name does not match the pool's pattern web-NUMBER, so it has no template: `poolhouse detach db-7` "
            "takes it out of the pool",
            id="a VM with another name",
        ),
        pytest.param(
            snapshot(1, vm(1, revision="r0", disks=()), foreign_disks={"root-1": "a disk of VM other"}),
            "the template gives it disk root-1, a disk of VM other: give the disk another name",
            id="a new disk that another owner has",
        ),
        pytest.param(
            snapshot(1, vm(1, revision="r0", disks=()), unlisted_disks=True),
            "the template gives it disk root-1, whose owner is unknown until the controllers can list DataVolumes",
            id="a new disk that another owner may have",
        ),
        pytest.param(
            snapshot(1, vm("db-1", revision="r0")),
            "its name does not match the pool's pattern web-NUMBER, so it has no template: `poolhouse detach db-1` "
            "takes it out of the pool",
            id="a VM with the name of another pool",
        ),
        pytest.param(
            snapshot(1, old(1, disks=()), disk_conflict=CONFLICT),
            "root is also pool db's",
            id="a new disk that a VM of another pool could have",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=OPPORTUNISTIC), vm(1, vmi=REBOOTS)),
            "the update strategy is opportunistic: its guest gets the template when it reboots",
            id="a restart that is left to the guest",
        ),
        pytest.param(
            snapshot(1, vm(1, vmi=RUNNING_OLD, run_strategy="Once")),
            "its run strategy is Once: it gets the new template at its next start",
            id="a VM that nothing would start again",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=OPPORTUNISTIC), old(1)),
            "the update strategy is opportunistic, and it is not halted",
            id="an opportunistic update",
        ),
        pytest.param(
            snapshot(a_pool(1, updateStrategy=UNMANAGED), old(1)), "the update strategy is unmanaged", id="unmanaged"
        ),
        pytest.param(
            snapshot(a_pool(2, autohealing={}), vm(1, **FAILING, disks=("root-1",)), foreign_disks={"root-1": "of db"}),
            "it is not replaced, though it fails: its disk would be deleted with it: root-1, of db",
            id="a VM that fails, with a disk of another owner",
        ),
    ],
)
def test_why_a_vm_waits(observed: PoolSnapshot, reason: str) -> None:
    assert [each.reason for each in plan(observed, NOW).waits] == [reason]
