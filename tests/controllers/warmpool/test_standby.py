"""Readiness of new VMs, and changes of their standby mode."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.warmpool.snapshot import WarmPoolSnapshot
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    NEW,
    PAUSED_POOL,
    a_pool,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
    healthy,
    planned,
    ready,
)

STOPPED_POOL = a_pool(1, standby={"mode": "Stopped"})


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(1, a_vm("a", NEW)), [("state", "a", "Ready")], id="a healthy VM becomes Ready"),
        pytest.param(a_snapshot(1, a_vm("a", NEW, vmi=None)), [], id="a VM without a VMI stays Provisioning"),
        pytest.param(
            a_snapshot(a_pool(1, readiness={"minReadySeconds": 30}), a_vm("a", NEW), health={"a": healthy(29)}),
            [],
            id="not before minReadySeconds",
        ),
        pytest.param(
            a_snapshot(a_pool(1, readiness={"minReadySeconds": 30}), a_vm("a", NEW), health={"a": healthy(30)}),
            [("state", "a", "Ready")],
            id="after minReadySeconds",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW), expectations_met=False),
            [("state", "a", "Ready")],
            id="states are written while the cache lags behind",
        ),
        pytest.param(
            a_snapshot(a_pool(1, paused=True), a_vm("a", NEW)),
            [("state", "a", "Ready")],
            id="a paused pool writes states",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", NEW, standby="Paused")),
            [("state", "a", "PENDING_STANDBY")],
            id="a VM that waits paused enters StandingBy first",
        ),
        pytest.param(
            a_snapshot(
                a_pool(1, standby={"mode": "Paused", "warmupSeconds": 60}),
                a_vm("a", NEW, standby="Paused"),
                health={"a": healthy(59)},
            ),
            [],
            id="not before warmupSeconds",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused")),
            [("standby", "a", "Paused")],
            id="a VM in StandingBy is paused",
        ),
        pytest.param(
            a_snapshot(
                PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused", vmi=a_vmi(paused="PausedByUser"))
            ),
            [("state", "a", "Ready")],
            id="a paused VM becomes Ready",
        ),
        pytest.param(
            a_snapshot(
                PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused", vmi=None, run_strategy="Halted")
            ),
            [("standby", "a", "Running")],
            id="a stopped VM is started before it is paused",
        ),
        pytest.param(
            a_snapshot(STOPPED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Stopped")),
            [("standby", "a", "Stopped")],
            id="a VM in StandingBy is stopped",
        ),
        pytest.param(
            a_snapshot(
                STOPPED_POOL,
                a_vm(
                    "a", WarmState.STANDING_BY, standby="Stopped", vmi=a_vmi(deleted_at=ago(1)), run_strategy="Halted"
                ),
            ),
            [("standby", "a", "Stopped")],
            id="a VM that is shutting down stays StandingBy",
        ),
        pytest.param(
            a_snapshot(
                STOPPED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Stopped", vmi=None, run_strategy="Halted")
            ),
            [("state", "a", "Ready")],
            id="a stopped VM becomes Ready",
        ),
    ],
)
def test_readiness(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


MIXED = a_pool(3, standby={"mode": "Paused", "hotReplicas": 1})
COLD = {"standby": "Paused"}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(MIXED),
            [("create", "Running"), ("create", "Paused"), ("create", "Paused")],
            id="new VMs become hot first",
        ),
        pytest.param(
            a_snapshot(MIXED, a_vm("h"), a_vm("a", **COLD), a_vm("b", **COLD)),
            [],
            id="the right number of hot VMs changes nothing",
        ),
        pytest.param(
            a_snapshot(
                MIXED,
                a_vm("h", WarmState.IN_USE),
                a_vm("a", created_at=ago(9), **COLD),
                a_vm("b", created_at=ago(5), **COLD),
            ),
            [("create", "Paused"), ("state", "a", "PENDING_STANDBY", "Running")],
            id="a paused VM becomes hot after a claim took one",
        ),
        pytest.param(
            a_snapshot(MIXED, a_vm("w", WarmState.STANDING_BY, vmi=None), a_vm("a", **COLD), a_vm("n", NEW, vmi=None)),
            [("standby", "w", "Running"), ("state", "n", "PENDING_WARMPOOL_PROVISIONING", "Paused")],
            id="a Provisioning VM beyond hotReplicas changes its mode",
        ),
        pytest.param(
            a_snapshot(a_pool(2, standby={"mode": "Stopped"}), a_vm("a"), a_vm("b", **COLD)),
            [("state", "a", "PENDING_STANDBY", "Stopped")],
            id="a change of mode keeps to the disruption budget",
        ),
        pytest.param(
            a_snapshot(a_pool(8, standby={"mode": "Paused"}), *ready(8)),
            [("state", f"r{n}", "PENDING_STANDBY", "Paused") for n in range(2)],
            id="a quarter of many VMs changes at a time",
        ),
        pytest.param(
            a_snapshot(
                a_pool(8, standby={"mode": "Paused"}),
                *ready(6),
                *(a_vm(f"s{n}", WarmState.STANDING_BY, **COLD) for n in range(2)),
            ),
            [("standby", "s0", "Paused"), ("standby", "s1", "Paused")],
            id="none while others change",
        ),
        pytest.param(
            a_snapshot(a_pool(2), a_vm("a"), a_vm("b", **COLD)),
            [("state", "b", "PENDING_STANDBY", "Running")],
            id="a change back to Running starts paused VMs",
        ),
    ],
)
def test_standby_modes(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected
