"""Events that mention a VM, and facts about its state."""

from __future__ import annotations

import pytest

from cli.why import mentions, pool_facts
from controllers.shared.vmi import VMI
from tests.controllers.pool.builders import halted, snapshot, vm


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
def test_an_event_mentions_a_vm(kind: str, name: str, note: str, speaks: bool) -> None:
    assert mentions({"regarding": {"kind": kind, "name": name}, "note": note}, "web") is speaks


@pytest.mark.parametrize(
    ("strategy", "run", "said"),
    [
        pytest.param("Halted", None, "it should be halted", id="it is halted"),
        pytest.param("Manual", None, "it should be halted", id="nobody has started it"),
        pytest.param(
            "Manual",
            VMI("default", "web-1", "run", phase="Succeeded"),
            "its guest has shut down, and run strategy Manual does not start it again",
            id="it was shut down",
        ),
    ],
)
def test_why_a_vm_does_not_run(strategy: str, run: VMI | None, said: str) -> None:
    assert said in list(pool_facts(snapshot(1, halted(1, run_strategy=strategy, vmi=run)), "web-1"))


def test_a_required_restart_is_said() -> None:
    assert "KubeVirt says RestartRequired: memory" in list(
        pool_facts(snapshot(1, vm(1, restart_required="memory")), "web-1")
    )
