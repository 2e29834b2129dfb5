"""The reconciles of a pool: what leads to them, and what the controller remembers from one to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.actions import Heal
from controllers.pool.apply import PoolOutcome
from controllers.pool.changes import GATHER_FACTOR, GATHER_SECONDS, Enqueue, PoolChanges
from controllers.pool.data_volumes import DiskState
from controllers.pool.disk_writers import PAUSE_SECONDS, WAKE_SECONDS, DiskWriters
from controllers.pool.memory import DeletedVMs
from controllers.pool.pools import Pool
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import VMSnapshot
from controllers.sets.write_batches import WriteBatches
from controllers.shared.planner import Planned, PlanTooExpensive
from controllers.shared.sources import Node
from controllers.shared.status_writer import LastWrite, View
from controllers.shared.vm import VM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import Healing, PoolStatus
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.errors import Invalid
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key
from tests.controllers.pool.builders import OLD, a_pool, halted, template, vm, vmi
from tests.controllers.pool.controlled import FakeWriter, RecordedStatuses, controlled, ignore, seen
from tests.controllers.pool.stores import put
from tests.planning import InlinePlanner, P, T

DETACHED = vm(2, owner_uid="", owner_kind="", owner_name="")
GOING = vm(2, deleted_at="2026-03-01T12:00:00Z")
OTHER = replace(a_pool(1), name="other", uid="u-other", created_at="2027-01-01T00:00:00Z")
"""a younger pool whose disks have the names of those of `web`"""


async def test_claims_are_asked_for_before_a_plan() -> None:
    """A collected DataVolume would hold the restart of its VM for ever."""
    controller = controlled()
    controller.stores = replace(controller.stores, disk_state=lambda key: DiskState())
    gets = replace(vm(2), replaced_disks="root-2=h1", disks=("root-0123456789-2",))
    put(controller.stores, gets)
    asked = list[Key]()

    async def all_collected(disks: Iterable[Key]) -> set[Key]:
        asked.extend(found := set(disks))
        return found

    controller.find_collected = all_collected
    for _ in range(2):
        await controller.reconcile(("default", "web"))
    assert asked == [("default", "root-0123456789-2")], "once"
    assert controller.stores.collected == set(asked)


class Telling:
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def membership_changed(self, pool: Pool, vm: str, *, attached: bool) -> None:
        self.told.append((vm, attached))


@pytest.mark.parametrize(
    ("changes", "seconds", "told"),
    [
        pytest.param([(vm(2), DETACHED)], 1, [("web-2", False)], id="a VM is detached"),
        pytest.param([(DETACHED, vm(2))], 1, [("web-2", True)], id="a VM is put back"),
        pytest.param([(vm(2), DETACHED), (DETACHED, vm(2))], 1, [("web-2", True)], id="a VM is detached and returned"),
        pytest.param([(None, vm(2)), (vm(3), None)], 1, [], id="VMs that are created and deleted"),
        pytest.param([(vm(2), DETACHED)], 60, [], id="a change of long ago, which another leader has told"),
    ],
)
async def test_one_event_reports_a_change_of_membership(
    changes: list[tuple[VM | None, VM | None]], seconds: float, told: list[tuple[str, bool]]
) -> None:
    telling, now = Telling(), 0.0
    controller = controlled()
    controller.writer.events, controller.clock = telling, lambda: now
    for old, new in changes:
        controller.changes.vm_changed(ignore, old, new)
    now = seconds
    for _ in range(2):
        with contextlib.suppress(RetryWithBackoff):
            await controller.reconcile(("default", "web"))
    assert telling.told == told


@pytest.mark.parametrize(
    ("changes", "own", "recorded"),
    [
        pytest.param([(vm(2), None)], (), ["web-2/u-web-2"], id="gone at once"),
        pytest.param([(vm(2), GOING), (GOING, None)], (), ["web-2/u-web-2"], id="once"),
        pytest.param([(vm(2), None)], ("u-web-2",), [], id="the pool's own deletion"),
        pytest.param([(None, GOING), (GOING, None)], (), [], id="deleted before a start"),
        pytest.param([(vm(2), DETACHED), (DETACHED, None)], (), [], id="a detached VM"),
    ],
)
def test_deletions_of_others_are_recorded(
    changes: list[tuple[VM | None, VM | None]], own: tuple[str, ...], recorded: list[str]
) -> None:
    controller = controlled()
    controller.records.expectations.expect("u-web", deletes=own, now=0.0)
    for old, new in changes:
        controller.changes.vm_changed(ignore, old, new)
    found = controller.records.memory(a_pool(3)).last_status_write.decisions
    assert [(each.reason, *each.vms) for each in found] == [("DeletedByOther", vm) for vm in recorded]
    controller.begin()
    assert controller.records.memory(a_pool(3)).last_status_write.decisions == []


async def test_a_pool_that_takes_long_to_plan_gathers_changes_for_longer() -> None:
    controller, pauses = controlled(), list[float]()
    controller.changes.vm_changed(lambda key, pause: pauses.append(pause), vm(2), vm(2, ready=False))
    controller.changes.planner = InlinePlanner(seconds=2.0)
    controller.changes.vm_changed(lambda key, pause: pauses.append(pause), vm(2, ready=False), vm(2))
    assert pauses == [GATHER_SECONDS, 2.0 * GATHER_FACTOR]


class Overloaded(InlinePlanner):
    """No plan fits."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        self.calls += 1
        raise PlanTooExpensive(5.0)


