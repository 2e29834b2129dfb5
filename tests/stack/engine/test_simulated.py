from __future__ import annotations

import math
from dataclasses import replace

import pytest

from poolhouse.stack.engine.fault_injection import FAULTS, SETTINGS, Faults, parse_faults
from poolhouse.stack.engine.hypervisor import ABSENT
from poolhouse.stack.engine.migration.settings import MigrationSettings
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.simulated import SimulatedHypervisor, copy_seconds, injected_failure, simulate_domain
from tests.stack.engine.builders import NOW, ago, vmi


@pytest.mark.parametrize(
    ("phase", "age", "faults", "failures", "state", "trouble"),
    [
        pytest.param("", 0, Faults(), 0, "starting", "", id="a start takes a while"),
        pytest.param("", 2, Faults(), 0, "running", "", id="the default start ends"),
        pytest.param("", 5, Faults(start_seconds=10), 0, "starting", "", id="a longer start"),
        pytest.param("", 99, Faults(fail="Stuck"), 0, "starting", "", id="Stuck"),
        pytest.param("", 99, Faults(fail="CrashLoopBackOff"), 0, "crashed", "", id="CrashLoopBackOff"),
        pytest.param(
            "", 99, Faults(fail="CrashLoopBackOff", fail_times=2), 1, "crashed", "", id="the second of two failures"
        ),
        pytest.param(
            "", 99, Faults(fail="CrashLoopBackOff", fail_times=2), 2, "running", "", id="the try after two failures"
        ),
        pytest.param("", 99, Faults(fail_rate=1.0), 0, "crashed", "", id="a rate without a fault means crashes"),
        pytest.param("", 99, Faults(fail_rate=0.0, fail="Stuck"), 0, "running", "", id="a rate of 0 means no faults"),
        pytest.param("", 9, Faults(fail="ErrImagePull"), 0, "absent", "ErrImagePull", id="ErrImagePull"),
        pytest.param("", 9, Faults(fail="ErrorUnschedulable"), 0, "absent", "Unschedulable", id="ErrorUnschedulable"),
        pytest.param(
            "", 9, Faults(fail="ErrImagePull", fail_times=2), 0, "running", "", id="ErrImagePull, fail-times passed"
        ),
        pytest.param("Running", 99, Faults(fail="Stuck"), 0, "running", "", id="a running VMI stays running"),
        pytest.param("Running", 99, Faults(crash_seconds=61), 0, "running", "", id="before crash-seconds"),
        pytest.param("Running", 99, Faults(crash_seconds=60), 0, "crashed", "", id="after crash-seconds of running"),
        pytest.param("Running", 99, Faults(reboot_seconds=60), 0, "running", "", id="a reboot does not end the VMI"),
    ],
)
def test_simulated_domain(phase: str, age: float, faults: Faults, failures: int, state: str, trouble: str) -> None:
    found = simulate_domain(vmi(phase, created=ago(age)), faults, "x", failures, NOW)
    assert (found.state, found.start_problem) == (state, trouble)


@pytest.mark.parametrize(
    ("faults", "state", "left"),
    [
        pytest.param(Faults(), "running", None, id="no reboot"),
        pytest.param(Faults(reboot_seconds=61), "running", 1, id="before"),
        pytest.param(Faults(reboot_seconds=60), "off", None, id="after"),
        pytest.param(Faults(reboot_seconds=70, crash_seconds=65), "running", 5, id="a crash comes first"),
    ],
)
def test_a_reboot_ends_a_vmi_whose_reboot_policy_is_terminate(faults: Faults, state: str, left: float | None) -> None:
    seen = replace(vmi("Running", created=ago(99)), ends_at_reboot=True)
    found = simulate_domain(seen, faults, "x", 0, NOW)
    assert (found.state, found.change_seconds) == (state, left)


