"""What tests of warm pools are made of: whatever a row does not name does not matter."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.warmpool.actions import Action, Count, Create, Hold, Move, Orphan, Rest, Terminate
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.health import resting, vitals
from controllers.warmpool.node import Node
from controllers.warmpool.plan import plan
from controllers.warmpool.snapshot import State, Vital
from controllers.warmpool.vmi import PAUSED_BY_US, Guest
from controllers.warmpool.warm_pool import Pool, pool
from controllers.warmpool.warm_vm import CLAIM_KIND, POOL_KIND, Machine, Owner, Standby
from kinds.warm import Warm

Json = dict[str, Any]

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
UID = "pool-uid"
TEMPLATE: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}}}
OTHER_TEMPLATE: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "96Mi"}}}}}}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_pool(replicas: int = 3, *, status: Json | None = None, **given: Any) -> Pool:
    """`given` is in the API's own words: metadata fields and the rest of the spec."""
    metadata = {"namespace": "ns", "name": "web", "uid": UID, "generation": 1, "resourceVersion": "1"}
    metadata["creationTimestamp"] = ago(3600)
    for key in ("name", "uid", "creationTimestamp", "deletionTimestamp", "finalizers"):
        if key in given:
            metadata[key] = given.pop(key)
    spec = {"replicas": replicas, "template": TEMPLATE, **given}
    found = pool({"metadata": metadata, "spec": spec, "status": status or {}})
    assert isinstance(found, Pool), found
    return found


def a_guest(**facts: Any) -> Guest:
    facts = {"holds": frozenset({"Ready"}), "phase": "Running", "node": "node-1", "addresses": ("10.0.0.1",), **facts}
    return Guest("ns", facts.pop("name", "vm"), facts.pop("uid", "guest"), **facts)


NODE = Node("node-1")
CORDONED = Node("node-1", leaving=True)
SILENT = Node("node-1", ready=False)


def machine(name: str, state: Warm | None = Warm.READY, *, of: Pool | None = None, **facts: Any) -> Machine:
    """A healthy one of today's template, with what its state and standby imply."""
    home = of or a_pool()
    standby: Standby = facts.pop("standby", "Running")
    placement = facts.pop("placement", next(iter(home.placements)))
    found = Machine(
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
        born=ago(600),
        since=ago(60),
        guest=a_guest(name=f"web-{name}", owner=name),
        node=NODE,
    )
    if state is Warm.READY and standby == "Paused":
        found = replace(found, guest=a_guest(name=f"web-{name}", owner=name, paused=PAUSED_BY_US))
    if state is Warm.READY and standby == "Stopped":
        found = replace(found, guest=None, node=None, strategy="Halted")
    if state in (Warm.ALLOCATING, Warm.IN_USE):
        found = replace(found, claim_uid=f"claim-{name}", owner=Owner(CLAIM_KIND, name, f"claim-{name}"))
    return replace(found, **facts)


FAILED = Health("Failed", "NoAnswer", "no answer")
UNABLE = Health("Unable", "NodeNotReady", "node node-1 does not answer")


def vital(m: Machine, pool: Pool, **facts: Any) -> Vital:
    """As it follows from the machine, but for what is given."""
    awake = vitals(m, pool.spec.readiness)
    found = Vital(awake, awake if m.standby == "Running" else resting(m), well_seconds=1000.0)
    return Vital(**{**found.__dict__, **facts})


def state(of: Pool | int, *machines: Machine, health: dict[str, Vital] | None = None, **facts: Any) -> State:
    pool = a_pool(of) if isinstance(of, int) else of
    found = {m.uid: vital(m, pool) for m in machines} | (health or {})
    return State(pool=pool, machines=machines, vitals=found, seed="s", default=facts.pop("default", pool), **facts)


def failing(periods: int = 1, **facts: Any) -> Vital:
    return Vital(**{"awake": FAILED, "waiting": FAILED, "failing": periods, "period_over": True, **facts})


def well(seconds: float = 1000.0) -> Vital:
    return Vital(HEALTHY, HEALTHY, well_seconds=seconds)


def told(action: Action) -> tuple[Any, ...]:
    match action:
        case Create():
            return "create", action.standby
        case Terminate():
            return "terminate", action.machine.uid, action.cause
        case Orphan():
            return "orphan", action.machine.uid, action.cause
        case Move():
            return ("move", action.machine.uid, action.state.value, *([action.standby] if action.standby else []))
        case Rest():
            return "rest", action.machine.uid, action.mode
        case Count():
            return "count", action.machine.uid, action.failures
        case Hold():
            return "hold", action.wanted


def doings(observed: State) -> list[tuple[Any, ...]]:
    return [told(action) for action in plan(observed, NOW).actions]
