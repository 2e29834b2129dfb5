"""Which events tell of a VM."""

from __future__ import annotations

import pytest

from cli.why import speaks_of


@pytest.mark.parametrize(
    ("kind", "name", "note", "speaks"),
    [
        pytest.param("VirtualMachine", "web", "started", True, id="about it"),
        pytest.param("VirtualMachineInstance", "web", "migrated", True, id="about its run"),
        pytest.param("VirtualMachinePool", "pool", "created web: 0 of 2 exist", True, id="it is named"),
        pytest.param("VirtualMachinePool", "pool", "created web-1: 0 of 2 exist", False, id="a longer name"),
        pytest.param("VirtualMachineInstanceReplicaSet", "web", "created web-c4h9x", False, id="a set of that name"),
    ],
)
def test_an_event_tells_of_a_vm(kind: str, name: str, note: str, speaks: bool) -> None:
    assert speaks_of({"regarding": {"kind": kind, "name": name}, "note": note}, "web") is speaks
