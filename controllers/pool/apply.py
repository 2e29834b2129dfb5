"""Carries out the plan of a pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.pool.actions import Action, Create
from controllers.pool.events import PoolEvents
from controllers.pool.pools import Pool
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.writes.context import Templates, Writing
from controllers.pool.writes.table import NEEDS, OF_BUDGET, WRITES
from controllers.sets.budget_writes import without_refusal
from controllers.sets.write_batches import Outcome, WriteBatches, merge_outcomes
from controllers.sets.writes import Send, carry_out
from controllers.shared.creation import DefaultingCreator
from controllers.shared.subresources import Subresources
from poolhouse.runtime.api import Api


@dataclass(frozen=True)
class PoolOutcome(Outcome):
    blocked_names: tuple[str, ...] = ()
    """VMs that were not created, because disks of an earlier VM of the name still exist"""
    budget: Outcome = field(default_factory=Outcome)
    """the outcome of the PodDisruptionBudget, whose failure is no failure of the pool"""


@dataclass
class PoolWriter:
    api: Api
    batches: WriteBatches[Pool]
    creator: DefaultingCreator
    subresources: Subresources
    events: PoolEvents
    writes: Mapping[type[Action], Send[Writing]] = field(default_factory=lambda: WRITES)
    templates: Templates = field(init=False)

    def __post_init__(self) -> None:
        self.templates = Templates(self.api)

    async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
        to = self.writing(snapshot)
        # The creations are expected before the first await, so that other pools know which disks will be created.
        self.batches.expect(to.owner, [each for each in plan.actions if isinstance(each, Create)])
        outcomes = await carry_out(self.writes, to, plan.actions, NEEDS)
        budget = merge_outcomes(outcomes.pop(each) for each in OF_BUDGET)
        found = merge_outcomes((*outcomes.values(), without_refusal(budget)))
        blocked = tuple(to.blocked)
        return PoolOutcome(found.failure, found.retry, found.done, found.not_done, found.error, blocked, budget)

    def writing(self, snapshot: PoolSnapshot) -> Writing:
        common = self.api, self.batches, self.creator, snapshot.pool, snapshot.burst
        return Writing(*common, snapshot, self.subresources, self.events, self.templates)
