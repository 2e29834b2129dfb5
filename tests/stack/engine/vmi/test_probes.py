"""Probes by the rules of the kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from poolhouse.runtime.store import Store
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import Domain
from poolhouse.stack.engine.objects import VMI, read_vmi
from poolhouse.stack.engine.qemu.probing import NETWORK, is_established
from poolhouse.stack.engine.resources import find_condition
from poolhouse.stack.engine.simulated import SimulatedHypervisor
from poolhouse.stack.engine.vmi.phases import VMISnapshot, plan_vmi
from poolhouse.stack.engine.vmi.prober import Prober
from poolhouse.stack.engine.vmi.probes import Probe, ProbeResults, ProbeState, read_probes
from tests.stack.engine.builders import NOW, ago, vmi
from tests.virtual_loop import VirtualLoop

TCP = Probe("liveness", "tcpSocket", 80)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [], id="no probes"),
        pytest.param({"livenessProbe": {"tcpSocket": {"port": 80}}}, [TCP], id="the kubelet's defaults"),
        pytest.param(
            {"livenessProbe": {"guestAgentPing": None, "exec": None, "tcpSocket": {"port": 80}}},
            [TCP],
            id="null handlers",
        ),
        pytest.param({"livenessProbe": {"guestAgentPing": None}}, [], id="a null handler only"),
        pytest.param(
            {
                "readinessProbe": {
                    "httpGet": {
                        "port": "8080",
                        "path": "/health",
                        "httpHeaders": [{"name": "X-Key", "value": "1"}],
                    },
                    "initialDelaySeconds": 3,
                    "periodSeconds": 4,
                    "timeoutSeconds": 5,
                    "successThreshold": 6,
                    "failureThreshold": 7,
                }
            },
            [
                Probe(
                    *("readiness", "httpGet", 8080, "/health"),
                    headers=(("X-Key", "1"),),
                    initial_delay_seconds=3,
                    period_seconds=4,
                    timeout_seconds=5,
                    success_threshold=6,
                    failure_threshold=7,
                )
            ],
            id="all fields",
        ),
        pytest.param(
            {
                "livenessProbe": {"tcpSocket": {"port": "web"}, "successThreshold": 3, "periodSeconds": 0},
                "domain": {"devices": {"interfaces": [{"name": "a", "ports": [{"name": "web", "port": 80}]}]}},
            },
            [TCP],
            id="a named port, and values below the least",
        ),
        pytest.param(
            {"livenessProbe": {"tcpSocket": {"port": "web"}}},
            [Probe("liveness", "tcpSocket", 0)],
            id="the name of no port",
        ),
    ],
)
def test_parsed_probes(spec: dict[str, Any], expected: list[Probe]) -> None:
    assert list(read_probes(spec)) == expected


@pytest.mark.parametrize(
    ("results", "passing"),
    [
        pytest.param("", True, id="a guest is alive at first"),
        pytest.param("--", True, id="less failures than the threshold"),
        pytest.param("---", False, id="the threshold is reached"),
        pytest.param("--+--", True, id="a success ends the series"),
        pytest.param("---+", False, id="less successes than the threshold"),
        pytest.param("---+-+", False, id="successes must be in a row"),
        pytest.param("---++", True, id="it passes again"),
    ],
)
def test_thresholds(results: str, passing: bool) -> None:
    probe, state = Probe("readiness", "tcpSocket", 80, success_threshold=2), ProbeState(passing=True)
    for each in results:
        state = state.after(each == "+", probe)
    assert state.passing is passing


RUNNING = Domain("running", "node-1")


def test_a_guest_that_is_not_ready_runs_on() -> None:
    made = plan_vmi(VMISnapshot(vmi("Running"), RUNNING, probes=ProbeResults(ready=False)), NOW)
    ready = find_condition(made.status["conditions"], "Ready")
    assert (made.status["phase"], ready["status"], ready["reason"]) == ("Running", "False", "ContainersNotReady")


def test_a_guest_that_starts_is_not_ready_before_its_probe_passes() -> None:
    made = plan_vmi(VMISnapshot(vmi("Scheduled"), RUNNING, probes=ProbeResults(ready=False)), NOW)
    ready = find_condition(made.status["conditions"], "Ready")
    assert (made.status["phase"], ready["status"]) == ("Running", "False")


def test_a_failed_liveness_probe_fails_the_vmi() -> None:
    found = ProbeResults(alive=False, problem="connection refused")
    made = plan_vmi(VMISnapshot(vmi("Running"), RUNNING, probes=found), NOW)
    ready = find_condition(made.status["conditions"], "Ready")
    assert (made.status["phase"], made.status["reason"]) == ("Failed", "LivenessProbeFailed")
    assert ready["message"] == "the liveness probe failed: connection refused"


class Informer:
    """The store of VMIs, with the part of an informer that the prober uses."""

    def __init__(self, *found: VMI) -> None:
        self.store: Store[VMI] = Store()
        for each in found:
            self.store.put(each.key, each)

    def subscribe(self, changed: Any) -> None: ...


class Informers:
    def __init__(self, *found: VMI) -> None:
        self.vmis = Informer(*found)

    def now(self) -> datetime:
        return NOW

    def faults_of(self, vmi: VMI) -> tuple[Faults, tuple[str, ...]]:
        return Faults(), ()


class Guest(SimulatedHypervisor):
    """A guest that gives these answers, one after the other, and then the last for ever."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers, self.times = list(answers), []

    async def probe(self, *given: Any) -> str:
        self.times.append(asyncio.get_running_loop().time() - 1000)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "hangs":
            await asyncio.sleep(3600)
        return answer


