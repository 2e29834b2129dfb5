"""States for tests: a row shows only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.replicaset.instance import VMI
from controllers.replicaset.naming import free_names
from controllers.replicaset.snapshot import ReplicaSet, ReplicaSetSnapshot, parse_replica_set

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = free_names("u-web", "web", (), 10)
"""that the set gives, in the order in which it gives them"""


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(replicas: Any = 3, *, status: Json | None = None, deleting: bool = False, **spec: Any) -> Json:
    metadata: Json = {"namespace": "default", "name": "web", "uid": "u-web", "generation": 1}
    if deleting:
        metadata["deletionTimestamp"] = ago(1)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": metadata,
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
        "status": status or {},
    }


def a_set(replicas: int = 3, **given: Any) -> ReplicaSet:
    found = parse_replica_set(document(replicas, **given))
    assert isinstance(found, ReplicaSet), found
    return found


def vmi(name: str, **given: Any) -> VMI:
    """An instance of the set `web`, running and ready for an hour."""
    facts: Json = {
        "namespace": "default",
        "uid": f"u-{name}",
        "resource_version": "7",
        "owner": "u-web",
        "owner_name": "web",
        "labels": {"app": "web"},
        "born": ago(3600),
        "phase": "Running",
        "ready": True,
        "ran_at": ago(3590),
        **given,
    }
    return VMI(name=name, **facts)


def starting(name: str, **given: Any) -> VMI:
    return vmi(name, **{"phase": "Scheduling", "ready": False, "ran_at": "", **given})


def ended(name: str, phase: str = "Failed", *, ran: float = 3000, ago_seconds: float = 5, **given: Any) -> VMI:
    """It ran for so many seconds."""
    times = {"ran_at": ago(ago_seconds + ran), "ended_at": ago(ago_seconds)}
    return vmi(name, **{"phase": phase, "ready": False, **times, **given})


def orphan(name: str, **given: Any) -> VMI:
    return vmi(name, **{"owner": "", "owner_name": "", **given})


def state(of: ReplicaSet | int, *instances: VMI, **given: Any) -> ReplicaSetSnapshot:
    """As observed: those without a controller are orphans, and the names of all are taken."""
    found = of if isinstance(of, ReplicaSet) else a_set(of)
    taken = {i.name for i in instances} | set(given.pop("taken", ()))
    owned, orphans = [i for i in instances if i.owner], [i for i in instances if not i.owner]
    return ReplicaSetSnapshot(found, tuple(owned), tuple(orphans), frozenset(taken), **given)
