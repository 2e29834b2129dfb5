"""What a reconcile of a pool computes before its writes and after them: pure functions for the planner."""

from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions import Action
from controllers.pool.analysis import checks_of, seconds_until_due
from controllers.pool.decisions import decisions
from controllers.pool.plan import plan
from controllers.pool.pools import Pool
from controllers.pool.rollback import with_abort
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.sets.eviction_budgets import Refusal
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.decisions import Decision
from poolhouse.api.kinds.pool import PoolStatus
from poolhouse.api.kinds.pool_strategies import ScaleInProactive, SelectionPolicy, UpdateProactive


@dataclass(frozen=True)
class Decided:
    """What to do, with the snapshot from which it follows."""

    snapshot: PoolSnapshot
    plan: Plan
    before_healing: PoolStatus | None
    """The status to write first, because the plan heals VMs. A controller without this record could replace a VM again
    and again."""
    invalid_scale_in: tuple[VM, ...]


@dataclass(frozen=True)
class Done:
    """What was done."""

    plan: Plan
    status: PoolStatus
    decisions: tuple[Decision, ...]
    measure_seconds: float | None
    """seconds until the next measurement is due"""


def decide(snapshot: PoolSnapshot, now: datetime) -> Decided | PoolSnapshot:
    """What to do. If the update is aborted, the snapshot in which VMs should have their former template instead: the
    pool must have this template, which is not in the snapshot, before there can be a plan."""
    found = with_abort(snapshot, now)
    return decide_rest(snapshot, now) if found.aborted is None else found


def decide_rest(snapshot: PoolSnapshot, now: datetime) -> Decided:
    decided = plan(snapshot, now)
    heals = pool_status(snapshot, decided, now) if decided.healed else None
    return Decided(snapshot, decided, heals, tuple(vm for vm in snapshot.active if vm.has_invalid_scale_in))


def conclude(
    decided: Decided,
    not_done: Container[Action],
    failure: Failure | None,
    budget_refusal: Refusal | None,
    now: datetime,
) -> Done:
    snapshot = replace(decided.snapshot, budget_refusal=budget_refusal)
    done = replace(decided.plan, actions=tuple(each for each in decided.plan.actions if each not in not_done))
    fresh = pool_status(replace(snapshot, failure=snapshot.disk_conflict or failure), done, now)
    after = replace(snapshot, pool=replace(snapshot.pool, status=fresh))
    due = [seconds_until_due(after, check, now) for check in checks_of(after)]
    wait = min((each for each in due if each is not None), default=None)
    return Done(done, fresh, tuple(decisions(snapshot, done.actions, now)), wait)


def what_costs(pool: Pool, vms: int) -> str:
    """What a plan of the pool is expensive for."""
    spec = pool.spec
    strategies = spec.update_strategy.chosen, spec.scale_in_strategy.chosen
    policies = [
        policy
        for each in strategies
        if isinstance(each, UpdateProactive | ScaleInProactive) and isinstance(each.selection_policy, SelectionPolicy)
        for policy in each.selection_policy.ordered_policies
    ]
    expressions = sum(len(each.label_selector.match_expressions) for each in policies)
    found = [count_noun(vms, "VM")]
    if policies:
        found.append(f"orderedPolicies with {count_noun(expressions, 'expression')}")
    if spec.maintenance_windows:
        found.append(count_noun(len(spec.maintenance_windows), "maintenance window"))
    return ", ".join(found)
