"""Histories of a warm pool and its claims."""

from __future__ import annotations

from random import Random
from typing import Any

from controllers.shared.component import Component, ControllerContext
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool_and_claim import build as build_warm
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import VMS
from tests.cluster.claiming import Counter
from tests.cluster.simulated.test_warm_chaos import MAX_TOTAL, Users, why_not_at_rest
from tests.cluster.warm_invariants import InvariantChecker
from tests.histories.api_server import Change
from tests.histories.history import Act, History
from tests.histories.others import respell_template, strip_owners
from tests.histories.world import HERE, World
from tests.planning import InlinePlanner

Json = dict[str, Any]

VM_RESOURCE, CLAIM_RESOURCE = "virtualmachines.kubevirt.io", "virtualmachineclaims.poolhouse.dev"
POOL_RESOURCE = "virtualmachinewarmpools.poolhouse.dev"


def build(api: Api, events: EventRecorder, process: str) -> Component:
    context = ControllerContext(api=api, events=events, planner=InlinePlanner(Random(process)))
    return build_warm(context, process_id=process)


class ClaimHistory(History):
    """No claim gets two VMs, and no VM two claims: the invariants I1 to I9 of README.md."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.checker = InvariantChecker()
        self.desk = Counter(world.api("users"), HERE)

    def leaders_changed(self, count: int) -> None:
        super().leaders_changed(count)
        self.checker.leaders, self.checker.excess = count, True

    def saw(self, change: Change) -> list[str]:
        known = len(self.checker.violations)
        kind = "ADDED" if change.old is None else "DELETED" if change.new is None else "MODIFIED"
        if change.plural == VM_RESOURCE:
            self.checker.vm_event(kind, change.document)
        elif change.plural == CLAIM_RESOURCE:
            self.checker.claim_event(kind, change.document)
        return self.checker.violations[known:]


class WarmPoolHistory(ClaimHistory):
    """Users claim VMs of a warm pool."""

    build = staticmethod(build)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.users = Users(self.desk, world.random, self.checker)

    async def begin(self) -> None:
        policy = {"onEmpty": "ColdStart", "bindTimeoutSeconds": 8}
        made = await self.desk.pool(4, maxTotal=MAX_TOTAL, claimPolicy=policy, readiness={"timeoutSeconds": 6})
        self.checker.max_total[made["metadata"]["uid"]] = MAX_TOTAL

    async def act(self) -> str:
        others: list[Act] = [self.respell, self.strip]
        return await self.world.random.choice([*others, *[self.users.act] * 8])()

    async def respell(self) -> str:
        return await respell_template(self.desk.api, WARM_POOLS, (HERE, "web"), VM_TEMPLATE, self.world.random)

    async def strip(self) -> str:
        return await strip_owners(self.desk.api, VMS, HERE, self.world.random)

    def script(self) -> list[Act]:
        users = self.users
        return [users.create_claim, users.create_claim, users.release, users.scale, users.change_template]

    async def make_peace(self) -> None:
        await self.users.restore()

    async def why_not_at_rest(self) -> str:
        return await why_not_at_rest(self.desk)

    async def check_at_rest(self) -> None:
        known = len(self.checker.violations)
        owners = [*self.world.server.objects(POOL_RESOURCE), *self.world.server.objects(CLAIM_RESOURCE)]
        self.checker.at_rest(self.world.server.objects(VM_RESOURCE), {each["metadata"]["uid"] for each in owners})
        for each in self.checker.violations[known:]:
            self.world.violated(each)
