"""The autoscaling of warm pools on a real API server with simulated guests."""

from __future__ import annotations

from pathlib import Path

from controllers.warmpool.autoscaling.history import DemandHistory
from controllers.warmpool.warm_pool import WARM_POOLS
from tests.cluster.claiming import Counter
from tests.cluster.pooling import until
from tests.cluster.resting import rests
from tests.cluster.warm_pools import controllers, template

WAIT = {"maxReplicas": 6, "target": {"waitSeconds": 1}, "scaleDownDelaySeconds": 3600}


async def test_a_burst_of_claims_makes_the_pool_larger_and_a_new_process_keeps_the_size(
    desk: Counter, ours: Path
) -> None:
    async def desired() -> int:
        return int((await desk.status()).get("desiredReplicas") or 0)

    async def claims_in_history() -> int:
        history = DemandHistory.decode((await desk.status()).get("demandHistory") or "")
        return sum(slot.claims for slot in history.slots.values())

    # The claims come faster than a VM boots.
    made = await desk.pool(2, autoscaling=WAIT, template=template(start_seconds="5"))
    async with controllers(ours) as running:
        await until(desk.available, 2)
        for each in range(9):
            await desk.claim(f"c{each}", poolName="web")
        # When the claims have VMs, fewer may be wanted. Scaling in is delayed, and the event stays.
        await desk.hears("MaxReplicas")
        await until(desk.available, 6)
        assert await claims_in_history() >= 1
        assert (await desk.status())["autoscaling"]["desiredReplicas"] == await desired() == 6
        await rests(running.written, 3)
    stored = await desk.api.get(WARM_POOLS, desk.namespace, "web")
    assert stored["spec"]["replicas"] == 2
    assert stored["metadata"]["generation"] == made["metadata"]["generation"], "the spec is never written"

    async with controllers(ours) as running:
        # Claims that came after the last write of the history are counted now.
        await until(desk.available, 6)
        await rests(running.written, 3)
        assert await desired() == 6


async def test_the_scale_subresource_has_no_effect_and_is_reported(desk: Counter, ours: Path) -> None:
    await desk.pool(1, autoscaling={"maxReplicas": 3, "minReplicas": 2, "target": {"spareRatio": "50%"}})
    async with controllers(ours) as running:
        await until(desk.available, 2)
        await desk.api.patch(WARM_POOLS, desk.namespace, "web", {"spec": {"replicas": 9}}, subresource="scale")
        await until(lambda: desk.condition("Autoscaling"), ("True", "ScaleIgnored"))
        assert await desk.available() == 2
        await desk.hears("ScaleIgnored")
        await rests(running.written, 2)
