"""What to do about a policy: keep the one of KubeVirt's that enforces it in step. And about an instance: stamp it."""

from __future__ import annotations

from dataclasses import dataclass

from apimachinery.unstructured import Json
from controllers.migrationpolicy.state import Enforcer, Instance, State
from migrationpolicies.upstream import upstream_spec


@dataclass(frozen=True)
class Create:
    spec: Json
    reason: str = "nothing enforces the policy yet"


@dataclass(frozen=True)
class Repair:
    uid: str
    spec: Json
    reason: str


@dataclass(frozen=True)
class Delete:
    uid: str
    reason: str


@dataclass(frozen=True)
class Stamp:
    uid: str
    policy: str | None
    """None takes the stamp off"""
    reason: str


Action = Create | Repair | Delete


def plan(state: State) -> Action | None:
    found = state.enforcer
    if not state.served or state.policy.deleting or (found is not None and found.deleting):
        return None
    if not state.active:
        return Delete(found.uid, "the policy takes no part in deciding") if found and ours(state, found) else None
    wanted = upstream_spec(state.policy.name, state.policy.spec)
    if found is None:
        return Create(wanted)
    if not ours(state, found):
        return Repair(found.uid, wanted, "it had lost its owner") if orphaned(found) else None
    return Repair(found.uid, wanted, _drift(found.spec, wanted)) if found.spec != wanted else None


def stamp(instance: Instance, winner: str | None) -> Stamp | None:
    if instance.stamp == winner or not instance.live:
        return None
    if winner is None:
        return Stamp(instance.uid, None, "no policy matches it any more")
    return Stamp(instance.uid, winner, f"it obeys {winner}" + (f", not {instance.stamp}" if instance.stamp else ""))


def ours(state: State, found: Enforcer) -> bool:
    """By controller reference and UID; a name or a label can be anybody's."""
    return found.owner == state.policy.uid


def orphaned(found: Enforcer) -> bool:
    """Ours once, and left behind when the owner was deleted without what it owned."""
    return found.marked and not found.owner


def _drift(found: Json, wanted: Json) -> str:
    differ = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    return f"{', '.join(differ)} differed from the policy"
