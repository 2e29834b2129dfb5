"""A plan carried out: what is counted, said and logged, whatever the calls come to."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.shared.write_batches import Failure
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
from controllers.warmpool.apply import Outcome, WarmPoolWriter, vm_change
from controllers.warmpool.backends import (
    HEALTHY,
    Change,
    CreateRequest,
    Health,
    InvalidTransition,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
)
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.plan import Plan
from controllers.warmpool.warm_vm import NO_OWNER, StandbyMode, WarmVM
from kinds import meta
from kinds.warm_states import WarmState
from kinds.warmpool import Readiness
from runtime.api import Api
from runtime.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Throttled
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from tests.controllers.warmpool.builders import UID, a_pool, a_snapshot, a_vm


@dataclass
class Shelf:
    """Machines that are nowhere. What a call raises is said by name: of a machine, or of one that is to be made."""

    raises: dict[str, Exception] = field(default_factory=dict)
    done: list[tuple[str, str]] = field(default_factory=list)
    at_once: int = 0
    most: int = 0

    async def _call(self, verb: str, name: str) -> None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if name in self.raises:
            raise self.raises[name]
        self.done.append((verb, name))

    async def create(self, order: CreateRequest) -> WarmVM:
        await self._call("create", order.name)
        return a_vm(order.name)

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

    async def activate(self, vm: WarmVM) -> None:
        await self._call("activate", vm.name)

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        await self._call(mode, vm.name)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        try:
            await self._call("terminate", vm.name)
        except WriteConflict:
            return False
        return True


class Said:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, regarding: Any, kind: str, reason: str, note: str, *, action: str) -> None:
        self.reasons.append(reason)


class Finalizers:
    """An API that is told of the pool's finalizers."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.error: Exception | None = None

    async def patch(self, resource: Any, namespace: str, name: str, change: Any) -> None:
        self.told.append(change["metadata"])
        if self.error:
            raise self.error


class Carrying:
    def __init__(self, **raises: Exception) -> None:
        self.shelf, self.said = Shelf({f"web-{name}": error for name, error in raises.items()}), Said()
        self.expectations: Expectations[str] = Expectations()
        self.registry = CollectorRegistry()
        metrics = WarmPoolMetrics(self.registry)
        self.api = Finalizers()
        self.apply = WarmPoolWriter(
            cast(Api, self.api), cast(EventRecorder, self.said), self.expectations, metrics, lambda: 0.0
        )

    async def out(self, *actions: Action) -> Outcome:
        return await self.apply(a_snapshot(3), Plan(actions), self.shelf)

    def value(self, name: str, **labels: str) -> float | None:
        labels = {"namespace": "ns", "warmpool": "web", **labels}
        return self.registry.get_sample_value(f"kubevirt_poolhouse_warmpool_{name}", labels)


def create(name: str) -> CreateVM:
    return CreateVM(f"web-{name}", "default", "Running", "0 of 3")


MOVE = SetState(a_vm("a", WarmState.PROVISIONING), WarmState.READY, "it is healthy")
END = DeleteVM(a_vm("a"), "Excess", "too many")
LATE = DeleteVM(a_vm("a", WarmState.PROVISIONING), "ReadinessTimeout", "too late")


