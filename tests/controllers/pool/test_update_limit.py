"""How many VMs get a new template at each step of an update. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Create, Update
from controllers.pool.plan import plan
from controllers.pool.reasons import PoolReason
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.update_limit import hash_steps, promoted_steps, resolve, update_limit
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool import UpdateProgress
from poolhouse.api.kinds.pool_strategies import UpdateProactive
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, old, snapshot, vm, vmi

Json = dict[str, Any]
CANARY: list[Json] = [{"setReplicas": 1}, {"pause": {}}, {"setReplicas": "50%"}, {"pause": {"durationSeconds": 60}}]
NAME = REVISION.name


def four(*vms: VM, done: int | None = None, since: float | None = None, promote: str = "", **proactive: Any):
    """A pool of four, in which one VM may be unavailable. The oldest are updated first."""
    strategy = {"selectionPolicy": {"basePolicy": "Oldest"}, **proactive}
    spec = {"maxUnavailable": 4, "updateStrategy": {"proactive": strategy}}
    pool = a_pool(4, status={"currentRevision": OLD.name}, **spec)
    if done is not None:
        chosen = pool.spec.update_strategy.chosen
        assert isinstance(chosen, UpdateProactive)
        update = UpdateProgress(
            revision=NAME,
            steps_done=done,
            steps_hash=hash_steps(chosen.steps[:done]),
            paused_since=ago(since) if since else None,
        )
        pool = replace(pool, status=pool.status.model_copy(update={"update": update}))
    return snapshot(replace(pool, promote=promote), *vms)


def steps(*vms: VM, **given: Any) -> PoolSnapshot:
    return four(*vms, steps=CANARY, **given)


PAUSED = "step 2 of 4: the update is paused until it is promoted"
PAUSED_UNTIL = "step 4 of 4: the update is paused until "
ALL_OLD = [old(n) for n in range(1, 5)]
ONE_NEW = [vm(1), *ALL_OLD[1:]]
TWO_NEW = [vm(1), vm(2), *ALL_OLD[2:]]


@pytest.mark.parametrize(
    ("observed", "updated", "done", "reason"),
    [
        pytest.param(steps(*ALL_OLD), 1, 0, "step 1 of 4: 1 VM gets the template first", id="the first step"),
        pytest.param(
            steps(vm(1, vmi=vmi("web-1", revision=OLD.label)), *ALL_OLD[1:], done=0),
            0,
            0,
            "step 1 of 4: 1 VM gets the template first",
            id="a step waits until its VMs run the template",
        ),
        pytest.param(
            steps(vm(1, ready=False), *ALL_OLD[1:], done=0),
            0,
            0,
            "step 1 of 4: 1 VM gets the template first",
            id="a step waits until its VMs are ready",
        ),
        pytest.param(
            four(vm(1, vmi=vmi("web-1", revision=OLD.label)), *ALL_OLD[1:], steps=[{"setReplicas": 2}]),
            1,
            0,
            "step 1 of 1: 2 VMs get the template first",
            id="a restart takes no place in a step",
        ),
        pytest.param(steps(*ONE_NEW, done=0), 0, 1, PAUSED, id="the pause begins after the step"),
        pytest.param(steps(*ONE_NEW, done=1, since=1e6), 0, 1, PAUSED, id="a pause without a duration has no end"),
        pytest.param(
            steps(*ONE_NEW, done=1, since=9, promote=f"{NAME}=2"),
            1,
            2,
            "step 3 of 4: 2 VMs get the template first",
            id="it is promoted",
        ),
        pytest.param(steps(*ONE_NEW, done=1, since=9, promote="web-another=2"), 0, 1, PAUSED, id="an older promotion"),
        pytest.param(steps(*ONE_NEW, done=1, promote=f"{NAME}=all"), 3, 4, "", id="all steps are skipped"),
        pytest.param(steps(*TWO_NEW, done=2), 0, 3, f"{PAUSED_UNTIL}{ago(-60)}", id="a pause with a duration"),
        pytest.param(steps(*TWO_NEW, done=3, since=59), 0, 3, f"{PAUSED_UNTIL}{ago(-1)}", id="not over yet"),
        pytest.param(steps(*TWO_NEW, done=3, since=60), 2, 4, "", id="over: the rest follows"),
        pytest.param(steps(*[vm(n) for n in range(1, 5)]), 0, 4, "", id="a new pool has no steps to take"),
        pytest.param(four(*ALL_OLD, partition=3), 1, None, "partition keeps the old template of 3 VMs", id="partition"),
        pytest.param(
            four(*ONE_NEW, partition="75%"),
            0,
            None,
            "partition keeps the old template of 3 VMs",
            id="a partition in percent",
        ),
        pytest.param(
            four(*ALL_OLD, partition=1, steps=[{"setReplicas": 4}]),
            3,
            0,
            "step 1 of 1: 3 VMs get the template first",
            id="of steps and a partition, the smaller counts",
        ),
        pytest.param(
            four(*TWO_NEW, partition=2, steps=[{"setReplicas": 1}], done=1),
            0,
            1,
            "partition keeps the old template of 2 VMs",
            id="the partition holds after the steps",
        ),
        pytest.param(
            four(*ALL_OLD, partition=1), 3, None, "partition keeps the old template of 1 VM", id="a partition of one VM"
        ),
        pytest.param(four(*ALL_OLD), 4, None, "", id="neither steps nor a partition"),
    ],
)
def test_an_update_by_steps(observed: PoolSnapshot, updated: int, done: int | None, reason: str) -> None:
    planned = plan(observed, NOW)
    names = [each.name for each in planned.actions if isinstance(each, Update)]
    outdated = sorted(vm.name for vm in observed.active if observed.outdated(vm))
    assert names == outdated[:updated], "the selection policy chooses who is first"
    limit = update_limit(observed, NOW)
    assert limit.reason == reason
    assert (limit.waits == PoolReason.UPDATE_PAUSED) == ("paused" in reason)
    status = pool_status(observed, planned, NOW)
    assert (status.update.steps_done if status.update else None) == done
    assert status.current_revision == (OLD.name if outdated else NAME), "an update without an analysis is complete"
    if reason:
        assert all(reason in wait.reason for wait in planned.waits if wait.name in outdated[updated:])


def test_a_pause_is_reported_and_ends_in_time() -> None:
    observed = steps(*TWO_NEW, done=3, since=20)
    planned = plan(observed, NOW)
    assert planned.again_seconds == 40
    (progressing,) = (c for c in pool_status(observed, planned, NOW).conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("True", "UpdatePaused")
    assert "2 of 4 VMs have the template; step 4 of 4" in str(progressing.message)


def test_a_pause_begins_once() -> None:
    observed = steps(*ONE_NEW, done=1, since=30)
    update = pool_status(observed, plan(observed, NOW), NOW).update
    assert update.paused_since == ago(30)


def test_a_pause_before_any_other_step_begins_once() -> None:
    observed = four(*ALL_OLD, steps=[{"pause": {}}])
    status = observed.pool.status.model_copy(update={"update": UpdateProgress(revision=NAME, paused_since=ago(30))})
    update = update_limit(replace(observed, pool=replace(observed.pool, status=status)), NOW).progress
    assert update.paused_since == ago(30)


def test_a_vm_that_joins_after_the_update_gets_the_template_at_once() -> None:
    complete, joined = (steps(*map(vm, range(1, 4)), each) for each in (vm(4), old(4)))
    status = joined.pool.status.model_copy(update={"update": update_limit(complete, NOW).progress})
    assert update_limit(replace(joined, pool=replace(joined.pool, status=status)), NOW).allowed == 4


def test_another_template_begins_with_the_first_step() -> None:
    observed = steps(*ALL_OLD, done=3)
    status = observed.pool.status.model_copy(
        update={"update": observed.pool.status.update.model_copy(update={"revision": "web-before"})}
    )
    assert update_limit(replace(observed, pool=replace(observed.pool, status=status)), NOW).allowed == 1


def test_other_steps_begin_again_if_a_step_that_is_done_changes() -> None:
    observed = steps(*TWO_NEW, done=3, since=59)
    strategy = {"selectionPolicy": {"basePolicy": "Oldest"}, "steps": [{"pause": {}}, *CANARY[1:]]}
    changed = a_pool(4, maxUnavailable=4, updateStrategy={"proactive": strategy})
    observed = replace(observed, pool=replace(changed, status=observed.pool.status))
    assert "step 1 of 4: the update is paused" in update_limit(observed, NOW).reason
    strategy["steps"] = [*CANARY[:3], {"pause": {}}]
    changed = a_pool(4, maxUnavailable=4, updateStrategy={"proactive": strategy})
    later = replace(observed, pool=replace(changed, status=observed.pool.status))
    assert "step 4 of 4: the update is paused until it is promoted" in update_limit(later, NOW).reason


def test_a_retried_update_forgets_the_abort() -> None:
    observed = four(*ALL_OLD)
    aborted = UpdateProgress.model_validate({"revision": NAME, "aborted": {"reason": "AbortedByUser", "time": ago(9)}})
    status = observed.pool.status.model_copy(update={"update": aborted})
    observed = replace(observed, pool=replace(observed.pool, status=status, retry=ago(9)))
    update = pool_status(observed, plan(observed, NOW), NOW).update
    assert update.aborted is None


def test_a_vm_that_is_created_during_the_steps_gets_the_template_of_the_others() -> None:
    observed = steps(*ONE_NEW[:3], done=1)
    (create,) = (each for each in plan(observed, NOW).actions if isinstance(each, Create))
    assert create.revision == OLD.name
    both = (each for each in plan(steps(*ALL_OLD[:2]), NOW).actions if isinstance(each, Create))
    assert [each.revision for each in both] == [NAME, OLD.name], "the step lets one VM have the new template"
    promoted = steps(*ONE_NEW[:3], done=1, promote=f"{NAME}=all")
    (create,) = (each for each in plan(promoted, NOW).actions if isinstance(each, Create))
    assert create.revision == NAME


def test_the_plan_of_a_change_shows_its_pauses() -> None:
    found = simulate(steps(*ALL_OLD), NOW)
    assert found.complete
    assert not found.waits
    shown = [(row["action"], row["vm"]) for row in rows(found)]
    first, second = ([("Update", f"web-{n}"), ("Restart", f"web-{n}")] for n in range(1, 3))
    last = [("Update", "web-3"), ("Update", "web-4"), ("Restart", "web-3"), ("Restart", "web-4")]
    assert shown == [*first, ("Pause", None), *second, ("Pause", None), *last]
    reasons = [row["reason"] for row in rows(found) if row["action"] == "Pause"]
    assert reasons[0] == "step 2 of 4: the update is paused until it is promoted"
    assert reasons[1] == "step 4 of 4: the update is paused for 60 s"


def test_a_return_to_the_former_template_has_no_steps_and_no_partition() -> None:
    observed = steps(*[vm(1, revision=OLD.label), *[vm(n) for n in range(2, 5)]], partition=1)
    status = observed.pool.status.model_copy(update={"current_revision": NAME})
    returned = replace(observed, pool=replace(observed.pool, status=status))
    limit = update_limit(returned, NOW)
    assert (limit.allowed, limit.reason) == (4, "")


def test_a_partition_is_complete_when_the_others_are_updated() -> None:
    observed = four(*ONE_NEW, partition=3)
    (progressing,) = (c for c in pool_status(observed, plan(observed, NOW), NOW).conditions if c.type == "Progressing")
    assert progressing.reason == "Complete"
    assert progressing.message == "1 of 4 VMs has the template; partition keeps the old template of 3 VMs"


@pytest.mark.parametrize(
    ("value", "replicas", "expected"), [(3, 10, 3), (3, 2, 2), ("10%", 10, 1), ("10%", 11, 2), ("100%", 700, 700)]
)
def test_numbers_and_percentages(value: int | str, replicas: int, expected: int) -> None:
    assert resolve(value, replicas) == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [("web-1=2", 2), ("web-1=all", 5), ("web-2=2", 0), ("web-1", 0), ("web-1=x", 0), ("", 0), ("web-1=1000", 0)],
)
def test_a_promotion_names_its_revision(annotation: str, expected: int) -> None:
    assert promoted_steps(annotation, "web-1", 5) == expected
