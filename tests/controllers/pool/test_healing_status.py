"""What a pool records and says about the VMs that healing replaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.gates.healing import breaker_refusal, budget_refusal
from controllers.pool.healing_status import disk_at_risk, healing_status, seconds_until_healing, was_healed
from controllers.pool.plan import plan
from controllers.pool.rules.autohealing import HEALING
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import VMRestore
from controllers.sets.write_batches import Failure
from poolhouse.api.kinds.pool import Breaker, HealedVM, Healing
from tests.controllers.pool.builders import NOW, ago, bad, eight

Json = dict[str, Any]
THREE_FAIL = "3 VMs fail, 3 of them with CrashLoopBackOff; maxUnavailable is 2"
ONE_FAILS = "1 VM fails, 1 of them with CrashLoopBackOff; maxUnavailable is 2"
TRIES = "one VM is replaced to try whether it helps: "


def record(name: str, attempts: int = 1, left: float = 30) -> Json:
    return {"name": name, "attempts": attempts, "healedAt": ago(60), "notBefore": ago(-left)}


def remembered(name: str, attempts: int = 1) -> HealedVM:
    return HealedVM(name=name, attempts=attempts, healed_at=ago(60), not_before=ago(-30))


def opened(since: float = 600, left: float = 60, **given: Any) -> Json:
    return {"breaker": {"open": True, "since": ago(since), "until": ago(-left)}, **given}


def breaker(message: str, since: float, left: float) -> Breaker:
    return Breaker(open=True, since=ago(since), until=ago(-left), reason="CrashLoopBackOff", message=message)


MANY = bad(1), bad(2), bad(3)


@pytest.mark.parametrize(
    ("observed", "replaced", "expected"),
    [
        pytest.param(eight(), (), None, id="no VM has ever failed"),
        pytest.param(eight(autohealing=None, healing={"replaced": 4}), (), None, id="the pool heals no VMs any more"),
        pytest.param(eight(bad(1)), (), Healing(failing=1), id="a VM fails"),
        pytest.param(
            eight(bad(1)),
            ("web-1",),
            Healing(
                failing=1,
                replaced=1,
                vms=(HealedVM(name="web-1", attempts=1, healed_at=ago(0), not_before=ago(-60)),),
            ),
            id="it is replaced",
        ),
        pytest.param(
            eight(bad(1), healing={"replaced": 4, "vms": [record("web-2", 3)]}),
            ("web-1",),
            Healing(
                failing=1,
                replaced=5,
                vms=(
                    HealedVM(name="web-1", attempts=1, healed_at=ago(0), not_before=ago(-60)),
                    remembered("web-2", 3),
                ),
            ),
            id="others were replaced before",
        ),
        pytest.param(eight(healing={"replaced": 4}), (), Healing(replaced=4), id="the number of replacements stays"),
        pytest.param(
            eight(healing={"vms": [record("web-1", left=0)]}), (), Healing(), id="it has run for as long as its pause"
        ),
        pytest.param(eight(*MANY), (), Healing(failing=3, breaker=breaker(THREE_FAIL, 0, 300)), id="the breaker opens"),
        pytest.param(
            eight(bad(1), healing=opened()),
            (),
            Healing(failing=1, breaker=breaker(ONE_FAILS, 600, 60)),
            id="the breaker stays open during its pause",
        ),
        pytest.param(eight(healing=opened()), (), Healing(), id="the breaker closes when no VM fails"),
        pytest.param(
            eight(bad(1), healing=opened(left=0)), (), Healing(failing=1), id="the breaker closes when few VMs fail"
        ),
    ],
)
def test_the_record_of_healing(observed: PoolSnapshot, replaced: tuple[str, ...], expected: Healing | None) -> None:
    assert healing_status(observed, replaced, NOW) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((400, 0), (400, 400), id="as long again"),
        pytest.param((100, 0), (100, 300), id="for five minutes at least"),
        pytest.param((9000, 0), (9000, 3600), id="for an hour at most"),
        pytest.param((-7200, 7500), (0, 300), id="for five minutes after the clock was set back"),
    ],
)
def test_the_breaker_stays_open_after_a_vm_was_tried(before: tuple[float, float], after: tuple[float, float]) -> None:
    """`before` and `after` have for how many seconds the breaker is open, and for how many more it stays open."""
    tried = HealedVM(name="web-1", attempts=1, healed_at=ago(0), not_before=ago(-60))
    expected = Healing(failing=3, replaced=1, vms=(tried,), breaker=breaker(THREE_FAIL, *after))
    assert healing_status(eight(*MANY, healing=opened(*before)), ("web-1",), NOW) == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(eight(), None, id="no VM has ever failed"),
        pytest.param(eight(*MANY), ("False", "TooManyFailing", THREE_FAIL), id="too many VMs fail"),
        pytest.param(
            eight(healing={"vms": [record("web-1", 3)]}),
            ("True", "VMsReplaced", "1 VM was replaced, with the number of attempts: web-1 (3)"),
            id="a VM was replaced",
        ),
        pytest.param(
            eight(bad(3), healing={"vms": [record("web-2"), record("web-1", 3)]}),
            (
                "True",
                "VMsReplaced",
                "3 VMs were replaced, with the number of attempts: web-1 (3), web-2 (1), web-3 (1)",
            ),
            id="a further one is replaced by this plan",
        ),
        pytest.param(
            eight(healing={"vms": [record(f"web-{number}") for number in range(1, 8)]}),
            (
                "True",
                "VMsReplaced",
                "7 VMs were replaced, with the number of attempts: "
                "web-1 (1), web-2 (1), web-3 (1), web-4 (1), web-5 (1) and 2 more",
            ),
            id="more VMs were replaced than a message names",
        ),
        pytest.param(eight(healing={"replaced": 4}), ("False", "NoFailingVMs", ""), id="all VMs are well again"),
    ],
)
def test_the_condition_of_healing(observed: PoolSnapshot, expected: tuple[str, str, str] | None) -> None:
    found = list(HEALING.conditions(observed, plan(observed, NOW), NOW))
    assert {each.type for each in found} <= {"Healing"}
    assert [(each.status, each.reason, each.message) for each in found] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("observed", "breaks", "budget"),
    [
        pytest.param(eight(bad(1)), "", "", id="one VM fails"),
        pytest.param(eight(*MANY), THREE_FAIL, f"{TRIES}{THREE_FAIL}", id="the breaker opens"),
        pytest.param(
            eight(*MANY, healing=opened(left=1)),
            THREE_FAIL,
            f"{TRIES}{THREE_FAIL}",
            id="during the pause of the breaker",
        ),
        pytest.param(eight(*MANY, healing=opened(left=0)), "", f"{TRIES}{THREE_FAIL}", id="one VM after the pause"),
    ],
)
def test_why_no_further_vm_is_replaced(observed: PoolSnapshot, breaks: str, budget: str) -> None:
    """`budget` is the answer after one VM of the plan was replaced."""
    assert breaker_refusal(observed, NOW) == breaks
    assert budget_refusal(observed, 1, NOW) == budget
    assert budget_refusal(observed, 0, NOW) == ""


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        pytest.param(eight(), None, id="nothing to wait for"),
        pytest.param(eight(healing={"vms": [record("web-1"), record("web-2", left=20)]}), 20, id="pauses of VMs"),
        pytest.param(eight(healing={"vms": [record("web-1", left=0)]}), None, id="a pause that has ended"),
        pytest.param(eight(healing=opened(left=7, vms=[record("web-1")])), 7, id="the pause of the breaker"),
        pytest.param(eight(healing=opened(left=7), autohealing=None), None, id="the pool heals no VMs any more"),
    ],
)
def test_when_healing_is_asked_again(observed: PoolSnapshot, seconds: float | None) -> None:
    assert seconds_until_healing(observed, NOW) == seconds


@pytest.mark.parametrize(
    ("left", "waits"),
    [
        pytest.param(60, True, id="a pause of a minute"),
        pytest.param(61, False, id="a time that lies too far ahead: the clock was set back"),
    ],
)
def test_a_replacement_lies_in_the_past(left: float, waits: bool) -> None:
    """Its time may be a minute ahead of this controller's clock."""
    healing = {"vms": [{"name": "web-1", "attempts": 1, "healedAt": ago(-left), "notBefore": ago(-left - 60)}]}
    found = plan(eight(bad(1), healing=healing), NOW)
    assert (found.healed == ()) is waits


