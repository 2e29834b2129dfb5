"""Builders for tests of warm pools. Arguments that a test does not give have no influence on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.shared.vmi import VMI
from controllers.warmpool.actions import (
    Action,
    CountFailedCheck,
    CreateVM,
    DeleteVM,
    OrphanVM,
    SetFinalizer,
    SetStandby,
    SetState,
)
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.health import standby_health, vmi_health
from controllers.warmpool.plan import plan
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_pool import WarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import CLAIM_KIND, PAUSED_BY_USER, POOL_KIND, Node, Owner, StandbyMode, WarmVM
from poolhouse.api.kinds.warm_states import WarmState

Json = dict[str, Any]

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
UID = "pool-uid"
TEMPLATE: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}}}
OTHER_TEMPLATE: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "96Mi"}}}}}}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


PERMITTED: Json = {
    "allowedOverrides": ["instancetype", "image", "placement"],
    "allowedPersonalization": ["hostname", "labels", "sshPublicKeySecret"],
}
"""a claimPolicy that lets claims ask for everything"""


def a_pool(replicas: int = 3, *, status: Json | None = None, **given: Any) -> WarmPool:
    """`given` has fields of the metadata and of the spec, named as in the API. Claims may ask for everything unless
    `claimPolicy` says otherwise."""
    metadata = {"namespace": "ns", "name": "web", "uid": UID, "generation": 1, "resourceVersion": "1"}
    metadata["creationTimestamp"] = ago(3600)
    for key in ("name", "uid", "creationTimestamp", "deletionTimestamp", "finalizers"):
        if key in given:
            metadata[key] = given.pop(key)
    given["claimPolicy"] = {**PERMITTED, **given.get("claimPolicy", {})}
    spec = {"replicas": replicas, "template": TEMPLATE, **given}
    found = parse_warm_pool({"metadata": metadata, "spec": spec, "status": status or {}})
    assert isinstance(found, WarmPool), found
    return found


def a_vmi(**facts: Any) -> VMI:
    facts = {"conditions": frozenset({"Ready"}), "phase": "Running", "node": "node-1", **facts}
    facts = {"ready": "Ready" in facts["conditions"], "addresses": ("10.0.0.1",), **facts}
    return VMI("ns", facts.pop("name", "vm"), facts.pop("uid", "vmi"), **facts)


NODE = Node("node-1")
CORDONED = Node("node-1", leaving=True)
NOT_READY_NODE = Node("node-1", ready=False)


def a_vm(name: str, state: WarmState | None = WarmState.READY, *, of: WarmPool | None = None, **facts: Any) -> WarmVM:
    """A healthy VM of the current template, as its state and standby mode imply."""
    home = of or a_pool()
    standby: StandbyMode = facts.pop("standby", "Running")
    placement = facts.pop("placement", next(iter(home.placements)))
    found = WarmVM(
        namespace="ns",
        name=f"web-{name}",
        uid=name,
        resource_version="1",
        state=state,
        pool="web",
        pool_uid=home.uid,
        owner=Owner(POOL_KIND, "web", home.uid),
        template_hash=home.hashes.get(placement, ""),
        placement=placement,
        standby=standby,
        created_at=ago(600),
        state_since=ago(60),
        vmi=a_vmi(name=f"web-{name}", owner_uid=name),
        node=NODE,
    )
    if state is WarmState.READY and standby == "Paused":
        found = replace(found, vmi=a_vmi(name=f"web-{name}", owner_uid=name, paused=PAUSED_BY_USER))
    if state is WarmState.READY and standby == "Stopped":
        found = replace(found, vmi=None, node=None, run_strategy="Halted")
    if state in (WarmState.ALLOCATING, WarmState.IN_USE):
        found = replace(found, claim_uid=f"claim-{name}", owner=Owner(CLAIM_KIND, name, f"claim-{name}"))
    return replace(found, **facts)


def a_cache(*vms: WarmVM, nodes: tuple[Node, ...] = (Node("node-1"),)) -> WarmVMCache:
    found = WarmVMCache()
    for vm in vms:
        found.vms.put(vm.key, replace(vm, vmi=None, node=None))
        if vm.vmi is not None:
            found.vmis.put(vm.key, vm.vmi)
    for each in nodes:
        found.nodes.put(each.key, each)
    return found


FAILED = Health("Failed", "NoAnswer", "no answer")
UNABLE = Health("Unable", "NodeNotReady", "node node-1 is not ready")


def vm_health(vm: WarmVM, pool: WarmPool, **facts: Any) -> VMHealth:
    """The health that follows from the VM, with the given facts."""
    awake = vmi_health(vm, pool.spec.readiness)
    found = VMHealth(awake, awake if vm.standby == "Running" else standby_health(vm), healthy_seconds=1000.0)
    return VMHealth(**{**found.__dict__, **facts})


def a_snapshot(
    of: WarmPool | int, *vms: WarmVM, health: dict[str, VMHealth] | None = None, **facts: Any
) -> WarmPoolSnapshot:
    pool = a_pool(of) if isinstance(of, int) else of
    found = {vm.uid: vm_health(vm, pool) for vm in vms} | (health or {})
    return WarmPoolSnapshot(
        pool=pool,
        vms=vms,
        health=found,
        seed="s",
        default_pool=facts.pop("default_pool", pool),
        **facts,
    )


def failing(periods: int = 1, **facts: Any) -> VMHealth:
    return VMHealth(
        **{"running": FAILED, "in_standby": FAILED, "failed_periods": periods, "period_over": True, **facts}
    )


def healthy(seconds: float = 1000.0) -> VMHealth:
    return VMHealth(HEALTHY, HEALTHY, healthy_seconds=seconds)


def summary(action: Action) -> tuple[Any, ...]:
    match action:
        case CreateVM():
            return "create", action.standby
        case DeleteVM():
            return "delete", action.vm.uid, action.cause
        case OrphanVM():
            return "orphan", action.vm.uid, action.cause
        case SetState():
            return ("state", action.vm.uid, action.state.value, *([action.standby] if action.standby else []))
        case SetStandby():
            return "standby", action.vm.uid, action.mode
        case CountFailedCheck():
            return "count", action.vm.uid, action.failures
        case SetFinalizer():
            return "finalizer", action.wanted
    raise AssertionError(f"no summary of {action}")


def planned(observed: WarmPoolSnapshot) -> list[tuple[Any, ...]]:
    return [summary(action) for action in plan(observed, NOW).actions]


CREATE = ("create", "Running")
NEW = WarmState.PROVISIONING
OLD = a_pool(template=OTHER_TEMPLATE)
UNSCHEDULABLE = {"vmi": a_vmi(start_failure="Unschedulable", phase="Scheduling", conditions=frozenset())}
OVER_QUOTA = {"start_refusal": 'virtualmachineinstances "a" is forbidden: exceeded quota: vms', "vmi": None}
FAILING_TO_START = {"vmi": a_vmi(start_failure="ErrImagePull", phase="Scheduling", conditions=frozenset())}


def outdated(name: str, was: WarmState = WarmState.READY, **facts: Any) -> Any:
    return a_vm(name, was, of=OLD, **facts)


def ready(count: int) -> list[Any]:
    return [a_vm(f"r{n}") for n in range(count)]


def failed_long(name: str, **facts: Any) -> Any:
    return a_vm(name, WarmState.UNHEALTHY, check_failures=6, **facts)


LONG_FAILED_ALL = {name: failing(9) for name in "abc"}
PAUSED_POOL = a_pool(1, standby={"mode": "Paused"})
FOUR_OLD = [outdated(f"o{n}", created_at=ago(100 - n)) for n in range(4)]
OVERDUE = {"templateHash": a_pool().template_hash, "lastProgressTime": ago(700)}
