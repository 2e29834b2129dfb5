"""Successive reconciles of a pool, and what the controller remembers between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.shared.data_sources import DataSource
from controllers.shared.decisions import decision
from controllers.shared.image_sources import ImageSources
from controllers.shared.reference_rights import ANSWER_SECONDS
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
from controllers.shared.vmi import VMI
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.autoscaling.autoscaler import ClaimEvents
from controllers.warmpool.backends import CreateRequest, WriteConflict
from controllers.warmpool.cache import BackendView, Demand, WarmPoolStores, WarmVMCache
from controllers.warmpool.changes import BATCH_FACTOR, BATCH_SECONDS, CLAIMED_SECONDS
from controllers.warmpool.controller import RESYNC_SECONDS, UNAVAILABLE_SECONDS, WarmPoolController
from controllers.warmpool.events import WarmPoolEvents
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.warm_pool import SOURCE, WARM_POOLS, WarmPool
from controllers.warmpool.warm_vm import Owner, WarmVM
from poolhouse.api.kinds.reference_authors import Author
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.errors import Forbidden, Invalid, Throttled, Unavailable, Unreachable
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key
from tests.controllers.shared.test_reference_rights import a_review
from tests.controllers.warmpool.builders import NOW, OTHER_TEMPLATE, UID, a_pool, a_vm, a_vmi
from tests.controllers.warmpool.test_apply import FakeBackend, FakeEvents
from tests.controllers.warmpool.test_warm_pool import image_of, tracking
from tests.planning import InlinePlanner

KEY = ("ns", "web")


class RefusingBackend(FakeBackend):
    """Refuses to create VMs while it is `full`."""

    full = False
    busy: Exception | None = None
    attempts = 0
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def create(self, request: CreateRequest) -> WarmVM:
        self.attempts += 1
        self.meanwhile()
        if self.busy is not None:
            raise self.busy
        if self.full:
            raise Invalid("no such disk")
        return await super().create(request)


class FakeApi:
    """An API that records statuses."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []

    async def patch(self, resource: Any, namespace: str, name: str, change: Any, **options: Any) -> dict[str, Any]:
        self.statuses.append(change[-1]["value"])
        return {"metadata": {"resourceVersion": f"own-{len(self.statuses)}"}, "status": self.statuses[-1]}


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


async def test_an_image_that_the_author_may_not_get_is_not_used() -> None:
    pool = replace(tracking("debian-1"), authors={"DataSource ns/debian": Author("ann")})
    world = World(pool)
    rights, review = a_review(False)
    known = world.controller.stores
    world.controller.stores = replace(known, images=replace(known.images, rights=rights))
    world.data_sources["ns", "debian"] = DataSource("ns", "debian", "pvc", "images", "debian-1")
    await world.reconcile()
    assert not review.asked, "the pool has this image already"
    world.data_sources["ns", "debian"] = DataSource("ns", "debian", "pvc", "images", "debian-2")
    world.seconds += 2
    await world.reconcile()
    status = world.api.statuses[-1]
    assert status["dataSources"] == [image_of("debian-1")]
    assert conditions(status)["ReferencesRefused"] == ("True", "AuthorMayNotGet")
    assert [verb for verb, _ in world.backend.done] == ["create"] * 3, "the pool goes on with all else"
    review.answer, review.seconds = True, ANSWER_SECONDS
    world.seconds += 2
    await world.reconcile()
    assert world.api.statuses[-1]["dataSources"] == [image_of("debian-2")]


class Source:
    problem: str | None = None
    error: Exception | None = None


