"""VMs that move to another node: what waits until they have moved."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from controllers.shared.vmi import parse_vmi
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, snapshot, vm, vmi

MIGRATING = "it is being migrated"
EVICTED = "it was evicted from node node-1, and moves to another one"


def moving(ordinal: int, *, revision: str = OLD.label, **facts: Any) -> VM:
    found = vmi(f"web-{ordinal}", revision=revision, phase="Running", node="node-1", **facts)
    return vm(ordinal, revision=revision, vmi=found)


@pytest.mark.parametrize(
    ("observed", "actions", "waits"),
    [
        pytest.param(
            snapshot(a_pool(1, maxUnavailable=1), moving(1, migrating=True)), [], [("web-1", MIGRATING)], id="migrating"
        ),
        pytest.param(
            snapshot(a_pool(1, maxUnavailable=1), moving(1, evacuated=True)), [], [("web-1", EVICTED)], id="evicted"
        ),
        pytest.param(
            snapshot(a_pool(2, maxUnavailable=1), moving(1, evacuated=True), moving(2)),
            [("Update", "web-2")],
            [("web-1", EVICTED)],
            id="another one is updated meanwhile",
        ),
        pytest.param(snapshot(a_pool(1, maxUnavailable=1), moving(1)), [("Update", "web-1")], [], id="it has moved"),
        pytest.param(
            snapshot(a_pool(1, maxUnavailable=1), moving(1, evacuated=True, migration_failed=True)),
            [("Update", "web-1")],
            [],
            id="its migration has failed, and the new template may be what lets it move",
        ),
    ],
)
def test_an_update_waits_until_a_vm_has_moved(
    observed: PoolSnapshot, actions: list[tuple[str, str]], waits: list[tuple[str, str]]
) -> None:
    found = plan(observed, NOW)
    assert [(each.verb, each.name) for each in found.actions] == actions
    assert [(each.name, each.reason) for each in found.waits if each.reason in (MIGRATING, EVICTED)] == waits


def test_scale_in_does_not_wait() -> None:
    (scaled_in,) = plan(snapshot(a_pool(0), moving(1, migrating=True)), NOW).actions
    assert (scaled_in.verb, scaled_in.name) == ("Delete", "web-1")


def test_the_end_of_a_lifetime_waits() -> None:
    old = moving(1, revision=REVISION.label, migrating=True, created_at=ago(10 * 86400))
    found = plan(snapshot(a_pool(1, maxLifetimeSeconds=86400, maxUnavailable=1), old), NOW)
    assert found.actions == ()
    assert [each.reason for each in found.waits if MIGRATING in each.reason]


@pytest.mark.parametrize(
    ("status", "migrating", "evacuated"),
    [
        pytest.param({"nodeName": "node-1"}, False, False, id="at rest"),
        pytest.param({"nodeName": "node-1", "migrationState": {"migrationUid": "m"}}, True, False, id="migrating"),
        pytest.param({"nodeName": "node-1", "migrationState": {"completed": True}}, False, False, id="migrated"),
        pytest.param({"nodeName": "node-1", "evacuationNodeName": "node-1"}, False, True, id="evicted"),
        pytest.param({"nodeName": "node-2", "evacuationNodeName": "node-1"}, False, False, id="it has left the node"),
        pytest.param({"evacuationNodeName": ""}, False, False, id="not scheduled"),
    ],
)
def test_what_the_status_of_a_vmi_says(status: dict[str, Any], migrating: bool, evacuated: bool) -> None:
    found = parse_vmi(_document(status))
    assert (found.migrating, found.evacuated) == (migrating, evacuated)


def test_a_failed_migration_is_known_until_the_next_one() -> None:
    state = {"migrationUid": "m", "completed": True, "failed": True}
    assert parse_vmi(_document({"migrationState": state})).migration_failed
    assert not parse_vmi(_document({"migrationState": {"migrationUid": "n"}})).migration_failed


def _document(status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "web-1", "namespace": "default", "uid": "u"}, "status": status}
