"""What becomes of a migration, and what a VMI's status says of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from apimachinery.timestamps import format_time
from kinds.meta import KUBEVIRT_DRAIN_TAINT
from local.engine.conditions import condition, merge_conditions
from local.engine.migration.settings import MigrationSettings
from local.engine.objects import VMI, Migration, Node, seconds_until
from local.engine.resources import EVACUATION_ANNOTATION
from runtime.resource import Key

Json = dict[str, Any]


PAUSE_SECONDS, CAP_SECONDS = 20.0, 300.0
"""after one failed try to leave a node, and the longest there is"""
FINISHED_MIGRATIONS_KEPT = 5
"""migrations of a VMI that are over and stay to be seen, as in KubeVirt"""

ENGINE_ENDED = "the engine was ended in the middle of it"

STATE = (
    *("migrationUid", "migrationPolicyName", "migrationConfiguration", "mode", "sourceNode", "targetNode"),
    *("startTimestamp", "endTimestamp", "completed", "failed", "failureReason", "abortRequested", "abortStatus"),
)
"""fields of a VMI's migrationState"""


@dataclass(frozen=True)
class Wait:
    """Nothing can be done yet; `why` is told."""

    why: str


@dataclass(frozen=True)
class StartMigration:
    target: str


@dataclass(frozen=True)
class FinishMigration:
    phase: Literal["Succeeded", "Failed"]
    why: str = ""


@dataclass(frozen=True)
class DeleteMigration:
    """Nobody needs it any more."""


@dataclass(frozen=True)
class Outcome:
    """Of a guest that was moved."""

    failure: str = ""
    """why it is where it was; empty where it has moved"""
    aborted: Literal["", "Succeeded", "Failed"] = ""
    """whether giving it up went well, as KubeVirt says it; empty where nobody gave it up"""
    requested: bool = False
    """somebody took the migration back"""


Action = Wait | StartMigration | FinishMigration | DeleteMigration | None


def plan_migration(
    migration: Migration,
    vmi: VMI | None,
    others: Iterable[Migration],
    target: str | None,
    why_not: str,
    drained: Collection[str] = (),
) -> Action:
    """`others` are the migrations of the same VMI, `target` is where the VMI could go now, `drained` are nodes."""
    if migration.final or migration.deleted is not None:
        return None
    if vmi is None or vmi.final or vmi.deleted is not None:
        return FinishMigration("Failed", "the VMI is not there to be moved")
    if migration.phase == "Running":
        # Whoever moved it has gone: the engine was ended in the middle. The VMI is where it is.
        state = vmi.status.get("migrationState") or {}
        there = vmi.node == state.get("targetNode") and state.get("migrationUid") == migration.uid
        return FinishMigration("Succeeded") if there else FinishMigration("Failed", ENGINE_ENDED)
    if is_evacuation_obsolete(migration, vmi, drained):
        return DeleteMigration()
    if vmi.phase != "Running":
        return Wait("the VMI does not run yet")
    if first := next((each for each in others if _before(each, migration)), None):
        return Wait(f"migration {first.name} of the same VMI is not over")
    return StartMigration(target) if target is not None else Wait(why_not)


def _before(other: Migration, migration: Migration) -> bool:
    return not other.final and (other.created, other.name) < (migration.created, migration.name)


def draining_nodes(nodes: Iterable[Node]) -> set[str]:
    """Those that are drained."""
    return {node.name for node in nodes if any(key == KUBEVIRT_DRAIN_TAINT for key, _ in node.taints)}


def is_evacuation_obsolete(migration: Migration, vmi: VMI, drained: Collection[str]) -> bool:
    """Whether it was to bring the VMI away from a node that is not drained any more, or that the VMI has left. One that
    has begun goes on, as with KubeVirt."""
    if not migration.evacuates or migration.phase == "Running" or migration.final or migration.deleted is not None:
        return False
    if (vmi.status.get("migrationState") or {}).get("migrationUid") == migration.uid:
        return False
    return vmi.node != migration.evacuates or vmi.node not in drained