class World:
    def __init__(self, pool: WarmPool) -> None:
        self.pools = SOURCE.store()
        self.pools.put(KEY, pool)
        self.cache, self.pauses = WarmVMCache(), list[float]()
        self.backend, self.api, self.source, self.seconds = RefusingBackend(), FakeApi(), Source(), 1000.0
        self.registry = CollectorRegistry()
        self.data_sources: dict[Key, DataSource] = {}
        metrics, expectations = WarmPoolMetrics(self.registry), Expectations[str]()
        view = BackendView(self.backend, self.cache, (self.source,))
        self.events = FakeEvents()
        events = WarmPoolEvents(self.events, metrics)
        apply = WarmPoolWriter(self.api, events, expectations, self.clock)
        self.controller = WarmPoolController(
            stores=WarmPoolStores(self.pools, Demand(), ImageSources(self.data_sources.get)),
            cache=self.cache,
            backend_of=lambda pool: view,
            vm_backend=view,
            apply=apply,
            status_writer=StatusWriter(self.api, WARM_POOLS, self.clock),
            health=HealthTracker(self.clock),
            subresources=Subresources(self.api, self.clock),
            metrics=metrics,
            planner=InlinePlanner(),
            clock=self.clock,
            now=lambda: self.time,
            seed="s",
            enqueue=lambda key, seconds: self.pauses.append(seconds),
        )

    def clock(self) -> float:
        return self.seconds

    def add(self, *vms: WarmVM) -> None:
        for vm in vms:
            self.cache.vms.put(vm.key, replace(vm, vmi=None, node=None))
            if vm.vmi is not None:
                self.cache.vmis.put(vm.key, vm.vmi)

    def remove(self, name: str, changed: Callable[[WarmVM | None, WarmVM | None], None]) -> None:
        """Removes the VM from the cache."""
        self.cache.vmis.drop(("ns", name))
        changed(self.cache.vms.drop(("ns", name)), None)

    @property
    def time(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds - 1000.0)

    async def reconcile(self) -> float | None:
        return await self.controller.reconcile(KEY)


async def test_a_refused_creation_is_retried_after_the_backoff() -> None:
    world = World(a_pool(3))
    world.backend.full = True
    wait = await world.reconcile()
    assert wait is not None
    assert wait <= 10
    await world.reconcile()
    assert world.backend.attempts == 1
    assert world.api.statuses[-1]["failures"]["lastReason"] == "FailedCreate"


async def test_vms_are_deleted_one_by_one_to_make_room_with_growing_pauses() -> None:
    def vmi(name: str, **facts: Any) -> VMI:
        return a_vmi(name=f"web-{name}", owner_uid=name, conditions=frozenset(), **facts)

    world = World(pool := a_pool(2))
    world.add(*(a_vm(n, WarmState.UNHEALTHY, vmi=vmi(n, phase="Failed"), check_failures=6) for n in "ab"))
    held = {"phase": "Scheduling", "start_failure": "Unschedulable"}
    world.add(*(a_vm(n, WarmState.PROVISIONING, vmi=vmi(n, **held)) for n in "mn"))
    pauses: list[timedelta] = []
    for name in "ab":
        await world.reconcile()
        await world.reconcile()
        assert world.backend.done[-1] == ("terminate", f"web-{name}")
        assert conditions(world.api.statuses[-1])["Degraded"] == ("True", "TooManyUnhealthy")
        pauses.append(datetime.fromisoformat(world.api.statuses[-1]["failures"]["nextRetryAt"]) - world.time)
        world.seconds += 180.0  # the guest takes time to shut down
        world.remove(f"web-{name}", world.controller.changes.vm_changed)
        await world.reconcile()
        assert len(world.backend.done) == len(pauses)
        world.seconds += pauses[-1].total_seconds()
    assert pauses[1] > pauses[0]
    world.pools.put(KEY, replace(pool, spec=pool.spec.model_copy(update={"replicas": 0})))
    for name in "mn":
        world.remove(f"web-{name}", lambda *change: None)
    await world.reconcile()
    assert "failures" not in world.api.statuses[-1], "a pool without VMs has no failures"


async def test_a_new_template_resets_the_backoff() -> None:
    world = World(a_pool(3))
    world.backend.full = True
    await world.reconcile()
    world.backend.full = False
    world.pools.put(KEY, a_pool(3, template=OTHER_TEMPLATE))
    await world.reconcile()
    assert [verb for verb, _ in world.backend.done] == ["create"] * 3


