"""One look at a pool after another: what is remembered in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.shared.status_writer import StatusWriter
from controllers.shared.vmi import VMI
from controllers.warmpool import controller
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.backends import CreateRequest, WriteConflict
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.controller import (
    BATCH_FACTOR,
    BATCH_SECONDS,
    RESYNC_SECONDS,
    UNAVAILABLE_SECONDS,
    WarmPoolController,
)
from controllers.warmpool.demand import Demand
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.observe import BackendView, WarmPoolStores
from controllers.warmpool.plan import plan
from controllers.warmpool.status import status
from controllers.warmpool.warm_pool import SOURCE, WARM_POOLS, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from runtime.api import Api
from runtime.controller import RetryWithBackoff
from runtime.errors import Invalid, Throttled
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from tests.controllers.warmpool.builders import NOW, OTHER_TEMPLATE, UID, a_pool, a_vm, a_vmi
from tests.controllers.warmpool.test_apply import Said, Shelf

KEY = ("ns", "web")


class Refusing(Shelf):
    """A shelf that takes nothing while it is `full`."""

    full = False
    busy: Exception | None = None
    asked = 0
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def create(self, order: CreateRequest) -> WarmVM:
        self.asked += 1
        self.meanwhile()
        if self.busy is not None:
            raise self.busy
        if self.full:
            raise Invalid("no such disk")
        return await super().create(order)


class Written:
    """An API that is told of statuses."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []

    async def patch(self, resource: Any, namespace: str, name: str, change: Any, **options: Any) -> None:
        self.statuses.append(change["status"])


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


class Sight:
    problem: str | None = None


class World:
    def __init__(self, pool: WarmPool) -> None:
        self.pools = SOURCE.store()
        self.pools.put(KEY, pool)
        self.cache = WarmVMCache()
        self.shelf, self.api, self.sight, self.seconds = Refusing(), Written(), Sight(), 1000.0
        self.registry = CollectorRegistry()
        metrics, expectations = WarmPoolMetrics(self.registry), Expectations[str]()
        fleet = BackendView(self.shelf, self.cache, (self.sight,))
        self.said = Said()
        apply = WarmPoolWriter(cast(Api, self.api), cast(EventRecorder, self.said), expectations, metrics, self.clock)
        self.controller = WarmPoolController(
            stores=WarmPoolStores(self.pools, Demand()),
            cache=self.cache,
            backend_of=lambda pool: fleet,
            vm_backend=fleet,
            apply=apply,
            status_writer=StatusWriter(cast(Api, self.api), WARM_POOLS, self.clock),
            health=HealthTracker(self.clock),
            expectations=expectations,
            metrics=metrics,
            clock=self.clock,
            now=lambda: self.time,
            seed="s",
        )

    def clock(self) -> float:
        return self.seconds

    def holds(self, *machines: WarmVM) -> None:
        for m in machines:
            self.cache.vms.put(m.key, replace(m, vmi=None, node=None))
            if m.vmi is not None:
                self.cache.vmis.put(m.key, m.vmi)

    def forget(self, name: str, heard: Callable[[WarmVM | None, WarmVM | None], None]) -> None:
        """It is gone from the stores."""
        self.cache.vmis.drop(("ns", name))
        heard(self.cache.vms.drop(("ns", name)), None)

    @property
    def time(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds - 1000.0)

    async def look(self) -> float | None:
        return await self.controller.reconcile(KEY)


async def test_a_refusal_is_not_repeated_before_its_pause_is_over() -> None:
    world = World(a_pool(3))
    world.shelf.full = True
    wait = await world.look()
    assert wait is not None
    assert wait <= 10
    await world.look()
    assert world.shelf.asked == 1
    assert world.api.statuses[-1]["failures"]["lastReason"] == "FailedCreate"


