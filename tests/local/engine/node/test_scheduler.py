from __future__ import annotations

from typing import Any

import pytest

from local.engine.node.scheduler import schedule, unschedulable_message
from local.engine.objects import Node
from tests.local.engine.builders import node

GIB = 1 << 30


@pytest.mark.parametrize(
    ("nodes", "used", "wanted"),
    [
        pytest.param([node("a"), node("b")], {}, "a", id="by name among equals"),
        pytest.param([node("a"), node("b")], {"a": GIB}, "b", id="the one with the least in use"),
        pytest.param([node("a", cordoned=True), node("b")], {"b": GIB}, "b", id="a cordon closes"),
        pytest.param([node("a", taints=(("x", "NoSchedule"),)), node("b")], {}, "b", id="so does a taint"),
        pytest.param([node("a", taints=(("x", "PreferNoSchedule"),))], {}, "a", id="but not a preference"),
        pytest.param([node("a", ready=False), node("b", lost=True)], {}, None, id="what is away takes nobody"),
        pytest.param([node("a", memory=GIB)], {"a": GIB // 2 + 1}, None, id="memory ends"),
    ],
)
def test_where_it_goes(nodes: list[Node], used: dict[str, int], wanted: str | None) -> None:
    assert schedule((), GIB // 2, nodes, used) == wanted


def test_a_selector_must_be_met() -> None:
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
def test_why_not_is_said(changes: dict[str, Any], words: str) -> None:
    assert words in unschedulable_message((), GIB, [node(**changes)], {})
    assert "node selector" in unschedulable_message((("a", "b"),), 1, [node()], {})
