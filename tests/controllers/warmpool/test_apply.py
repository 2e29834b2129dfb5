"""Carrying out a plan: outcomes, metrics, events and log lines."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.sets.write_batches import Failure, Outcome
from controllers.warmpool.actions import (
    Action,
    CountFailedCheck,
    CreateVM,
    DeleteVM,
    OrphanVM,
    SetFinalizer,
    SetStandby,
    SetState,
)
from controllers.warmpool.apply import WarmPoolOutcome, WarmPoolWriter, vm_change
from controllers.warmpool.backends import (
    HEALTHY,
    Change,
    CreateRequest,
    Health,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
)
from controllers.warmpool.events import WarmPoolEvents
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.plan import Plan
from controllers.warmpool.warm_vm import NO_OWNER, StandbyMode, WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, QuotaExceeded, Throttled
from poolhouse.runtime.expectations import Expectations
from tests.controllers.warmpool.builders import UID, a_pool, a_snapshot, a_vm


@dataclass
class FakeBackend:
    """A backend without VMs. `raises` maps names of VMs to the error of their calls."""

    raises: dict[str, Exception] = field(default_factory=dict)
    done: list[tuple[str, str]] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0

    async def _call(self, verb: str, name: str) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if name in self.raises:
            raise self.raises[name]
        self.done.append((verb, name))

    async def create(self, request: CreateRequest) -> WarmVM:
        await self._call("create", request.name)
        return a_vm(request.name)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return []

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return vm

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        check_transition(vm, change)
        await self._call("change", vm.name)
        return vm

    async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        return HEALTHY

    async def activate(self, vm: WarmVM) -> bool:
        await self._call("activate", vm.name)

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        await self._call(mode, vm.name)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        try:
            await self._call("terminate", vm.name)
        except WriteConflict:
            return False
        return True


class FakeEvents:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, regarding: Any, kind: str, reason: str, note: str, *, action: str) -> None:
        self.reasons.append(reason)


class Finalizers:
    """An API that records the pool's finalizers."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.error: Exception | None = None

    async def patch(self, resource: Any, namespace: str, name: str, change: Any) -> None:
        self.written.append(change["metadata"])
        if self.error:
            raise self.error


class Setup:
    def __init__(self, **raises: Exception) -> None:
        self.backend, self.events = FakeBackend({f"web-{name}": error for name, error in raises.items()}), FakeEvents()
        self.expectations: Expectations[str] = Expectations()
        self.registry = CollectorRegistry()
        metrics = WarmPoolMetrics(self.registry)
        self.api = Finalizers()
        events = WarmPoolEvents(self.events, metrics)
        self.apply = WarmPoolWriter(self.api, events, self.expectations, lambda: 0.0)

    async def run(self, *actions: Action) -> WarmPoolOutcome:
        return await self.apply(a_snapshot(3), Plan(actions), self.backend)

    def value(self, name: str, **labels: str) -> float | None:
        labels = {"namespace": "ns", "warmpool": "web", **labels}
        return self.registry.get_sample_value(f"kubevirt_poolhouse_warmpool_{name}", labels)


def create(name: str) -> CreateVM:
    return CreateVM(f"web-{name}", "default", "Running", "0 of 3")


MOVE = SetState(a_vm("a", WarmState.PROVISIONING), WarmState.READY, "it is healthy")
END = DeleteVM(a_vm("a"), "Excess", "excess")
LATE = DeleteVM(a_vm("a", WarmState.PROVISIONING), "ReadinessTimeout", "too late")


