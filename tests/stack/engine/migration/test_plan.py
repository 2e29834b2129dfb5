from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.stack.engine.migration.plan import (
    STATE_FIELDS,
    Action,
    FinishMigration,
    Outcome,
    StartMigration,
    Wait,
    finished_state,
    migration_status,
    plan_migration,
    post_copy_unavailable,
    started_state,
    state_patch,
    surplus_migrations,
    vmis_to_evacuate,
)
from poolhouse.stack.engine.migration.settings import (
    MigrationSettings,
    effective_settings,
    timeout_message,
    winning_policy,
)
from poolhouse.stack.engine.objects import VMI, Migration
from tests.stack.engine.builders import NOW, ago, node, vmi

DRAIN = (("kubevirt.io/drain", "NoSchedule"),)


def migration(phase: str = "", **changes: Any) -> Migration:
    given: dict[str, Any] = {"namespace": "default", "name": "m", "uid": "m-uid", "created": ago(5), "vmi": "vm"}
    return Migration(**(given | {"status": {"phase": phase} if phase else {}} | changes))


MOVED = {"nodeName": "node-2", "migrationState": {"targetNode": "node-2", "migrationUid": "m-uid"}}


@pytest.mark.parametrize(
    ("asked", "vmi", "others", "target", "wanted"),
    [
        pytest.param(migration(), vmi(), [], "node-2", StartMigration("node-2"), id="it starts"),
        pytest.param(migration(), vmi(), [], None, Wait("full"), id="no node fits"),
        pytest.param(
            migration(), vmi("Scheduled"), [], "node-2", Wait("the VMI is not running"), id="the VMI is scheduled"
        ),
        pytest.param(
            migration(),
            None,
            [],
            None,
            FinishMigration("Failed", "the VMI does not exist or has ended"),
            id="the VMI is missing",
        ),
        pytest.param(migration("Succeeded"), vmi(), [], "node-2", None, id="it has ended"),
        pytest.param(migration(deleted=NOW), vmi(), [], "node-2", None, id="it is deleted"),
        pytest.param(
            migration("Running"),
            vmi(),
            [],
            "node-2",
            FinishMigration("Failed", "the engine was restarted during the migration"),
            id="the engine restarted before the VMI migrated",
        ),
        pytest.param(
            migration("Running"),
            vmi(status=MOVED),
            [],
            None,
            FinishMigration("Succeeded"),
            id="the engine restarted after the VMI migrated",
        ),
    ],
)
def test_actions(
    asked: Migration, vmi: VMI | None, others: list[Migration], target: str | None, wanted: Action
) -> None:
    assert plan_migration(asked, vmi, others, target, "full") == wanted


def test_migrations_of_a_vmi_run_one_at_a_time_in_order() -> None:
    first, second = migration(name="a", created=ago(9)), migration(name="b", created=ago(5))
    both = [first, second]
    assert plan_migration(first, vmi(), both, "node-2", "") == StartMigration("node-2")
    assert isinstance(plan_migration(second, vmi(), both, "node-2", ""), Wait)


def test_each_running_vmi_of_a_drained_node_is_evacuated_once() -> None:
    nodes = [node("node-1", taints=DRAIN), node("node-2")]
    staying = vmi(name="other", status={"nodeName": "node-2"})
    ending = vmi(name="ending", deleted=NOW)
    assert vmis_to_evacuate(nodes, [vmi(), staying, ending], [], NOW, "LiveMigrate") == ([vmi()], None)
    assert vmis_to_evacuate(nodes, [vmi()], [migration("Running")], NOW, "LiveMigrate") == ([], None)
    assert vmis_to_evacuate(nodes, [vmi()], [migration("Failed")], NOW, "LiveMigrate") == ([vmi()], None)
    assert vmis_to_evacuate(nodes, [vmi()], [migration("Failed", evacuates="node-1")], NOW, "LiveMigrate") == ([], 20)


@pytest.mark.parametrize(
    ("strategy", "default", "drained", "marked", "moves"),
    [
        pytest.param("LiveMigrate", "", True, False, True, id="on a draining node"),
        pytest.param("LiveMigrate", "", False, True, True, id="evicted"),
        pytest.param("LiveMigrate", "", False, False, False, id="neither drained nor evicted"),
        pytest.param("", "LiveMigrateIfPossible", True, False, True, id="by the strategy of the cluster"),
        pytest.param("", "", True, False, False, id="no strategy"),
        pytest.param("None", "LiveMigrate", True, False, False, id="its own strategy is not to migrate"),
        pytest.param("External", "LiveMigrate", True, True, False, id="another controller moves it"),
    ],
)
def test_the_eviction_strategy_decides_what_leaves_a_node(
    strategy: str, default: str, drained: bool, marked: bool, moves: bool
) -> None:
    status = {"evacuationNodeName": "node-1"} if marked else {}
    found = vmi(eviction_strategy=strategy, status=status)
    nodes = [node("node-1", taints=DRAIN if drained else ()), node("node-2")]
    assert vmis_to_evacuate(nodes, [found], [], NOW, default) == ([found] if moves else [], None)