async def test_a_pool_whose_plan_is_too_expensive_is_set_aside() -> None:
    writer, overloaded, now = FakeWriter(), Overloaded(), 0.0
    controller = controlled(writer)
    controller.planner, controller.clock, writer.batches.clock = overloaded, lambda: now, lambda: now
    pause = await controller.reconcile(("default", "web"))
    assert pause is not None
    assert pause > 20
    (status,) = writer.statuses.written
    found = {each.type: (each.status, each.reason) for each in status.conditions}
    assert found["Ready"] == ("False", "PlanTooExpensive")
    assert found["Reconciling"] == ("True", "PlanTooExpensive")
    message = next(each.message for each in status.conditions if each.type == "Reconciling")
    assert "needs more than 5 s of processor time: it has 3 VMs." in message

    now = 10.0
    assert await controller.reconcile(("default", "web")) == pause - 10, "events do not end the pause"
    assert overloaded.calls == 1

    now, controller.planner = pause, InlinePlanner()
    with contextlib.suppress(RetryWithBackoff):
        await controller.reconcile(("default", "web"))
    assert controller.records.memory(a_pool(3)).set_aside is None
    assert "PlanTooExpensive" not in str(writer.statuses.written[-1])


class Meanwhile(InlinePlanner):
    """Something happens while a plan is computed."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        self.happens()
        return await super().run(of, function, *arguments, **named)


async def test_a_plan_is_dropped_if_a_pool_with_the_same_disks_acts_meanwhile() -> None:
    """Both snapshots show a disk's name as free, and two VMs would write to one disk."""
    writer = FakeWriter()
    controller = controlled(writer)
    put(controller.stores, OTHER)

    controller.planner = Meanwhile(lambda: controller.disk_writers.note(OTHER.uid, OTHER.disks))
    assert await controller.reconcile(("default", "web")) == 0.0
    assert not writer.applied


async def test_a_pool_with_a_disk_conflict_waits_for_no_other_pool() -> None:
    """It creates no disk, and the VMs of the oldest pool do not reconcile it."""
    writer = FakeWriter()
    controller = controlled(writer)
    web = a_pool(3)
    put(controller.stores, OTHER)
    controller.records.expectations.expect(web.uid, creates=["web-4"], now=0.0)
    controller.planner = Meanwhile(lambda: controller.disk_writers.note(web.uid, web.disks))
    await controller.reconcile(OTHER.key)
    assert len(writer.applied) == 1
    assert [seen(controller, each).synced for each in (web, OTHER)] == [False, True]


