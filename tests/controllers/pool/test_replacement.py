"""Updates that give VMs new disks: which, under which names, in which order, and what becomes of the old ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Action, Create, Delete, Heal, Restart, RetainDisks, Update
from controllers.pool.data_volumes import DiskState
from controllers.pool.disk_templates import (
    disks_by_entry,
    entry_of,
    format_hashes,
    parse_hashes,
    parse_replaced,
    replacement_name,
)
from controllers.pool.plan import plan
from controllers.pool.progress import deadline_exceeded
from controllers.pool.replacement import disks_of_new_vm
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM, RetainedDisk
from poolhouse.api.kinds.pool import UpdateAbort
from tests.controllers.pool.builders import NOW, REVISION, a_pool, ago, halted, snapshot, vm, vmi

H1, H2 = (("root", "h1"),), (("root", "h2"),)
FORMER = replace(REVISION, name="web-r0", number=0, template_hash="m0", disks=H1)
WANTED = replace(REVISION, disks=H2)
RECREATE = {"proactive": {"replacePolicy": "Recreate", "selectionPolicy": {"basePolicy": "Oldest"}}}
OLDER = {"revision": "r0", "disk_templates": "root=h1"}
NEW = replacement_name("root", 1, "u-web-1", "7", "h2")


def behind(ordinal: int, **given: Any) -> VM:
    """A running VM of the former template."""
    facts = {**OLDER, **given}
    run = vmi(f"web-{ordinal}", revision=facts["revision"], disks=facts.get("disks", (f"root-{ordinal}",)))
    return vm(ordinal, **{"vmi": run, **facts})


def exchanged(ordinal: int = 1, **given: Any) -> VM:
    """A VM whose disk was replaced, and whose VMI still runs from the old one."""
    run = vmi(f"web-{ordinal}", revision="r0", disks=(f"root-{ordinal}",))
    facts = {
        "disk_templates": "root=h2",
        "replaced_disks": f"root-{ordinal}=h1",
        "disks": (f"root-0123456789-{ordinal}",),
    }
    return vm(ordinal, **{"vmi": run, **facts, **given})


def observed(*vms: VM, replicas: int | None = None, strategy: Any = RECREATE, **given: Any) -> PoolSnapshot:
    pool = {key: given.pop(key) for key in ("scaleInStrategy", "paused", "autohealing", "status") if key in given}
    found = a_pool(len(vms) if replicas is None else replicas, updateStrategy=strategy, **pool)
    return snapshot(found, *vms, **{"revision": WANTED, "revisions": (FORMER, WANTED), **given})


def retained(
    name: str, created_from: str, *, replaced: bool = True, created_at: str = "", of: str = "web-1"
) -> RetainedDisk:
    return RetainedDisk("default", name, "u-web", of, created_from, replaced=replaced, created_at=created_at)


def described(action: Action) -> tuple[Any, ...]:
    match action:
        case Update():
            return "update", action.name, *((each.old, each.new) for each in action.replacements)
        case RetainDisks():
            return "retain", action.name, *action.disks
    return type(action).__name__.lower(), action.name


@pytest.mark.parametrize(
    ("reason", "exceeded"),
    [
        pytest.param("UpdatingVMs", True, id="the import of a disk has a deadline"),
        pytest.param("WaitingForMaintenanceWindow", False, id="the deadline does not run before the window opens"),
        pytest.param("UpdatePaused", False, id="the deadline does not run before a pause ends"),
        pytest.param("UpdateAborted", False, id="the deadline does not run before an aborted update is tried again"),
    ],
)
def test_the_deadline_of_an_update_that_continues(reason: str, exceeded: bool) -> None:
    progressing = {"type": "Progressing", "status": "True", "reason": reason, "message": ""}
    before = {"conditions": [progressing], "updateRevision": "web-r1", "observedGeneration": 1}
    status = {**before, "lastProgressTime": ago(999), "replicas": 1, "availableReplicas": 1}
    found = observed(exchanged(), status=status, unready_disks={"root-0123456789-1": DiskState("ImportInProgress")})
    assert bool(deadline_exceeded(found, NOW)) == exceeded
    since = pool_status(found, plan(found, NOW), NOW).last_progress_time
    assert since == (ago(999) if exceeded else ago(0))


PROTECTED = {"scale_in": "Protect"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(observed(behind(1)), [("update", "web-1", ("root-1", NEW))], id="a changed entry gets a new disk"),
        pytest.param(observed(behind(1), strategy={}), [("update", "web-1")], id="by default the disk stays"),
        pytest.param(
            observed(behind(1, disk_templates="root=h2")), [("update", "web-1")], id="another change keeps the disk"
        ),
        pytest.param(observed(behind(1, **PROTECTED)), [("update", "web-1")], id="a protected VM keeps its disk"),
        pytest.param(
            observed(behind(1), behind(2)), [("update", "web-1", ("root-1", NEW))], id="within maxUnavailable"
        ),
        pytest.param(
            observed(behind(1, revision="r1")),
            [("update", "web-1", ("root-1", NEW))],
            id="a VM with the template and an old disk, as after replacePolicy: Never",
        ),
        pytest.param(observed(behind(1), paused=True), [], id="a paused pool replaces nothing"),
        pytest.param(
            observed(halted(1, **OLDER)),
            [("update", "web-1", ("root-1", replacement_name("root", 1, "u-web-1", "7", "h2")))],
            id="a halted VM",
        ),
        pytest.param(observed(behind(1, disks=("other-1",))), [("update", "web-1")], id="a disk of a user's own name"),
        pytest.param(observed(exchanged()), [("restart", "web-1")], id="the VM restarts after the exchange"),
        pytest.param(
            observed(exchanged(), unready_disks={"root-0123456789-1": DiskState("ImportInProgress")}),
            [],
            id="the VM does not restart before the new disk is ready",
        ),
        pytest.param(
            observed(exchanged(vmi=vmi("web-1", revision="r1", disks=("root-0123456789-1",)))),
            [("retain", "web-1", ("root-1", "h1"))],
            id="the old disk is retained when the VMI no longer uses it",
        ),
        pytest.param(
            observed(exchanged(vmi=None, vmi_exists=False, ready=False)),
            [("retain", "web-1", ("root-1", "h1"))],
            id="the old disk is retained while no VMI exists",
        ),
        pytest.param(
            observed(exchanged(), replicas=0),
            [("retain", "web-1", ("root-1", "h1"))],
            id="scale-in retains replaced disks before it deletes the VM",
        ),
        pytest.param(
            observed(exchanged(ready=False, start_failures=3), autohealing={}),
            [("retain", "web-1", ("root-1", "h1"))],
            id="healing retains replaced disks before it deletes the VM",
        ),
        pytest.param(
            observed(exchanged(), revision=replace(WANTED, disks=H1, name="web-r2", template_hash="m2", number=2)),
            [("update", "web-1", ("root-0123456789-1", "root-1"))],
            id="the disk from which the VMI still runs is taken back",
        ),
    ],
)
def test_plan(found: PoolSnapshot, expected: list[Any]) -> None:
    assert [described(each) for each in plan(found, NOW).actions] == expected


UNDONE = replace(FORMER, template_hash="m0")
AFTER = vm(1, revision="r1", disks=("root-0123456789-1",), disk_templates="root=h2", vmi=vmi("web-1", revision="r1"))


@pytest.mark.parametrize(
    ("disks", "facts", "expected"),
    [
        pytest.param([retained("root-1", "h1")], {}, "root-1", id="an undone update gives the disk back"),
        pytest.param(
            [retained("root-1", "h1", created_at=ago(9)), retained("root-aaaaaaaaaa-1", "h1", created_at=ago(5))],
            {},
            "root-aaaaaaaaaa-1",
            id="the last one",
        ),
        pytest.param([retained("root-1", "h0")], {}, None, id="not a disk of another template"),
        pytest.param([retained("root-2", "h1", of="web-2")], {}, None, id="not a disk of another VM"),
        pytest.param([retained("root-1", "h1", replaced=False)], {}, None, id="not a disk that scale-in retained"),
        pytest.param([], {}, None, id="a disk that is not retained any more is created again"),
        pytest.param(
            [retained("root-1", "h1")],
            {"revision": replace(UNDONE, name="web-r2", number=2, template_hash="m2")},
            None,
            id="a later template with the same disk starts from a new disk",
        ),
        pytest.param(
            [retained("root-1", "h1")],
            {
                "revision": replace(UNDONE, name="web-r2", number=2, template_hash="m2"),
                "aborted": (WANTED, UpdateAbort(reason="Aborted", time=ago(1))),
            },
            "root-1",
            id="an aborted update gives the disk back",
        ),
    ],
)
def test_a_disk_of_an_earlier_template(disks: list[RetainedDisk], facts: Any, expected: str | None) -> None:
    found = observed(AFTER, **{"revision": UNDONE, "retained_disks": tuple(disks), **facts})
    (update,) = (each for each in plan(found, NOW).actions if isinstance(each, Update))
    (change,) = update.replacements
    assert change.existing == (expected is not None)
    assert change.new == (expected or replacement_name("root", 1, "u-web-1", "7", "h1"))
    assert parse_hashes(update.disk_templates) == {"root": "h1"}
    assert parse_hashes(update.replaced_disks) == {"root-0123456789-1": "h2"}


OFFLINE = {"proactive": {"statePreservation": "Offline"}}


@pytest.mark.parametrize(
    ("disks", "strategy", "expected"),
    [
        pytest.param([], RECREATE, ((), ()), id="the usual name"),
        pytest.param(
            [retained("root-1", "h1", replaced=False)], {}, (H1, ()), id="Never: the disk returns, however old"
        ),
        pytest.param(
            [retained("root-1", "h2", replaced=False)], RECREATE, (H2, ()), id="a disk of this template returns"
        ),
        pytest.param(
            [retained("root-1", "h1", replaced=False)], RECREATE, ((), ("root",)), id="one of another template does not"
        ),
        pytest.param([retained("root-1", "h2")], RECREATE, ((), ("root",)), id="a replaced disk never returns"),
        pytest.param([retained("root-1", "h2")], {}, ((), ("root",)), id="a replaced disk does not return with Never"),
        pytest.param(
            [retained("root-1", "h1"), retained("root-aaaaaaaaaa-1", "h2", replaced=False)],
            RECREATE,
            (H2, ("root",)),
            id="a disk with another name returns under its name",
        ),
    ],
)
def test_the_disks_of_a_new_vm(disks: list[RetainedDisk], strategy: Any, expected: Any) -> None:
    found = observed(replicas=1, strategy=strategy, scaleInStrategy=OFFLINE, retained_disks=tuple(disks))
    new = disks_of_new_vm(found, 1, WANTED, NOW)
    assert (new.retained, tuple(entry for entry, _ in new.names)) == expected
    (create,) = (each for each in plan(found, NOW).actions if isinstance(each, Create))
    assert (create.retained_disks, create.disks) == (new.retained, new.names)
    taken = {disk.name for disk in disks if disk.replaced}
    assert taken.isdisjoint(name for _, name in new.names)


def test_a_new_vm_after_an_update_does_not_get_the_replaced_disk() -> None:
    """Also if the store does not show the retained disk yet, because its names are checked on the server."""
    (create,) = plan(observed(replicas=1), NOW).actions
    assert isinstance(create, Create)
    assert create.after_deletion


def test_a_name_that_an_old_disk_may_block_holds_up_no_other_name() -> None:
    actions = plan(observed(replicas=3, recently_deleted=frozenset({"web-1"})), NOW).actions
    assert [each.name for each in actions if isinstance(each, Create)] == ["web-2", "web-3", "web-1"]


@pytest.mark.parametrize(
    ("disk", "entries", "expected"),
    [
        ("root-3", ("root",), "root"),
        ("root-0123456789-3", ("root",), "root"),
        ("root-0123456789-3", ("root", "root-0123456789"), "root-0123456789"),
        ("root-012345678-3", ("root",), ""),
        ("data-3", ("root",), ""),
        ("root", ("root",), ""),
    ],
)
def test_the_entry_of_a_disk(disk: str, entries: tuple[str, ...], expected: str) -> None:
    assert entry_of(disk, entries) == expected


def test_the_disks_of_a_vm_by_entry() -> None:
    disks = ("root-0123456789-3", "data-3", "root-4", "by-hand")
    assert disks_by_entry(disks, 3, ("root", "data")) == {"root": "root-0123456789-3", "data": "data-3"}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param("root-1=h1", (("root-1", "h1"),), id="valid"),
        pytest.param("root-1=no label!", (("root-1", ""),), id="no hash"),
        pytest.param("root-1=", (("root-1", ""),), id="an empty hash"),
        pytest.param("root-1", (("root-1", ""),), id="only a name"),
        pytest.param(f"root-1={'a' * 64}", (("root-1", ""),), id="longer than a label"),
        pytest.param("root-1=h1, data-1=h2\n,=h3,", (("root-1", "h1"), ("data-1", "h2")), id="spaces, and no name"),
    ],
)
def test_a_replaced_disk_whose_hash_a_user_has_damaged_is_retained(annotation: str, expected: Any) -> None:
    """The hash becomes a label of the disk. The API server refuses an invalid one, and the pool would be stalled."""
    done = vm(1, replaced_disks=annotation, disk_templates="root=h2", disks=("root-0123456789-1",), vmi=vmi("web-1"))
    (action,) = (each for each in plan(observed(done), NOW).actions if isinstance(each, RetainDisks))
    assert action.disks == expected
    assert parse_replaced(format_hashes(action.disks)) == dict(expected)


def test_names_of_new_disks_are_never_repeated() -> None:
    names = {replacement_name("root", 1, "u", str(version), "h") for version in range(1000)}
    assert len(names) == 1000


def test_an_update_to_new_disks_is_simulated_to_its_end() -> None:
    found = observed(behind(1), behind(2), replicas=2)
    seen = simulate(found, NOW)
    assert seen.complete
    assert not seen.waits
    steps = [described(each)[:2] for step in seen.steps for each in step.actions]
    assert steps == [
        *(("update", "web-1"), ("restart", "web-1"), ("retain", "web-1")),
        *(("update", "web-2"), ("restart", "web-2"), ("retain", "web-2")),
    ]


def test_status_says_which_disks_are_replaced() -> None:
    found = observed(behind(1), behind(2, **PROTECTED), replicas=2)
    decided = plan(found, NOW)
    status = pool_status(found, decided, NOW)
    conditions = {each.type: each for each in status.conditions}
    assert status.updated_replicas == 0
    assert conditions["DisksOutdated"].status == "True"
    assert "web-2" in str(conditions["DisksOutdated"].message)
    assert any(each.name == "web-2" and "protects" in each.reason for each in decided.waits)


def test_an_import_that_never_ends_exceeds_the_deadline() -> None:
    before = {
        "observedGeneration": 1,
        "updateRevision": WANTED.name,
        "lastProgressTime": ago(700),
        "replicas": 1,
        "availableReplicas": 1,
    }
    waiting = {"root-0123456789-1": DiskState("ImportInProgress")}
    found = observed(exchanged(), status=before, unready_disks=waiting)
    conditions = {each.type: each for each in pool_status(found, plan(found, NOW), NOW).conditions}
    assert conditions["Progressing"].reason == "ProgressDeadlineExceeded"
    assert "ImportInProgress" in str(conditions["Progressing"].message)


def test_an_update_says_for_which_disk_it_waits() -> None:
    found = observed(
        exchanged(), unready_disks={"root-0123456789-1": DiskState("ImportInProgress", "expected 200, got 404")}
    )
    conditions = {each.type: each for each in pool_status(found, plan(found, NOW), NOW).conditions}
    assert "its new disk root-0123456789-1 is not ready: ImportInProgress: expected 200, got 404" in str(
        conditions["Progressing"].message
    )


def test_nothing_is_deleted_by_an_update() -> None:
    seen = simulate(observed(*(behind(n) for n in range(1, 6)), replicas=5), NOW)
    actions = [each for step in seen.steps for each in step.actions]
    assert not [each for each in actions if isinstance(each, Delete | Heal)]
    assert sum(isinstance(each, Restart) for each in actions) == 5