async def test_a_pool_that_is_being_deleted_gets_no_new_image() -> None:
    """Admission does not check its changes, so it may name what its author may not get."""
    world = World(replace(tracking("debian-1"), deleting=True))
    world.data_sources["ns", "debian"] = DataSource("ns", "debian", "pvc", "secret", "debian-2")
    await world.reconcile()
    assert "secret" not in str(world.api.statuses)


async def test_the_status_has_the_images_of_data_sources_before_a_vm_is_created() -> None:
    """Both controllers and the next leader read the images there."""
    world = World(tracking())
    world.data_sources["ns", "debian"] = DataSource("ns", "debian", "pvc", "images", "debian-1")
    await world.reconcile()
    assert world.api.statuses[-1]["dataSources"] == [image_of("debian-1")]
    assert not world.backend.done
    world.pools.put(KEY, tracking("debian-1"))
    await world.reconcile()
    assert [verb for verb, _ in world.backend.done] == ["create"] * 3
    world.seconds += 2
    world.data_sources.clear()
    await world.reconcile()
    assert world.api.statuses[-1]["dataSources"] == [image_of("debian-1")], "the last image holds without a DataSource"
    world.pools.put(KEY, tracking("debian-1", tracks=False))
    world.seconds += 2
    await world.reconcile()
    assert not world.api.statuses[-1]["dataSources"]


def test_the_cost_of_a_plan_delays_the_next() -> None:
    world = World(a_pool(1))
    world.controller.changes.planner = InlinePlanner(seconds=0.5)
    world.controller.changes.vm_changed(None, a_vm("web-2"))
    assert world.pauses == [BATCH_FACTOR * 0.5]


def test_changes_of_claimed_vms_wait_longer() -> None:
    """A claim changes its VM several times, and its pool only counts the VM. A deleted VM makes room at once."""
    world = World(a_pool(1))
    free, claimed = a_vm("web-1"), a_vm("web-1", WarmState.ALLOCATING, claim_uid="c")
    for old, new in ((None, free), (free, claimed), (claimed, None)):
        world.controller.changes.vm_changed(old, new)
    assert world.pauses == [BATCH_SECONDS, CLAIMED_SECONDS, BATCH_SECONDS]


def test_queued_claims_are_batched() -> None:
    """The first queued claim causes a reconcile at once, and so does the end of the queue."""
    world = World(pool := a_pool(0))
    demand = world.controller.stores.demand
    demand.subscribe(world.controller.changes.demand_changed)
    for waiting in (1, 2, 3, 0):
        demand.set_queued(pool.uid, waiting)
    assert world.pauses == [0.0, BATCH_SECONDS, BATCH_SECONDS, 0.0]


async def test_a_restart_keeps_the_backoff() -> None:
    failures = {"consecutive": 4, "lastReason": "FailedCreate", "nextRetryAt": "2026-11-21T12:01:00Z"}
    world = World(a_pool(3, status={"failures": failures}))
    await world.reconcile()
    assert world.backend.attempts == 0


@pytest.mark.parametrize(
    ("version", "written", "adopted"),
    [
        pytest.param("other", {"consecutive": 8, "lastReason": "FailedCreate"}, 8, id="another process counted more"),
        pytest.param("other", {"consecutive": 1, "lastReason": "FailedCreate"}, 1, id="another process counted fewer"),
        pytest.param("other", None, 0, id="another process got a VM"),
        pytest.param("own-1", {"consecutive": 8, "lastReason": "FailedCreate"}, 3, id="the event of an own write"),
        pytest.param("other", {"consecutive": 2, "lastReason": "FailedCreate"}, 3, id="a user changes the spec"),
    ],
)
async def test_failures_that_another_leader_writes_are_adopted(
    version: str, written: dict[str, Any] | None, adopted: int
) -> None:
    before = a_pool(3, status={"failures": {"consecutive": 2, "lastReason": "FailedCreate"}})
    world = World(before)
    world.backend.full = True
    await world.reconcile()
    after = replace(a_pool(4, status={"failures": written}), resource_version=version)
    world.pools.put(KEY, after)
    world.controller.changes.pool_changed(before, after)
    world.seconds += 1
    await world.reconcile()
    failures = world.api.statuses[-1].get("failures") or {"consecutive": 0}
    assert failures["consecutive"] == adopted + world.backend.attempts - 1