@pytest.mark.parametrize(
    ("failures", "since", "again"),
    [
        pytest.param(1, 5, 15, id="backoff after one failure"),
        pytest.param(1, 20, None, id="retry after the backoff"),
        pytest.param(3, 20, 60, id="the backoff doubles"),
        pytest.param(30, 299, 1, id="the backoff has a limit"),
    ],
)
def test_a_failed_evacuation_is_retried_after_a_backoff(failures: int, since: int, again: float | None) -> None:
    stamped = {"phase": "Failed", "phaseTransitionTimestamp": format_time(ago(since))}
    status = {"phase": "Failed", "phaseTransitionTimestamps": [stamped]}
    failed = [migration(name=f"m-{number}", evacuates="node-1", status=status) for number in range(failures)]
    nodes = [node("node-1", taints=DRAIN), node("node-2")]
    assert vmis_to_evacuate(nodes, [vmi()], failed, NOW, "LiveMigrate") == (([], again) if again else ([vmi()], None))
    elsewhere = [replace(each, evacuates="node-2") for each in failed]
    assert vmis_to_evacuate(nodes, [vmi()], elsewhere, NOW, "LiveMigrate") == ([vmi()], None)


def test_five_finished_migrations_stay() -> None:
    over = [migration("Succeeded", name=f"m-{number}", created=ago(number)) for number in range(7)]
    assert [each.name for each in surplus_migrations([migration("Running"), *over])] == ["m-6", "m-5"]
    assert surplus_migrations(over[:5]) == []


@pytest.mark.sentence("3.21")
def test_migration_state_looks_like_kubevirts() -> None:
    state = started_state(
        vmi(), migration(), "node-2", MigrationSettings(policy="p", values={"allowPostCopy": False}), NOW
    )
    assert (state["sourceNode"], state["targetNode"], state["mode"]) == ("node-1", "node-2", "PreCopy")
    assert (state["migrationPolicyName"], state["migrationConfiguration"]) == ("p", {"allowPostCopy": False})
    done = finished_state(state, NOW, Outcome())
    assert done["completed"]
    assert "failed" not in done
    failed = finished_state(state, NOW, Outcome("why", "Succeeded"))
    assert (failed["failed"], failed["failureReason"], failed["abortStatus"]) == (True, "why", "Succeeded")
    assert finished_state(state, NOW, Outcome("why", "Succeeded", requested=True))["abortRequested"] is True
    late = finished_state(state, NOW, Outcome(aborted="Failed", requested=True))
    assert (late["abortRequested"], late["abortStatus"], "failed" in late) == (True, "Failed", False)
    assert finished_state({**state, "mode": "PostCopy"}, NOW, Outcome())["mode"] == "PostCopy"


def test_the_patch_clears_the_earlier_migration() -> None:
    before = finished_state(
        started_state(vmi(), migration(), "node-2", MigrationSettings(policy="p"), NOW),
        NOW,
        Outcome("why", "Succeeded"),
    )
    assert set(before) | {"abortRequested"} == set(STATE_FIELDS)
    patch = state_patch(started_state(vmi(), migration(), "node-2", MigrationSettings(), NOW))
    gone = {name for name, value in patch.items() if value is None}
    assert {"failed", "failureReason", "abortStatus", "endTimestamp", "migrationPolicyName"} <= gone


def test_each_phase_transition_is_recorded_once() -> None:
    first = migration_status(migration(), "Running", NOW)
    again = migration_status(migration(status=first), "Running", ago(-9))
    assert again["phaseTransitionTimestamps"] == first["phaseTransitionTimestamps"]


def test_unavailable_post_copy_is_a_condition() -> None:
    told = migration_status(migration(), "Running", NOW, conditions=[post_copy_unavailable("the kernel says no")])
    assert [each["type"] for each in told["conditions"]] == ["PostCopyPossible"]
    assert told["conditions"][0]["message"] == "the kernel says no"


def policy(name: str, vmi: dict[str, str] | None = None, namespace: dict[str, str] | None = None, **spec: Any) -> Any:
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": namespace}
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


