from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from local.engine.moving import (
    STATE,
    End,
    Move,
    Next,
    Outcome,
    Wait,
    begun,
    drained,
    ended,
    no_post_copy,
    state_patch,
    status_of,
    surplus,
    switched,
    what_next,
)
from local.engine.terms import Terms, match, terms_of, too_slow
from local.engine.times import stamp
from local.engine.views import Instance, Migration
from tests.local.engine.builders import NOW, ago, instance, node

DRAIN = (("kubevirt.io/drain", "NoSchedule"),)


def migration(phase: str = "", **changes: Any) -> Migration:
    given: dict[str, Any] = {"namespace": "default", "name": "m", "uid": "m-uid", "created": ago(5), "vmi": "vm"}
    return Migration(**(given | {"status": {"phase": phase} if phase else {}} | changes))


MOVED = {"nodeName": "node-2", "migrationState": {"targetNode": "node-2", "migrationUid": "m-uid"}}


@pytest.mark.parametrize(
    ("asked", "vmi", "others", "target", "wanted"),
    [
        pytest.param(migration(), instance(), [], "node-2", Move("node-2"), id="it moves"),
        pytest.param(migration(), instance(), [], None, Wait("full"), id="it waits for a place"),
        pytest.param(migration(), instance("Scheduled"), [], "node-2", Wait("the VMI does not run yet"), id="or it"),
        pytest.param(migration(), None, [], None, End("Failed", "the VMI is not there to be moved"), id="or fails"),
        pytest.param(migration("Succeeded"), instance(), [], "node-2", None, id="what is over is over"),
        pytest.param(migration(deleted=NOW), instance(), [], "node-2", None, id="what was taken back too"),
        pytest.param(
            migration("Running"),
            instance(),
            [],
            "node-2",
            End("Failed", "the engine was ended in the middle of it"),
            id="nobody moves it any more",
        ),
        pytest.param(migration("Running"), instance(status=MOVED), [], None, End("Succeeded"), id="but it arrived"),
    ],
)
def test_what_comes_next(
    asked: Migration, vmi: Instance | None, others: list[Migration], target: str | None, wanted: Next
) -> None:
    assert what_next(asked, vmi, others, target, "full") == wanted


def test_one_at_a_time_in_the_order_in_which_they_were_asked_for() -> None:
    first, second = migration(name="a", created=ago(9)), migration(name="b", created=ago(5))
    both = [first, second]
    assert what_next(first, instance(), both, "node-2", "") == Move("node-2")
    assert isinstance(what_next(second, instance(), both, "node-2", ""), Wait)


def test_a_drained_node_is_left_by_all_that_run_once_each() -> None:
    nodes = [node("node-1", taints=DRAIN), node("node-2")]
    staying = instance(name="other", status={"nodeName": "node-2"})
    ending = instance(name="ending", deleted=NOW)
    assert drained(nodes, [instance(), staying, ending], [], NOW) == ([instance()], None)
    assert drained(nodes, [instance()], [migration("Running")], NOW) == ([], None)
    assert drained(nodes, [instance()], [migration("Failed")], NOW) == ([instance()], None)
    assert drained(nodes, [instance()], [migration("Failed", evacuates="node-1")], NOW) == ([], 20)


@pytest.mark.parametrize(
    ("failures", "since", "again"),
    [
        pytest.param(1, 5, 15, id="after one failure it waits"),
        pytest.param(1, 20, None, id="and then tries once more"),
        pytest.param(3, 20, 60, id="each pause is twice the one before"),
        pytest.param(30, 299, 1, id="up to a limit"),
    ],
)
def test_one_that_failed_to_leave_is_asked_again_later(failures: int, since: int, again: float | None) -> None:
    stamped = {"phase": "Failed", "phaseTransitionTimestamp": stamp(ago(since))}
    status = {"phase": "Failed", "phaseTransitionTimestamps": [stamped]}
    failed = [migration(name=f"m-{number}", evacuates="node-1", status=status) for number in range(failures)]
    nodes = [node("node-1", taints=DRAIN), node("node-2")]
    assert drained(nodes, [instance()], failed, NOW) == (([], again) if again else ([instance()], None))
    elsewhere = [replace(each, evacuates="node-2") for each in failed]
    assert drained(nodes, [instance()], elsewhere, NOW) == ([instance()], None)


def test_the_last_five_that_are_over_stay() -> None:
    over = [migration("Succeeded", name=f"m-{number}", created=ago(number)) for number in range(7)]
    assert [each.name for each in surplus([migration("Running"), *over])] == ["m-6", "m-5"]
    assert surplus(over[:5]) == []


