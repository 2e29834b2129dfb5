from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import permutations
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

from local.engine.migrations import Migrations
from local.engine.moving import drained
from runtime.metrics import Metrics
from runtime.store import Store
from tests.local.engine.builders import NOW, instance, node
from tests.local.engine.test_moving import DRAIN, migration

V = TypeVar("V", bound=Any)


class Seen(Generic[V]):
    """An informer that is told what it sees."""

    def __init__(self, indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None) -> None:
        self.store: Store[V] = Store(indexes)
        self._changed: Callable[[V | None, V | None], None] = lambda old, new: None

    def subscribe(self, changed: Callable[[V | None, V | None], None]) -> None:
        self._changed = changed

    def sees(self, key: Any, view: V) -> None:
        self._changed(self.store.put(key, view), view)


@pytest.mark.parametrize("order", list(permutations(["VMI", "migration", "node"])), ids=", ".join)
def test_a_vmi_leaves_the_node_that_it_came_to_in_whatever_order_that_is_seen(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node is drained as it arrives: the migration that brought it may not be seen to be over yet."""
    world = SimpleNamespace(
        migrations=Seen({"vmi": lambda each: [(each.namespace, each.vmi)]}),
        instances=Seen({"node": lambda each: [each.node]}),
        nodes=Seen(),
    )
    world.migrations.sees(("default", "m"), migration("Running"))
    world.instances.sees(("default", "vm"), instance())
    world.nodes.sees(("", "node-1"), node("node-1"))
    world.nodes.sees(("", "node-2"), node("node-2"))
    engine = Migrations(SimpleNamespace(metrics=Metrics()), world, None, None)  # type: ignore[arg-type]
    looked_at: list[str] = []
    monkeypatch.setattr(engine.controller, "enqueue", lambda key: None)
    monkeypatch.setattr(engine.evacuations, "enqueue", looked_at.append)

    leaving: set[str] = set()
    for what in order:
        match what:
            case "migration":
                world.migrations.sees(("default", "m"), migration("Succeeded"))
            case "VMI":
                world.instances.sees(("default", "vm"), instance(status={"nodeName": "node-2"}))
            case _:
                world.nodes.sees(("", "node-2"), node("node-2", taints=DRAIN))
        for name in looked_at:
            here = world.instances.store.by("node", name)
            found, _ = drained(world.nodes.store.all(), here, world.migrations.store.all(), NOW)
            leaving.update(each.name for each in found)
        looked_at.clear()
    assert leaving == {"vm"}