@pytest.mark.parametrize(
    ("seen", "faults", "failures", "state"),
    [
        pytest.param(vmi("Scheduled", created=ago(9)), Faults(), 0, "absent", id="no fault"),
        pytest.param(
            vmi("Scheduled", created=ago(9)), Faults(fail="CrashLoopBackOff"), 0, "crashed", id="CrashLoopBackOff"
        ),
        pytest.param(vmi("", created=ago(0)), Faults(fail="Stuck"), 0, "starting", id="Stuck"),
        pytest.param(
            vmi("", created=ago(9)), Faults(fail="CrashLoopBackOff", fail_times=1), 1, "absent", id="fail-times reached"
        ),
        pytest.param(
            vmi("", created=ago(9)),
            Faults(fail="ErrImagePull", fail_times=2),
            0,
            "absent",
            id="ErrImagePull, fail-times passed",
        ),
        pytest.param(vmi("Running"), Faults(fail="Stuck"), 0, "absent", id="a running VMI"),
        pytest.param(vmi("Failed"), Faults(fail="Stuck"), 0, "absent", id="an ended VMI"),
        pytest.param(vmi("", deleted=ago(1)), Faults(fail="Stuck"), 0, "absent", id="a deleted VMI"),
    ],
)
def test_injected_failures_of_real_guests(seen: VMI, faults: Faults, failures: int, state: str) -> None:
    assert injected_failure(seen, faults, "x", failures, NOW).state == state


def test_a_stop_takes_at_most_the_grace_period() -> None:
    ending = vmi(deleted=ago(1))
    assert simulate_domain(ending, Faults(stop_seconds=3), "x", 0, NOW).change_seconds == 2
    assert simulate_domain(vmi(deleted=ago(4)), Faults(stop_seconds=3), "x", 0, NOW) == ABSENT
    assert simulate_domain(vmi(deleted=ago(1), grace_seconds=0.0), Faults(stop_seconds=3), "x", 0, NOW) == ABSENT


def test_a_seed_repeats_outcomes_and_rates_hold() -> None:
    faults = Faults(fail_rate=0.3, seed="s")
    outcomes = [faults.outcome(f"vm-{number}", 0) for number in range(1000)]
    assert outcomes == [faults.outcome(f"vm-{number}", 0) for number in range(1000)]
    assert 250 < sum(outcome is not None for outcome in outcomes) < 350
    assert outcomes != [Faults(fail_rate=0.3, seed="t").outcome(f"vm-{number}", 0) for number in range(1000)]


def test_later_layers_take_precedence() -> None:
    faults, problems = parse_faults([[("fail", "Stuck"), ("start-seconds", "3")], [("fail", "ErrImagePull")]])
    assert (faults.fail, faults.start_seconds, problems) == ("ErrImagePull", 3.0, ())


@pytest.mark.parametrize("key", sorted(set(SETTINGS) - {"seed"}))
def test_an_invalid_value_is_reported_and_ignored(key: str) -> None:
    faults, problems = parse_faults([[(key, "certainly not")]])
    assert faults == Faults()
    assert key in problems[0]
    assert "certainly not" in problems[0]


def test_unknown_settings_are_reported() -> None:
    assert "unknown setting" in parse_faults([[("fail-often", "1")]])[1][0]


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_is_accepted(kind: str) -> None:
    assert parse_faults([[("fail", kind)]])[0].outcome("x", 0) == kind


@pytest.mark.parametrize(
    ("settings", "dirty", "seconds"),
    [
        pytest.param(MigrationSettings(bandwidth=32 << 20), 0, 4, id="memory at the bandwidth"),
        pytest.param(MigrationSettings(bandwidth=32 << 20), 64 << 20, math.inf, id="the guest dirties memory faster"),
        pytest.param(MigrationSettings(bandwidth=32 << 20, auto_converge=True), 64 << 20, 4, id="auto-converge"),
        pytest.param(MigrationSettings(), 64 << 20, 0.5, id="no bandwidth limit"),
    ],
)
def test_duration_of_a_simulated_migration(settings: MigrationSettings, dirty: int, seconds: float) -> None:
    assert copy_seconds(128 << 20, settings, dirty) == seconds


async def test_a_guest_shuts_down_after_the_power_button() -> None:
    hypervisor, faults, changed = SimulatedHypervisor(), Faults(stop_seconds=2), list[str]()
    hypervisor.subscribe(changed.append)

    def state(at: float) -> str:
        return hypervisor.domain(vmi(), faults, "x", 0, ago(-at)).state

    assert state(0) == "running"
    for _ in range(2):
        await hypervisor.press_power(vmi())
    assert [state(0), state(1), state(2)] == ["running", "running", "off"]
    assert changed == ["vmi-uid"]


async def test_the_power_button_leaves_a_deleted_vmi_to_its_time_of_deletion() -> None:
    hypervisor = SimulatedHypervisor()
    await hypervisor.press_power(vmi(deleted=ago(0)))
    assert hypervisor.domain(vmi(), Faults(stop_seconds=0), "x", 0, ago(0)).state == "running"
