"""What becomes of a migration, and what a VMI's status says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kinds.meta import KUBEVIRT_DRAIN_TAINT
from local.engine.conditions import condition, settle
from local.engine.terms import Terms
from local.engine.times import stamp
from local.engine.views import Instance, Migration, Node

Json = dict[str, Any]


@dataclass(frozen=True)
class Wait:
    """Nothing can be done yet; `why` is told."""

    why: str


@dataclass(frozen=True)
class Move:
    target: str


@dataclass(frozen=True)
class End:
    phase: Literal["Succeeded", "Failed"]
    why: str = ""


Next = Wait | Move | End | None


def what_next(
    migration: Migration, instance: Instance | None, others: Iterable[Migration], target: str | None, why_not: str
) -> Next:
    """`others` are the migrations of the same VMI, `target` is where the VMI could go now."""
    if migration.final or migration.deleted is not None:
        return None
    if instance is None or instance.final or instance.deleted is not None:
        return End("Failed", "the VMI is not there to be moved")
    if migration.phase == "Running":
        # Whoever moved it has gone: the engine was ended in the middle. The VMI is where it is.
        state = instance.status.get("migrationState") or {}
        there = instance.node == state.get("targetNode") and state.get("migrationUid") == migration.uid
        return End("Succeeded") if there else End("Failed", "the engine was ended in the middle of it")
    if instance.phase != "Running":
        return Wait("the VMI does not run yet")
    if first := next((each for each in others if _before(each, migration)), None):
        return Wait(f"migration {first.name} of the same VMI is not over")
    return Move(target) if target is not None else Wait(why_not)


def _before(other: Migration, migration: Migration) -> bool:
    return not other.final and (other.created, other.name) < (migration.created, migration.name)


def drained(nodes: Iterable[Node], instances: Iterable[Instance], migrations: Iterable[Migration]) -> list[Instance]:
    """VMIs that are to leave their node and for which nobody has asked it yet."""
    leaving = {node.name for node in nodes if any(key == KUBEVIRT_DRAIN_TAINT for key, _ in node.taints)}
    moving = {(each.namespace, each.vmi) for each in migrations if not each.final}
    return [
        each
        for each in instances
        if each.node in leaving and each.phase == "Running" and each.deleted is None and each.key not in moving
    ]


def begun(instance: Instance, migration: Migration, target: str, terms: Terms, now: datetime) -> Json:
    """The VMI's migrationState while it is moved."""
    state: Json = {
        "migrationUid": migration.uid,
        "sourceNode": instance.node,
        "targetNode": target,
        "startTimestamp": stamp(now),
        "mode": "PreCopy",
        "migrationConfiguration": terms.said or {},
    }
    return {**state, "migrationPolicyName": terms.policy} if terms.policy else state


def ended(state: Json, now: datetime, failure: str | None) -> Json:
    """The same when it is over."""
    done = {**state, "endTimestamp": stamp(now), "completed": True}
    return done if failure is None else {**done, "failed": True, "failureReason": failure}


def status_of(migration: Migration, phase: str, now: datetime, why: str = "") -> Json:
    """The migration's own status."""
    stamps = list(migration.status.get("phaseTransitionTimestamps") or ())
    if phase != migration.phase:
        stamps.append({"phase": phase, "phaseTransitionTimestamp": stamp(now)})
    told = [condition("Progressing", phase == "Running", message=why)] if why or migration.status else []
    before = migration.status.get("conditions") or ()
    conditions = settle(before, told, now)
    return {**migration.status, "phase": phase, "phaseTransitionTimestamps": stamps, "conditions": conditions}


def evacuation(instance: Instance) -> Json:
    """The migration that brings a VMI away from a node that is drained."""
    metadata = {
        "generateName": "kubevirt-evacuation-",
        "namespace": instance.namespace,
        "annotations": {"kubevirt.io/evacuationMigration": instance.node},
        "labels": {"kubevirt.io/vmi-name": instance.name[:63]},
    }
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
    return {**kind, "metadata": metadata, "spec": {"vmiName": instance.name}}