@pytest.mark.parametrize(
    ("web", "waits"),
    [
        pytest.param(a_pool(4), True, id="it creates a VM"),
        pytest.param(a_pool(3, autohealing={}), False, id="a deletion of a VM gives no disk a name"),
    ],
)
async def test_a_pool_waits_while_another_one_writes_about_a_disk_of_its_name(web: Pool, waits: bool) -> None:
    """The oldest pool drops the name while it writes, and the stores cannot show yet what it has written."""
    pauses, enqueued = list[float | None](), list[tuple[Key, float]]()

    class Writer(FakeWriter):
        async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
            if snapshot.pool.name == web.name:
                dropped = a_pool(3, template=template(dataVolumeTemplates=[]))
                put(controller.stores, dropped)
                pauses.append(await controller.reconcile(OTHER.key))
                assert enqueued == []
            return PoolOutcome()

    controller = controlled(Writer())
    controller.disk_writers.enqueue = lambda key, seconds: enqueued.append((key, seconds))
    put(controller.stores, web, OTHER)
    await controller.reconcile(web.key)
    assert enqueued == ([(OTHER.key, WAKE_SECONDS)] if waits else [])
    pauses.append(await controller.reconcile(OTHER.key))
    assert [each == PAUSE_SECONDS for each in pauses] == [waits, False]


async def test_no_pool_waits_for_one_with_a_disk_conflict() -> None:
    """It updates a VM without giving it a new disk, and the oldest pool may create its VMs."""
    verbs, pauses = list[str](), list[float | None]()

    class Writer(FakeWriter):
        async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
            if snapshot.pool.name == OTHER.name:
                verbs.extend(each.verb for each in plan.actions)
                pauses.append(await controller.reconcile(("default", "web")))
            return PoolOutcome()

    controller = controlled(Writer())
    outdated = vm("other-1", owner_uid=OTHER.uid, owner_name=OTHER.name, disks=("root-1",), vmi_exists=False)
    put(controller.stores, OTHER, outdated)
    await controller.reconcile(OTHER.key)
    assert "Update" in verbs
    assert pauses == [None]


@pytest.mark.parametrize("at", ["plan", "expensive plan", "status", "write"])
async def test_nothing_is_remembered_of_a_pool_that_is_deleted_during_its_reconcile(at: str) -> None:
    reached, refused, web = list[str](), list[frozenset[str]](), a_pool(3, autohealing={})

    def reach(step: str) -> None:
        if step == at and step not in reached:
            controller.stores.pools.drop(web.key)
            controller.changes.pool_changed(ignore, web, None)
        reached.append(step)

    class Planner(InlinePlanner):
        async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
            if function.__name__ == "decide":
                reach(at if "plan" in at else "plan")
                if at == "expensive plan":
                    raise PlanTooExpensive(5.0)
            return await super().run(of, function, *arguments, **named)

    class Statuses(RecordedStatuses):
        async def write(self, view: View[PoolStatus], fresh: PoolStatus, last: LastWrite) -> None:
            reach("status")
            await super().write(view, fresh, last)

    class Writer(FakeWriter):
        async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
            reach("write")
            await self.batches.send(snapshot.pool, [each for each in plan.actions if isinstance(each, Heal)], refuse)
            refused.append(self.batches.refused(web.uid))
            return PoolOutcome()

    async def refuse(action: Heal) -> None:
        raise Invalid("no")

    def is_passing(error: Exception | None) -> bool:
        return isinstance(error, Invalid)

    writer = Writer()
    writer.batches = WriteBatches(None, Expectations(), lambda: 0.0, is_passing)
    writer.statuses = Statuses()
    controller = controlled(writer)
    controller.planner = Planner()
    await controller.reconcile(web.key)
    assert at in reached
    assert refused == ([] if at == "expensive plan" else [{"u-web-1"}])
    assert not controller.records.memories
    assert not writer.batches.refused(web.uid)


async def test_a_pool_writes_about_the_disks_of_its_former_template_too() -> None:
    """While an update is held back, new VMs have the former template, and another pool may have its names now."""
    held: dict[str, Any] = {"updateStrategy": {"proactive": {"partition": 3}}, "status": {"currentRevision": OLD.name}}
    web = a_pool(4, template=template(dataVolumeTemplates=[]), **held)
    pauses = list[float | None]()

    class Writer(FakeWriter):
        async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
            if snapshot.pool.name == web.name:
                pauses.append(await controller.reconcile(OTHER.key))
            return PoolOutcome()

    controller = controlled(Writer())
    put(controller.stores, replace(OLD, disks=(("root", "h"),)), web, OTHER)
    await controller.reconcile(web.key)
    assert pauses == [PAUSE_SECONDS]