async def test_what_makes_room_goes_one_by_one_after_pauses_that_grow() -> None:
    def guest(name: str, **facts: Any) -> VMI:
        return a_vmi(name=f"web-{name}", owner_uid=name, conditions=frozenset(), **facts)

    world = World(pool := a_pool(2))
    world.holds(*(a_vm(n, WarmState.UNHEALTHY, vmi=guest(n, phase="Failed"), check_failures=6) for n in "ab"))
    held = {"phase": "Scheduling", "start_failure": "Unschedulable"}
    world.holds(*(a_vm(n, WarmState.PROVISIONING, vmi=guest(n, **held)) for n in "mn"))
    pauses: list[timedelta] = []
    for name in "ab":
        await world.look()
        await world.look()
        assert world.shelf.done[-1] == ("terminate", f"web-{name}")
        assert conditions(world.api.statuses[-1])["Degraded"] == ("True", "TooManyUnhealthy")
        pauses.append(datetime.fromisoformat(world.api.statuses[-1]["failures"]["nextRetryAt"]) - world.time)
        world.seconds += 180.0  # its guest takes its time to end, and who waits for its place is only looked at then
        world.forget(f"web-{name}", lambda *change: world.controller.vm_changed(lambda key, seconds: None, *change))
        await world.look()
        assert len(world.shelf.done) == len(pauses)
        world.seconds += pauses[-1].total_seconds()
    assert pauses[1] > pauses[0]
    world.pools.put(KEY, replace(pool, spec=pool.spec.model_copy(update={"replicas": 0})))
    for name in "mn":
        world.forget(f"web-{name}", lambda *change: None)
    await world.look()
    assert world.api.statuses[-1]["failures"] is None, "who wants nothing has failed at nothing"


async def test_another_template_does_not_wait_for_the_pauses_of_the_last() -> None:
    world = World(a_pool(3))
    world.shelf.full = True
    await world.look()
    world.shelf.full = False
    world.pools.put(KEY, a_pool(3, template=OTHER_TEMPLATE))
    await world.look()
    assert [verb for verb, _ in world.shelf.done] == ["create"] * 3


async def test_the_next_look_is_put_off_by_all_that_the_last_has_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(a_pool(1))
    world.holds(a_vm("web-1"))

    def slow(seconds: float, look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*given: Any) -> Any:
            world.seconds += seconds
            return look(*given)

        return looked

    monkeypatch.setattr(controller, "plan", slow(0.2, plan))
    monkeypatch.setattr(controller, "status", slow(0.3, status))
    await world.look()
    pauses: list[float] = []
    world.controller.vm_changed(lambda key, seconds: pauses.append(seconds), None, a_vm("web-2"))
    assert pauses == [pytest.approx(BATCH_FACTOR * 0.5)]


def test_a_line_that_grows_is_not_a_look_for_each_claim() -> None:
    """The first one need not wait, nor whoever comes when all were served."""
    world = World(pool := a_pool(0))
    demand, pauses = world.controller.stores.demand, list[float]()
    demand.subscribe(lambda uid: world.controller.demand_changed(lambda key, seconds: pauses.append(seconds), uid))
    for waiting in (1, 2, 3, 0):
        demand.set_queued(pool.uid, waiting)
    assert pauses == [0.0, BATCH_SECONDS, BATCH_SECONDS, 0.0]


async def test_a_restart_waits_for_the_pause_that_was_said() -> None:
    failures = {"consecutive": 4, "lastReason": "FailedCreate", "nextRetryAt": "2026-11-21T12:01:00Z"}
    world = World(a_pool(3, status={"failures": failures}))
    await world.look()
    assert world.shelf.asked == 0


async def test_what_was_made_is_waited_for_and_not_made_twice() -> None:
    world = World(a_pool(3))
    await world.look()
    await world.look()
    assert world.shelf.asked == 3


async def test_at_rest_nothing_is_written_and_the_depth_is_checked_now_and_then() -> None:
    world = World(a_pool(1))
    world.holds(a_vm("a"))
    await world.look()
    said = world.api.statuses[-1]
    world.pools.put(KEY, a_pool(1, status={k: v for k, v in said.items() if v is not None}))
    world.seconds += 60
    assert await world.look() == RESYNC_SECONDS
    assert len(world.api.statuses) == 1
    assert world.shelf.done == []


