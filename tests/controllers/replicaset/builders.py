"""Builds snapshots for tests, so that a row shows only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.replicaset.observe import ReplicaSet, ReplicaSetSnapshot, parse_replica_set
from controllers.shared.names import free_names
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.resource_types import REPLICA_SETS
from tests.builders import manifest

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = free_names("u-web", "web", (), 10)
"""The names that the set gives, in their order."""


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(replicas: Any = 3, *, status: Json | None = None, deleting: bool = False, **spec: Any) -> Json:
    metadata: Json = {"uid": "u-web", "generation": 1, "deletionTimestamp": ago(1) if deleting else None}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return manifest(REPLICA_SETS, "web", spec, "default", status=status or {}, **metadata)


def a_set(replicas: int = 3, **given: Any) -> ReplicaSet:
    found = parse_replica_set(document(replicas, **given))
    assert isinstance(found, ReplicaSet), found
    return found


def vmi(name: str, *, ran_at: str = ago(3590), deleting: bool = False, **given: Any) -> VMI:
    """A VMI of the set `web`, running and ready for an hour."""
    facts: Json = {
        "namespace": "default",
        "uid": f"u-{name}",
        "resource_version": "7",
        "owner_uid": "u-web",
        "owner_name": "web",
        "labels": {"app": "web"},
        "created_at": ago(3600),
        "deleted_at": ago(1) if deleting else "",
        "phase": "Running",
        "phase_times": (("Running", ran_at),) if ran_at else (),
        "ready": True,
        **given,
    }
    return VMI(name=name, **facts)


def starting(name: str, **given: Any) -> VMI:
    return vmi(name, **{"phase": "Scheduling", "ready": False, "ran_at": "", **given})


def ended(name: str, phase: str = "Failed", *, ran: float = 3000, ago_seconds: float = 5, **given: Any) -> VMI:
    """A VMI that ran for so many seconds."""
    times = {"ran_at": ago(ago_seconds + ran), "ended_at": ago(ago_seconds)}
    return vmi(name, **{"phase": phase, "ready": False, **times, **given})


def orphan(name: str, **given: Any) -> VMI:
    return vmi(name, **{"owner_uid": "", "owner_name": "", **given})


def snapshot(of: ReplicaSet | int, *vmis: VMI, **given: Any) -> ReplicaSetSnapshot:
    """VMIs without a controller are orphans, and the names of all are taken."""
    found = of if isinstance(of, ReplicaSet) else a_set(of)
    taken = {each.name for each in vmis} | set(given.pop("taken_names", ()))
    owned, orphans = [each for each in vmis if each.owner_uid], [each for each in vmis if not each.owner_uid]
    return ReplicaSetSnapshot(found, tuple(owned), tuple(orphans), frozenset(taken), **given)
