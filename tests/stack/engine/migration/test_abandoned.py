"""The migrationState of a VMI is ended when its migration is deleted, but never while it runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from poolhouse.runtime.errors import Conflict, Unreachable
from poolhouse.stack.engine.migration.controller import MigrationController
from poolhouse.stack.engine.node.scheduler import NodeCapacity
from poolhouse.stack.engine.objects import Migration
from tests.stack.engine.builders import NOW, vmi
from tests.stack.engine.migration.test_controller import VM, Mover, Server, a_world
from tests.stack.engine.migration.test_plan import MOVED, migration

M = ("default", "m")
MOVES = {"migrationState": {"migrationUid": "m-uid", "targetNode": "node-2"}}


def an_engine(informers: Any, server: Server, mover: Mover | None = None) -> MigrationController:
    events = SimpleNamespace(emit=lambda *args, **named: None)
    return MigrationController(server, informers, mover or Mover(), events, NodeCapacity(informers.vmis.store))


def state(informers: Any) -> Any:
    return informers.vmis.store.get(VM).status["migrationState"]


@pytest.mark.parametrize(
    ("status", "asked", "told"),
    [
        pytest.param(MOVES, None, (True, True), id="the VMI has not migrated"),
        pytest.param(MOVED, None, (True, False), id="the VMI has migrated"),
        pytest.param(MOVES, migration("Running"), (False, False), id="the migration exists"),
        pytest.param(MOVES, migration(uid="another-uid"), (True, True), id="another migration has the name"),
        pytest.param(MOVES | {"phase": "Succeeded"}, None, (False, False), id="the VMI has ended"),
    ],
)
async def test_the_state_of_an_abandoned_migration_is_ended(
    status: Any, asked: Migration | None, told: tuple[bool, bool]
) -> None:
    informers = a_world()
    informers.migrations.sees(M, asked)
    informers.vmis.sees(VM, vmi(status=status))
    engine = an_engine(informers, Server(informers, 1, False))
    try:
        await engine.abandoned.reconcile(VM)
    except Unreachable:
        await engine.abandoned.reconcile(VM)
    assert (state(informers).get("completed", False), state(informers).get("failed", False)) == told


async def test_a_migration_deleted_after_a_failed_start_is_ended() -> None:
    informers, mover = a_world(), Mover()
    engine = an_engine(informers, Server(informers, 2, True), mover)
    with pytest.raises(Unreachable):
        await engine.reconcile(M)
    informers.migrations.sees(M, None)
    await engine.abandoned.reconcile(VM)
    assert not state(informers).get("completed"), "it is to be tried again"
    await engine.reconcile(M)
    await engine.abandoned.controller.process_next()
    assert (mover.moved, state(informers)["completed"], state(informers)["failed"]) == ([], True, True)


@pytest.mark.parametrize("lost", [False, True], ids=["at once", "after a lost answer"])
async def test_a_running_migration_is_ended_only_by_its_controller(lost: bool) -> None:
    informers = a_world()

    class Deleted(Mover):
        async def migrate(self, *args: Any) -> None:
            informers.migrations.sees(M, migration("Running", deleted=NOW))
            informers.migrations.sees(M, None)
            await engine.abandoned.reconcile(VM)
            assert not state(informers).get("completed")

    engine = an_engine(informers, Server(informers, 3 if lost else 0, False), Deleted())
    if lost:
        with pytest.raises(Unreachable):
            await engine.reconcile(M)
        await engine.abandoned.reconcile(VM)
        assert not state(informers).get("completed")
    await engine.reconcile(M)
    await engine.abandoned.controller.process_next()
    assert (state(informers)["completed"], state(informers)["abortStatus"]) == (True, "Succeeded")


async def test_a_stale_view_does_not_overwrite_the_state() -> None:
    informers = a_world()
    informers.migrations.sees(M, None)
    informers.vmis.sees(VM, vmi(status=MOVES, resource_version="1"))
    server = Server(informers, 0, False)
    engine, patch = an_engine(informers, server), server.patch

    async def later(*args: Any, **named: Any) -> Any:
        done = {"migrationState": {**MOVES["migrationState"], "completed": True}}
        informers.vmis.sees(VM, replace(vmi(status=done), resource_version="2"))
        return await patch(*args, **named)

    server.patch = later
    with pytest.raises(Conflict):
        await engine.abandoned.reconcile(VM)
    await engine.abandoned.reconcile(VM)
    assert "failed" not in state(informers)