async def test_vms_are_not_created_twice_while_the_cache_lags_behind() -> None:
    world = World(a_pool(3))
    await world.reconcile()
    await world.reconcile()
    assert world.backend.attempts == 3


@pytest.mark.sentence("5.9")
async def test_a_pool_at_rest_is_resynced_and_writes_nothing() -> None:
    world = World(a_pool(1))
    world.add(a_vm("a"))
    await world.reconcile()
    said = world.api.statuses[-1]
    world.pools.put(KEY, a_pool(1, status={k: v for k, v in said.items() if v is not None}))
    world.seconds += 60
    assert await world.reconcile() == RESYNC_SECONDS
    assert len(world.api.statuses) == 1
    assert world.backend.done == []


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "Reconciling"),
        (Unreachable("no answer"), "Reconciling"),
        (Unavailable("InternalError"), "Reconciling"),
        (Throttled("RequestLimitExceeded"), "Reconciling"),
        (TimeoutError(), "Reconciling"),
        (Forbidden("UnauthorizedOperation"), "Stalled"),
        (Invalid("InvalidParameterValue"), "Stalled"),
    ],
    ids=repr,
)
async def test_an_unavailable_backend_stops_writes_and_is_reported_after_a_while(
    error: Exception | None, state: str
) -> None:
    world = World(a_pool(3, status={"availableReplicas": 2}))
    world.add(a_vm("a", WarmState.UNHEALTHY))
    world.source.problem, world.source.error = "connection refused", error
    await world.reconcile()
    assert world.api.statuses == []
    world.seconds += UNAVAILABLE_SECONDS
    await world.reconcile()
    assert world.backend.attempts == 0
    assert world.backend.done == []
    (said,) = world.api.statuses
    assert said["availableReplicas"] == 2, "the last counts stay"
    found = conditions(said)
    assert found["Degraded"] == found[state] == ("True", "BackendUnavailable")
    assert found["Ready"] == ("False", "BackendUnavailable")
    assert len(found.keys() & {"Reconciling", "Stalled"}) == 1
    world.source.problem = None
    await world.reconcile()
    assert world.backend.attempts == 3