@pytest.mark.parametrize(
    ("action", "event", "reason"),
    [
        pytest.param(create("a"), "VMCreating", "SuccessfulCreate", id="create"),
        pytest.param(MOVE, "VMStateChanged", "VMReady", id="become Ready"),
        pytest.param(
            SetState(a_vm("a"), WarmState.STANDING_BY, "paused", "Paused"),
            "VMStateChanged",
            "StandbyEntered",
            id="enter standby",
        ),
        pytest.param(
            SetState(a_vm("a"), WarmState.UNHEALTHY, "ill"), "VMStateChanged", "Unhealthy", id="become Unhealthy"
        ),
        pytest.param(SetStandby(a_vm("a"), "Paused", "to wait"), "VMChecked", "", id="set standby"),
        pytest.param(
            CountFailedCheck(a_vm("a", WarmState.UNHEALTHY), 3, "ill"), "VMChecked", "", id="count a failed check"
        ),
        pytest.param(OrphanVM(a_vm("a"), "TemplateChanged", "old"), "VMStateChanged", "Orphaned", id="orphan"),
    ],
)
@pytest.mark.sentence("5.70")
async def test_each_action_is_logged_and_reported(
    action: Action, event: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    setup = Setup()
    await setup.run(action)
    (line,) = [record for record in caplog.records if hasattr(record, "event")]
    assert line.__dict__["event"] == event
    assert (line.__dict__["pool"], line.__dict__["vm"]) == ("web", "web-a")
    assert setup.events.reasons == ([reason] if reason else [])


@pytest.mark.parametrize("action", [MOVE, END, create("a")], ids=["labelling", "deleting", "creating"])
@pytest.mark.parametrize(
    ("error", "event", "level"),
    [
        pytest.param(WriteConflict("changed"), "Retry", logging.DEBUG, id="write conflict"),
        pytest.param(Throttled("later"), "Retry", logging.INFO, id="server is busy"),
        pytest.param(Invalid("invalid label"), "Failure", logging.ERROR, id="refused"),
    ],
)
@pytest.mark.sentence("5.67", "5.69")
async def test_each_failed_action_is_logged(
    action: Action, error: Exception, event: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    setup = Setup(a=error)
    done = await setup.run(action)
    assert done.retry or done.failure
    (line,) = [r for r in caplog.records if hasattr(r, "event")]
    assert (line.__dict__["event"], line.levelno, line.__dict__["pool"]) == (event, level, "web")
    assert "web-a" in line.getMessage()


NO_ANSWER, BUSY = OutcomeUnknown("lost"), Throttled("later")


@pytest.mark.parametrize(
    ("error", "expected", "open_still"),
    [
        pytest.param(None, Outcome(done=(create("a"),)), True, id="created"),
        pytest.param(NO_ANSWER, Outcome(retry=True, error=NO_ANSWER), True, id="no answer"),
        pytest.param(AlreadyExists("there"), Outcome(retry=True), False, id="name is taken"),
        pytest.param(BUSY, Outcome(retry=True, error=BUSY), False, id="server is busy"),
        pytest.param(
            Invalid("bad", status=422, reason="Invalid", call="POST /apis/kubevirt.io/v1/..."),
            Outcome(failure=Failure("FailedCreate", "bad")),
            False,
            id="refused",
        ),
        pytest.param(
            Forbidden("denied: set the label quota-group"),
            Outcome(failure=Failure("FailedCreate", "denied: set the label quota-group")),
            False,
            id="a policy whose message has the word quota",
        ),
        pytest.param(
            QuotaExceeded("exceeded quota: q"),
            Outcome(failure=Failure("InsufficientCapacity", "exceeded quota: q")),
            False,
            id="quota used up",
        ),
    ],
)
async def test_create(error: Exception | None, expected: Outcome, open_still: bool) -> None:
    setup = Setup(**({"a": error} if error else {}))
    found = await setup.run(create("a"))
    assert Outcome(found.failure, found.retry, found.done, error=found.error) == expected
    assert found.created == len(expected.done)
    assert bool(setup.expectations.open(UID)[0]) is open_still


async def test_a_refused_batch_sends_one_request() -> None:
    setup = Setup(a=Invalid("bad"))
    await setup.run(*(create(name) for name in "abcdefgh"))
    assert setup.backend.done == []
    assert setup.expectations.open(UID) == (frozenset(), frozenset()), "what was never sent is not waited for"


async def test_a_batch_after_a_success_is_sent_at_once() -> None:
    setup = Setup()
    await setup.run(create("a"))
    setup.backend.max_in_flight = 0
    await setup.run(*(create(name) for name in "bcdefgh"))
    assert setup.backend.max_in_flight == 7


@pytest.mark.parametrize(
    ("error", "again", "waited_for"),
    [
        pytest.param(None, False, True, id="deleted"),
        pytest.param(WriteConflict("it changed"), True, False, id="claimed meanwhile"),
        pytest.param(OutcomeUnknown("lost"), True, True, id="no answer"),
        pytest.param(Forbidden("no"), True, False, id="refused"),
    ],
)
async def test_delete(error: Exception | None, again: bool, waited_for: bool) -> None:
    setup = Setup(**({"a": error} if error else {}))
    assert (await setup.run(END)).retry is again
    assert bool(setup.expectations.open(UID)[1]) is waited_for
    assert setup.value("vm_terminations_total", reason="Excess") == (None if error else 1)


async def test_the_outcome_of_actions_counts_lost_and_ready_vms() -> None:
    assert (await Setup().run(LATE)).lost == (Failure("ReadinessTimeout", "web-a was deleted: too late"),)
    assert (await Setup().run(END)).lost == ()
    assert (await Setup().run(MOVE)).became_ready == 1


async def test_an_invalid_transition_is_counted_and_not_sent() -> None:
    setup = Setup()
    await setup.run(SetState(a_vm("a", WarmState.UNHEALTHY), WarmState.READY, "by mistake"))
    assert setup.backend.done == []
    assert setup.value("invariant_violations_total", invariant="states") == 1
    assert setup.events.reasons == ["InvariantViolated"]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        pytest.param(None, False, id="written"),
        pytest.param(NotFound("gone"), False, id="pool is gone"),
        pytest.param(Conflict("changed"), True, id="write conflict"),
        pytest.param(Throttled("later"), True, id="server is busy"),
    ],
)
async def test_finalizers_of_others_are_kept(error: Exception | None, again: bool) -> None:
    setup = Setup()
    setup.api.error = error
    found = a_snapshot(a_pool(0, finalizers=["theirs"]))
    assert (await setup.apply(found, Plan((SetFinalizer(True, "wanted"),)), setup.backend)).retry is again
    assert setup.api.written == [{"uid": UID, "resourceVersion": "1", "finalizers": ["theirs", FINALIZER]}]


def test_changes_of_actions() -> None:
    ill = a_vm("a", WarmState.UNHEALTHY, check_failures=4)
    moved = vm_change(SetState(ill, WarmState.PROVISIONING, "it answers again"))
    assert moved.annotations == {meta.STATE_REASON: "it answers again", meta.CHECK_FAILURES: None}
    assert vm_change(SetState(a_vm("a"), WarmState.STANDING_BY, "x", "Paused")).labels == {meta.STANDBY: "Paused"}
    assert vm_change(CountFailedCheck(ill, 5, "x")).annotations == {meta.CHECK_FAILURES: "5"}
    assert vm_change(OrphanVM(ill, "PoolGone", "x")) == Change(owner=NO_OWNER, labels={meta.ORPHANED: "PoolGone"})