@pytest.mark.parametrize(
    ("action", "event", "reason"),
    [
        pytest.param(create("a"), "MachineCreating", "SuccessfulCreate", id="creating"),
        pytest.param(MOVE, "MachineMoved", "VMReady", id="getting ready"),
        pytest.param(
            SetState(a_vm("a"), WarmState.STANDING_BY, "paused", "Paused"),
            "MachineMoved",
            "StandbyEntered",
            id="standing by",
        ),
        pytest.param(SetState(a_vm("a"), WarmState.UNHEALTHY, "ill"), "MachineMoved", "Unhealthy", id="falling ill"),
        pytest.param(SetStandby(a_vm("a"), "Paused", "to wait"), "MachinePolled", "", id="polling what lies down"),
        pytest.param(
            CountFailedCheck(a_vm("a", WarmState.UNHEALTHY), 3, "ill"), "MachinePolled", "", id="polling what is ill"
        ),
        pytest.param(OrphanVM(a_vm("a"), "TemplateChanged", "old"), "MachineMoved", "Orphaned", id="orphaning"),
    ],
)
async def test_all_that_is_done_is_logged_under_a_name_and_told_to_people(
    action: Action, event: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    carrying = Carrying()
    await carrying.out(action)
    (line,) = [record for record in caplog.records if hasattr(record, "event")]
    assert line.__dict__["event"] == event
    assert (line.__dict__["pool"], line.__dict__["vm"]) == ("web", "web-a")
    assert carrying.said.reasons == ([reason] if reason else [])


@pytest.mark.parametrize("action", [MOVE, END, create("a")], ids=["labelling", "deleting", "creating"])
@pytest.mark.parametrize(
    ("error", "event", "level"),
    [
        pytest.param(WriteConflict("somebody was first"), "Retry", logging.DEBUG, id="a race that was lost"),
        pytest.param(Throttled("later"), "Retry", logging.INFO, id="a server that is busy"),
        pytest.param(Invalid("no such label"), "Failure", logging.ERROR, id="an error that does not pass"),
    ],
)
async def test_what_was_not_done_is_logged_too(
    action: Action, error: Exception, event: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    carrying = Carrying(a=error)
    done = await carrying.out(action)
    assert done.retry or done.refused
    (line,) = [r for r in caplog.records if hasattr(r, "event")]
    assert (line.__dict__["event"], line.levelno, line.__dict__["pool"]) == (event, level, "web")
    assert "web-a" in line.getMessage()


UNSURE, BUSY = OutcomeUnknown("lost"), Throttled("later")


@pytest.mark.parametrize(
    ("error", "expected", "open_still"),
    [
        pytest.param(None, Outcome(created=1), True, id="made"),
        pytest.param(UNSURE, Outcome(retry=True, last_error=UNSURE), True, id="no answer: it may appear yet"),
        pytest.param(AlreadyExists("there"), Outcome(retry=True), False, id="the name is taken"),
        pytest.param(BUSY, Outcome(retry=True, last_error=BUSY), False, id="the server is busy"),
        pytest.param(
            Invalid("bad", status=422, reason="Invalid", call="POST /apis/kubevirt.io/v1/..."),
            Outcome(refused=Failure("FailedCreate", "bad")),
            False,
            id="refused, in the server's own words",
        ),
        pytest.param(
            Forbidden("exceeded quota: q"),
            Outcome(refused=Failure("InsufficientCapacity", "exceeded quota: q")),
            False,
            id="a full quota",
        ),
    ],
)
async def test_a_creation(error: Exception | None, expected: Outcome, open_still: bool) -> None:
    carrying = Carrying(**({"a": error} if error else {}))
    assert await carrying.out(create("a")) == expected
    assert bool(carrying.expectations.open(UID)[0]) is open_still


async def test_a_first_refusal_costs_one_request() -> None:
    carrying = Carrying(a=Invalid("bad"))
    await carrying.out(*(create(name) for name in "abcdefgh"))
    assert carrying.shelf.done == []
    assert carrying.expectations.open(UID) == (frozenset(), frozenset()), "what was never sent is not waited for"


async def test_once_trusted_all_are_made_at_once() -> None:
    carrying = Carrying()
    await carrying.out(create("a"))
    carrying.shelf.most = 0
    await carrying.out(*(create(name) for name in "bcdefgh"))
    assert carrying.shelf.most == 7


@pytest.mark.parametrize(
    ("error", "again", "waited_for"),
    [
        pytest.param(None, False, True, id="deleted"),
        pytest.param(WriteConflict("it changed"), True, False, id="it was claimed a moment ago"),
        pytest.param(OutcomeUnknown("lost"), True, True, id="no answer"),
        pytest.param(Forbidden("no"), True, False, id="refused"),
    ],
)
async def test_a_termination(error: Exception | None, again: bool, waited_for: bool) -> None:
    carrying = Carrying(**({"a": error} if error else {}))
    assert (await carrying.out(END)).retry is again
    assert bool(carrying.expectations.open(UID)[1]) is waited_for
    assert carrying.value("vm_terminations_total", reason="Excess") == (None if error else 1)


async def test_what_was_lost_and_what_got_ready_is_told_to_who_decides() -> None:
    assert (await Carrying().out(LATE)).lost == (Failure("ReadinessTimeout", "web-a was deleted: too late"),)
    assert (await Carrying().out(END)).lost == ()
    assert (await Carrying().out(MOVE)).became_ready == 1


async def test_a_change_that_no_machine_may_see_is_not_sent_and_counted() -> None:
    carrying = Carrying()
    await carrying.out(SetState(a_vm("a", WarmState.UNHEALTHY), WarmState.READY, "by mistake"))
    assert carrying.shelf.done == []
    assert carrying.value("invariant_violations_total", invariant="states") == 1
    assert carrying.said.reasons == ["InvariantViolated"]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        pytest.param(None, False, id="done"),
        pytest.param(NotFound("gone"), False, id="there is no pool any more"),
        pytest.param(Conflict("changed"), True, id="another's finalizer may have come meanwhile"),
        pytest.param(Throttled("later"), True, id="the server is busy"),
    ],
)
async def test_others_finalizers_are_left_to_them(error: Exception | None, again: bool) -> None:
    carrying = Carrying()
    carrying.api.error = error
    found = a_snapshot(a_pool(0, finalizers=["theirs"]))
    assert (await carrying.apply(found, Plan((SetFinalizer(True, "wanted"),)), carrying.shelf)).retry is again
    assert carrying.api.told == [{"uid": UID, "resourceVersion": "1", "finalizers": ["theirs", FINALIZER]}]


