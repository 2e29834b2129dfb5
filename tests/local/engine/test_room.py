"""Room that is kept: whoever found none looks again when it is given back, and only then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from local.engine.instances import Instances
from local.engine.migrations import Migrations
from local.engine.plan import Pace
from local.engine.room import Room
from runtime.metrics import Metrics
from runtime.store import Store
from tests.local.engine.builders import instance
from tests.local.engine.test_migrations import Seen, a_world
from tests.local.engine.test_moving import migration


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
    room, calls = Room(Store()), []
    room.subscribe(lambda: calls.append(room.kept("uid")))
    if kept:
        room.keep("uid", kept, 1)
    room.release("uid", seen_on)
    room.release("uid", seen_on)
    assert calls == [None] * told


def a_full_world() -> Any:
    world = a_world()
    for kind in ("claims", "disks", "machines", "settings"):
        setattr(world, kind, Seen())
    waiting = instance("Scheduling", name="waits", uid="waits-uid")
    world.instances.sees(waiting.key, waiting)
    return world


def moves_away(world: Any, room: Room) -> None:
    world.instances.sees(("default", "vm"), instance(status={"nodeName": "node-2"}))


def migration_is_over(world: Any, room: Room) -> None:
    room.keep("m-uid", "node-2", 1)
    world.migrations.sees(("default", "m"), migration("Failed"))


def migration_is_gone(world: Any, room: Room) -> None:
    room.keep("m-uid", "node-2", 1)
    world.migrations.sees(("default", "m"), None)


def ends(world: Any, room: Room) -> None:
    world.instances.sees(("default", "vm"), instance("Succeeded"))


def stays(world: Any, room: Room) -> None:
    world.instances.sees(("default", "vm"), instance(status={"guestOSInfo": {}}))


@pytest.mark.parametrize(
    ("happens", "looks"),
    [(moves_away, True), (migration_is_over, True), (migration_is_gone, True), (ends, True), (stays, False)],
)
async def test_a_vmi_that_found_no_room_looks_again_when_there_is_some(
    happens: Any, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_full_world()
    room, api = Room(world.instances.store), SimpleNamespace(metrics=Metrics())
    hypervisor = SimpleNamespace(subscribe=lambda changed: None)
    Migrations(api, world, hypervisor, None, room)  # type: ignore[arg-type]
    engine = Instances(api, world, hypervisor, None, Pace(), room)  # type: ignore[arg-type]
    looked_at: list[Any] = []
    monkeypatch.setattr(engine.controller, "enqueue", looked_at.append)
    happens(world, room)
    assert (("default", "waits") in looked_at) is looks