class Events:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def emit(self, reference: Any, kind: str, reason: str, note: str, *, action: str) -> None:
        self.notes.append(note)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def probed(loop: VirtualLoop, guest: Guest, seconds: float, **probe: Any) -> tuple[ProbeResults, list[str]]:
    found = vmi("Running", probes=(Probe("liveness", "tcpSocket", 80, **probe),), created=ago(60))
    events = Events()

    async def run() -> ProbeResults:
        prober = Prober(Informers(found), guest, events, lambda uid: None)
        task = asyncio.create_task(prober.run())
        await asyncio.sleep(seconds)
        results = prober.results(found)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return results

    return loop.run_until_complete(run()), events.notes


def test_a_guest_is_probed_in_its_period(loop: VirtualLoop) -> None:
    guest = Guest("")
    results, notes = probed(loop, guest, 25)
    assert (results, [round(each) for each in guest.times], notes) == (ProbeResults(), [0, 10, 20], [])


def test_a_guest_that_does_not_answer_in_time_fails(loop: VirtualLoop) -> None:
    results, notes = probed(loop, Guest("hangs"), 40, timeout_seconds=2, failure_threshold=2)
    assert results == ProbeResults(alive=False, problem="no answer within 2 s")
    assert notes == ["Liveness probe failed: no answer within 2 s"] * 2


def test_a_probe_that_the_engine_cannot_run_passes_with_a_warning(loop: VirtualLoop) -> None:
    found = vmi("Running", probes=(Probe("liveness", "exec"),))
    events = Events()

    async def run() -> ProbeResults:
        prober = Prober(Informers(found), Guest("fails"), events, lambda uid: None)
        task = asyncio.create_task(prober.run())
        await asyncio.sleep(100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return prober.results(found)

    assert loop.run_until_complete(run()) == ProbeResults()
    assert events.notes == [
        "the liveness probe is not run, and counts as passed: a simulated guest executes no commands"
    ]


def test_a_vmi_has_its_probes() -> None:
    document = {"metadata": {"name": "a", "uid": "u"}, "spec": {"livenessProbe": {"tcpSocket": {"port": 80}}}}
    assert read_vmi(document).probes == (TCP,)


USERNET = """Hub -1 (hostua-default):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[HOST_FORWARD]  20       127.0.0.1  4321       10.0.2.15    80     0     0
"""
CONNECTION = "  TCP[%s]   33       127.0.0.1  4321       10.0.2.15    80     0     0\n"


@pytest.mark.parametrize(
    ("state", "established"),
    [("ESTABLISHED", True), ("SYN_SENT", False), ("FIN_WAIT_1", False), ("HOST_FORWARD", False)],
)
def test_connections_that_the_guest_has_accepted(state: str, established: bool) -> None:
    assert is_established(USERNET + CONNECTION % state, 4321) is established
    assert not is_established(USERNET + CONNECTION % state, 4322)


def test_the_name_of_the_guest_network() -> None:
    found = NETWORK.search(USERNET)
    assert found[1] == "hostua-default"