RESTORE = VMRestore("default", "r", "u-r", vm_name="web-1", vm_uid="u-web-1", request="r")


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        pytest.param(eight(bad(1)), "", id="its disks are its own"),
        pytest.param(
            replace(eight(bad(1)), restores=(RESTORE,)),
            "its disks are restored from a snapshot, and would be deleted with it",
            id="a restore",
        ),
        pytest.param(
            replace(eight(bad(1)), foreign_disks={"root-1": "a disk of db"}),
            "its disk would be deleted with it: root-1, a disk of db",
            id="a disk of another owner",
        ),
        pytest.param(
            replace(eight(bad(1)), disk_conflict=Failure("DiskConflict", "root is also pool db's")),
            "root is also pool db's",
            id="the names of the disks are those of another pool",
        ),
    ],
)
def test_which_disks_are_at_risk(observed: PoolSnapshot, why: str) -> None:
    assert disk_at_risk(observed, observed.vms[0]) == why
    assert bool(plan(observed, NOW).healed) is not bool(why)


def test_a_vm_with_a_healing_record_was_healed() -> None:
    observed = eight(healing={"vms": [record("web-1")]})
    assert was_healed(observed, "web-1")
    assert not was_healed(observed, "web-2")
    assert not was_healed(eight(), "web-1")
