"""The record of a warm pool's VMs: labels alone make no VM one of the pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.warmpool.actions import CreateVM
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.backends import OutcomeUnknown
from controllers.warmpool.events import WarmPoolEvents
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.plan import Plan, plan
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import status
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import NO_OWNER
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.expectations import Expectations
from tests.controllers.warmpool.builders import NEW, NOW, a_pool, a_snapshot, a_vm, ago, planned
from tests.controllers.warmpool.test_apply import FakeBackend, FakeEvents

LONG = "0b7f0a3c-91d2-4e56-8f00-aaaaaaaaaaaa"


def recording(*uids: str, replicas: int = 1, **spec: Any) -> WarmPool:
    return a_pool(replicas, status={"members": list(uids)}, **spec)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(recording("a"), a_vm("a", NEW)), [("state", "a", "Ready")], id="a recorded VM becomes Ready"
        ),
        pytest.param(
            a_snapshot(recording(), a_vm("a", NEW, created_at=ago(59)), created=frozenset("a")),
            [],
            id="a VM that this process has created waits for the stored status",
        ),
        pytest.param(
            a_snapshot(recording(), a_vm("a", NEW, created_at=ago(59))), [], id="a VM of another process waits too"
        ),
        pytest.param(
            a_snapshot(recording(), a_vm("a", NEW, created_at=ago(60))),
            [("delete", "a", "NotRecorded")],
            id="a VM without a record is deleted when the status cannot be behind",
        ),
        pytest.param(
            a_snapshot(recording(), a_vm("a", created_at=ago(60))),
            [("delete", "a", "NotRecorded")],
            id="a VM without a record whose labels say that it is Ready is deleted",
        ),
        pytest.param(
            a_snapshot(recording(), a_vm("a", created_at=ago(600)), created=frozenset("a")),
            [],
            id="never one that this process has created",
        ),
        pytest.param(
            a_snapshot(recording(paused=True), a_vm("a", created_at=ago(600))), [], id="a paused pool deletes none"
        ),
        pytest.param(
            a_snapshot(recording(replicas=0), a_vm("a", WarmState.IN_USE), a_vm("b", WarmState.ALLOCATING)),
            [],
            id="the VMs of claims are their claims'",
        ),
        pytest.param(a_snapshot(a_pool(1), a_vm("a", NEW)), [("state", "a", "Ready")], id="the pool has no record"),
    ],
)
def test_vms_without_a_record(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


def test_the_plan_is_due_when_an_unrecorded_vm_may_be_deleted() -> None:
    observed = a_snapshot(recording(), a_vm("a", created_at=ago(20)))
    assert plan(observed, NOW).requeue_seconds == 40


def members(observed: WarmPoolSnapshot) -> tuple[str, ...] | None:
    return status(observed, NOW).members


def test_the_record() -> None:
    there = (
        a_vm("a"),
        a_vm("b", WarmState.ALLOCATING),
        a_vm("c", WarmState.IN_USE),
        a_vm("d", deleting=True),
        a_vm("e", orphaned="TemplateChanged", owner=NO_OWNER),
        a_vm("f", NEW),
    )
    assert members(a_snapshot(a_pool(3), *there)) == ("a", "b", "d", "f"), "the pool has no record"
    found = a_snapshot(recording("a", "b", "c", "e", "gone"), *there, created=frozenset({"f", "new"}))
    assert members(found) == ("a", "b", "f", "new"), "a forged VM gets into no record"
    assert members(a_snapshot(recording())) == ()


def test_a_record_has_the_begin_of_a_uid() -> None:
    pool = recording(LONG[:13])
    assert pool.recorded(a_vm("a", uid=LONG))
    assert not pool.recorded(a_vm("a", uid=f"{LONG[:12]}f{LONG[13:]}"))
    assert members(a_snapshot(pool, a_vm("a", uid=LONG))) == (LONG[:13],)


def a_writer() -> WarmPoolWriter:
    events = WarmPoolEvents(FakeEvents(), WarmPoolMetrics(CollectorRegistry()))
    return WarmPoolWriter(None, events, Expectations(30.0), lambda: 0.0)


async def create(writer: WarmPoolWriter, backend: FakeBackend, *names: str) -> None:
    actions = tuple(CreateVM(name, "default", "Running", "x") for name in names)
    await writer(a_snapshot(3), Plan(actions), backend)


async def test_the_process_knows_what_it_has_created() -> None:
    writer, pool = a_writer(), a_pool()
    await create(writer, FakeBackend(), "web-1", "web-2")
    assert writer.created_of(pool, [], all_shown=False) == {"web-1", "web-2"}, "the store does not show them yet"
    assert writer.created_of(pool, [a_vm("1", uid="web-1")], all_shown=True) == {"web-1"}
    writer.forget(pool.uid)
    assert writer.created_of(pool, [a_vm("1", uid="web-1")], all_shown=False) == frozenset()


async def test_a_vm_whose_creation_got_no_answer_is_known_once() -> None:
    writer, pool = a_writer(), a_pool()
    await create(writer, FakeBackend({"web-1": OutcomeUnknown("lost")}), "web-1")
    made = replace(a_vm("1", uid="first"), name="web-1")
    assert writer.created_of(pool, [made], all_shown=True) == {"first"}
    again = replace(made, uid="second")
    assert writer.created_of(pool, [again], all_shown=True) == frozenset(), "somebody has used its name"