async def test_vms_of_an_unavailable_backend_are_not_counted_as_recovered() -> None:
    world = World(a_pool(1))
    world.source.problem = "not looked at yet"
    await world.reconcile()
    world.source.problem = None
    world.add(a_vm("a"))
    await world.reconcile()
    labels = {"namespace": "ns", "warmpool": "web", "state": "Ready"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_recovered_total", labels) == 1


async def test_a_throttling_server_delays_the_retry_and_is_reported() -> None:
    world = World(a_pool(3))
    world.backend.busy = Throttled("RequestLimitExceeded", retry_after_seconds=5.0)
    with pytest.raises(Throttled):
        await world.reconcile()
    (said,) = world.api.statuses
    assert conditions(said)["Progressing"] == ("True", "Scaling")
    assert "RequestLimitExceeded" in next(c["message"] for c in said["conditions"] if c["type"] == "Progressing")
    assert "failures" not in said, "a busy server is not a failure"


async def test_a_pool_deleted_during_a_reconcile_is_forgotten() -> None:
    world = World(a_pool(3))

    def vanish() -> None:
        if pool := world.pools.drop(KEY):
            world.controller.changes.pool_changed(pool, None)

    world.backend.meanwhile = vanish
    await world.reconcile()
    await world.reconcile()
    labels = {"namespace": "ns", "warmpool": "web"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_desired", labels) is None


async def test_vms_that_a_deleted_pool_does_not_own_are_orphaned() -> None:
    world = World(a_pool(3))
    stray = a_vm("a", owner=a_vm("b", WarmState.IN_USE).owner)
    world.add(stray)
    world.pools.drop(KEY)
    await world.reconcile()
    assert world.backend.done == [("change", "web-a")]
    assert world.events.reasons == ["Orphaned"], "an event of the VM: the pool is gone"
    labels = {"namespace": "ns", "warmpool": "web", "reason": "PoolGone"}
    assert world.registry.get_sample_value("kubevirt_poolhouse_warmpool_orphaned_total", labels) == 1


async def test_a_write_conflict_is_retried() -> None:
    world = World(a_pool(1))
    world.add(a_vm("a", WarmState.PROVISIONING))
    world.backend.raises["web-a"] = WriteConflict("changed")
    with pytest.raises(RetryWithBackoff):
        await world.reconcile()
    del world.backend.raises["web-a"]
    await world.reconcile()
    assert world.backend.done == [("change", "web-a")]


async def test_vms_found_at_the_start_are_counted_as_recovered() -> None:
    world = World(a_pool(2))
    world.add(a_vm("a"), a_vm("b", WarmState.UNHEALTHY))
    await world.reconcile()
    await world.reconcile()
    labels = {"namespace": "ns", "warmpool": "web"}
    found = {
        state: world.registry.get_sample_value(
            "kubevirt_poolhouse_warmpool_recovered_total", {**labels, "state": state}
        )
        for state in ("Ready", "Unhealthy")
    }
    assert found == {"Ready": 1, "Unhealthy": 1}
    assert world.controller.stores.pools.first("uid", UID) is not None


async def test_nothing_is_remembered_of_a_pool_that_is_deleted_during_its_reconcile() -> None:
    world = World(pool := a_pool(1))
    demand, controller = world.controller.stores.demand, world.controller

    def meanwhile() -> None:
        world.pools.drop(KEY)
        controller.changes.pool_changed(pool, None)
        demand.arrived(UID, 0.0)
        demand.served(UID, 1.0)
        demand.deleted(UID, decision("2026-03-01T12:00:00Z", "SuccessfulDelete", "its claim was released", "web-a/a"))

    world.backend.meanwhile = meanwhile
    await world.reconcile()
    assert world.backend.attempts == 1
    assert (controller.records.memories, controller.apply.created) == ({}, {})
    assert (demand.take_events(UID), demand.take_deletions(UID)) == (ClaimEvents(), [])


@pytest.mark.parametrize(
    ("gone", "reported", "recorded"),
    [
        pytest.param(a_vm("a"), False, "another client than the warm pool's controller deleted it", id="a waiting VM"),
        pytest.param(
            a_vm("a", WarmState.IN_USE, claim_uid="c", owner=Owner("VirtualMachineClaim", "mine", "c")),
            False,
            "claim mine had it: another client deleted the VM, or the claim",
            id="a claimed VM",
        ),
        pytest.param(
            a_vm("a", WarmState.IN_USE, claim_uid="c"),
            True,
            "its claim was released: claim mine of alice",
            id="released",
        ),
    ],
)
async def test_the_status_tells_who_deleted_a_vm(gone: WarmVM, reported: bool, recorded: str) -> None:
    world = World(a_pool(1))
    world.add(gone)
    await world.reconcile()
    if reported:
        released = decision("2026-03-01T12:00:00Z", "SuccessfulDelete", recorded, "web-a/a")
        world.controller.stores.demand.deleted(gone.pool_uid, released)
    world.remove("web-a", world.controller.changes.vm_changed)
    world.seconds += 10
    await world.reconcile()
    (found,) = [each for each in world.api.statuses[-1]["decisions"] if "web-a/a" in each["vms"]]
    assert found["message"].startswith(recorded)