@pytest.mark.parametrize(("shown", "synced"), [((), False), (("web-4",), True)])
async def test_a_pool_waits_for_vms_with_its_disks_of_a_pool_that_drops_the_name(
    shown: tuple[str, ...], synced: bool
) -> None:
    """The watch of pools may be ahead of that of VMs, and two VMs would write to one disk."""
    controller = controlled()
    web = a_pool(3)
    put(controller.stores, web, OTHER)
    controller.disk_writers.note(web.uid, web.disks)
    controller.records.expectations.expect(web.uid, creates=["web-4"], now=0.0)
    dropped = replace(web, spec=a_pool(3, template=template(dataVolumeTemplates=[])).spec)
    put(controller.stores, dropped)
    controller.changes.pool_changed(ignore, web, dropped)
    for name in shown:
        controller.records.expectations.creation_observed(web.uid, name)
    assert seen(controller, OTHER).synced is synced


SNAPSHOT = VMSnapshot("default", "web-2-1", "u-snapshot", pool_name="web", vm_name="web-2")


@pytest.mark.parametrize(
    ("writes", "event"),
    [
        pytest.param(
            {"deletes": ["run-web-2"]},
            lambda changes, enqueue: changes.vmi_changed(enqueue, vmi("web-2"), None),
            id="it has restarted a VM",
        ),
        pytest.param(
            {"deletes": ["u-web-2"]},
            lambda changes, enqueue: changes.vm_changed(enqueue, vm(2), GOING),
            id="it deletes a VM",
        ),
        pytest.param(
            {"creates": ["web-2-1"]},
            lambda changes, enqueue: changes.snapshot_changed(enqueue, None, SNAPSHOT),
            id="it takes a snapshot",
        ),
        pytest.param(
            {"creates": ["web-4"]},
            lambda changes, enqueue: changes.records.expectations.write_failed("u-web", creates=["web-4"]),
            id="its last write is refused",
        ),
    ],
)
def test_the_last_awaited_write_of_a_pool_reconciles_an_older_one_that_waits_for_it(
    writes: dict[str, list[str]], event: Callable[[PoolChanges, Enqueue], None]
) -> None:
    controller, enqueued = controlled(), list[Key]()
    controller.disk_writers.enqueue = lambda key, seconds: enqueued.append(key)
    web, oldest = a_pool(3), replace(a_pool(1), name="first", uid="u-first")
    put(controller.stores, oldest)
    controller.records.expectations.expect(web.uid, **writes, now=0.0)
    controller.disk_writers.note(web.uid, web.disks)
    for synced, keys in ((False, [oldest.key]), (True, [])):
        assert seen(controller, oldest).synced is synced
        event(controller.changes, ignore)
        assert enqueued == keys, "once"
        enqueued.clear()


@pytest.mark.parametrize(
    ("created", "seconds", "synced"),
    [
        pytest.param(None, 299, False, id="the watch of pools is ahead"),
        pytest.param(vm(4), 1, True, id="the VM is seen"),
        pytest.param(None, 300, True, id="the VM is not seen within five minutes"),
    ],
)
async def test_a_pool_waits_for_the_vms_that_a_deleted_pool_has_created(
    created: VM | None, seconds: float, synced: bool
) -> None:
    """Two VMs would write to one disk."""
    writer, now = FakeWriter(), 0.0
    controller = controlled(writer)
    writer.batches.clock = lambda: now
    web = a_pool(3)
    put(controller.stores, OTHER)
    controller.records.expectations.expect(web.uid, creates=["web-4"], now=now)
    controller.disk_writers.note(web.uid, web.disks)
    controller.stores.pools.drop(web.key)
    controller.changes.pool_changed(ignore, web, None)
    if created is not None:
        controller.changes.vm_changed(ignore, None, created)
    now = seconds
    assert seen(controller, OTHER).synced is synced
    assert (controller.disk_writers == DiskWriters(controller.records.expectations)) is synced, "nothing is left"


def replaced(statuses: list[PoolStatus]) -> list[list[tuple[str, int]]]:
    found = [status.healing.vms if status.healing else () for status in statuses]
    return [[(each.name, each.attempts) for each in machines] for machines in found]


