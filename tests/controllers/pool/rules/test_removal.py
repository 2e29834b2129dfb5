"""Which VMs go when a client has named them for removal, and that no other VM goes in their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Create
from controllers.pool.plan import plan
from controllers.pool.pools import Pool, format_removals, parse_removals
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM, LifecycleHold
from tests.controllers.pool.builders import NOW, OLD, a_pool, ago, leaving, outline, retained, snapshot, vm, vmi

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
HOOKS = [{"name": "drain", "transition": "Terminating", "timeoutSeconds": 900}]


def without(replicas: int, *names: str, **given: Any) -> Pool:
    """The pool after a client has named these VMs and lowered `replicas`."""
    return replace(a_pool(replicas, **given), removals=frozenset(f"u-{name}" for name in names))


def held(ordinal: int) -> VM:
    hold = LifecycleHold("Terminating", ago(60), f"run-web-{ordinal}", (("drain", "2026-03-01T12:14:00Z"),))
    return vm(ordinal, hold=hold, vmi=vmi(f"web-{ordinal}", revision="r1"))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            snapshot(without(2, "web-2"), vm(1), vm(2), vm(3)), [("delete", "web-2")], id="the named VM goes alone"
        ),
        pytest.param(
            snapshot(without(2, "web-2"), vm(1), vm(2), vm(3, ready=False)),
            [("delete", "web-2")],
            id="a VM that is not available does not go in its place",
        ),
        pytest.param(
            snapshot(without(2, "web-2", maxUnavailable=1), vm(1), vm(2, ready=True), vm(3, ready=False), vm(4)),
            [("delete", "web-2")],
            id="before others that are too many",
        ),
        pytest.param(
            snapshot(without(3, "web-2"), vm(1), vm(2), vm(3)),
            [("create", "web-4")],
            id="a client that also keeps the number gets another VM",
        ),
        pytest.param(
            snapshot(
                without(4, "web-1", maxUnavailable=1), vm(1), vm(2), vm(3), vm(4, ready=False), vm(5, ready=False)
            ),
            [],
            id="it waits while too few VMs are available, and no other VM is deleted",
        ),
        pytest.param(
            snapshot(without(2, "web-2", scaleInStrategy={"unmanaged": {}}), vm(1), vm(2), vm(3)),
            [("delete", "web-2")],
            id="the strategy unmanaged leaves the choice to clients, and this is one",
        ),
        pytest.param(
            snapshot(without(2, "web-2", scaleInStrategy=OFFLINE), vm(1), vm(2), vm(3)),
            [("delete and keep disks", "web-2")],
            id="its disks are retained as at scale-in",
        ),
        pytest.param(
            snapshot(without(2, "web-2"), vm(1), vm(2, scale_in="Protect"), vm(3)), [], id="a protected VM stays"
        ),
        pytest.param(snapshot(without(2, "web-2"), vm(1), leaving(2), vm(3)), [], id="a deletion is not done twice"),
        pytest.param(
            snapshot(without(3, "web-2"), vm(1), vm(2, uid="another"), vm(3)), [], id="a later VM of the name stays"
        ),
        pytest.param(snapshot(without(2, "web-2", paused=True), vm(1), vm(2), vm(3)), [], id="a paused pool waits"),
        pytest.param(
            snapshot(without(2, "web-2"), vm(1), vm(2, revision=OLD.label), vm(3)),
            [("delete", "web-2")],
            id="it gets no update before it goes",
        ),
        pytest.param(
            snapshot(without(2, "web-2"), vm(1), vm(3), taken_ordinals={2}, retained_disks=(retained(2),)),
            [],
            id="the disks that it left do not bring it back",
        ),
        pytest.param(
            snapshot(without(0, "web-1", "web-2", "web-3"), vm(1), vm(2), vm(3), burst=2),
            [("delete", "web-1"), ("delete", "web-2")],
            id="never more at once than the burst",
        ),
    ],
)
def test_a_named_vm_goes(observed: PoolSnapshot, expected: list[tuple[str, ...]]) -> None:
    assert [outline(each) for each in plan(observed, NOW).actions if outline(each)] == expected


def test_lifecycle_hooks_hold_it_and_another_vm_is_created_meanwhile_if_replicas_rise_again() -> None:
    named = {"lifecycleHooks": HOOKS}
    first = plan(snapshot(without(2, "web-2", **named), vm(1), vm(2), vm(3)), NOW).actions
    assert [each.name for each in first if each.verb == "Hold"] == ["web-2"]
    waiting = plan(snapshot(without(2, "web-2", **named), vm(1), held(2), vm(3)), NOW)
    assert {each.verb for each in waiting.actions} <= {"SetInService"}
    assert [(each.name, each.reason[:24]) for each in waiting.waits] == [("web-2", "lifecycle hooks hold it:")]
    again = plan(snapshot(without(3, "web-2", **named), vm(1), held(2), vm(3)), NOW)
    assert [each.name for each in again.actions if isinstance(each, Create)] == ["web-4"]
    assert "EndHold" not in {each.verb for each in again.actions}


def test_the_wait_of_a_protected_vm_names_both_annotations() -> None:
    (waits,) = plan(snapshot(without(2, "web-2"), vm(1), vm(2, scale_in="Protect"), vm(3)), NOW).waits
    assert waits.reason == "poolhouse.dev/remove-vms names it: poolhouse.dev/scale-in protects it"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("", {}),
        ("web-2=u-2", {"web-2": "u-2"}),
        ("web-2=u-2, web-10=u-10", {"web-2": "u-2", "web-10": "u-10"}),
        ("web-2,web-3=", {}),
    ],
)
def test_the_annotation(annotation: str, expected: dict[str, str]) -> None:
    assert parse_removals(annotation) == expected
    assert parse_removals(format_removals(expected)) == expected
