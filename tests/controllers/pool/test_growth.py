"""The work of a plan grows with the number of VMs, and not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM
from tests.controllers.pool.builders import NOW, a_pool, snapshot, vm, vmi

SURGE = {"proactive": {"maxSurge": 1}}


def old(number: int) -> VM:
    return vm(number, vmi=vmi(f"web-{number}", revision="r0"), revision="r0")


def failing(number: int) -> VM:
    return vm(number, ready=False, vmi_exists=False, start_failures=3, printable_status="CrashLoopBackOff")


def calls(observed: PoolSnapshot) -> int:
    """How many functions a plan and its status call, generators once for each value."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        pool_status(observed, plan(observed, NOW), NOW)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        pytest.param(vm, {}, id="at rest"),
        pytest.param(old, {"maxUnavailable": 1}, id="an update, one VM at a time"),
        pytest.param(old, {"maxUnavailable": "100%"}, id="an update of all VMs at once"),
        pytest.param(old, {"maxUnavailable": 1, "updateStrategy": SURGE}, id="an update with new VMs first"),
        pytest.param(old, {"maxUnavailable": "100%", "replicas": 1}, id="scale-in"),
        pytest.param(failing, {"autohealing": {}}, id="many VMs fail"),
        pytest.param(failing, {"autohealing": {}, "maxUnavailable": "100%"}, id="all failing VMs may be replaced"),
    ],
)
def test_twice_as_many_vms_are_twice_the_work(make: Callable[[int], VM], spec: dict[str, Any]) -> None:
    def work(vms: int) -> int:
        return calls(snapshot(a_pool(**{"replicas": vms, **spec}), *map(make, range(1, vms + 1))))

    work(1)  # fills the caches of the process
    assert work(160) < 2.5 * work(80)
