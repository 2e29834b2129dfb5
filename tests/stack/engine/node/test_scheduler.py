from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.store import Store
from poolhouse.stack.engine.migration.controller import MigrationController
from poolhouse.stack.engine.node.scheduler import NodeCapacity, schedule, unschedulable_message
from poolhouse.stack.engine.objects import Node
from poolhouse.stack.engine.vm.plan import Delays
from poolhouse.stack.engine.vmi.controller import VMIController
from tests.stack.engine.builders import node, vmi
from tests.stack.engine.migration.test_controller import Seen, a_world
from tests.stack.engine.migration.test_plan import migration

GIB = 1 << 30


@pytest.mark.parametrize(
    ("nodes", "used", "wanted"),
    [
        pytest.param([node("a"), node("b")], {}, "a", id="the first by name"),
        pytest.param([node("a"), node("b")], {"a": GIB}, "b", id="the node with the least memory in use"),
        pytest.param([node("a", cordoned=True), node("b")], {"b": GIB}, "b", id="a cordoned node"),
        pytest.param([node("a", taints=(("x", "NoSchedule"),)), node("b")], {}, "b", id="a tainted node"),
        pytest.param([node("a", taints=(("x", "PreferNoSchedule"),))], {}, "a", id="PreferNoSchedule"),
        pytest.param([node("a", ready=False), node("b", lost=True)], {}, None, id="nodes that are not ready or lost"),
        pytest.param([node("a", memory=GIB)], {"a": GIB // 2 + 1}, None, id="not enough memory"),
    ],
)
def test_schedule_chooses_the_node_with_the_least_memory_in_use(
    nodes: list[Node], used: dict[str, int], wanted: str | None
) -> None:
    assert schedule((), GIB // 2, nodes, used) == wanted


def test_schedule_honours_the_node_selector() -> None:
    nodes = [node("a"), node("b", labels=(("zone", "1"),))]
    assert schedule((("zone", "1"),), 1, nodes, {"b": GIB}) == "b"
    assert schedule((("zone", "2"),), 1, nodes, {}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cordoned": True}, "1 node(s) were unschedulable"),
        ({"ready": False}, "1 node(s) were not ready"),
        ({"memory": 1}, "1 Insufficient memory"),
        ({"taints": (("x", "NoSchedule"),)}, "1 node(s) had untolerated taint"),
    ],
)
def test_unschedulable_messages(changes: dict[str, Any], words: str) -> None:
    assert words in unschedulable_message((), GIB, [node(**changes)], {})
    assert "node selector" in unschedulable_message((("a", "b"),), 1, [node()], {})


@pytest.mark.parametrize(
    ("kept", "observed_on", "told"),
    [
        pytest.param("node-1", "", 1, id="released"),
        pytest.param("node-1", "node-1", 0, id="taken by its VMI"),
        pytest.param("node-1", "node-2", 1, id="the VMI is on another node"),
        pytest.param("", "", 0, id="no reservation"),
        pytest.param("", "node-1", 0, id="no reservation, an observed VMI"),
    ],
)
def test_subscribers_hear_of_released_memory(kept: str, observed_on: str, told: int) -> None:
    capacity, calls = NodeCapacity(Store()), []
    capacity.subscribe(lambda: calls.append(capacity.reserved_node("uid")))
    if kept:
        capacity.reserve("uid", kept, 1)
    capacity.release("uid", observed_on)
    capacity.release("uid", observed_on)
    assert calls == [None] * told


def a_full_world() -> Any:
    informers = a_world()
    for kind in ("pvcs", "data_volumes", "vms", "settings"):
        setattr(informers, kind, Seen())
    informers.launchers = Seen({"vmi": lambda pod: [pod.vmi]})
    waiting = vmi("Scheduling", name="waits", uid="waits-uid")
    informers.vmis.sees(waiting.key, waiting)
    return informers


def moves_away(informers: Any, capacity: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi(status={"nodeName": "node-2"}))


def migration_is_over(informers: Any, capacity: NodeCapacity) -> None:
    capacity.reserve("m-uid", "node-2", 1)
    informers.migrations.sees(("default", "m"), migration("Failed"))


def migration_is_gone(informers: Any, capacity: NodeCapacity) -> None:
    capacity.reserve("m-uid", "node-2", 1)
    informers.migrations.sees(("default", "m"), None)


def ends(informers: Any, capacity: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi("Succeeded"))


def stays(informers: Any, capacity: NodeCapacity) -> None:
    informers.vmis.sees(("default", "vm"), vmi(status={"guestOSInfo": {}}))


@pytest.mark.parametrize(
    ("happens", "looks"),
    [(moves_away, True), (migration_is_over, True), (migration_is_gone, True), (ends, True), (stays, False)],
)
async def test_an_unscheduled_vmi_is_retried_when_memory_is_freed(
    happens: Any, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    informers = a_full_world()
    capacity, api = NodeCapacity(informers.vmis.store), SimpleNamespace(metrics=Metrics())
    hypervisor = SimpleNamespace(subscribe=lambda changed: None)
    MigrationController(api, informers, hypervisor, None, capacity)
    engine = VMIController(api, informers, hypervisor, None, Delays(), capacity)
    looked_at: list[Any] = []
    monkeypatch.setattr(engine.controller, "enqueue", looked_at.append)
    happens(informers, capacity)
    assert (("default", "waits") in looked_at) is looks
