"""Plans migrations and evacuations, and computes the statuses of migrations and VMIs.

The rules are those of KubeVirt's migration controller and evacuation controller.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import KUBEVIRT_DRAIN_TAINT, KUBEVIRT_EVACUATION
from poolhouse.runtime.resource import Key
from poolhouse.stack.engine.migration.settings import MigrationSettings
from poolhouse.stack.engine.objects import VMI, Migration, Node, seconds_until
from poolhouse.stack.engine.resources import condition, merge_conditions

EVACUATION_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 20.0, 300.0
FINISHED_MIGRATIONS_KEPT = 5
"""number of finished migrations kept for each VMI, as in KubeVirt"""

ENGINE_RESTARTED = "the engine was restarted during the migration"

STATE_FIELDS = (
    *("migrationUid", "migrationPolicyName", "migrationConfiguration", "mode", "sourceNode", "targetNode"),
    *("startTimestamp", "endTimestamp", "completed", "failed", "failureReason", "abortRequested", "abortStatus"),
)
"""fields of a VMI's migrationState"""


@dataclass(frozen=True)
class Wait:
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
    """Delete the obsolete migration."""


@dataclass(frozen=True)
class Outcome:
    """The result of a migration."""

    failure: str = ""
    """reason why the migration failed; empty if it succeeded"""
    aborted: Literal["", "Succeeded", "Failed"] = ""
    """whether an abort succeeded; empty if the migration was not aborted"""
    requested: bool = False
    """whether a user requested the abort by deleting the migration"""


Action = Wait | StartMigration | FinishMigration | DeleteMigration | None


def plan_migration(
    migration: Migration,
    vmi: VMI | None,
    others: Iterable[Migration],
    target: str | None,
    why_not: str,
    draining: Collection[str] = (),
) -> Action:
    """Returns the next action. `others` are migrations of the same VMI. `target` is the node that the scheduler chose;
    without one, `why_not` is the scheduler's message."""
    if migration.final or migration.deleted is not None:
        return None
    if vmi is None or vmi.final or vmi.deleted is not None:
        return FinishMigration("Failed", "the VMI does not exist or has ended")
    if migration.phase == "Running":
        # An earlier process of the engine ran the migration. If the VMI is on the target node, the migration succeeded.
        state = vmi.status.get("migrationState") or {}
        migrated = vmi.node == state.get("targetNode") and state.get("migrationUid") == migration.uid
        return FinishMigration("Succeeded") if migrated else FinishMigration("Failed", ENGINE_RESTARTED)
    if is_evacuation_obsolete(migration, vmi, draining):
        return DeleteMigration()
    if vmi.phase != "Running":
        return Wait("the VMI is not running")
    if first := next((each for each in others if _before(each, migration)), None):
        return Wait(f"migration {first.name} of the same VMI has not ended")
    return StartMigration(target) if target is not None else Wait(why_not)


def _before(other: Migration, migration: Migration) -> bool:
    return not other.final and (other.created, other.name) < (migration.created, migration.name)


def draining_nodes(nodes: Iterable[Node]) -> set[str]:
    return {node.name for node in nodes if any(key == KUBEVIRT_DRAIN_TAINT for key, _ in node.taints)}


def is_evacuation_obsolete(migration: Migration, vmi: VMI, draining: Collection[str]) -> bool:
    """Whether an evacuation is no longer needed: the node is not draining, or the VMI has left the node. A running
    migration is not obsolete, as in KubeVirt."""
    if not migration.evacuates or migration.phase == "Running" or migration.final or migration.deleted is not None:
        return False
    if (vmi.status.get("migrationState") or {}).get("migrationUid") == migration.uid:
        return False
    return vmi.node != migration.evacuates or not (vmi.node in draining or vmi.marked_for_eviction)


MIGRATING = ("LiveMigrate", "LiveMigrateIfPossible")
"""Eviction strategies with which KubeVirt migrates a VMI. Each VMI of the engine can be migrated."""


