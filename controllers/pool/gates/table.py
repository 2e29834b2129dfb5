"""The gates of a pool: everything that may delay the stop of a VM, in the order in which they are asked.

The table at the end answers "why does the pool not stop this VM now", together with what the rules want. Lifecycle
hooks (`hooks.after_hooks`) are asked after its gates, because they need the action. A new gate is a function and a row.
"""

from collections.abc import Callable
from datetime import datetime

from controllers.pool.gates import updates
from controllers.pool.gates.disruptions import Answer, Disruption, DisruptionCause, Effect, Gate, Taken
from controllers.pool.gates.healing import disks_at_risk, healing_budget, healing_pause
from controllers.pool.healing_status import waits_for_window
from controllers.pool.progress import deadline_exceeded
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.surge import replacement_reason
from controllers.pool.windows import windows


def deadline(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    return deadline_exceeded(snapshot, now)


def window(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """Maintenance windows protect VMs that serve somebody, and healing only where the spec says so."""
    applies = waits_for_window(snapshot) if wanted.cause == "Healing" else wanted.vm.available
    return windows(snapshot, now).refusal if applies else ""


def zone(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    return taken.zones.refusal(wanted.vm)


def budget(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """Too few VMs would be available. VMs in progress delay all but scale-in."""
    if wanted.cause == "Replacement":
        enough = not wanted.vm.available or taken.budget.available > snapshot.pool.spec.replicas
        return "" if enough else replacement_reason(snapshot)
    if wanted.cause == "ScaleIn":
        return taken.budget.refusal_of_stop(wanted.vm)
    return taken.budget.refusal(wanted.vm, begun=wanted.in_progress)


def migration(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """A restart would end the migration, and begin again what the drain of the node is about to do."""
    vmi = wanted.vm.vmi
    if vmi is None or not vmi.moving:
        return ""
    return "it is being migrated" if vmi.migrating else f"it was evicted from node {vmi.node}, and moves to another one"


def only(*causes: DisruptionCause) -> Callable[[DisruptionCause], bool]:
    return lambda cause: cause in causes


def all_but(*exempt: DisruptionCause) -> Callable[[DisruptionCause], bool]:
    """A rule with a new cause is held by these gates."""
    return lambda cause: cause not in exempt


UPDATES = only("Update", "Rollback", "Restore")
# Scale-in must not wait for an update, and a VM that fails serves nobody.
NOT_URGENT = all_but("ScaleIn", "Replacement", "Healing")

GATES: tuple[Gate, ...] = (
    Gate(
        "Step", updates.step, UPDATES, "Steps and `partition` let some VMs keep the old template.", least=Effect.CHANGES
    ),
    Gate(
        "TemplateFits",
        updates.template_fits,
        UPDATES,
        "The VM's name has no number of the pool, or a disk of the template belongs to somebody else.",
        least=Effect.CHANGES,
        progressing=PoolReason.TEMPLATE_DOES_NOT_FIT,
    ),
    Gate(
        "DisksAtRisk",
        disks_at_risk,
        only("Healing"),
        "A VM is replaced with its disks, but they are being restored, or another VM has one of them.",
    ),
    Gate(
        "Strategy",
        updates.strategy,
        UPDATES,
        "The update strategy is `opportunistic` and the VM is neither halted nor restarted by its guest, or its run"
        " strategy forbids a restart.",
        least=Effect.CHANGES,
    ),
    Gate("NewDisk", updates.new_disk, UPDATES, "A disk that replaces another one is not ready."),
    Gate(
        "ProgressDeadline",
        deadline,
        NOT_URGENT,
        "The update makes no progress for `progressDeadlineSeconds`.",
        least=Effect.MIGRATES,
    ),
    # A user asks for a restore and waits for it. A rollback ends what has failed.
    Gate(
        "MaintenanceWindow",
        window,
        all_but("ScaleIn", "Restore", "Rollback"),
        "No maintenance window is open. VMs that are not available need not wait; healing waits only with"
        " `onlyInMaintenanceWindows`.",
        least=Effect.MIGRATES,
        progressing=PoolReason.WAITING_FOR_WINDOW,
    ),
    Gate("Surge", updates.surge, UPDATES, "With `maxSurge`, a new VM must be available first.", least=Effect.CHANGES),
    Gate(
        "Migration",
        migration,
        NOT_URGENT,
        "The VM is being migrated, or was evicted from its node and is about to be.",
        least=Effect.MIGRATES,
    ),
    # Scale-in balances zones by its order.
    Gate("FailureDomain", zone, NOT_URGENT, "VMs of another zone are not available."),
    Gate(
        "DisruptionBudget",
        budget,
        all_but("Healing"),
        "Too few VMs would stay available, or as many VMs are in progress as `maxUnavailable` allows. VMs in progress"
        " do not delay scale-in.",
    ),
    Gate(
        "HealingPause",
        healing_pause,
        only("Healing"),
        "The VM was replaced a short time ago, or more VMs fail than may be unavailable.",
    ),
    Gate(
        "HealingBudget",
        healing_budget,
        only("Healing"),
        "As many VMs are being replaced, or start, as `maxUnavailable` allows.",
    ),
    Gate(
        "SnapshotBeforeUpdate",
        updates.snapshot_before,
        only("Update", "Rollback"),
        "The snapshot before the update is not ready. A rollback takes none.",
        least=Effect.CHANGES,
        keeps_place=True,
    ),
)
