"""A pool whose plans are too expensive, beside one whose plans are not, on a real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controllers.shared.planner import Planned, Planner, PlanTooExpensive
from tests.cluster.pooling import Place, controller, template, until
from tests.planning import P, T


class RefusesOnePool(Planner):
    """Refuses `greedy` as the budget would. A pool that uses it up needs thousands of VMs."""

    async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        if of[1][1] == "greedy":
            raise PlanTooExpensive(5)
        return await super().run(of, function, *arguments, **named)


async def test_a_pool_that_is_set_aside_says_so_and_others_go_on(control_plane: Any, place: Place) -> None:
    async with controller(control_plane.kubeconfig, planner=RefusesOnePool()):
        for name in ("greedy", "web"):
            await place.pool(2, name, template=template(dataVolumeTemplates=[]))
        await until(place.names, ["web-1", "web-2"])

        async def set_aside() -> tuple[Any, ...]:
            found = await place.condition("Reconciling", "greedy")
            return tuple(found.get(each) for each in ("status", "reason", "observedGeneration"))

        await until(set_aside, ("True", "PlanTooExpensive", 1))
        message = (await place.condition("Ready", "greedy"))["message"]
        assert message.startswith("a plan of this pool needs more than 5 s of processor time: it has 0 VMs"), message
    # The next process has a planner that refuses no pool.
    async with controller(control_plane.kubeconfig):
        await until(place.names, ["greedy-1", "greedy-2", "web-1", "web-2"])

        async def is_planned() -> bool:
            reason = (await place.condition("Ready", "greedy")).get("reason")
            return reason not in (None, "PlanTooExpensive")

        await until(is_planned, True)