def vmis_to_evacuate(
    nodes: Iterable[Node], vmis: Iterable[VMI], migrations: Iterable[Migration], now: datetime, default: str
) -> tuple[list[VMI], float | None]:
    """Returns the VMIs that need a migration, and the seconds until the next retry. These are VMIs on draining nodes,
    and those that are marked for eviction, if their eviction strategy migrates; without one, `default` is theirs. A VMI
    waits for a backoff after its evacuation failed."""
    draining = draining_nodes(nodes)
    migrations_of: dict[Key, list[Migration]] = {}
    for each in migrations:
        migrations_of.setdefault((each.namespace, each.vmi), []).append(each)
    found, waits = [], []
    for vmi in vmis:
        if vmi.phase != "Running" or vmi.deleted is not None:
            continue
        if not (vmi.node in draining or vmi.marked_for_eviction):
            continue
        if (vmi.eviction_strategy or default) not in MIGRATING:
            continue
        before = migrations_of.get(vmi.key, [])
        if any(not each.final for each in before):
            continue
        if (wait := _evacuation_backoff(vmi, before, now)) > 0:
            waits.append(wait)
        else:
            found.append(vmi)
    return found, min(waits, default=None)


def _evacuation_backoff(vmi: VMI, before: Iterable[Migration], now: datetime) -> float:
    return retry_after((each for each in before if each.evacuates == vmi.node and each.created >= vmi.created), now)


def retry_after(migrations: Iterable[Migration], now: datetime) -> float:
    """Seconds until the next try of migrations that KubeVirt itself has begun, and of which some have failed."""
    ended = [each.phase_since for each in migrations if each.phase == "Failed"]
    if not ended:
        return 0.0
    pause = min(MAX_BACKOFF_SECONDS, EVACUATION_BACKOFF_SECONDS * 2 ** (len(ended) - 1))
    return seconds_until(max(each or now for each in ended) + timedelta(seconds=pause), now)


def surplus_migrations(migrations: Iterable[Migration]) -> list[Migration]:
    """Returns the oldest finished migrations of a VMI that exceed the number to keep."""
    over = sorted((each for each in migrations if each.final), key=lambda each: (each.created, each.name))
    return over[:-FINISHED_MIGRATIONS_KEPT]


def started_state(vmi: VMI, migration: Migration, target: str, settings: MigrationSettings, now: datetime) -> Json:
    """Returns the VMI's migrationState for a migration that starts."""
    state: Json = {
        "migrationUid": migration.uid,
        "sourceNode": vmi.node,
        "targetNode": target,
        "startTimestamp": format_time(now),
        "mode": "PreCopy",
        "migrationConfiguration": settings.values or {},
    }
    return {**state, "migrationPolicyName": settings.policy} if settings.policy else state


def finished_state(state: Json, now: datetime, outcome: Outcome) -> Json:
    """Returns the migrationState of a migration that has ended."""
    done = {**state, "endTimestamp": format_time(now), "completed": True}
    if outcome.failure:
        done |= {"failed": True, "failureReason": outcome.failure}
    if outcome.requested:
        done["abortRequested"] = True
    return {**done, "abortStatus": outcome.aborted} if outcome.aborted else done


def state_patch(state: Json) -> Json:
    """Returns a merge patch that also removes fields of an earlier migration."""
    return {**dict.fromkeys(STATE_FIELDS), **state}


def post_copy_unavailable(why: str) -> Json:
    """Returns the condition of a migration whose policy allows post-copy on a machine without post-copy support."""
    return condition("PostCopyPossible", False, "NotPossibleHere", why)


def migration_status(
    migration: Migration,
    phase: str,
    now: datetime,
    why: str = "",
    state: Json | None = None,
    conditions: Sequence[Json] = (),
) -> Json:
    """Returns the migration's status, with the VMI's migrationState and additional conditions."""
    transitions = list(migration.status.get("phaseTransitionTimestamps") or ())
    if phase != migration.phase:
        transitions.append({"phase": phase, "phaseTransitionTimestamp": format_time(now)})
    progressing = [condition("Progressing", phase == "Running", message=why)] if why or migration.status else []
    before = migration.status.get("conditions") or ()
    merged = merge_conditions(before, [*progressing, *conditions], now)
    fields = {"phase": phase, "phaseTransitionTimestamps": transitions, "conditions": merged}
    return {**migration.status, **fields, **({"migrationState": state} if state else {})}


def new_evacuation(vmi: VMI) -> Json:
    """Returns a migration object that evacuates the VMI from its node."""
    return new_migration(vmi, "kubevirt-evacuation-", {KUBEVIRT_EVACUATION: vmi.node})


def new_migration(vmi: VMI, prefix: str, annotations: Json) -> Json:
    metadata = {
        "generateName": prefix,
        "namespace": vmi.namespace,
        "annotations": annotations,
        "labels": {"kubevirt.io/vmi-name": vmi.name[:63]},
    }
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
    return {**kind, "metadata": metadata, "spec": {"vmiName": vmi.name}}
