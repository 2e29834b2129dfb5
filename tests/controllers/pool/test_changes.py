"""What a change of a watched object makes the controller report."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.pool.actions import TakeSnapshot
from controllers.pool.events import PoolEvents
from controllers.pool.vm_snapshots import VM_SNAPSHOTS, VMSnapshot
from controllers.pool.writes.table import WRITES
from controllers.sets.write_batches import WriteBatches
from poolhouse.runtime.api import Api
from poolhouse.runtime.expectations import Expectations
from tests.controllers.pool.builders import a_pool, vm
from tests.controllers.pool.controlled import controlled
from tests.controllers.pool.test_apply import play
from tests.histories.world import HERE, World

ASKED = VMSnapshot("default", "before", "s", "web", "web-1", "u-web-1", "r1", update=1)
TAKEN = replace(ASKED, ready=True)
REPORTED = [("SuccessfulTakeSnapshot", "took snapshot before of VM web-1 before its update")]


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def emit(self, regarding: Any, kind: str, reason: str, note: str, *, action: str) -> None:
        self.told.append((reason, note))

    @property
    def events(self) -> PoolEvents:
        return PoolEvents(self)


@pytest.mark.parametrize(
    ("old", "new", "leads", "told"),
    [
        pytest.param(None, ASKED, True, [], id="asked for"),
        pytest.param(ASKED, TAKEN, True, REPORTED, id="taken"),
        pytest.param(TAKEN, TAKEN, True, [], id="taken before"),
        pytest.param(None, TAKEN, True, [], id="taken before this process saw it"),
        pytest.param(ASKED, replace(ASKED, failed=True), True, [], id="failed"),
        pytest.param(ASKED, replace(TAKEN, deleting=True), True, [], id="deleted"),
        pytest.param(ASKED, replace(TAKEN, pool_name="other"), True, [], id="of no pool"),
        pytest.param(ASKED, TAKEN, False, [], id="another process leads"),
    ],
)
def test_a_snapshot_is_reported_when_it_is_taken(
    old: VMSnapshot | None, new: VMSnapshot, leads: bool, told: list[tuple[str, str]]
) -> None:
    recorder = Recorder()
    controller = controlled()
    controller.writer.events = recorder.events
    if leads:
        controller.records.memory(controller.stores.pools.all()[0])
    controller.changes.snapshot_changed(lambda key, seconds: None, old, new)
    assert recorder.told == told


@pytest.mark.parametrize(
    ("old", "new"),
    [pytest.param(None, ASKED, id="its snapshot appears"), pytest.param(TAKEN, None, id="its snapshot is gone")],
)
@pytest.mark.parametrize("later", [True, False], ids=["another pool has its name", "its name is free"])
def test_the_writes_of_a_deleted_pool_are_shown(old: VMSnapshot | None, new: VMSnapshot | None, later: bool) -> None:
    """Another pool with the names of its disks waits for them."""
    controller = controlled()
    of_the_deleted = vm(1, owner_uid="u-deleted")
    controller.stores.vms.put(of_the_deleted.key, of_the_deleted)
    if not later:
        controller.stores.pools.drop(("default", "web"))
    expectations = controller.records.expectations
    expectations.expect("u-deleted", creates=["before"], deletes=["s"], now=0.0)
    controller.changes.snapshot_changed(lambda key, seconds: None, old, new)
    assert expectations.open("u-deleted") == (frozenset(() if new else ["before"]), frozenset(["s"] if new else ()))


def test_a_vm_that_a_list_shows_in_place_of_another_is_a_new_one() -> None:
    """The watch has missed the deletion of the former one, and the creation."""
    controller = controlled()
    former, disk = vm(2, disks=("root-0123456789-2",)), ("default", "root-0123456789-2")
    controller.stores.collected.add(disk)
    controller.changes.vm_changed(lambda key, seconds: None, former, vm(2, uid="u-later", disks=former.disks))
    assert controller.stores.collected == set(), "CDI fills the disk of the new VM"
    assert controller.records.gone_disks.names("web", [("default", "root-0123456789")], 0.0) == {"web-2"}
    assert controller.records.memory(a_pool(1)).deleted_vms.to_check(0.0) == frozenset(), "web-2 exists"


def test_a_snapshot_is_not_reported_when_it_is_asked_for() -> None:
    async def scene(world: World, api: Api) -> None:
        recorder = Recorder()
        batches = WriteBatches(recorder.events, Expectations(), api.monotonic)
        pool = replace(a_pool(1), namespace=HERE)
        to = SimpleNamespace(api=api, batches=batches, owner=pool, burst=1)
        asked = TakeSnapshot("web-1", "u-web-1", "before", "r1", "", "", 1, "it is about to be updated")
        outcome = await WRITES[TakeSnapshot](to, [asked])
        assert outcome.done == (asked,)
        assert [each["metadata"]["name"] for each in (await api.list(VM_SNAPSHOTS, HERE))[0]] == ["before"]
        assert recorder.told == []

    play(scene)