async def test_who_cannot_see_does_nothing_and_says_so_after_a_while() -> None:
    world = World(a_pool(3, status={"availableReplicas": 2}))
    world.holds(a_vm("a", WarmState.UNHEALTHY))
    world.sight.problem = "connection refused"
    await world.look()
    assert world.api.statuses == []
    world.seconds += UNAVAILABLE_SECONDS
    await world.look()
    assert world.shelf.asked == 0
    assert world.shelf.done == []
    (said,) = world.api.statuses
    assert said["availableReplicas"] == 2, "what was seen last stays"
    assert conditions(said)["Degraded"] == ("True", "BackendUnavailable")
    world.sight.problem = None
    await world.look()
    assert world.shelf.asked == 3


async def test_what_was_never_seen_is_not_counted_as_recovered() -> None:
    world = World(a_pool(1))
    world.sight.problem = "not looked at yet"
    await world.look()
    world.sight.problem = None
    world.holds(a_vm("a"))
    await world.look()
    labels = {"namespace": "ns", "warmpool": "web", "state": "Ready"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_recovered_total", labels) == 1


async def test_a_server_that_is_busy_is_obeyed_and_named() -> None:
    world = World(a_pool(3))
    world.shelf.busy = Throttled("RequestLimitExceeded", retry_after_seconds=5.0)
    with pytest.raises(Throttled):
        await world.look()
    (said,) = world.api.statuses
    assert conditions(said)["Progressing"] == ("True", "Scaling")
    assert "RequestLimitExceeded" in next(c["message"] for c in said["conditions"] if c["type"] == "Progressing")
    assert said["failures"] is None, "nobody's fault: no pause grows by it"


async def test_a_pool_that_goes_in_the_middle_of_a_look_is_forgotten() -> None:
    world = World(a_pool(3))

    def vanish() -> None:
        if pool := world.pools.drop(KEY):
            world.controller.pool_changed(lambda key, seconds: None, pool, None)

    world.shelf.meanwhile = vanish
    await world.look()
    await world.look()
    labels = {"namespace": "ns", "warmpool": "web"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_desired", labels) is None


async def test_machines_of_a_pool_that_is_gone_and_left_them_are_labelled() -> None:
    world = World(a_pool(3))
    stray = a_vm("a", owner=a_vm("b", WarmState.IN_USE).owner)
    world.holds(stray)
    world.pools.drop(KEY)
    await world.look()
    assert world.shelf.done == [("change", "web-a")]
    assert world.said.reasons == ["Orphaned"], "of the machine: there is no pool to say it of"
    labels = {"namespace": "ns", "warmpool": "web", "reason": "PoolGone"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_orphaned_total", labels) == 1


async def test_a_write_that_was_lost_is_tried_again() -> None:
    world = World(a_pool(1))
    world.holds(a_vm("a", WarmState.PROVISIONING))
    world.shelf.raises["web-a"] = WriteConflict("somebody was first")
    with pytest.raises(RetryWithBackoff):
        await world.look()
    del world.shelf.raises["web-a"]
    await world.look()
    assert world.shelf.done == [("change", "web-a")]


async def test_machines_found_at_the_first_look_are_counted_as_recovered() -> None:
    world = World(a_pool(2))
    world.holds(a_vm("a"), a_vm("b", WarmState.UNHEALTHY))
    await world.look()
    await world.look()
    labels = {"namespace": "ns", "warmpool": "web"}
    found = {
        state: world.registry.get_sample_value(
            "kubevirt_poolhouse_warmpool_recovered_total", {**labels, "state": state}
        )
        for state in ("Ready", "Unhealthy")
    }
    assert found == {"Ready": 1, "Unhealthy": 1}
    assert world.controller.stores.with_uid(UID) is not None