def test_what_is_written_for_an_action() -> None:
    ill = a_vm("a", WarmState.UNHEALTHY, check_failures=4)
    moved = vm_change(SetState(ill, WarmState.PROVISIONING, "it answers again"))
    assert moved.annotations == {meta.STATE_REASON: "it answers again", meta.CHECK_FAILURES: None}
    assert vm_change(SetState(a_vm("a"), WarmState.STANDING_BY, "x", "Paused")).labels == {meta.STANDBY: "Paused"}
    assert vm_change(CountFailedCheck(ill, 5, "x")).annotations == {meta.CHECK_FAILURES: "5"}
    assert vm_change(OrphanVM(ill, "PoolGone", "x")) == Change(owner=NO_OWNER, labels={meta.ORPHANED: "PoolGone"})


@pytest.mark.parametrize(
    ("m", "wanted", "fine"),
    [
        pytest.param(a_vm("a"), Change(WarmState.ALLOCATING, claim_uid="c"), True, id="a claim takes what is Ready"),
        pytest.param(a_vm("a", WarmState.IN_USE), Change(claim_uid="other"), False, id="never a second claim"),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING), Change(WarmState.READY, claim_uid=""), True, id="back, untouched"
        ),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING, activated=True),
            Change(WarmState.READY, claim_uid=""),
            False,
            id="never back, used",
        ),
        pytest.param(a_vm("a", WarmState.ALLOCATING), Change(WarmState.READY), False, id="not back with the claim"),
        pytest.param(
            a_vm("a", WarmState.IN_USE), Change(WarmState.READY, claim_uid=""), False, id="what was used never is Ready"
        ),
        pytest.param(a_vm("a", None), Change(WarmState.READY), False, id="no state at all"),
        pytest.param(a_vm("a"), Change(labels={"x": "y"}), True, id="labels alone"),
    ],
)
def test_what_a_machine_may_become(m: WarmVM, wanted: Change, fine: bool) -> None:
    if fine:
        check_transition(m, wanted)
    else:
        with pytest.raises(InvalidTransition):
            check_transition(m, wanted)