@pytest.mark.parametrize(
    ("policies", "winner"),
    [
        pytest.param([], None, id="no policy"),
        pytest.param([policy("a", {"x": "1"})], "a", id="a policy that matches"),
        pytest.param([policy("a", {"x": "2"})], None, id="a policy that does not match"),
        pytest.param(
            [policy("a", {"x": "1"}), policy("b", {"x": "1"}, {"n": "1"})], "b", id="more labels take precedence"
        ),
        pytest.param([policy("a", None, {"n": "1"}), policy("b", {"x": "1"})], "b", id="VMI labels take precedence"),
        pytest.param([policy("b", {"x": "1"}), policy("a", {"x": "1"})], "a", id="the first by name"),
        pytest.param([{"metadata": {"name": "a"}, "spec": {}}], None, id="a policy without selectors matches nothing"),
    ],
)
def test_winning_policy(policies: list[Any], winner: str | None) -> None:
    found = winning_policy({"x": "1"}, {"n": "1"}, policies)
    assert (found["metadata"]["name"] if found else None) == winner


def test_policies_take_precedence_over_kubevirts_configuration() -> None:
    cluster = {"metadata": {"name": "kv"}, "spec": {"configuration": {"migrations": {"completionTimeoutPerGiB": 7}}}}
    settings = effective_settings({"x": "1"}, {}, [policy("a", {"x": "1"}, bandwidthPerMigration="10Mi")], [cluster])
    assert (settings.policy, settings.bandwidth, settings.seconds_per_gib, settings.auto_converge) == (
        "a",
        10 << 20,
        7,
        False,
    )
    assert [settings.timeout_seconds(size << 20) for size in (64, 1024, 1025, 2048)] == [7, 7, 14, 14]


@pytest.mark.parametrize(
    ("spec", "configured", "mode"),
    [
        pytest.param({}, {}, None, id="it is aborted by default"),
        pytest.param({"allowPostCopy": True}, {}, "PostCopy", id="it switches to post-copy"),
        pytest.param({"allowWorkloadDisruption": True}, {}, "Paused", id="it pauses the guest"),
        pytest.param({"allowPostCopy": True, "allowWorkloadDisruption": False}, {}, None, id="no disruption at all"),
        pytest.param({}, {"allowWorkloadDisruption": True}, "Paused", id="for the whole cluster"),
        pytest.param(
            {"allowPostCopy": False},
            {"allowWorkloadDisruption": True},
            None,
            id="a foreign policy that forbids post-copy forbids the disruption, as in KubeVirt",
        ),
    ],
)
def test_how_a_migration_goes_on_at_its_timeout(spec: Any, configured: Any, mode: str | None) -> None:
    cluster = {"metadata": {"name": "kv"}, "spec": {"configuration": {"migrations": configured}}}
    settings = effective_settings({"x": "1"}, {}, [policy("a", {"x": "1"}, **spec)], [cluster])
    assert settings.at_timeout == mode


def test_the_downtime_limit_is_one_of_the_settings() -> None:
    cluster = {
        "metadata": {"name": "kv"},
        "spec": {"configuration": {"developerConfiguration": {"featureGates": ["MigrationStallDetection"]}}},
        "status": {"observedKubeVirtVersion": "v1.9.0"},
    }
    limited = policy("a", {"x": "1"}, maxDowntimeMs=70, experimental={"compression": "zstd"})
    settings = effective_settings({"x": "1"}, {}, [limited], [cluster])
    assert settings.max_downtime_ms == 70
    assert settings.values["maxDowntimeMs"] == 70
    assert "experimental.compression" not in settings.values


def test_the_timeout_message_has_job_statistics() -> None:
    said = {"memory_total": 200 << 20, "memory_remaining": 30 << 20, "memory_iteration": 4, "memory_bps": 24 << 20}
    told = timeout_message(5, {**said, "memory_dirty_rate": 25600, "memory_page_size": 4096})
    assert "after 5 seconds and has been aborted: 30 of 200 MiB were left in round 4, copied at 24 MiB/s" in told
    assert told.endswith("the guest writes 100 MiB/s")
    assert timeout_message(5, {}).endswith("has been aborted")


@pytest.mark.parametrize(
    ("said", "copied"),
    [("0", 0), ("1", 1), ("217Ki", 1), ("1Mi", 1), ("1535Ki", 1), ("1536Ki", 2), ("64M", 61), ("2Gi", 2048)],
)
def test_bandwidth_is_rounded_to_mebibytes_as_in_kubevirt(said: str, copied: int) -> None:
    settings = effective_settings({"x": "1"}, {}, [policy("a", {"x": "1"}, bandwidthPerMigration=said)], [])
    assert settings.bandwidth == copied << 20


def test_zero_seconds_per_gib_mean_no_timeout() -> None:
    settings = effective_settings({"x": "1"}, {}, [policy("a", {"x": "1"}, completionTimeoutPerGiB=0)], [])
    assert settings.timeout_seconds(2 << 30) is None
