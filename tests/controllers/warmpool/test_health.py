"""Checks of the cached VMI, and probes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.health import probe, vmi_health
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_readiness import HttpProbe, Readiness, TcpProbe
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import NOT_READY_NODE, a_pool, a_vm, a_vmi

HEALTHY_VM = a_vm("a")
FAILING = replace(HEALTHY_VM, vmi=a_vmi(conditions=frozenset()))
UNREACHABLE = replace(HEALTHY_VM, node=NOT_READY_NODE)


@pytest.mark.parametrize(
    ("vm", "readiness", "expected"),
    [
        pytest.param(HEALTHY_VM, Readiness(), ("Healthy", ""), id="Ready"),
        pytest.param(FAILING, Readiness(), ("Failed", "NotReady"), id="not Ready"),
        pytest.param(
            HEALTHY_VM, Readiness(guest_agent=True), ("Failed", "NotAgentConnected"), id="guest agent required"
        ),
        pytest.param(HEALTHY_VM, Readiness(conditions=("Warm",)), ("Failed", "NotWarm"), id="condition required"),
        pytest.param(UNREACHABLE, Readiness(), ("Unable", "NodeNotReady"), id="node not ready"),
        pytest.param(replace(HEALTHY_VM, vmi=None), Readiness(), ("Failed", "NotRunning"), id="no VMI"),
        pytest.param(
            replace(HEALTHY_VM, vmi=a_vmi(paused="PausedIOError")),
            Readiness(),
            ("Failed", "PausedIOError"),
            id="paused by an error",
        ),
    ],
)
def test_vmi_health(vm: WarmVM, readiness: Readiness, expected: tuple[str, str]) -> None:
    found = vmi_health(vm, readiness)
    assert (found.verdict, found.reason) == expected


HERE = "127.0.0.1"
CLOSED_PORT = 9
"""A port on which nothing listens. A port that was just released may be in use again."""


async def served(answer: bytes) -> tuple[asyncio.Server, int]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer:
            await reader.readline()
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        pytest.param(b"", "tcp", "", id="open port"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "http", "", id="HTTP 200"),
        pytest.param(
            b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "http", "", id="HTTP redirect"
        ),
        pytest.param(b"HTTP/1.1 503 secret\r\nContent-Length: 0\r\n\r\n", "http", "BadAnswer", id="HTTP 503"),
        pytest.param(b"secret\r\n\r\n", "http", "NoAnswer", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nsecret\x00: \r\n\r\n", "http", "NoAnswer", id="damaged HTTP"),
    ],
)
async def test_probes(answer: bytes, kind: str, expected: str) -> None:
    server, port = await served(answer)
    async with server:
        readiness = Readiness(tcp=TcpProbe(port=port)) if kind == "tcp" else Readiness(http=HttpProbe(port=port))
        found = await probe(HERE, readiness, 60.0)
        assert found.reason == expected
        assert "secret" not in found.message


async def test_a_closed_port_fails() -> None:
    found = await probe(HERE, Readiness(tcp=TcpProbe(port=CLOSED_PORT)), 60.0)
    assert (found.reason, found.message) == ("NoAnswer", f"{HERE} port {CLOSED_PORT}: Connection refused")


async def test_a_probe_without_an_answer_times_out() -> None:
    silence = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        readiness = Readiness(http=HttpProbe(port=server.sockets[0].getsockname()[1]))
        assert (await probe(HERE, readiness, 0.05)).message.endswith("no answer in 0.05 s")
        silence.set()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Observer:
    """Observes one VM at intervals."""

    def __init__(self, pool: WarmPool) -> None:
        self.pool, self.clock = pool, Clock()
        self.tracker = HealthTracker(self.clock)

    def at(self, vm: WarmVM, *after: float) -> Any:
        for seconds in after:
            self.clock.now += seconds
            found = self.tracker.observe(self.pool, [vm])[vm.uid]
        return found


@pytest.fixture
def observer() -> Observer:
    return Observer(a_pool(1, health={"periodSeconds": 10}))


def test_a_failure_counts_once_in_each_period(observer: Observer) -> None:
    assert observer.at(FAILING, 0).failed_periods == 1
    assert observer.at(FAILING, 1, 1, 1).failed_periods == 1
    assert not observer.at(FAILING, 1).period_over
    assert observer.at(FAILING, 7).failed_periods == 2
    assert observer.at(FAILING, 10).period_over


def test_a_successful_check_resets_the_count(observer: Observer) -> None:
    observer.at(FAILING, 10, 10)
    assert observer.at(HEALTHY_VM, 1).failed_periods == 0
    assert observer.at(FAILING, 1).failed_periods == 1


def test_a_check_that_cannot_run_keeps_the_count(observer: Observer) -> None:
    observer.at(FAILING, 10, 10)
    assert observer.at(UNREACHABLE, 10, 10, 10).failed_periods == 2
    assert observer.at(FAILING, 10).failed_periods == 3


def test_healthy_seconds_restart_after_a_failure(observer: Observer) -> None:
    observer.at(HEALTHY_VM, 0)
    assert observer.at(HEALTHY_VM, 29).healthy_seconds == 29
    observer.at(FAILING, 1)
    assert observer.at(HEALTHY_VM, 5).healthy_seconds == 0


def test_seconds_since_a_vm_waited_for_scheduling(observer: Observer) -> None:
    waiting = a_vm("a", WarmState.PROVISIONING, vmi=a_vmi(start_failure="Unschedulable", phase="Scheduling"))
    assert observer.at(HEALTHY_VM, 0).unscheduled_ago == float("inf")
    assert observer.at(waiting, 500).unscheduled_ago == 0
    assert observer.at(replace(waiting, vmi=a_vmi()), 7).unscheduled_ago == 7


def test_only_unclaimed_vms_are_observed(observer: Observer) -> None:
    """The pool does not heal a claimed VM."""
    vms = [HEALTHY_VM, a_vm("claimed", WarmState.IN_USE)]
    assert observer.tracker.observe(observer.pool, vms).keys() == {HEALTHY_VM.uid}


def test_a_deleted_vm_is_forgotten(observer: Observer) -> None:
    observer.at(FAILING, 10, 10)
    observer.tracker.forget(FAILING.uid)
    assert observer.at(FAILING, 0).failed_periods == 1


def test_a_failing_vm_is_observed_again_when_its_period_ends(observer: Observer) -> None:
    assert observer.tracker.seconds_until_period_ends(observer.pool, [FAILING]) is None
    observer.at(FAILING, 0)
    observer.clock.now += 4
    assert observer.tracker.seconds_until_period_ends(observer.pool, [FAILING]) == 6


def test_a_vm_that_cannot_be_checked_causes_no_requeue(observer: Observer) -> None:
    observer.at(FAILING, 0)
    observer.at(UNREACHABLE, 10, 10)
    assert observer.tracker.seconds_until_period_ends(observer.pool, [UNREACHABLE]) is None
    observer.at(FAILING, 10)
    assert observer.tracker.seconds_until_period_ends(observer.pool, [FAILING]) == 10


class FakeBackend:
    def __init__(self, health: Health) -> None:
        self.health, self.probes = health, 0

    async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        self.probes += 1
        return self.health


async def test_a_vm_with_a_probe_is_not_healthy_before_its_answer() -> None:
    observer = Observer(a_pool(1, readiness={"tcp": {"port": 22}}))
    assert observer.at(HEALTHY_VM, 0).running.verdict == "Unable"
    backend = FakeBackend(HEALTHY)
    assert await observer.tracker.probe(observer.pool, [HEALTHY_VM], backend) is True
    assert observer.at(HEALTHY_VM, 0).running == HEALTHY
    assert await observer.tracker.probe(observer.pool, [HEALTHY_VM], backend) is False, "the verdict is the same"
    backend.health = Health("Failed", "NoAnswer")
    assert await observer.tracker.probe(observer.pool, [HEALTHY_VM], backend) is True


@pytest.mark.parametrize(
    "vm",
    [
        pytest.param(a_vm("a", WarmState.IN_USE), id="a claimed VM"),
        pytest.param(a_vm("a", standby="Paused"), id="a paused VM"),
        pytest.param(a_vm("a", standby="Stopped"), id="a stopped VM"),
        pytest.param(UNREACHABLE, id="a VM on a node that is not ready"),
    ],
)
async def test_vms_that_are_not_probed(vm: WarmVM) -> None:
    backend = FakeBackend(HEALTHY)
    await HealthTracker(Clock()).probe(a_pool(1, readiness={"tcp": {"port": 22}}), [vm], backend)
    assert backend.probes == 0


async def test_a_vm_that_is_forgotten_during_its_probe_is_not_remembered_again() -> None:
    observer = Observer(a_pool(1, readiness={"tcp": {"port": 22}}))

    class Meanwhile(FakeBackend):
        async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
            observer.tracker.forget(vm.uid)
            return HEALTHY

    await observer.tracker.probe(observer.pool, [HEALTHY_VM], Meanwhile(HEALTHY))
    assert observer.at(HEALTHY_VM, 0).running.verdict == "Unable"


@pytest.mark.parametrize("before", [HEALTHY, Health("Failed", "NoAnswer", "connection refused")])
@pytest.mark.sentence("5.73")
async def test_checks_are_logged_and_new_results_at_info(before: Health, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pool, backend = a_pool(1, readiness={"tcp": {"port": 22}}), FakeBackend(before)
    tracker = HealthTracker(Clock())
    for _ in range(2):
        await tracker.probe(pool, [HEALTHY_VM], backend)
    lines = [each for each in caplog.records if getattr(each, "event", "") == "VMChecked"]
    assert [each.levelno for each in lines] == [logging.INFO, logging.DEBUG]
    assert {each.getMessage() for each in lines} == {f"probed web-a: {before.message or before.verdict}"}