def test_the_vmi_tells_of_it_as_kubevirts_do() -> None:
    state = begun(instance(), migration(), "node-2", Terms(policy="p", said={"allowPostCopy": False}), NOW)
    assert (state["sourceNode"], state["targetNode"], state["mode"]) == ("node-1", "node-2", "PreCopy")
    assert (state["migrationPolicyName"], state["migrationConfiguration"]) == ("p", {"allowPostCopy": False})
    done = ended(state, NOW, Outcome())
    assert done["completed"]
    assert "failed" not in done
    failed = ended(state, NOW, Outcome("why", "Succeeded"))
    assert (failed["failed"], failed["failureReason"], failed["abortStatus"]) == (True, "why", "Succeeded")
    assert ended(state, NOW, Outcome("why", "Succeeded", requested=True))["abortRequested"] is True
    late = ended(state, NOW, Outcome(aborted="Failed", requested=True))
    assert (late["abortRequested"], late["abortStatus"], "failed" in late) == (True, "Failed", False)
    assert ended(switched(state), NOW, Outcome())["mode"] == "PostCopy"


def test_nothing_stays_of_the_migration_before() -> None:
    before = ended(begun(instance(), migration(), "node-2", Terms(policy="p"), NOW), NOW, Outcome("why", "Succeeded"))
    assert set(before) | {"abortRequested"} == set(STATE)
    patch = state_patch(begun(instance(), migration(), "node-2", Terms(), NOW))
    gone = {name for name, value in patch.items() if value is None}
    assert {"failed", "failureReason", "abortStatus", "endTimestamp", "migrationPolicyName"} <= gone


def test_phases_are_dated_once() -> None:
    first = status_of(migration(), "Running", NOW)
    again = status_of(migration(status=first), "Running", ago(-9))
    assert again["phaseTransitionTimestamps"] == first["phaseTransitionTimestamps"]


def test_what_cannot_be_done_is_a_condition() -> None:
    told = status_of(migration(), "Running", NOW, notes=[no_post_copy("the kernel says no")])
    assert [each["type"] for each in told["conditions"]] == ["PostCopyPossible"]
    assert told["conditions"][0]["message"] == "the kernel says no"


def policy(name: str, vmi: dict[str, str] | None = None, namespace: dict[str, str] | None = None, **spec: Any) -> Any:
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": namespace}
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        pytest.param([], None, id="none"),
        pytest.param([policy("a", {"x": "1"})], "a", id="one that matches"),
        pytest.param([policy("a", {"x": "2"})], None, id="one that does not"),
        pytest.param([policy("a", {"x": "1"}), policy("b", {"x": "1"}, {"n": "1"})], "b", id="more labels"),
        pytest.param([policy("a", None, {"n": "1"}), policy("b", {"x": "1"})], "b", id="the VMI's first"),
        pytest.param([policy("b", {"x": "1"}), policy("a", {"x": "1"})], "a", id="by name"),
        pytest.param([{"metadata": {"name": "a"}, "spec": {}}], None, id="no selectors match nothing"),
    ],
)
def test_whose_terms_hold(policies: list[Any], winner: str | None) -> None:
    found = match({"x": "1"}, {"n": "1"}, policies)
    assert (found["metadata"]["name"] if found else None) == winner


def test_a_policy_goes_over_the_cluster_and_that_over_defaults() -> None:
    cluster = {"metadata": {"name": "kv"}, "spec": {"configuration": {"migrations": {"completionTimeoutPerGiB": 7}}}}
    terms = terms_of({"x": "1"}, {}, [policy("a", {"x": "1"}, bandwidthPerMigration="10Mi")], [cluster])
    assert (terms.policy, terms.bandwidth, terms.seconds_per_gib, terms.auto_converge) == ("a", 10 << 20, 7, False)
    assert [terms.deadline_seconds(size << 20) for size in (64, 1024, 1025, 2048)] == [7, 7, 14, 14]


def test_why_it_was_too_slow_is_told_by_figures() -> None:
    said = {"memory_total": 200 << 20, "memory_remaining": 30 << 20, "memory_iteration": 4, "memory_bps": 24 << 20}
    told = too_slow(5, {**said, "memory_dirty_rate": 25600, "memory_page_size": 4096})
    assert "after 5 seconds and has been aborted: 30 of 200 MiB were left in round 4, copied at 24 MiB/s" in told
    assert told.endswith("the guest writes 100 MiB/s")
    assert too_slow(5, {}).endswith("has been aborted")


@pytest.mark.parametrize(
    ("said", "copied"),
    [("0", 0), ("1", 1), ("217Ki", 1), ("1Mi", 1), ("1535Ki", 1), ("1536Ki", 2), ("64M", 61), ("2Gi", 2048)],
)
def test_bandwidth_is_in_whole_mebibytes_as_kubevirt_rounds_them(said: str, copied: int) -> None:
    terms = terms_of({"x": "1"}, {}, [policy("a", {"x": "1"}, bandwidthPerMigration=said)], [])
    assert terms.bandwidth == copied << 20


def test_no_seconds_for_a_gib_mean_no_limit() -> None:
    terms = terms_of({"x": "1"}, {}, [policy("a", {"x": "1"}, completionTimeoutPerGiB=0)], [])
    assert terms.deadline_seconds(2 << 30) is None
