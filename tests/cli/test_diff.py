"""Differences, as people recognise them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.diff import differences


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1}}, [], id="nothing differs"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 -> 2"], id="as deep as both go"),
        pytest.param({"a": 1}, {}, ["a: 1 -> nothing"], id="something went"),
        pytest.param({}, {"a": {"b": 1}}, ["a: nothing -> {'b': 1}"], id="something came"),
        pytest.param(
            {"disks": [{"name": "x", "bus": "sata"}, {"name": "y"}]},
            {"disks": [{"name": "y"}, {"name": "x", "bus": "virtio"}]},
            ["disks[x].bus: sata -> virtio"],
            id="entries are told apart by name, whatever their order",
        ),
        pytest.param(
            {"templates": [{"metadata": {"name": "root"}, "size": 1}]},
            {"templates": [{"metadata": {"name": "root"}, "size": 2}]},
            ["templates[root].size: 1 -> 2"],
            id="names may be in metadata",
        ),
        pytest.param({"l": [1, 2]}, {"l": [1, 3]}, ["l: [1, 2] -> [1, 3]"], id="a list without names is one value"),
    ],
)
def test_changes(before: Any, after: Any, said: list[str]) -> None:
    assert list(differences(before, after)) == said


def test_long_values_are_cut() -> None:
    (line,) = differences({"a": ""}, {"a": "x" * 500})
    assert len(line) < 80
