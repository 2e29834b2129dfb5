"""States for tests: a row shows only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.pool.guest import VMI
from controllers.pool.machine import VM
from controllers.pool.naming import ordinal_of, parent_and_ordinal
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import Pool, PoolSnapshot, parse_pool

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REVISION = Revision("web-r1", "u-web", 1, "meaning", "guest")
OLD = Revision("web-r0", "u-web", 0, "old meaning", "old guest")
LIGHT = Revision("web-light", "u-web", 0, "light meaning", "guest")
"""another template, whose guests are the same"""


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def template(**spec: Any) -> Json:
    found: Json = {
        "running": True,
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
        "template": {
            "spec": {
                "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
            }
        },
    }
    return {"spec": {**found, **spec}}


def document(replicas: Any = 3, *, status: Json | None = None, deleting: bool = False, **spec: Any) -> Json:
    metadata: Json = {"namespace": "default", "name": "web", "uid": "u-web", "generation": 1}
    if deleting:
        metadata["deletionTimestamp"] = ago(1)
    return {
        "metadata": metadata,
        "spec": {"replicas": replicas, "template": template(), **spec},
        "status": status or {},
    }


def a_pool(replicas: int = 3, **given: Any) -> Pool:
    found = parse_pool(document(replicas, **given))
    assert isinstance(found, Pool), found
    return found


def machine(ordinal: int | str, **given: Any) -> VM:
    """A VM of the pool `web`, running and ready."""
    name = f"web-{ordinal}" if isinstance(ordinal, int) else ordinal
    facts: Mapping[str, Any] = {
        "namespace": "default",
        "name": name,
        "uid": f"u-{name}",
        "stem": parent_and_ordinal(name)[0],
        "ordinal": parent_and_ordinal(name)[1],
        "resource_version": "7",
        "owner": "u-web",
        "owner_name": "web",
        "born": ago(3600),
        "revision": REVISION.label,
        "exists": True,
        "ready": True,
        "disks": (f"root-{ordinal}",),
        **given,
    }
    if "guest" not in facts and facts["exists"]:
        facts = {**facts, "guest": VMI("default", name, f"run-{name}", facts["uid"], facts["revision"])}
    return VM(**{"strategy": "Always" if facts.get("meant_to_run", True) else "Halted", **facts})


def halted(ordinal: int, **given: Any) -> VM:
    return machine(ordinal, **{"meant_to_run": False, "exists": False, "ready": False, **given})


def leaving(ordinal: int, seconds: float = 1, **given: Any) -> VM:
    return machine(ordinal, deleted_at=ago(seconds), **given)


def kept(ordinal: int, by: str = "u-web") -> RetainedDisk:
    return RetainedDisk("default", f"root-{ordinal}", by, f"web-{ordinal}")


def state(of: Pool | int, *machines: VM, **given: Any) -> PoolSnapshot:
    """As observed: the names of the pool's own VMs are taken, others' are given in `taken`."""
    found = of if isinstance(of, Pool) else a_pool(of)
    own = {ordinal for m in machines if (ordinal := ordinal_of("web", m.name)) is not None}
    facts = {
        "revision": REVISION,
        "revisions": (OLD, LIGHT, REVISION),
        "waiting": tuple(m for m in machines if m.deleting and m.keeping),
        **given,
        "taken": frozenset(own | set(given.get("taken", ()))),
    }
    return PoolSnapshot(found, machines, **facts)
