"""Which VMs are ready, and in which order they are given away."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from controllers.claim.ready_queue import ReadyQueue, Variant
from controllers.warmpool.warm_vm import NO_OWNER, PAUSED_BY_USER, POOL_KIND, Owner, WarmVM
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import CORDONED, NOT_READY_NODE, a_vmi


def vm(name: str, pool: str = "p", **facts: Any) -> WarmVM:
    home = {"pool_uid": pool, "owner": Owner(POOL_KIND, "web", pool), "template_hash": "new"}
    standby = facts.get("standby", "Running")
    guest = None if standby == "Stopped" else a_vmi(paused=PAUSED_BY_USER if standby == "Paused" else "")
    return WarmVM("ns", name, f"uid-{name}", **{"state": WarmState.READY, "vmi": guest, **home, **facts})


def filled(*vms: WarmVM) -> ReadyQueue:
    queue = ReadyQueue()
    for each in vms:
        queue.update(None, each)
    return queue


def ready(queue: ReadyQueue, placement: str = "") -> list[str]:
    def does(variant: Variant) -> bool:
        return placement in ("", variant.placement)

    return [name for _, name in queue.candidates("p", lambda variant: variant.template_hash == "new", does)]


def test_the_fastest_standby_mode_comes_first_then_the_current_template() -> None:
    queue = filled(
        vm("stopped", standby="Stopped"),
        vm("paused", standby="Paused"),
        vm("old", template_hash="old"),
        vm("running"),
        vm("paused-old", standby="Paused", template_hash="old"),
    )
    assert ready(queue) == ["running", "old", "paused", "paused-old", "stopped"]


def test_equal_vms_come_in_a_mixed_but_stable_order() -> None:
    names = [f"m{number}" for number in range(50)]
    queue = filled(*(vm(name, placement="ab"[int(name[1:]) % 2]) for name in names))
    first = ready(queue)
    assert first == ready(queue), "reading changes nothing"
    assert sorted(first) == sorted(names)
    assert first != names
    halves = {vm_name: int(vm_name[1:]) % 2 for vm_name in first[:20]}
    assert set(halves.values()) == {0, 1}, "placements are mixed"
    assert ready(queue, "a") == [name for name in first if int(name[1:]) % 2 == 0]
    assert ready(queue, "c") == []


def test_a_reserved_vm_is_not_offered() -> None:
    one, two = vm("one"), vm("two")
    queue = filled(one, two)
    queue.reserve(one)
    assert ready(queue) == ["two"]
    queue.update(one, replace(one, resource_version="9"))
    assert (ready(queue), queue.count("p")) == (["two"], 1), "a status write does not bring it back"
    given = replace(one, state=WarmState.ALLOCATING, claim_uid="c")
    queue.update(one, given)
    queue.update(given, None)
    assert ready(queue) == ["two"]


def test_a_restored_vm_is_offered_again() -> None:
    one = vm("one")
    queue = filled(one)
    queue.reserve(one)
    queue.restore(one.uid, one)
    assert ready(queue) == ["one"]
    queue.reserve(one)
    queue.restore(one.uid, None)
    assert ready(queue) == [], "as the store shows it"
    assert queue.update(one, one), "and its event brings it back"


@pytest.mark.sentence("5.29")
def test_update_returns_whether_one_more_vm_is_ready() -> None:
    one = vm("one")
    queue = ReadyQueue()
    unready = replace(one, state=WarmState.PROVISIONING)
    assert not queue.update(None, unready)
    assert queue.update(unready, one)
    assert not queue.update(one, replace(one, resource_version="2"))
    assert not queue.update(one, replace(one, deleting=True))
    assert ready(queue) == []


def test_another_vm_of_the_same_name() -> None:
    one, two = vm("one"), replace(vm("one"), uid="other")
    queue = filled(one)
    queue.update(one, two)
    assert queue.count("p") == 1
    assert ready(queue) == ["one"]
    queue.update(two, replace(vm("one", "q"), uid="other"))
    assert (queue.count("p"), queue.count("q")) == (0, 1)


def test_a_vm_that_changes_its_standby_mode_moves() -> None:
    one, two = vm("one", standby="Paused"), vm("two")
    queue = filled(one, two)
    queue.update(one, vm("one"))
    assert sorted(ready(queue)) == ["one", "two"]
    assert len(list(islice(queue.candidates("p", lambda variant: isinstance(variant, Variant)), 5))) == 2


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"orphaned": "Disowned"}, id="orphaned"),
        pytest.param({"owner": NO_OWNER}, id="without owner reference"),
        pytest.param({"claim_uid": "c"}, id="claimed"),
        pytest.param({"deleting": True}, id="being deleted"),
        pytest.param({"node": CORDONED}, id="on a cordoned node"),
        pytest.param({"node": NOT_READY_NODE}, id="on a silent node"),
        pytest.param({"vmi": None}, id="not running"),
    ],
)
@pytest.mark.sentence("5.31")
def test_unavailable_vms_are_not_counted(facts: dict[str, Any]) -> None:
    fit = vm("one")
    queue = filled(replace(fit, **facts), vm("two"))
    assert (ready(queue), queue.count("p")) == (["two"], 1)
    assert queue.update(fit, fit), "once it is available"
    assert not queue.update(fit, replace(fit, **facts))
    assert (ready(queue), queue.count("p")) == (["two"], 1)


def test_a_vm_that_becomes_ready_repeatedly_is_there_once() -> None:
    one = vm("one")
    queue = filled(one, vm("two"))
    for _ in range(3):
        queue.update(one, replace(one, node=CORDONED))
        queue.update(one, one)
    assert sorted(ready(queue)) == ["one", "two"]
    assert queue.count("p", lambda variant: variant.template_hash == "new") == 2
    assert queue.count("p", lambda variant: variant.template_hash == "old") == 0


def test_a_vm_without_a_record_is_not_offered() -> None:
    recorded = set[str]()
    queue = ReadyQueue(lambda vm: vm.uid in recorded)
    assert not queue.update(None, vm("forged"))
    assert ready(queue) == []
    recorded.add("uid-forged")
    assert queue.update(vm("forged"), vm("forged"))
    assert ready(queue) == ["forged"]
    recorded.clear()
    queue.update(vm("forged"), vm("forged"))
    assert ready(queue) == []
