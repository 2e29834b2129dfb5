"""Room that is kept: whoever found none looks again when it is given back, and only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from local.engine.migration.controller import MigrationController
from local.engine.node.capacity import NodeCapacity
from local.engine.vm.plan import Delays
from local.engine.vmi.controller import VMIController
from runtime.metrics import Metrics
from runtime.store import Store
from tests.local.engine.builders import vmi
from tests.local.engine.migration.test_controller import Seen, a_world
from tests.local.engine.migration.test_plan import migration


@pytest.mark.parametrize(
    ("kept", "seen_on", "told"),
    [
        pytest.param("node-1", "", 1, id="given back"),
        pytest.param("node-1", "node-1", 0, id="taken by what it was kept for"),
        pytest.param("node-1", "node-2", 1, id="which went elsewhere"),
        pytest.param("", "", 0, id="none was kept"),
        pytest.param("", "node-1", 0, id="nor was any of what is seen"),
    ],
)
def test_room_that_is_given_back_is_told_of(kept: str, seen_on: str, told: int) -> None:
    room, calls = NodeCapacity(Store()), []
    room.subscribe(lambda: calls.append(room.kept("uid")))
    if kept:
        room.keep("uid", kept, 1)
    room.release("uid", seen_on)
    room.release("uid", seen_on)
    assert calls == [None] * told


def a_full_world() -> Any:
    informers = a_world()
    for kind in ("pvcs", "data_volumes", "vms", "settings"):
        setattr(informers, kind, Seen())
    waiting = vmi("Scheduling", name="waits", uid="waits-uid")
    informers.vmis.sees(waiting.key, waiting)
    return informers


def moves_away(informers: Any, room: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi(status={"nodeName": "node-2"}))


def migration_is_over(informers: Any, room: NodeCapacity) -> None:
    room.keep("m-uid", "node-2", 1)
    informers.migrations.sees(("default", "m"), migration("Failed"))


def migration_is_gone(informers: Any, room: NodeCapacity) -> None:
    room.keep("m-uid", "node-2", 1)
    informers.migrations.sees(("default", "m"), None)


def ends(informers: Any, room: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi("Succeeded"))


def stays(informers: Any, room: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi(status={"guestOSInfo": {}}))


@pytest.mark.parametrize(
    ("happens", "looks"),
    [(moves_away, True), (migration_is_over, True), (migration_is_gone, True), (ends, True), (stays, False)],
)
async def test_a_vmi_that_found_no_room_looks_again_when_there_is_some(
    happens: Any, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    informers = a_full_world()
    room, api = NodeCapacity(informers.vmis.store), SimpleNamespace(metrics=Metrics())
    hypervisor = SimpleNamespace(subscribe=lambda changed: None)
    MigrationController(api, informers, hypervisor, None, room)  # type: ignore[arg-type]
    engine = VMIController(api, informers, hypervisor, None, Delays(), room)  # type: ignore[arg-type]
    looked_at: list[Any] = []
    monkeypatch.setattr(engine.controller, "enqueue", looked_at.append)
    happens(informers, room)
    assert (("default", "waits") in looked_at) is looks