async def reconciled(outcome: Callable[[Plan], PoolOutcome]) -> tuple[FakeWriter, Any]:
    registry = CollectorRegistry()
    writer = FakeWriter(outcome)
    controller = controlled(writer, registry)
    with contextlib.suppress(RetryWithBackoff):
        await controller.reconcile(("default", "web"))
    labels = {"namespace": "default", "vmpool": "web"}
    return writer, registry.get_sample_value("kubevirt_poolhouse_vmpool_heals_total", labels)


async def test_vms_that_start_during_the_first_writes_of_a_pool_are_counted() -> None:
    registry = CollectorRegistry()

    def starts(plan: Plan) -> PoolOutcome:
        controller.changes.vm_changed(ignore, halted(4), vm(4))
        return PoolOutcome()

    controller = controlled(FakeWriter(starts), registry)
    await controller.reconcile(("default", "web"))
    labels = {"namespace": "default", "vmpool": "web"}
    assert registry.get_sample_value("kubevirt_poolhouse_vmpool_vm_starts_total", labels) == 1


async def test_healing_is_in_the_status_before_the_vm_is_deleted() -> None:
    writer, heals = await reconciled(lambda plan: PoolOutcome())
    assert replaced(writer.statuses.written)[0] == [("web-1", 1)]
    assert heals == 1


@pytest.mark.parametrize("again", [True, False])
async def test_a_failed_replacement_starts_no_pause(again: bool) -> None:
    def refused(plan: Plan) -> PoolOutcome:
        return PoolOutcome(retry=again, not_done=tuple(each for each in plan.actions if isinstance(each, Heal)))

    writer, heals = await reconciled(refused)
    assert replaced(writer.statuses.written) == [[("web-1", 1)], []]
    assert heals == 0


async def test_a_pool_without_autohealing_stops_writing_its_status() -> None:
    def heals(plan: Plan) -> PoolOutcome:
        return PoolOutcome(not_done=tuple(each for each in plan.actions if not isinstance(each, Heal)))

    writer, now = FakeWriter(heals), 0.0
    controller = controlled(writer)
    controller.clock = controller.statuses.clock = lambda: now
    await controller.reconcile(("default", "web"))
    assert writer.statuses.written[-1].healing is not None
    written = []
    for _ in range(3):
        shown = a_pool(3, status=writer.statuses.written[-1].json())
        put(controller.stores, shown)
        now += 60
        await controller.reconcile(("default", "web"))
        written.append(len(writer.statuses.written))
    assert writer.statuses.written[-1].healing is None
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize(
    ("version", "written", "adopted"),
    [
        pytest.param("other", {"replaced": 1, "failing": 1}, True, id="another process has written"),
        pytest.param("own", {"replaced": 1, "failing": 1}, False, id="the event of an own write"),
        pytest.param("other", {"replaced": 0, "failing": 1}, False, id="an event from before a replacement"),
        pytest.param("other", {"replaced": 1}, False, id="a user changes the spec"),
    ],
)
def test_healing_that_another_leader_writes_is_adopted(version: str, written: dict[str, int], adopted: bool) -> None:
    controller = controlled()
    before = a_pool(3, autohealing={}, status={"healing": {"replaced": 1}})
    memory = controller.records.memory(before)
    memory.healing = Healing(replaced=1, failing=2)
    memory.last_status_write.versions.append("own")
    after = replace(a_pool(3, autohealing={}, status={"healing": written}), resource_version=version)
    controller.changes.pool_changed(ignore, before, after)
    assert (memory.healing is None) is adopted


async def test_a_postponed_status_of_healing_is_written_later() -> None:
    writer = FakeWriter()
    controller, seconds = controlled(writer), 0.0
    controller.clock = controller.statuses.clock = lambda: seconds
    for at, status in (
        (0, "ErrImagePull"),
        (0.1, "ImagePullBackOff"),
        (0.2, "ImagePullBackOff"),
        (2, "ImagePullBackOff"),
    ):
        seconds = at
        written = writer.statuses.written[-1].json() if writer.statuses.written else {}
        healing = {"failingStatuses": ["ErrImagePull", "ImagePullBackOff"], "failingStatusSeconds": 3600}
        shown = a_pool(3, autohealing=healing, status=written)
        put(controller.stores, shown)
        failing = vm(1, ready=False, vmi_exists=False, printable_status=status)
        put(controller.stores, failing)
        await controller.reconcile(shown.key)
    found = [each.healing.failures[0].status for each in writer.statuses.written if each.healing]
    assert found == ["ErrImagePull", "ImagePullBackOff"]


def blocked(*times: float) -> DeletedVMs:
    found = DeletedVMs()
    found.deleted("web-1", 0)
    for time in times:
        found.blocked("web-1", time)
    return found


@pytest.mark.parametrize(
    ("deleted", "now", "checked", "skipped"),
    [
        pytest.param(blocked(), 1, True, False, id="the disks of a VM deleted a moment ago may still exist"),
        pytest.param(blocked(), 301, False, False, id="a name that never blocked is forgotten"),
        pytest.param(blocked(10, 200), 301, True, False, id="a name whose disks existed at the last try is checked"),
        pytest.param(blocked(10, 305), 311, True, True, id="after five minutes another name takes its place"),
        pytest.param(blocked(10, 305), 606, True, False, id="after another five minutes the name is tried again"),
        pytest.param(blocked(10, 305, 606), 607, True, True, id="the name that is tried again in vain is skipped"),
    ],
)
def test_when_the_name_of_a_deleted_vm_is_checked_and_skipped(
    deleted: DeletedVMs, now: float, checked: bool, skipped: bool
) -> None:
    assert deleted.to_check(now) == (frozenset({"web-1"}) if checked else frozenset())
    assert deleted.to_skip(now) == (frozenset({"web-1"}) if skipped else frozenset())


def test_one_of_many_blocked_names_is_tried_again_at_a_time() -> None:
    deleted, tried = DeletedVMs(), []
    names = [f"web-{number}" for number in range(1, 5)]
    for name in names:
        deleted.blocked(name, 0)
    for now in range(300, 300 + 1200, 100):
        for name in sorted({*names} - deleted.to_skip(now)):
            tried.append((now, name))
            deleted.blocked(name, now)
    assert tried == [(300, "web-1"), (600, "web-2"), (900, "web-3"), (1200, "web-4")]


def test_a_vm_that_exists_again_is_not_checked() -> None:
    deleted = blocked(10, 400)
    deleted.created("web-1")
    assert not deleted.to_check(401)


@pytest.mark.parametrize(
    ("gone", "seconds", "checked"),
    [
        pytest.param(("root-9", "logs-8"), 299, {"web-9"}, id="a moment ago"),
        pytest.param(("root-9",), 300, set(), id="long ago"),
        pytest.param(("root",), 1, set(), id="a disk without a number"),
    ],
)
async def test_disks_of_another_vm_that_is_gone_are_looked_for(
    gone: tuple[str, ...], seconds: float, checked: set[str]
) -> None:
    """Another pool may retain them, and the watch of claims may be behind that of VMs."""
    controller, now = controlled(), 0.0
    controller.clock = controller.changes.clock = lambda: now
    other = vm("other-9", disks=gone, owner_uid="u-other", owner_name="other")
    controller.changes.vm_changed(ignore, other, None)
    now = seconds
    assert seen(controller, a_pool(3)).recently_deleted == checked


def test_pools_with_disks_go_on_when_data_volumes_are_listed() -> None:
    """An update that adds a disk has waited to know whose the disk is."""
    controller, keys = controlled(), list[Key]()
    put(controller.stores, WITHOUT_DISKS)
    controller.changes.data_volumes_served(lambda key, pause: keys.append(key))
    assert keys == [("default", "web")]


SHARING = replace(a_pool(1), name="other", uid="u-other")
WITHOUT_DISKS = replace(SHARING, spec=a_pool(1, template=template(dataVolumeTemplates=[])).spec)


def test_a_vmi_with_the_label_of_a_pool_reconciles_it_when_it_comes_and_goes() -> None:
    controller, enqueued = controlled(), list[Key]()
    copy = replace(vmi("copy"), labels={meta.POOL: "web"})
    for old, new in ((None, copy), (copy, replace(copy, ready=False)), (copy, None)):
        controller.changes.vmi_changed(lambda key, seconds: enqueued.append(key), old, new)
    assert enqueued == [("default", "web")] * 2


