"""Builds snapshots for tests, so that a row shows only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.pool.actions import Action, Create, Delete, ReleaseDisks, RemoveFinalizer, ReturnDisk, SaveRevision
from controllers.pool.plan import plan
from controllers.pool.pools import Pool, parse_pool
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.names import ordinal_of, parent_and_ordinal
from controllers.shared.vm import POOL, VM, RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import POOLS
from tests.builders import manifest

Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REVISION = Revision("web-r1", "u-web", 1, "meaning", "vmi", namespace="default")
OLD = Revision("web-r0", "u-web", 0, "old meaning", "old guest", namespace="default")
LIGHT = Revision("web-light", "u-web", 0, "light meaning", "vmi", namespace="default")
"""Another template with the same template of the VMI."""


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
    metadata: Json = {"uid": "u-web", "generation": 1, "deletionTimestamp": ago(1) if deleting else None}
    spec = {"replicas": replicas, "template": template(), **spec}
    return manifest(POOLS, "web", spec, "default", status=status or {}, **metadata)


def a_pool(replicas: int = 3, **given: Any) -> Pool:
    found = parse_pool(document(replicas, **given))
    assert isinstance(found, Pool), found
    return found


def vm(ordinal: int | str, **given: Any) -> VM:
    """A VM of the pool `web`, running and ready."""
    name = f"web-{ordinal}" if isinstance(ordinal, int) else ordinal
    facts: Mapping[str, Any] = {
        "namespace": "default",
        "name": name,
        "uid": f"u-{name}",
        "base_name": parent_and_ordinal(name)[0],
        "ordinal": parent_and_ordinal(name)[1],
        "resource_version": "7",
        "owner_uid": "u-web",
        "owner_kind": POOL,
        "owner_name": "web",
        "created_at": ago(3600),
        "revision": REVISION.label,
        "vmi_exists": True,
        "ready": True,
        "disks": (f"root-{ordinal}",),
        **given,
    }
    if "vmi" not in facts and facts["vmi_exists"]:
        facts = {**facts, "vmi": vmi(name, revision=facts["revision"])}
    return VM(**{"run_strategy": "Always" if facts.get("should_run", True) else "Halted", **facts})


def old(ordinal: int, **given: Any) -> VM:
    """A VM with the former template. One with a lower number is older."""
    return vm(ordinal, **{"revision": OLD.label, "created_at": f"2026-01-{ordinal:02}", **given})


def vmi(name: str, *, revision: str = "", **given: Any) -> VMI:
    """The VMI of a VM of the pool."""
    facts = {"ready": True, **given}
    return VMI("default", name, f"run-{name}", owner_uid=f"u-{name}", labels={meta.REVISION: revision}, **facts)


def halted(ordinal: int, **given: Any) -> VM:
    return vm(ordinal, **{"should_run": False, "vmi_exists": False, "ready": False, **given})


def leaving(ordinal: int, seconds: float = 1, **given: Any) -> VM:
    return vm(ordinal, deleted_at=ago(seconds), **given)


def retained(ordinal: int, by: str = "u-web") -> RetainedDisk:
    return RetainedDisk("default", f"root-{ordinal}", by, f"web-{ordinal}")


def snapshot(of: Pool | int, *vms: VM, **given: Any) -> PoolSnapshot:
    """As observed: the names of the pool's own VMs are taken, others are given in `taken_ordinals`."""
    found = of if isinstance(of, Pool) else a_pool(of)
    own = {ordinal for vm in vms if (ordinal := ordinal_of("web", vm.name)) is not None}
    facts = {
        "revision": REVISION,
        "revisions": (OLD, LIGHT, REVISION),
        "awaiting_release": tuple(vm for vm in vms if vm.deleting and vm.retains_disks),
        **given,
        "taken_ordinals": frozenset(own | set(given.get("taken_ordinals", ()))),
    }
    return PoolSnapshot(found, vms, **facts)


def with_new_disk(of: Pool | int, *vms: VM) -> PoolSnapshot:
    """A pool whose template has another disk than the former one."""
    former, now = replace(OLD, disks=(("root", "h0"),)), replace(REVISION, disks=(("root", "h1"),))
    return snapshot(of, *vms, revision=now, revisions=(former, now))


def bad(ordinal: int, **given: Any) -> VM:
    """A VM that has not started three times."""
    return vm(ordinal, **{"ready": False, "start_failures": 3, "printable_status": "CrashLoopBackOff", **given})


def eight(*vms: VM, healing: Json | None = None, **given: Any) -> PoolSnapshot:
    """A pool of eight of which two may be unavailable. Those that a test does not name are well."""
    named = {each.name for each in vms}
    others = [vm(n) for n in range(1, 9) if f"web-{n}" not in named]
    spec = {"autohealing": {}, "maxUnavailable": 2, **given}
    return snapshot(a_pool(8, status={"healing": healing} if healing else {}, **spec), *vms, *others)


def done(observed: PoolSnapshot) -> list[tuple[str, str]]:
    """The verbs and names of the actions."""
    return [(each.verb, each.name) for each in plan(observed, NOW).actions]


def waits(observed: PoolSnapshot) -> dict[str, str]:
    """Why VMs wait, by name."""
    return {each.name: each.reason for each in plan(observed, NOW).waits}


def outline(action: Action) -> tuple[Any, ...] | None:
    """An action without its reason and what follows from its VM. None for actions of other kinds."""
    match action:
        case Create():
            return "create", action.name
        case Delete():
            return "delete and keep disks" if action.retain_disks else "delete", action.name
        case SaveRevision():
            return "save", action.name
        case ReleaseDisks():
            return "release", action.name, action.disks, action.retained_by
        case RemoveFinalizer():
            return "unmark", action.name
        case ReturnDisk():
            return "return", action.name, action.disk
    return None
