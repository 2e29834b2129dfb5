"""A controller whose writes a test chooses, with a pool `web` of three VMs, of which the first fails."""

from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client import CollectorRegistry

from controllers.pool.apply import PoolOutcome, PoolWriter
from controllers.pool.controller import PoolController
from controllers.pool.events import PoolEvents
from controllers.pool.metrics import PoolMetrics
from controllers.pool.pools import POOLS, Pool
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets.write_batches import WriteBatches
from controllers.shared.status_writer import LastWrite, StatusWriter, View
from controllers.shared.subresources import Subresources
from poolhouse.api.kinds.pool import PoolStatus
from poolhouse.runtime.api import Api
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key
from tests.controllers.pool.builders import NOW, a_pool, vm
from tests.controllers.pool.stores import stored
from tests.planning import InlinePlanner

FAILING = vm(1, ready=False, vmi_exists=False, start_failures=3, printable_status="CrashLoopBackOff")


class FakeWriter:
    """Returns the outcome that a test has chosen, and records the plans."""

    def __init__(self, outcome: Callable[[Plan], PoolOutcome] = lambda plan: PoolOutcome()) -> None:
        self.outcome = outcome
        self.applied: list[Plan] = []
        self.batches: WriteBatches[Pool] = WriteBatches(cast(PoolEvents, None), Expectations(), lambda: 0.0)
        self.events = cast(PoolEvents, None)
        self.statuses = RecordedStatuses()
        self.subresources = Subresources(cast(Api, None), lambda: 0.0)

    async def apply(self, snapshot: PoolSnapshot, plan: Plan) -> PoolOutcome:
        self.applied.append(plan)
        return self.outcome(plan)


class RecordedStatuses(StatusWriter[PoolStatus]):
    def __init__(self) -> None:
        super().__init__(cast(Api, None), POOLS, lambda: 0.0)
        self.written: list[PoolStatus] = []

    async def write(self, view: View[PoolStatus], fresh: PoolStatus, last: LastWrite) -> bool:
        self.written.append(fresh)
        last.unwritten.clear()
        last.at = self.clock()
        return True


def controlled(writer: FakeWriter | None = None, registry: CollectorRegistry | None = None) -> PoolController:
    writer = writer or FakeWriter()
    return PoolController(
        stores=stored(a_pool(3, autohealing={}), FAILING, vm(2), vm(3)),
        writer=cast(PoolWriter, writer),
        statuses=writer.statuses,
        metrics=PoolMetrics(registry or CollectorRegistry()),
        planner=InlinePlanner(),
        burst=250,
        clock=lambda: 0.0,
        now=lambda: NOW,
        find_collected=nothing_collected,
    )


async def nothing_collected(disks: Iterable[Key]) -> set[Key]:
    return set()


def seen(controller: PoolController, pool: Pool) -> PoolSnapshot:
    found = controller.observe(pool.key)
    assert isinstance(found, PoolSnapshot)
    return found


def ignore(key: Key, seconds: float) -> None:
    """Enqueues nothing."""