@pytest.mark.parametrize(
    ("old", "new", "enqueued"),
    [
        pytest.param(None, SHARING, {"web", "other"}, id="a pool with the same disks comes"),
        pytest.param(SHARING, None, {"web", "other"}, id="a pool with the same disks is deleted"),
        pytest.param(WITHOUT_DISKS, SHARING, {"web", "other"}, id="a pool gets the same disks"),
        pytest.param(SHARING, WITHOUT_DISKS, {"web", "other"}, id="a pool loses the same disks"),
        pytest.param(SHARING, replace(SHARING, resource_version="9"), {"other"}, id="its status is no reason"),
        pytest.param(None, WITHOUT_DISKS, {"other"}, id="it has no disks"),
    ],
)
def test_a_pool_is_reconciled_when_the_disks_of_another_change(
    old: Pool | None, new: Pool | None, enqueued: set[str]
) -> None:
    """A thousand pools with the same disks would otherwise reconcile each other at each status."""
    controller, keys = controlled(), set[Key]()
    controller.changes.pool_changed(lambda key, pause: keys.add(key), old, new)
    assert {name for _, name in keys} == enqueued


FREE = ("default", "root-9")
LONE = vm("db", disks=("root-9",), owner_uid="", owner_name="")


@pytest.mark.parametrize(
    ("change", "enqueued"),
    [
        pytest.param(lambda to, enqueue: to.vm_changed(enqueue, LONE, None), {"web"}, id="its VM is gone"),
        pytest.param(
            lambda to, enqueue: to.data_volume_changed(enqueue, FREE, freed=True),
            {"web"},
            id="it is gone",
        ),
        pytest.param(lambda to, enqueue: to.data_volume_changed(enqueue, FREE), set(), id="its import goes on"),
        pytest.param(
            lambda to, enqueue: to.data_volume_changed(enqueue, ("default", "logs-1"), freed=True), set(), id="another"
        ),
        pytest.param(lambda to, enqueue: to.vm_changed(enqueue, vm(1), None), {"web"}, id="its own VM is gone"),
    ],
)
def test_a_pool_is_reconciled_when_a_disk_of_its_former_template_is_free(
    change: Callable[[PoolChanges, Callable[[Key, float], None]], None], enqueued: set[str]
) -> None:
    """An update that takes a disk's name back may have waited for it."""
    held: dict[str, Any] = {"updateStrategy": {"proactive": {"partition": 3}}, "status": {"currentRevision": OLD.name}}
    web = a_pool(3, template=template(dataVolumeTemplates=[]), **held)
    controller, keys = controlled(), list[Key]()
    put(controller.stores, replace(OLD, disks=(("root", "h"),)), web)
    controller.observe(web.key)
    change(controller.changes, lambda key, pause: keys.append(key))
    assert {name for _, name in keys} == enqueued
    assert len(keys) <= 1, "once"
    controller.forget()
    assert not len(controller.stores.former_disks), "this process leads no more"
    controller.observe(web.key)
    controller.stores.pools.put(web.key, replace(web, status=PoolStatus()))
    controller.observe(web.key)
    keys.clear()
    controller.changes.data_volume_changed(lambda key, pause: keys.append(key), FREE, freed=True)
    assert not keys, "no VM gets the former template now"


async def test_a_node_whose_zone_is_known_later_leads_to_a_plan() -> None:
    controller, enqueued = controlled(), list[Key]()

    def enqueue(key: Key, seconds: float) -> None:
        enqueued.append(key)

    unlabelled, labelled = Node("node-1", {}), Node("node-1", {"topology.kubernetes.io/zone": "a"})
    controller.changes.node_changed(enqueue, unlabelled, replace(unlabelled, labels={"other": "label"}))
    assert enqueued == []
    for old, new in ((unlabelled, labelled), (None, labelled), (labelled, None)):
        controller.changes.node_changed(enqueue, old, new)
        assert enqueued.pop() == ("default", "web")


async def test_a_restart_of_a_vm_that_is_gone_is_not_waited_for() -> None:
    """The watch of VMs may be ahead of that of VMIs."""
    controller, gone = controlled(), vm(2)
    controller.records.expectations.expect(gone.owner_uid, deletes=[gone.vmi.uid], now=0.0)
    controller.stores.vms.drop(gone.key)
    controller.changes.vm_changed(ignore, gone, None)
    assert controller.records.synced([gone.owner_uid])
