"""What a pool's author is told about disks that are somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.disk_conflicts import disks, passed_over, shared

Json = dict[str, Any]


def templates(*names: Any) -> list[Json]:
    return [{"metadata": {"name": name}} for name in names]


def pool(name: str, *disks: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"dataVolumeTemplates": templates(*disks)}}}}


def vm(name: str, *disks: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"dataVolumeTemplates": templates(*disks)}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pool("web", "root", "logs"), {"root", "logs"}),
        (pool("web", 7, None), set()),
        ({"spec": None}, set()),
        (None, set()),
    ],
)
def test_names_of_disks(document: Json | None, expected: set[str]) -> None:
    assert disks(document) == expected


def test_another_pool_with_a_disk_of_that_name_is_named() -> None:
    (said,) = shared({"root"}, [pool("other", "root", "logs"), pool("third", "data")])
    assert said.startswith("spec.template.spec.dataVolumeTemplates: root is also pool other's")


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        pytest.param([vm("db", "root-3")], ["root-3 of VM db; "], id="a VM has the disk of an ordinal"),
        pytest.param([vm("db", "root"), vm("db2", "root-x"), vm("db3", "logs-1")], [], id="others are no matter"),
        pytest.param([vm(f"v{n}", f"root-{n}") for n in range(1, 6)], ["root-3 of VM v3 and 2 more; "], id="many"),
    ],
)
def test_numbers_that_are_passed_over(machines: list[Json], expected: list[str]) -> None:
    found = list(passed_over({"root"}, machines))
    assert len(found) == len(expected)
    assert all(wanted in said for wanted, said in zip(expected, found, strict=True))
