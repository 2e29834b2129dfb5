"""Changes that KubeVirt applies to running VMs: what the pool does with them. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.pool import live_updates
from controllers.pool.actions import LabelVMI, Restart, SaveRevision, Update
from controllers.pool.migration_queue import MigrationQueue
from controllers.pool.plan import plan
from controllers.pool.progress import deadline_exceeded
from controllers.pool.revisions import Revision, parse_revision
from controllers.pool.rules.rule import Plan
from controllers.pool.selection import AT_REBOOT, DisruptionBudget, is_behind
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.stores import Stores
from controllers.shared.vm import VM
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_updates import LiveFields, RunningGuest
from poolhouse.cli.vm_facts import pool_facts
from tests.controllers.pool.builders import LIGHT, NOW, OLD, REVISION, a_pool, ago, done, snapshot, vm, vmi, waits
from tests.controllers.pool.stores import observe_pool, stored

GIB = 1 << 30
CLUSTER = ClusterSettings(versions=("v1.9.0",), update_methods=frozenset({"LiveMigrate"}))
ONE, TWO = LiveFields(sockets=1, memory=GIB), LiveFields(sockets=2, memory=GIB)
BEFORE, AFTER = replace(OLD, restart_hash="same", live=ONE), replace(REVISION, restart_hash="same", live=TWO)
OLDEST: dict[str, Any] = {"selectionPolicy": {"basePolicy": "Oldest"}}
ALONE = frozenset({"node-1"})
NO_WINDOW = {"maintenanceWindows": [{"schedule": "0 0 1 1 *", "durationSeconds": 600}]}


def guest(sockets: int = 1, *, shown: int | None = None, **given: Any) -> RunningGuest:
    spec, has = replace(ONE, sockets=sockets), replace(ONE, sockets=shown or sockets)
    return RunningGuest(spec, has, "amd64", **{"max_sockets": 4, "max_memory": 4 * GIB, "boot_memory": GIB, **given})


def running(ordinal: int, of: str = "r0", *, since: str = "", **given: Any) -> VM:
    """A VM whose VMI was started from the former template."""
    facts: dict[str, Any] = {"guest": guest(), "phase": "Running", "node": "node-1"}
    own = {
        key: given.pop(key)
        for key in ("guest", "phase", "migrating", "evacuated", "created_at", "ends_at_reboot")
        if key in given
    }
    started = vmi(f"web-{ordinal}", revision="r0", **facts | own)
    return vm(
        ordinal,
        **{"revision": of, "live": ONE if of == "r0" else TWO, "vmi": started, **given},
        live_update_since=since,
    )


def written(ordinal: int, *, seconds: float = 1, **given: Any) -> VM:
    """A VM that has the template since a moment ago."""
    return running(ordinal, REVISION.label, since=ago(seconds), **given)


def queued(ordinal: int, *, seconds: float = 601) -> VM:
    """A VM that has waited for its migration for longer than the deadline."""
    return written(ordinal, seconds=seconds, guest=guest(2, shown=1))


def pool(*vms: VM, choice: str = "", **given: Any) -> PoolSnapshot:
    proactive = OLDEST | ({"liveUpdate": choice} if choice else {})
    observed = {key: given.pop(key) for key in ("cluster", "targets", "revision", "revisions", "queue") if key in given}
    facts = {"cluster": CLUSTER, "revision": AFTER, "revisions": (BEFORE, AFTER), **observed}
    spec = {"maxUnavailable": 1, "updateStrategy": {"proactive": proactive}, **given}
    return snapshot(a_pool(len(vms), **spec), *vms, **facts)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool(*map(running, (1, 2, 3))), [("Update", f"web-{n}") for n in (1, 2, 3)], id="all VMs at once"),
        pytest.param(pool(written(1), written(2)), [], id="it waits for KubeVirt"),
        pytest.param(pool(written(1), cluster=None), [], id="it waits while the KubeVirt object cannot be read"),
        pytest.param(
            pool(written(1, seconds=601), cluster=None), [("Restart", "web-1")], id="an unknown cluster has a deadline"
        ),
        pytest.param(
            pool(written(1, guest=guest(2, shown=1)), written(2, migrating=True)), [], id="it waits for its migrations"
        ),
        pytest.param(
            pool(written(1, guest=guest(2))), [("LabelVMI", "web-1")], id="a VMI that shows the change is up to date"
        ),
        pytest.param(
            pool(written(1, restart_required="fewer sockets"), written(2, restart_required="fewer sockets")),
            [("Restart", "web-1")],
            id="KubeVirt's RestartRequired restarts VMs within the budget",
        ),
        pytest.param(
            pool(written(1, seconds=601), written(2, seconds=601)),
            [("Restart", "web-1")],
            id="a change that KubeVirt has not applied in time restarts VMs within the budget",
        ),
        pytest.param(pool(written(1, seconds=601, migrating=True)), [], id="a VM that migrates does not restart"),
        pytest.param(
            pool(queued(1), written(2, seconds=601, migrating=True)),
            [],
            id="no VM restarts while it waits for its turn to migrate",
        ),
        pytest.param(
            pool(queued(1), running(2, REVISION.label, guest=guest(2, moved_at=ago(599)))),
            [("LabelVMI", "web-2")],
            id="the end of each migration of the pool makes the deadline later",
        ),
        pytest.param(
            pool(queued(1), running(2, REVISION.label, guest=guest(2, moved_at=ago(601)))),
            [("LabelVMI", "web-2"), ("Restart", "web-1")],
            id="a VM restarts when KubeVirt has migrated none for the deadline",
        ),
        pytest.param(pool(queued(1), queue=MigrationQueue(moving=True)), [], id="KubeVirt moves a VM of another pool"),
        pytest.param(pool(queued(1), queue=MigrationQueue(moved_at=ago(599))), [], id="another pool's end delays it"),
        pytest.param(
            pool(queued(1), queue=MigrationQueue(moved_at=ago(601))), [("Restart", "web-1")], id="no more such moves"
        ),
        pytest.param(
            pool(queued(1, seconds=7199), queue=MigrationQueue(moving=True, moved_at=ago(1))),
            [],
            id="it waits for VMs of other pools up to twelve deadlines",
        ),
        pytest.param(
            pool(queued(1, seconds=7201), queue=MigrationQueue(moving=True)),
            [("Restart", "web-1")],
            id="it does not wait longer, although a VM of another pool moves",
        ),
        pytest.param(
            pool(queued(1, seconds=7201), queue=MigrationQueue(moved_at=ago(1))),
            [("Restart", "web-1")],
            id="it does not wait longer, although a VM of another pool has moved again and again",
        ),
        pytest.param(
            pool(queued(1, seconds=7201), written(2, migrating=True), queue=MigrationQueue(moving=True)),
            [],
            id="migrations of its own pool may take any time",
        ),
        pytest.param(
            pool(written(1, seconds=601, guest=guest(1)), written(2, seconds=601, migrating=True)),
            [("Restart", "web-1")],
            id="a VMI that has not got the change waits for no turn",
        ),
        pytest.param(pool(written(1, seconds=601), choice="Require"), [], id="no VM restarts with Require"),
        pytest.param(
            pool(written(1, restart_required="x"), choice="Require"), [], id="no restart with Require, even if required"
        ),
        pytest.param(pool(running(1), choice="Never"), [("Update", "web-1")], id="Never: a VM is updated"),
        pytest.param(pool(written(1), running(2), choice="Never"), [("Restart", "web-1")], id="Never: restarted then"),
        pytest.param(
            pool(written(1, guest=guest(2)), choice="Never"),
            [("Restart", "web-1")],
            id="Never: an updated VM is restarted although KubeVirt has applied the change",
        ),
        pytest.param(
            pool(running(1), running(2), cluster=ClusterSettings(versions=("v1.9.0",))),
            [("Update", "web-1")],
            id="without LiveMigrate VMs restart one by one",
        ),
        pytest.param(
            pool(running(1), cluster=ClusterSettings(versions=("v1.9.0",)), choice="Require"),
            [],
            id="without LiveMigrate VMs wait with Require",
        ),
        pytest.param(
            pool(running(1), running(2), cluster=None), [("Update", "web-1")], id="an unknown cluster restarts"
        ),
        pytest.param(
            pool(running(1), revision=replace(AFTER, restart_hash="other")),
            [("Update", "web-1")],
            id="a change of more than these fields restarts",
        ),
        pytest.param(
            pool(written(1, guest=guest(2)), revision=replace(AFTER, restart_hash="other")),
            [("Restart", "web-1")],
            id="a change of more than these fields restarts although the VMI shows these",
        ),
        pytest.param(pool(running(1), running(2), **NO_WINDOW), [], id="a migration waits for a maintenance window"),
        pytest.param(
            pool(running(1, migrating=True), running(2)),
            [("Update", "web-2")],
            id="a migration waits for another migration of the VM",
        ),
        pytest.param(pool(running(1, evacuated=True)), [], id="a migration waits for the drain of its node"),
    ],
)
def test_which_writes_a_live_update_needs(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert [each for each in done(observed) if each[0] != "SaveRevision"] == expected


PLACED = replace(AFTER, live=replace(ONE, placement="there"))
WITH_NIC = replace(ONE, nics=("blue",))
WITHOUT_NIC = replace(AFTER, live=ONE)
UNPLUGGED: dict[str, Any] = {"revisions": (replace(BEFORE, live=WITH_NIC), WITHOUT_NIC), "revision": WITHOUT_NIC}
NO_MIGRATIONS = {"cluster": ClusterSettings(versions=("v1.9.0",))}


def nic_guest(asked: LiveFields, shown: LiveFields, **given: Any) -> RunningGuest:
    return replace(guest(**given), spec=asked, shown=shown)


@pytest.mark.parametrize(
    ("observed", "how"),
    [
        pytest.param(
            pool(running(1, guest=nic_guest(WITH_NIC, WITH_NIC)), **UNPLUGGED),
            "and migrates it afterwards",
            id="the Pod loses its network",
        ),
        pytest.param(
            pool(running(1, guest=nic_guest(WITH_NIC, WITH_NIC)), **UNPLUGGED, **NO_MIGRATIONS),
            "without a migration",
            id="the Pod keeps its network",
        ),
        pytest.param(
            pool(running(1, guest=nic_guest(WITH_NIC, WITH_NIC, not_migratable="GPU")), **UNPLUGGED),
            "without a migration",
            id="a VM that cannot move keeps its network",
        ),
    ],
)
def test_a_guest_loses_its_nic_where_it_runs(observed: PoolSnapshot, how: str) -> None:
    (update,) = (each for each in plan(observed, NOW).actions if isinstance(each, Update))
    assert update.reason == f"KubeVirt changes the running VM {how}: NIC blue removed"


def test_a_nic_that_goes_down_moves_no_guest() -> None:
    down = replace(AFTER, live=replace(ONE, nics=("blue down",)))
    given: dict[str, Any] = {"revisions": (replace(BEFORE, live=WITH_NIC), down), "revision": down}
    observed = pool(running(1, live=WITH_NIC, guest=nic_guest(WITH_NIC, WITH_NIC)), **given, **NO_WINDOW)
    (update,) = (each for each in plan(observed, NOW).actions if isinstance(each, Update))
    assert update.reason == "KubeVirt changes the running VM without a migration: NIC blue changed"


@pytest.mark.parametrize(
    ("has", "wanted", "said"),
    [
        pytest.param(
            guest(2),
            replace(TWO, nics=("blue",)),
            "KubeVirt changes the running VM by a live migration: NIC blue added",
            id="one of two changes",
        ),
        pytest.param(guest(2), TWO, "KubeVirt has changed the running VM already", id="all"),
        pytest.param(
            guest(2, shown=1),
            TWO,
            "KubeVirt changes the running VM by a live migration: CPU sockets 1 to 2",
            id="it is about to",
        ),
    ],
)
def test_an_update_in_the_middle_of_another_one_names_what_the_guest_lacks(
    has: RunningGuest, wanted: LiveFields, said: str
) -> None:
    """KubeVirt has given more sockets to the guest for the update before, whose VMI has the former label."""
    middle, last = replace(LIGHT, restart_hash="same", live=TWO), replace(AFTER, live=wanted)
    found = running(1, LIGHT.label, live=TWO, since=ago(9), guest=has)
    observed = pool(found, revisions=(BEFORE, middle, last), revision=last)
    (update,) = (each for each in plan(observed, NOW).actions if isinstance(each, Update))
    assert update.reason == said


def test_a_guest_that_keeps_a_removed_nic_is_waited_for() -> None:
    keeps = written(1, live=ONE, guest=nic_guest(ONE, WITH_NIC))
    assert "its guest have not plugged or unplugged" in waits(pool(keeps, **UNPLUGGED))["web-1"]


def test_another_placement_waits_for_no_window_because_nothing_moves() -> None:
    assert done(pool(running(1), running(2), revision=PLACED, **NO_WINDOW)) == [
        ("Update", "web-1"),
        ("Update", "web-2"),
    ]


def test_steps_limit_live_updates_and_wait_until_the_vmi_shows_the_change() -> None:
    steps = {"updateStrategy": {"proactive": {**OLDEST, "steps": [{"setReplicas": 1}, {"pause": {}}]}}}
    first = [each for each in done(pool(running(1), running(2), running(3), **steps)) if each[0] == "Update"]
    assert len(first) == 1
    assert [each for each in done(pool(written(1), running(2), running(3), **steps)) if each[0] == "Update"] == []


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool(written(1)), "has not accepted the change", id="KubeVirt has not seen it"),
        pytest.param(pool(written(1, guest=guest(2, shown=1))), "has not begun the migration", id="no migration"),
        pytest.param(pool(written(1, guest=guest(2, shown=1), migrating=True)), "moves it", id="it moves"),
        pytest.param(
            pool(written(1, guest=guest(2, current_memory=GIB // 2))), "needs the driver virtio_mem", id="no driver"
        ),
        pytest.param(
            pool(written(1, guest=guest(2, shown=1)), targets=ALONE), "no second node can take VMs", id="one node"
        ),
        pytest.param(
            pool(written(1, guest=guest(2, shown=1)), targets=frozenset({"node-2"})),
            "has not begun the migration",
            id="its own node is cordoned, and another one is not",
        ),
        pytest.param(
            pool(written(1, guest=guest(2, shown=1, failed_at=ago(0), failure="too slow"))),
            "its migration failed, and KubeVirt tries again: too slow",
            id="the migration failed",
        ),
        pytest.param(
            pool(written(1, guest=guest(2, shown=1, failed_at=ago(9), failure="too slow"))),
            "has not begun the migration",
            id="an earlier migration failed",
        ),
        pytest.param(
            pool(written(1, seconds=601, guest=guest(2, shown=1)), choice="Require", targets=ALONE),
            "gets it when you halt it: KubeVirt has not changed the running VM within 600 s: it must move",
            id="with Require it waits after the deadline",
        ),
        pytest.param(
            pool(written(1, restart_required="no"), choice="Require"), "KubeVirt says RestartRequired: no", id="refused"
        ),
        pytest.param(
            pool(running(1, guest=guest(3)), choice="Require"), "removes no CPU sockets", id="refused beforehand"
        ),
        pytest.param(
            pool(running(1, guest=guest(not_migratable="a disk is on one node")), choice="Require"),
            "a disk is on one node",
            id="not migratable",
        ),
        pytest.param(
            pool(running(1), choice="Require", revision=replace(AFTER, restart_hash="other")),
            "applies other changes of the template only at a start",
            id="a change of more than these fields",
        ),
    ],
)
def test_the_condition_progressing_says_why_a_live_update_waits(observed: PoolSnapshot, expected: str) -> None:
    assert expected in waits(observed)["web-1"]
    condition = next(c for c in pool_status(observed, plan(observed, NOW), NOW).conditions if c.type == "Progressing")
    assert expected in condition.message
    assert condition.reason == "UpdatingVMs"


def test_a_plan_says_how_each_vm_gets_the_template() -> None:
    actions = plan(pool(running(1), running(2)), NOW).actions
    live = [each.reason for each in actions if isinstance(each, Update)]
    assert live == ["KubeVirt changes the running VM by a live migration: CPU sockets 1 to 2"] * 2
    fewer = pool(running(1, guest=guest(4)), revision=replace(AFTER, live=replace(TWO, memory=2 * GIB)))
    found = [row for round in simulate(fewer, NOW).steps for row in round.actions if isinstance(row, Restart)]
    assert [each.reason for each in found] == [
        "the template has changed; KubeVirt removes no CPU sockets from a running VM, and it has 4"
    ]


def test_a_plan_shows_the_restart_that_takes_a_live_update_back() -> None:
    updated = [replace(written(n, guest=guest(2)), revision=AFTER.label) for n in (1, 2)]
    labelled = [replace(vm, vmi=replace(vm.vmi, labels={meta.REVISION: AFTER.label})) for vm in updated if vm.vmi]
    back = pool(*labelled, revision=BEFORE, revisions=(BEFORE, AFTER))
    found = [(each.verb, each.name) for round in simulate(back, NOW).steps for each in round.actions]
    assert found == [("Update", "web-1"), ("Restart", "web-1"), ("Update", "web-2"), ("Restart", "web-2")]


def test_a_vm_that_was_changed_live_restarts_once_for_a_nic() -> None:
    before, after = replace(BEFORE, live=ONE), replace(AFTER, live=WITH_NIC)
    found = running(1, since=ago(60), guest=nic_guest(ONE, ONE))
    observed = pool(found, revision=after, revisions=(before, after), **NO_MIGRATIONS)
    actions = [(each.verb, each.name) for round in simulate(observed, NOW).steps for each in round.actions]
    assert actions == [("Update", "web-1"), ("Restart", "web-1")]


def test_a_simulated_live_update_restarts_nothing_and_ends() -> None:
    found = simulate(pool(*map(running, (1, 2, 3))), NOW)
    verbs = [each.verb for round in found.steps for each in round.actions]
    assert found.complete
    assert "Restart" not in verbs
    assert verbs.count("Update") == 3


def test_a_vm_counts_as_updated_once_its_vmi_shows_the_change() -> None:
    observed = pool(written(1), written(2, guest=guest(2)), written(3, run_strategy="Once"))
    assert pool_status(observed, Plan(), NOW).updated_replicas == 1
    assert [is_behind(observed, each) for each in observed.vms] == [True, False, True]


def test_a_vm_that_is_changed_while_it_runs_takes_no_place_in_the_budget() -> None:
    assert DisruptionBudget.of(pool(written(1), written(2))).in_progress == 0
    assert DisruptionBudget.of(pool(written(1, restart_required="x"), written(2))).in_progress == 1


def test_a_change_that_kubevirt_has_begun_is_taken_back() -> None:
    """The VMI was started from the template that the pool has again, but KubeVirt has changed it meanwhile."""
    back = pool(running(1, guest=guest(2), since=ago(1)), running(2), revision=BEFORE, revisions=(BEFORE, AFTER))
    assert live_updates.required(replace(back, pool=a_pool(2, updateStrategy=REQUIRE))).keys() == {"web-1"}
    assert done(back) == [("Restart", "web-1")]
    edited = pool(running(1, live=TWO, guest=guest(2)), running(2), revision=BEFORE, revisions=(BEFORE, AFTER))
    assert done(edited) == [], "a user has changed the VM"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="the pool has never changed the running VM, as before an upgrade of Poolhouse"),
        pytest.param({"since": ago(700), "created_at": ago(60)}, id="the VM has restarted since the pool's change"),
    ],
)
def test_a_pool_does_not_restart_a_vmi_that_a_webhook_changed_at_its_start(given: dict[str, str]) -> None:
    """A webhook of the cluster may change VMIs. Each new VMI differs from its VM, so restarts would never end."""
    changed = running(1, guest=guest(2), **given)
    observed = pool(changed, revision=BEFORE, revisions=(BEFORE,))
    assert done(observed) == []
    assert not is_behind(observed, changed)


REQUIRE = {"proactive": {"liveUpdate": "Require"}}


def test_with_surge_no_vm_is_replaced_for_a_change_of_a_running_vm() -> None:
    surge = {"updateStrategy": {"proactive": {**OLDEST, "maxSurge": 1}}}
    assert done(pool(running(1), running(2), **surge)) == [("Update", "web-1"), ("Update", "web-2")]


def test_the_update_records_when_kubevirt_may_begin() -> None:
    (update,) = (each for each in plan(pool(running(1)), NOW).actions if isinstance(each, Update))
    assert update.live_since == ago(0)
    (light,) = (
        each
        for each in plan(pool(running(1), revision=replace(LIGHT, restart_hash="same", live=ONE)), NOW).actions
        if isinstance(each, Update)
    )
    assert not light.live_since


def test_the_pool_is_asked_again_when_kubevirt_is_late() -> None:
    assert plan(pool(written(1, seconds=100), written(2, seconds=200)), NOW).again_seconds == 400
    assert plan(pool(written(1, seconds=100), cluster=None), NOW).again_seconds == 500
    assert plan(pool(written(1, seconds=601)), NOW).again_seconds is None
    moved = running(2, REVISION.label, guest=guest(2, moved_at=ago(100)))
    assert plan(pool(queued(1), moved), NOW).again_seconds == 500
    assert plan(pool(queued(1), queue=MigrationQueue(moving=True)), NOW).again_seconds == 600
    assert plan(pool(queued(1, seconds=7100), queue=MigrationQueue(moving=True)), NOW).again_seconds == 100


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param(queued(1), written(2, migrating=True), MigrationQueue(moving=True), id="another pool's VM moves"),
        pytest.param(
            queued(1),
            written(2, seconds=60, guest=guest(2, moved_at=ago(9))),
            MigrationQueue(moved_at=ago(9)),
            id="another pool's VM has moved",
        ),
        pytest.param(
            queued(1), written(2, guest=guest(2, moved_at=ago(9))), MigrationQueue(), id="moved before its live update"
        ),
        pytest.param(
            queued(1), running(2, migrating=True), MigrationQueue(), id="it moves for another reason, such as a drain"
        ),
        pytest.param(
            replace(queued(1), live_update_since=""),
            written(2, migrating=True),
            MigrationQueue(),
            id="no VM of the pool waits",
        ),
    ],
)
def test_live_updates_of_other_pools_are_observed(own: VM, other: VM, expected: MigrationQueue) -> None:
    web, foreign = a_pool(1), replace(other, namespace="elsewhere", owner_uid="u-other", owner_name="other")
    assert observe_pool(stored(web, own, foreign), web).queue == expected


@given(st.lists(st.tuples(st.integers(2, 4), st.sampled_from(["moving", "moved", "queued", "no VM", "no VMI"]))))
def test_the_queue_follows_the_stores(changes: list[tuple[int, str]]) -> None:
    stores = Stores()
    for ordinal, state in changes:
        moved = guest(2, moved_at=ago(ordinal))
        each = written(ordinal, seconds=60, migrating=state == "moving", guest=moved if state == "moved" else guest())
        for store, missing, view in ((stores.vms, "no VM", replace(each, vmi=None)), (stores.vmis, "no VMI", each.vmi)):
            if state == missing:
                store.drop(each.key)
            else:
                store.put(each.key, view)
    states = dict(changes)
    moved_at = max((ago(ordinal) for ordinal, state in states.items() if state == "moved"), default="")
    assert stores.queue() == MigrationQueue("moving" in states.values(), moved_at)


def test_with_require_a_pool_that_waits_exceeds_its_deadline() -> None:
    observed = pool(written(1, guest=guest(2, shown=1)), choice="Require", targets=ALONE)
    status = observed.pool.status.model_copy(
        update={"update_revision": AFTER.name, "observed_generation": 1, "last_progress_time": ago(601)}
    )
    observed = replace(observed, pool=replace(observed.pool, status=status))
    late = deadline_exceeded(observed, NOW)
    assert "web-1: it must move for the change" in late
    assert late.endswith("halt the VM, set liveUpdate to Prefer, or take the update back by `rollout undo`")
    assert not deadline_exceeded(observed, NOW - timedelta(seconds=2))
    assert not deadline_exceeded(replace(observed, pool=replace(a_pool(1), status=status)), NOW)


@pytest.mark.parametrize(
    ("observed", "saved"),
    [
        pytest.param(pool(running(1), choice="Require"), True, id="a change of running VMs"),
        pytest.param(
            pool(running(1, guest=guest(3)), choice="Require"), True, id="one that each VM needs a restart for"
        ),
        pytest.param(
            pool(running(1, guest=guest(3)), choice="Require", maintenanceWindows=NO_WINDOW["maintenanceWindows"]),
            True,
            id="one that each VM needs a restart for, outside a window",
        ),
        pytest.param(
            pool(written(1, guest=guest(2)), choice="Require", paused=True), False, id="a pool that is paused"
        ),
        pytest.param(pool(running(1), **NO_WINDOW), False, id="without Require it is saved with the first update"),
    ],
)
def test_a_template_that_no_vm_may_get_is_in_the_history(observed: PoolSnapshot, saved: bool) -> None:
    found = plan(replace(observed, revision_saved=False), NOW).actions
    assert any(isinstance(each, SaveRevision) for each in found) is saved


def test_the_label_of_the_vmi_is_written_once() -> None:
    (label,) = (each for each in plan(pool(written(1, guest=guest(2))), NOW).actions if isinstance(each, LabelVMI))
    assert label.before == "r0"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(written(1), "it has the pool's template, and KubeVirt changes its guest while it runs", id="live"),
        pytest.param(
            written(1, restart_required="disk"),
            "it has the pool's template, and its guest, which started before, needs a restart",
            id="restart",
        ),
        pytest.param(
            written(1, seconds=601, guest=replace(guest(2, shown=1), failure="aborted", failed_at=ago(0))),
            "it has the pool's template, and its guest, which started before, needs a restart: "
            "KubeVirt has not changed the running VM within 600 s: "
            "its migration failed, and KubeVirt tries again: aborted",
            id="live, but too late",
        ),
        pytest.param(running(1), "its template is outdated", id="not written"),
    ],
)
def test_why_says_what_the_guest_waits_for(found: VM, said: str) -> None:
    assert said in list(pool_facts(pool(found), found.name, NOW))


REBOOTS = {"run_strategy": "Always", "ends_at_reboot": True}


def opportunistic(*vms: VM, **given: Any) -> PoolSnapshot:
    return pool(*vms, updateStrategy={"opportunistic": {}}, **given)


@pytest.mark.parametrize(
    ("found", "actions", "waits"),
    [
        pytest.param(running(1, **REBOOTS), [Update], "", id="the template is written"),
        pytest.param(written(1, **REBOOTS), [], "KubeVirt has not accepted", id="KubeVirt changes the running VM"),
        pytest.param(written(1, **REBOOTS, guest=guest(2)), [LabelVMI], "", id="KubeVirt has changed the running VM"),
        pytest.param(
            written(1, **REBOOTS, restart_required="disk"), [], AT_REBOOT, id="its guest chooses the time of a restart"
        ),
        pytest.param(written(1, **REBOOTS, seconds=601), [], AT_REBOOT, id="its guest restarts if KubeVirt is late"),
        pytest.param(running(1), [], "it is not halted", id="a VM whose guest reboots silently"),
        pytest.param(
            running(1, ends_at_reboot=True, run_strategy="RerunOnFailure"),
            [],
            "it is not halted",
            id="KubeVirt does not start it after a reboot",
        ),
        pytest.param(running(1, **REBOOTS, phase="Scheduling"), [], "it is not halted", id="no guest yet"),
    ],
)
def test_an_opportunistic_update_waits_for_a_reboot(found: VM, actions: list[type], waits: str) -> None:
    decided = plan(opportunistic(found), NOW)
    assert [type(each) for each in decided.actions] == actions
    assert waits in next((each.reason for each in decided.waits), "")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(running(1, **REBOOTS), "UpdatingVMs", id="the template is written now"),
        pytest.param(written(1, **REBOOTS), "UpdatingVMs", id="KubeVirt has not changed the VM yet"),
        pytest.param(written(1, **REBOOTS, guest=guest(2, shown=1), migrating=True), "UpdatingVMs", id="it moves"),
        pytest.param(written(1, **REBOOTS, guest=guest(2)), "Complete", id="the VMI shows the change"),
        pytest.param(written(1, **REBOOTS, restart_required="disk"), "Complete", id="its guest chooses the time"),
        pytest.param(written(1, **REBOOTS, seconds=601), "Complete", id="KubeVirt has not changed it in time"),
        pytest.param(running(1), "Complete", id="it gets no template"),
    ],
)
def test_an_opportunistic_update_ends_when_the_vmis_show_it(found: VM, reason: str) -> None:
    observed = opportunistic(found)
    conditions = pool_status(observed, plan(observed, NOW), NOW).conditions
    assert next(each.reason for each in conditions if each.type == "Progressing") == reason
    ready = next(each for each in conditions if each.type == "Ready")
    assert ready.status == ("True" if reason == "Complete" else "False")


def test_a_vm_that_waits_for_a_reboot_takes_no_place_in_the_disruption_budget() -> None:
    found = opportunistic(written(1, **REBOOTS, restart_required="disk"), written(2, restart_required="disk"))
    assert DisruptionBudget.of(found).in_progress == 1


def of_template(*nics: dict[str, Any], disks: bool = False, **spec: Any) -> Revision:
    """The revision of a template with NICs on Multus networks, and perhaps with a hotpluggable disk."""
    devices: dict[str, Any] = {"interfaces": [{"name": "default", "masquerade": {}}, *nics]}
    networks = [{"name": "default", "pod": {}}]
    inner: dict[str, Any] = {"domain": {"devices": devices}, "networks": networks}
    inner["networks"] += [{"name": nic["name"], "multus": {"networkName": "lan"}} for nic in nics]
    if disks:
        devices["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
        inner["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "a", "hotpluggable": True}}]
    content = {"template": {"spec": {"template": {"spec": inner}, **spec}}}
    return parse_revision({"metadata": {"name": "web-r1"}, "revision": 1, "data": content})


BLUE: dict[str, Any] = {"name": "blue", "bridge": {}}


def test_an_absent_nic_is_another_template_and_not_another_guest() -> None:
    without, absent = of_template(), of_template({**BLUE, "state": "absent"})
    assert without.template_hash != absent.template_hash
    assert (without.vmi_hash, without.live, without.devices) == (absent.vmi_hash, absent.live, absent.devices)


def test_disks_of_a_vm_that_migrates_its_volumes_need_a_restart() -> None:
    assert of_template().restart_hash == of_template(disks=True).restart_hash == of_template(BLUE).restart_hash
    migrates = {"updateVolumesStrategy": "Migration"}
    assert of_template(**migrates).restart_hash != of_template(disks=True, **migrates).restart_hash
