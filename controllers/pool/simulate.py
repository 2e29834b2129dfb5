"""Simulates the plans of a pool until no actions are left, for users and for admission."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.actions.base import SnapshotEditor, after
from controllers.pool.analysis import overdue
from controllers.pool.plan import plan
from controllers.pool.reasons import PoolReason
from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.update_limit import hash_steps, update_limit
from controllers.pool.waiting import Waiting
from controllers.sets import simulation
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.pool import UpdateProgress
from poolhouse.api.kinds.pool_strategies import UpdateProactive

MAX_STEPS = 200
MAX_STEPS_OF_ANSWER = 50
"""limit for an answer for which somebody waits, such as a response of the webhook or a page"""


@dataclass(frozen=True)
class Checkpoint:
    """The end of a pause, or a successful analysis, which the simulation assumes."""

    verb: str
    reason: str
    progress: UpdateProgress
    """the progress of the update afterwards"""
    name: str = ""
    concerns_vm: ClassVar[bool] = True

    def change(self, editor: SnapshotEditor) -> None:
        editor.snapshot = _with_progress(self.progress, editor.snapshot)


@dataclass(frozen=True)
class Round:
    actions: tuple[Action | Checkpoint, ...] = ()
    blocked: str = ""
    waits: tuple[Waiting, ...] = ()


@dataclass(frozen=True)
class Simulation:
    steps: tuple[Round, ...]
    """consecutive plans, each computed after the actions of the previous plan"""
    complete: bool
    """whether the last plan leaves no actions"""
    blocked: str = ""
    """why the pool does nothing, or still has too many VMs after the steps"""
    waits: tuple[Waiting, ...] = ()
    """VMs that still need an action after the steps"""
    refused: str = ""
    """why the pool creates no VMs"""


def simulate(
    snapshot: PoolSnapshot, now: datetime, max_steps: int = MAX_STEPS, max_actions: int | None = None
) -> Simulation:
    """The consecutive plans of the pool. Pauses end, and analyses are successful."""
    if not snapshot.synced:  # a snapshot knows what was asked about it, and its copy does not
        snapshot = replace(snapshot, synced=True)
    snapshot = _without_deadlines(with_abort(snapshot, now), now)
    found = simulation.simulate(snapshot, now, _plan, after, max_steps, max_actions)
    last = found.last or Round()
    refused = snapshot.disk_conflict.message if snapshot.disk_conflict else ""
    blocked = "spec.paused is true" if snapshot.pool.spec.paused else last.blocked
    return Simulation(found.steps, found.complete, blocked, last.waits, refused)


def _without_deadlines(snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot whose checks do not exceed the deadline while simulated time passes."""
    update = snapshot.pool.status.update
    if update is None or overdue(snapshot, now):
        return snapshot
    ended = {"undecided_since": None, "unsuccessful_since": None}
    checks = tuple(each.model_copy(update=ended) for each in update.checks)
    return _with_progress(update.model_copy(update={"checks": checks}), snapshot)


def _with_progress(progress: UpdateProgress, snapshot: PoolSnapshot) -> PoolSnapshot:
    status = snapshot.pool.status.model_copy(update={"update": progress})
    return replace(snapshot, pool=replace(snapshot.pool, status=status))


def _plan(snapshot: PoolSnapshot, now: datetime) -> Round:
    decided = plan(snapshot, now)
    found: tuple[Action | Checkpoint, ...] = tuple(e for e in decided.actions if not isinstance(e, actions.RunJob))
    if not found and not snapshot.pool.spec.paused and not snapshot.pool.deleting:
        found = tuple(_checkpoint(snapshot, now))
    return Round(found, decided.blocked, decided.waits)


def _checkpoint(snapshot: PoolSnapshot, now: datetime) -> Iterator[Checkpoint]:
    limit, strategy = update_limit(snapshot, now), snapshot.pool.spec.update_strategy.chosen
    if limit.waits is None or limit.progress is None or not isinstance(strategy, UpdateProactive):
        return
    if limit.waits is PoolReason.ANALYSIS_INCONCLUSIVE:
        yield Checkpoint("Analyse", limit.reason, limit.progress.model_copy(update={"checks": ()}))
        return
    done, reason = limit.progress.steps_done + 1, limit.reason
    pause = strategy.all_steps[done - 1].pause
    if pause is not None and pause.duration_seconds is not None and snapshot.progress.paused_since is None:
        # The simulation knows no time at which the pause begins.
        reason = f"step {done} of {len(strategy.all_steps)}: the update is paused for {pause.duration_seconds} s"
    at = {"steps_done": done, "steps_hash": hash_steps(strategy.all_steps[:done]), "paused_since": None, "checks": ()}
    verb = "Pause" if limit.waits is PoolReason.UPDATE_PAUSED else "Analyse"
    yield Checkpoint(verb, reason, limit.progress.model_copy(update=at))


def rows(found: Simulation) -> Iterator[Json]:
    return simulation.rows(found.steps)


def answer(snapshot: PoolSnapshot, now: datetime) -> Json:
    """The response to the webhook for a hypothetical snapshot."""
    found = simulate(snapshot, now, MAX_STEPS_OF_ANSWER, simulation.MAX_ACTIONS_OF_ANSWER)
    steps = simulation.plan_of_answer(rows(found))
    return {"plan": steps, "complete": found.complete, "blocked": found.blocked, "refused": found.refused}