def vmis_to_evacuate(
    nodes: Iterable[Node], vmis: Iterable[VMI], migrations: Iterable[Migration], now: datetime
) -> tuple[list[VMI], float | None]:
    """VMIs that are to leave their node and for which nobody has asked it yet, and in how many seconds to look again:
    one that failed to leave is asked again after a pause that grows."""
    left = draining_nodes(nodes)
    asked: dict[Key, list[Migration]] = {}
    for each in migrations:
        asked.setdefault((each.namespace, each.vmi), []).append(each)
    found, waits = [], []
    for vmi in vmis:
        if vmi.node not in left or vmi.phase != "Running" or vmi.deleted is not None:
            continue
        before = asked.get(vmi.key, [])
        if any(not each.final for each in before):
            continue
        if (wait := _pause(vmi, before, now)) > 0:
            waits.append(wait)
        else:
            found.append(vmi)
    return found, min(waits, default=None)


def _pause(vmi: VMI, before: Iterable[Migration], now: datetime) -> float:
    ended = [
        each.phase_since
        for each in before
        if each.phase == "Failed" and each.evacuates == vmi.node and each.created >= vmi.created
    ]
    if not ended:
        return 0.0
    pause = min(CAP_SECONDS, PAUSE_SECONDS * 2 ** (len(ended) - 1))
    return seconds_until(max(each or now for each in ended) + timedelta(seconds=pause), now)


def surplus_migrations(migrations: Iterable[Migration]) -> list[Migration]:
    """Of one VMI's, those that are over and that nobody needs to see any more, the oldest."""
    over = sorted((each for each in migrations if each.final), key=lambda each: (each.created, each.name))
    return over[:-FINISHED_MIGRATIONS_KEPT]


def started_state(vmi: VMI, migration: Migration, target: str, settings: MigrationSettings, now: datetime) -> Json:
    """The VMI's migrationState while it is moved."""
    state: Json = {
        "migrationUid": migration.uid,
        "sourceNode": vmi.node,
        "targetNode": target,
        "startTimestamp": format_time(now),
        "mode": "PreCopy",
        "migrationConfiguration": settings.said or {},
    }
    return {**state, "migrationPolicyName": settings.policy} if settings.policy else state


def post_copy_state(state: Json) -> Json:
    """The same once the guest runs on its target and its memory follows."""
    return {**state, "mode": "PostCopy"}


def finished_state(state: Json, now: datetime, outcome: Outcome) -> Json:
    """The same when it is over."""
    done = {**state, "endTimestamp": format_time(now), "completed": True}
    if outcome.failure:
        done |= {"failed": True, "failureReason": outcome.failure}
    if outcome.requested:
        done["abortRequested"] = True
    return {**done, "abortStatus": outcome.aborted} if outcome.aborted else done


def state_patch(state: Json) -> Json:
    """What is written for it: nothing stays of the migration before."""
    return {**dict.fromkeys(STATE), **state}


def post_copy_unavailable(why: str) -> Json:
    """The condition of a migration whose policy allows post-copy where that cannot be done."""
    return condition("PostCopyPossible", False, "NotPossibleHere", why)


def migration_status(
    migration: Migration,
    phase: str,
    now: datetime,
    why: str = "",
    state: Json | None = None,
    notes: Sequence[Json] = (),
) -> Json:
    """The migration's own status: `state` is the VMI's migrationState of it, `notes` are conditions to add."""
    stamps = list(migration.status.get("phaseTransitionTimestamps") or ())
    if phase != migration.phase:
        stamps.append({"phase": phase, "phaseTransitionTimestamp": format_time(now)})
    told = [condition("Progressing", phase == "Running", message=why)] if why or migration.status else []
    before = migration.status.get("conditions") or ()
    conditions = merge_conditions(before, [*told, *notes], now)
    said = {"phase": phase, "phaseTransitionTimestamps": stamps, "conditions": conditions}
    return {**migration.status, **said, **({"migrationState": state} if state else {})}


def evacuation(vmi: VMI) -> Json:
    """The migration that brings a VMI away from a node that is drained."""
    metadata = {
        "generateName": "kubevirt-evacuation-",
        "namespace": vmi.namespace,
        "annotations": {EVACUATION_ANNOTATION: vmi.node},
        "labels": {"kubevirt.io/vmi-name": vmi.name[:63]},
    }
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
    return {**kind, "metadata": metadata, "spec": {"vmiName": vmi.name}}
