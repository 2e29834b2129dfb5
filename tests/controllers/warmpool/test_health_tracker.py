"""What is remembered between looks, and what machines are asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from controllers.warmpool.backends import HEALTHY, Backend, Health
from controllers.warmpool.health import probe, vmi_health
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from kinds.warmpool import HttpProbe, Readiness, TcpProbe
from tests.controllers.warmpool.builders import NOT_READY_NODE, a_pool, a_vm, a_vmi

WELL = a_vm("a")
ILL = replace(WELL, vmi=a_vmi(conditions=frozenset()))
UNSEEN = replace(WELL, node=NOT_READY_NODE)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Looking:
    """Looks at one machine every so many seconds."""

    def __init__(self, pool: WarmPool) -> None:
        self.pool, self.clock = pool, Clock()
        self.checks = HealthTracker(self.clock)

    def at(self, m: WarmVM, *after: float) -> Any:
        for seconds in after:
            self.clock.now += seconds
            found = self.checks.observe(self.pool, [m])[m.uid]
        return found


@pytest.fixture
def looking() -> Looking:
    return Looking(a_pool(1, health={"periodSeconds": 10}))


def test_a_failure_counts_once_a_period(looking: Looking) -> None:
    assert looking.at(ILL, 0).failed_periods == 1
    assert looking.at(ILL, 1, 1, 1).failed_periods == 1
    assert not looking.at(ILL, 1).period_over
    assert looking.at(ILL, 7).failed_periods == 2
    assert looking.at(ILL, 10).period_over


def test_one_good_check_forgives_all(looking: Looking) -> None:
    looking.at(ILL, 10, 10)
    assert looking.at(WELL, 1).failed_periods == 0
    assert looking.at(ILL, 1).failed_periods == 1


def test_what_could_not_be_checked_neither_counts_nor_forgives(looking: Looking) -> None:
    looking.at(ILL, 10, 10)
    assert looking.at(UNSEEN, 10, 10, 10).failed_periods == 2
    assert looking.at(ILL, 10).failed_periods == 3


def test_health_has_to_last(looking: Looking) -> None:
    looking.at(WELL, 0)
    assert looking.at(WELL, 29).healthy_seconds == 29
    looking.at(ILL, 1)
    assert looking.at(WELL, 5).healthy_seconds == 0


def test_how_long_ago_there_was_no_room(looking: Looking) -> None:
    waiting = a_vm("a", WarmState.PROVISIONING, vmi=a_vmi(start_failure="Unschedulable", phase="Scheduling"))
    assert looking.at(WELL, 0).unscheduled_ago == float("inf")
    assert looking.at(waiting, 500).unscheduled_ago == 0
    assert looking.at(replace(waiting, vmi=a_vmi()), 7).unscheduled_ago == 7


def test_one_that_is_gone_is_forgotten(looking: Looking) -> None:
    looking.at(ILL, 10, 10)
    looking.checks.forget(ILL.uid)
    assert looking.at(ILL, 0).failed_periods == 1


def test_who_fails_is_looked_at_again_when_its_period_ends(looking: Looking) -> None:
    assert looking.checks.seconds_until_period_ends(looking.pool, [ILL]) is None
    looking.at(ILL, 0)
    looking.clock.now += 4
    assert looking.checks.seconds_until_period_ends(looking.pool, [ILL]) == 6


def test_what_failed_and_can_t_be_checked_now_is_not_looked_at_again_and_again(looking: Looking) -> None:
    looking.at(ILL, 0)
    looking.at(UNSEEN, 10, 10)
    assert looking.checks.seconds_until_period_ends(looking.pool, [UNSEEN]) is None
    looking.at(ILL, 10)
    assert looking.checks.seconds_until_period_ends(looking.pool, [ILL]) == 10


class Answering:
    def __init__(self, health: Health) -> None:
        self.health, self.asked = health, 0

    async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        self.asked += 1
        return self.health


async def test_a_machine_that_has_to_be_asked_is_not_well_before_it_answered() -> None:
    looking = Looking(a_pool(1, readiness={"tcp": {"port": 22}}))
    assert looking.at(WELL, 0).running.verdict == "Unable"
    port = Answering(HEALTHY)
    assert await looking.checks.probe(looking.pool, [WELL], cast(Backend, port)) is True
    assert looking.at(WELL, 0).running == HEALTHY
    assert await looking.checks.probe(looking.pool, [WELL], cast(Backend, port)) is False, "it answered as before"
    port.health = Health("Failed", "NoAnswer")
    assert await looking.checks.probe(looking.pool, [WELL], cast(Backend, port)) is True


@pytest.mark.parametrize(
    "m",
    [
        pytest.param(a_vm("a", WarmState.IN_USE), id="what is claimed is its claim's"),
        pytest.param(a_vm("a", standby="Paused"), id="what is paused can't answer"),
        pytest.param(a_vm("a", standby="Stopped"), id="what is stopped neither"),
        pytest.param(UNSEEN, id="what nobody can reach is not blamed"),
    ],
)
async def test_who_is_not_asked(m: WarmVM) -> None:
    port = Answering(HEALTHY)
    await HealthTracker(Clock()).probe(a_pool(1, readiness={"tcp": {"port": 22}}), [m], cast(Backend, port))
    assert port.asked == 0


@pytest.mark.parametrize(
    ("m", "readiness", "expected"),
    [
        pytest.param(WELL, Readiness(), ("Healthy", ""), id="Ready is enough"),
        pytest.param(ILL, Readiness(), ("Failed", "NotReady"), id="and is needed"),
        pytest.param(WELL, Readiness(guest_agent=True), ("Failed", "NotAgentConnected"), id="the agent when asked for"),
        pytest.param(WELL, Readiness(conditions=("Warm",)), ("Failed", "NotWarm"), id="and conditions"),
        pytest.param(UNSEEN, Readiness(), ("Unable", "NodeNotReady"), id="a silent node says nothing"),
        pytest.param(replace(WELL, vmi=None), Readiness(), ("Failed", "NotRunning"), id="it must run"),
        pytest.param(
            replace(WELL, vmi=a_vmi(paused="PausedIOError")),
            Readiness(),
            ("Failed", "PausedIOError"),
            id="and go on",
        ),
    ],
)
def test_vitals(m: WarmVM, readiness: Readiness, expected: tuple[str, str]) -> None:
    found = vmi_health(m, readiness)
    assert (found.verdict, found.reason) == expected


NOBODYS = 9
"""A port at which nothing listens. One that was just given back may be somebody's again."""


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
        pytest.param(b"", "tcp", "", id="a port that accepts"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "http", "", id="a page"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "http", "", id="a redirect"),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "http", "BadAnswer", id="a page that fails"),
        pytest.param(b"what?\r\n\r\n", "http", "NoAnswer", id="no page at all"),
    ],
)
async def test_what_a_machine_answers(answer: bytes, kind: str, expected: str) -> None:
    server, port = await served(answer)
    async with server:
        readiness = Readiness(tcp=TcpProbe(port=port)) if kind == "tcp" else Readiness(http=HttpProbe(port=port))
        m = replace(WELL, vmi=a_vmi(addresses=("127.0.0.1",)))
        assert (await probe(m, readiness, 60.0)).reason == expected


async def test_a_port_that_is_closed_and_a_machine_without_an_address() -> None:
    readiness = Readiness(tcp=TcpProbe(port=NOBODYS))
    assert (await probe(replace(WELL, vmi=a_vmi(addresses=("127.0.0.1",))), readiness, 60.0)).reason == "NoAnswer"
    assert (await probe(replace(WELL, vmi=a_vmi(addresses=())), readiness, 60.0)).reason == "NoAddress"


async def test_a_machine_that_keeps_silent_is_given_up() -> None:
    silence = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        readiness = Readiness(http=HttpProbe(port=server.sockets[0].getsockname()[1]))
        m = replace(WELL, vmi=a_vmi(addresses=("127.0.0.1",)))
        assert (await probe(m, readiness, 0.05)).message.endswith("no answer in 0.05 s")
        silence.set()
