"""VMs that keep failing to start: which are replaced, and when none is. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.pool.actions import Create, Delete, Heal
from controllers.pool.gates.healing import budget_refusal, pause_refusal
from controllers.pool.healing_status import circuit_breaker, healing_status
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool import MAX_HEALED_VMS
from tests.controllers.pool.builders import (
    NOW,
    a_pool,
    ago,
    bad,
    eight,
    halted,
    leaving,
    retained,
    snapshot,
    template,
    vm,
)
from tests.controllers.pool.stores import observe_pool, stored

Json = dict[str, Any]


def memory(name: str, attempts: int, seconds_left: float) -> Json:
    return {"name": name, "attempts": attempts, "healedAt": ago(60), "notBefore": ago(-seconds_left)}


def stopped(seconds_left: float) -> Json:
    return {"breaker": {"open": True, "since": ago(600), "until": ago(-seconds_left)}}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            eight(bad(1)), ["web-1"], id="one that keeps failing is replaced", marks=pytest.mark.sentence("1.23")
        ),
        pytest.param(
            eight(bad(1, start_failures=2)),
            [],
            id="not before it has failed often enough",
            marks=pytest.mark.sentence("1.23"),
        ),
        pytest.param(
            eight(bad(1, start_failures=1), autohealing={"startupFailureThreshold": 1}), ["web-1"], id="as said"
        ),
        pytest.param(
            eight(bad(1), autohealing=None), [], id="never unless it is asked for", marks=pytest.mark.sentence("1.21")
        ),
        pytest.param(
            eight(bad(1), paused=True), [], id="not while the pool is paused", marks=pytest.mark.sentence("1.58")
        ),
        pytest.param(
            eight(bad(1), updateStrategy={"unmanaged": {}}, scaleInStrategy={"unmanaged": {}}),
            ["web-1"],
            id="a pool whose strategies are unmanaged heals",
            marks=pytest.mark.sentence("1.59"),
        ),
        pytest.param(eight(bad(1, ready=True)), [], id="not when it runs after all"),
        pytest.param(
            eight(bad(1, should_run=False)),
            [],
            id="not when it is meant to be halted",
            marks=pytest.mark.sentence("1.60"),
        ),
        pytest.param(eight(bad(1), bad(2, start_failures=9)), ["web-2", "web-1"], id="the worst first"),
        pytest.param(
            eight(bad(1), vm(2, ready=False), vm(3, ready=False)),
            [],
            id="others are on their way",
            marks=pytest.mark.sentence("1.54"),
        ),
        pytest.param(eight(bad(1), vm(2, ready=False)), ["web-1"], id="within what is left of the limit"),
        pytest.param(eight(bad(1), leaving(2)), ["web-1"], id="one that is gone for now is down too"),
        pytest.param(
            replace(eight(bad(1), leaving(2, seconds=400)), failure=Failure("FailedCreate", "exceeded quota")),
            ["web-1"],
            id="a full quota is no reason to leave one broken: its room is what the next one takes",
        ),
        pytest.param(
            replace(eight(bad(1, start_failures=9), bad(2), vm(3, ready=False)), refused=frozenset({"u-web-1"})),
            ["web-2"],
            id="one that may not be deleted does not take the room of the others",
        ),
        pytest.param(
            eight(bad(1), bad(2), bad(3)),
            [],
            id="when more fail than may be down, it is not the VMs",
            marks=pytest.mark.sentence("1.58"),
        ),
        pytest.param(eight(bad(1), bad(2), bad(3), healing=stopped(60)), [], id="it stays stopped"),
        pytest.param(eight(bad(1), bad(2), bad(3), healing=stopped(-1)), ["web-1"], id="after its pause, one is tried"),
        pytest.param(eight(bad(1), healing=stopped(60)), [], id="the last to recover is not replaced for being slow"),
        pytest.param(eight(bad(1), healing=stopped(-1)), ["web-1"], id="it goes on by itself when few fail"),
        pytest.param(eight(bad(1), healing={"vms": [memory("web-1", 1, 30)]}), [], id="left alone"),
        pytest.param(eight(bad(1), healing={"vms": [memory("web-1", 1, -1)]}), ["web-1"], id="for a while"),
    ],
)
def test_which_vms_are_healed(observed: PoolSnapshot, expected: list[str]) -> None:
    actions = [each for each in plan(observed, NOW).actions if not isinstance(each, Create)]
    assert all(isinstance(each, Heal) for each in actions)
    assert [each.name for each in actions] == expected


@pytest.mark.parametrize(
    ("owner", "healed"),
    [
        pytest.param({}, ["web-2"], id="a member"),
        pytest.param({"owner_uid": "", "owner_name": ""}, [], id="no owner"),
        pytest.param({"owner_uid": "u-other", "owner_name": "other"}, [], id="another owner"),
        pytest.param({"owner_uid": "u-before"}, [], id="an earlier pool of this name"),
    ],
)
@pytest.mark.sentence("1.28")
def test_a_failing_vm_outside_the_pool_is_never_healed(owner: Json, healed: list[str]) -> None:
    pool = a_pool(2, autohealing={}, maxUnavailable="100%", template=template(dataVolumeTemplates=[]))
    observed = observe_pool(stored(pool, vm(1), bad(2, **owner)), pool)
    assert [each.name for each in plan(observed, NOW).actions if isinstance(each, Heal | Delete)] == healed


@pytest.mark.parametrize(
    ("attempts", "minutes"),
    [
        pytest.param(None, 1, id="once"),
        pytest.param(1, 2, id="again"),
        pytest.param(3, 8, id="often"),
        pytest.param(50, 60, id="at most"),
    ],
)
@pytest.mark.sentence("1.43")
def test_each_further_attempt_doubles_the_pause(attempts: int | None, minutes: int) -> None:
    before = {"vms": [memory("web-1", attempts, -1)]} if attempts else None
    found = healing_status(eight(bad(1), healing=before), ("web-1",), NOW)
    (entry,) = found.vms
    assert (entry.attempts, entry.not_before) == ((attempts or 0) + 1, ago(-60 * minutes))
    assert found.replaced == 1


@pytest.mark.parametrize(
    ("observed", "known"),
    [
        pytest.param(eight(healing={"vms": [memory("web-1", 3, -1)]}), [], id="it has run long enough"),
        pytest.param(eight(healing={"vms": [memory("web-1", 3, 30)]}), ["web-1"], id="not yet"),
        pytest.param(eight(bad(1), healing={"vms": [memory("web-1", 3, -1)]}), ["web-1"], id="it doesn't run"),
        pytest.param(eight(healing={"vms": [memory("web-9", 3, -1)]}), [], id="it has left the pool"),
        pytest.param(eight(healing={"vms": [memory("web-9", 3, 30)]}), ["web-9"], id="a moment ago"),
        pytest.param(
            eight(vm(9), leaving(1), healing={"vms": [memory("web-1", 3, -1)]}),
            ["web-1"],
            id="it is still on its way out",
        ),
        pytest.param(
            snapshot(a_pool(2, autohealing={}, status={"healing": {"vms": [memory("web-1", 3, -1)]}}), vm(2)),
            ["web-1"],
            id="it may be the next to come back",
        ),
    ],
)
def test_how_long_an_attempt_is_remembered(observed: PoolSnapshot, known: list[str]) -> None:
    found = healing_status(observed, (), NOW)
    assert [each.name for each in found.vms] == known


def test_only_the_newest_attempts_are_remembered() -> None:
    before = [{**memory(f"web-{n}", 1, 30), "healedAt": ago(n)} for n in range(2, MAX_HEALED_VMS + 2)]
    del before[0]["healedAt"]
    wide = a_pool(8000, autohealing={}, status={"healing": {"vms": before}})
    machines = [bad(1), *(vm(n, ready=False) for n in range(2, MAX_HEALED_VMS + 2))]
    found = healing_status(snapshot(wide, *machines), ("web-0", "web-1"), NOW)
    names = {each.name for each in found.vms}
    assert len(names) == MAX_HEALED_VMS
    assert names > {"web-0", "web-1"}
    assert not names & {"web-2", f"web-{MAX_HEALED_VMS + 1}"}, "the oldest, and one without a time"


@pytest.mark.sentence("1.42")
def test_a_healed_vm_is_created_only_without_its_old_disks() -> None:
    healing = {"vms": [memory("web-1", 1, 30)]}
    pool = a_pool(2, autohealing={}, status={"healing": healing})
    made = {each.name: each.after_deletion for each in plan(snapshot(pool), NOW).actions if isinstance(each, Create)}
    assert made == {"web-1": True, "web-2": False}
    again = plan(snapshot(pool, retained_disks=(retained(1),)), NOW).actions
    assert not any(each.after_deletion for each in again if isinstance(each, Create)), (
        "what was kept on purpose is wanted"
    )


def test_an_open_circuit_breaker_has_a_reason_and_a_retry_time() -> None:
    observed = eight(*(bad(n, printable_status="ErrImagePull") for n in range(1, 6)))
    found = pool_status(observed, plan(observed, NOW), NOW)
    condition = next(each for each in found.conditions if each.type == "Healing")
    assert (condition.status, condition.reason) == ("False", "TooManyFailing")
    assert condition.message == "5 VMs fail, 5 of them with ErrImagePull; maxUnavailable is 2"
    assert found.healing.breaker.until == ago(-300)


def test_a_failed_probe_doubles_the_pause_of_the_circuit_breaker() -> None:
    observed = eight(bad(1), bad(2), bad(3), healing=stopped(-1))
    decided = plan(observed, NOW)
    found = pool_status(observed, decided, NOW).healing
    assert found.breaker.until == ago(-600)


def test_the_pool_is_requeued_for_the_end_of_a_pause() -> None:
    observed = eight(bad(1), healing={"vms": [memory("web-1", 1, 30)]})
    assert plan(observed, NOW).again_seconds == 30
    assert plan(observed, NOW + timedelta(seconds=30)).actions


@pytest.mark.parametrize(
    "healing",
    [
        pytest.param({"vms": [{**memory("web-1", 3, 7500), "healedAt": ago(-7200)}]}, id="of a VM"),
        pytest.param({"breaker": {"open": True, "since": ago(-7200), "until": ago(-7500)}}, id="of the breaker"),
    ],
)
def test_a_pause_ends_when_the_clock_is_set_back_to_before_it(healing: Json) -> None:
    decided = plan(eight(bad(1), healing=healing), NOW)
    assert [each.name for each in decided.actions if isinstance(each, Heal)] == ["web-1"]


def test_a_pool_without_failing_vms_has_no_healing_status() -> None:
    found = pool_status(eight(), plan(eight(), NOW), NOW)
    assert found.healing is None
    assert not any(each.type == "Healing" for each in found.conditions)


def test_healing_is_not_limited_by_the_burst() -> None:
    """The burst limits VMs that are created, deleted at scale-in or updated."""
    failing = (vm(n, ready=False, vmi_exists=False, start_failures=3) for n in (1, 2, 3))
    observed = snapshot(a_pool(3, autohealing={}, maxUnavailable="100%"), *failing, burst=1)
    assert [type(each) for each in plan(observed, NOW).actions] == [Heal, Heal, Heal]


@pytest.mark.parametrize(
    ("limit", "replaced", "vms", "refusal"),
    [
        pytest.param(1, 0, (), "", id="nothing is in progress"),
        pytest.param(2, 1, (), "", id="one fewer than may be"),
        pytest.param(1, 1, (), "1 VM is in progress, maxUnavailable is 1", id="one of this plan"),
        pytest.param(2, 1, (vm(1, ready=False),), "2 VMs are in progress, maxUnavailable is 2", id="one starts"),
        pytest.param(1, 0, (halted(1),), "", id="a halted VM is not in progress"),
        pytest.param(
            1, 0, (vm(1, ready=False, printable_status="ErrorUnschedulable"),), "", id="a VM that waits for a node"
        ),
    ],
)
def test_healing_waits_for_vms_in_progress(limit: int, replaced: int, vms: tuple[VM, ...], refusal: str) -> None:
    assert budget_refusal(eight(*vms, maxUnavailable=limit), replaced, NOW) == refusal


@pytest.mark.parametrize(
    ("attempts", "seconds_left", "refusal"),
    [
        pytest.param(1, 0, "", id="the pause has ended"),
        pytest.param(1, 1, "it was replaced 1 time, and is not replaced again before 2026-03-01T12:00:01Z", id="once"),
        pytest.param(
            2, 9, "it was replaced 2 times, and is not replaced again before 2026-03-01T12:00:09Z", id="twice"
        ),
    ],
)
def test_healing_waits_for_the_pause_of_a_vm(attempts: int, seconds_left: int, refusal: str) -> None:
    observed = eight(bad(1), healing={"vms": [memory("web-1", attempts, seconds_left)]})
    assert pause_refusal(observed, bad(1), NOW) == refusal
    assert pause_refusal(observed, bad(2), NOW) == ""


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        pytest.param([bad(1), bad(2)], None, id="as many as may be unavailable"),
        pytest.param(
            [bad(1), bad(2), bad(3, printable_status="")],
            "3 VMs fail, 2 of them with CrashLoopBackOff; maxUnavailable is 2",
            id="one more",
        ),
    ],
)
def test_the_message_of_the_circuit_breaker(failing: list[VM], message: str | None) -> None:
    breaker = circuit_breaker(eight(*failing), NOW)
    assert (breaker and (breaker.open, breaker.reason, breaker.message, breaker.since, breaker.until)) == (
        message and (True, "CrashLoopBackOff", message, "2026-03-01T12:00:00Z", "2026-03-01T12:05:00Z")
    )
