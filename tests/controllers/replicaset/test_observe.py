"""Which VMIs belong to a replica set, and their views."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.observe import (
    ReplicaSetSnapshot,
    Stores,
    by_owner,
    observe,
    orphans_by_namespace,
    parse_replica,
)
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.resource_types import REPLICA_SETS
from tests.builders import owned_by
from tests.controllers.replicaset.builders import a_set, vmi

Json = dict[str, Any]

(OURS,) = owned_by(REPLICA_SETS, "web", "u-web")


def seen(owner: Json | None = None, status: Json | None = None, **metadata: Any) -> VMI:
    owners = {"ownerReferences": [owner]} if owner else {}
    return parse_replica(
        {"metadata": {"namespace": "default", "name": "a", "uid": "u-a", **owners, **metadata}, "status": status or {}}
    )


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param(OURS, ("u-web", "web"), id="a set of any version"),
        pytest.param({**OURS, "apiVersion": "other.io/v1"}, ("u-web", ""), id="a set of somebody else's"),
        pytest.param({**OURS, "kind": "VirtualMachine"}, ("u-web", ""), id="a VM"),
        pytest.param({**OURS, "controller": False}, ("", ""), id="an owner that is no controller"),
        pytest.param(None, ("", ""), id="nobody"),
    ],
)
@pytest.mark.sentence("2.15")
def test_the_controller_of_a_vmi(owner: Json | None, expected: tuple[str, str]) -> None:
    found = seen(owner)
    assert (found.owner_uid, found.owner_name) == expected
    assert list(by_owner(found)) == ([("default", "u-web")] if expected[1] else [])


@pytest.mark.parametrize(("namespace", "counted"), [("default", 1), ("elsewhere", 0)])
def test_a_vmi_of_another_namespace_cannot_join_a_set_by_its_uid(namespace: str, counted: int) -> None:
    """A user of another namespace can write any UID as an owner. The set would delete a VMI of its own in excess."""
    stores, ours, claimant = Stores(), a_set(1), vmi("web-a", namespace=namespace)
    stores.sets.put(ours.key, ours)
    stores.vmis.put(claimant.key, claimant)
    found = observe(stores, ours.key, synced=True, failure=None, burst=250)
    assert isinstance(found, ReplicaSetSnapshot)
    assert len(found.owned) == counted


def test_changes_of_foreign_vmis_cause_no_events() -> None:
    machine = {**OURS, "kind": "VirtualMachine"}
    one = seen(machine, {"phase": "Running"}, labels={"app": "web"}, resourceVersion="1")
    other = seen(machine, {"phase": "Failed"}, labels={"app": "db"}, resourceVersion="2")
    assert one == other


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        pytest.param({"phase": "Running"}, True, id="it runs", marks=pytest.mark.sentence("2.7")),
        pytest.param({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, False, id="not ready"),
        pytest.param({"phase": "Scheduled"}, False, id="it does not run"),
        pytest.param({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, True, id="it is ready"),
    ],
)
@pytest.mark.sentence("2.6")
def test_readiness(status: Json, ready: bool) -> None:
    assert seen(status=status).ready is ready


@pytest.mark.parametrize(
    ("state", "migrating"),
    [(None, False), ({"startTimestamp": "x"}, True), ({"completed": True}, False), ({"failed": True}, False)],
)
@pytest.mark.sentence("2.13")
def test_migration(state: Json | None, migrating: bool) -> None:
    assert seen(status={"phase": "Running", "migrationState": state}).migrating is migrating


def test_when_it_ran_and_ended() -> None:
    reached = [{"phase": phase, "phaseTransitionTimestamp": phase} for phase in ("Pending", "Running", "Failed")]
    found = seen(status={"phase": "Failed", "reason": "Crashed", "phaseTransitionTimestamps": reached})
    assert (found.started_at, found.ended_at, found.reason, found.final) == ("Running", "Failed", "Crashed", True)


@pytest.mark.parametrize(
    ("given", "orphan"),
    [
        ({}, True),
        ({"owner": OURS}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"deletionTimestamp": "x"}, False),
    ],
)
def test_which_vmis_can_be_adopted(given: Json, orphan: bool) -> None:
    assert list(orphans_by_namespace(seen(**given))) == (["default"] if orphan else [])


@pytest.mark.parametrize(("text", "attempt"), [("3", 3), ("", 0), ("-1", 0), ("many", 0), ("9" * 40, 0)])
def test_an_invalid_attempt_counts_as_the_first(text: str, attempt: int) -> None:
    assert seen(annotations={"poolhouse.dev/attempt": text}).attempt == attempt
