"""Analyses of updates: what measurements mean, and what follows from them. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from controllers.pool.actions import RunJob, Update
from controllers.pool.analysis import (
    Measurement,
    checks_of,
    job_name,
    judge,
    overdue,
    seconds_until_due,
    with_measurements,
)
from controllers.pool.plan import plan
from controllers.pool.rollback import abort_of
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.update_limit import hash_steps, update_limit
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool import PoolStatus, UpdateProgress
from poolhouse.api.kinds.pool_analysis import CheckResult, PrometheusCheck, parse_condition
from poolhouse.api.kinds.pool_strategies import UpdateProactive
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, old, snapshot, vm

Json = dict[str, Any]
NAME = REVISION.name
ERRORS: Json = {
    "name": "errors",
    "prometheus": {
        "query": "sum(rate(errors[1m]))",
        "successCondition": "result < 0.05",
        "intervalSeconds": 30,
        "count": 2,
        "failureLimit": 1,
        "initialDelaySeconds": 20,
    },
}
SMOKE: Json = {"name": "smoke", "job": {"cronJob": "smoke-test"}}
BOTH = {"checks": [ERRORS, SMOKE]}
CANARY: list[Json] = [{"setReplicas": 1}, {"analysis": {}}]


def check(**given: Any) -> PrometheusCheck:
    return PrometheusCheck.model_validate({"query": "up", **given})


@pytest.mark.parametrize(
    ("given", "value", "result"),
    [
        pytest.param({"successCondition": "result < 0.05"}, 0.04, "Successful", id="the success condition is true"),
        pytest.param({"successCondition": "result < 0.05"}, 0.05, "Failed", id="it is false, and there is no other"),
        pytest.param({"failureCondition": "result >= 2"}, 2, "Failed", id="the failure condition is true"),
        pytest.param({"failureCondition": "result >= 2"}, 1.9, "Successful", id="it is false, and there is no other"),
        pytest.param(
            {"successCondition": "result < 1", "failureCondition": "result > 5"}, 3, "Inconclusive", id="between both"
        ),
        pytest.param(
            {"successCondition": "result != 1", "failureCondition": "result > 5"}, 6, "Failed", id="both met: it failed"
        ),
        pytest.param({"successCondition": "result == -1"}, -1, "Successful", id="equal"),
        pytest.param({"successCondition": "result <= 0"}, 0, "Successful", id="at most"),
        pytest.param({"successCondition": "result > 0"}, float("nan"), "Inconclusive", id="not a number"),
        pytest.param({"failureCondition": "result > 0"}, None, "Inconclusive", id="no data says nothing"),
        pytest.param({"failureCondition": "result > 0"}, float("inf"), "Failed", id="infinite"),
    ],
)
def test_a_result_is_compared_with_the_conditions(given: Json, value: float | None, result: CheckResult) -> None:
    assert judge(check(**given), value)[0] == result


@pytest.mark.parametrize(
    "text",
    [
        "result",
        "result < ",
        "result < 1 or True",
        "result<1",
        "result < 1e9",
        "result < x",
        "__import__('os')",
        "result[0] < 1",
        "result < 1\n",
        "result << 1",
        "result < " + "9" * 400,
    ],
)
def test_a_condition_is_a_comparison_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="not a comparison"):
        parse_condition(text)
    with pytest.raises(ValidationError):
        check(successCondition=text)


def update(
    *vms: VM,
    done: int = 0,
    since: float | None = None,
    checks: list[Json] | None = None,
    analysis: Json = BOTH,
    rollback: Json | None = None,
    **given: Any,
) -> PoolSnapshot:
    """A pool of three, during the update of all of them."""
    proactive = {"analysis": analysis, "steps": CANARY, "rollback": rollback}
    spec = {"maxUnavailable": 3, "updateStrategy": {"proactive": proactive}, "progressDeadlineSeconds": 100}
    pool = a_pool(3, status={"currentRevision": OLD.name, "updateRevision": NAME, "observedGeneration": 1}, **spec)
    chosen = pool.spec.update_strategy.chosen
    assert isinstance(chosen, UpdateProactive)
    progress: Json = {"revision": NAME, "stepsDone": done, "stepsHash": hash_steps(chosen.all_steps[:done])}
    progress |= {"checks": checks or []} | ({"pausedSince": ago(since)} if since is not None else {})
    status = pool.status.model_copy(update={"update": UpdateProgress.model_validate(progress)})
    return snapshot(replace(pool, status=status, **given), *(vms or (vm(1), old(2), old(3))))


def errors(**given: Any) -> Json:
    return {"name": "errors", **given}


def smoke(**given: Any) -> Json:
    return {"name": "smoke", "job": "j", **given}


def failing(count: int) -> Json:
    return errors(result="Failed", failed=count, measuredAt=ago(5), undecidedSince=ago(5), message="result is 1")


def undecided(seconds: float, rollback: Json | None = None, **given: Any) -> PoolSnapshot:
    """An update whose query has had answers for `seconds`, none of which says that the template is good."""
    state = {"measuredAt": ago(1), "undecidedSince": ago(seconds), "unsuccessfulSince": ago(seconds), **given}
    return update(checks=[errors(result="Inconclusive", message="result is 1", **state)], rollback=rollback)


GOOD = errors(result="Successful", successful=2, measuredAt=ago(5))
PASSED = smoke(result="Successful", successful=1, measuredAt=ago(5))


def status_of(observed: PoolSnapshot) -> PoolStatus:
    return pool_status(observed, plan(observed, NOW), NOW)


def progressing(observed: PoolSnapshot) -> tuple[str, str | None, str]:
    (found,) = (c for c in status_of(observed).conditions if c.type == "Progressing")
    return found.status, found.reason, str(found.message)


@pytest.mark.parametrize(
    ("observed", "updated", "done", "reason"),
    [
        pytest.param(update(old(1), old(2), old(3)), 1, 0, "UpdatingVMs", id="the first step"),
        pytest.param(update(), 0, 1, "AnalysisRunning", id="the analysis begins after the first step"),
        pytest.param(
            update(done=1, since=9, checks=[GOOD, smoke(result="Running")]), 0, 1, "AnalysisRunning", id="a Job runs"
        ),
        pytest.param(
            update(done=1, since=9, checks=[{**GOOD, "successful": 1}, PASSED]), 0, 1, "AnalysisRunning", id="once of 2"
        ),
        pytest.param(update(done=1, since=9, checks=[GOOD, PASSED]), 2, 2, "UpdatingVMs", id="all are successful"),
        pytest.param(
            update(done=2, checks=[failing(1), PASSED]), 0, 2, "AnalysisInconclusive", id="a failure stops the others"
        ),
        pytest.param(
            update(done=2, checks=[errors(result="Error", measuredAt=ago(1), undecidedSince=ago(1)), PASSED]),
            0,
            2,
            "AnalysisInconclusive",
            id="a Prometheus that cannot be reached stops the others",
        ),
        pytest.param(update(done=2, checks=[GOOD, PASSED]), 2, 2, "UpdatingVMs", id="successful again: it goes on"),
        pytest.param(
            update(vm(1), vm(2), vm(3), done=2, checks=[GOOD, PASSED]), 0, 3, "AnalysisRunning", id="the last analysis"
        ),
        pytest.param(
            update(vm(1), vm(2), vm(3), done=3, since=9, checks=[GOOD, PASSED]), 0, 4, "Complete", id="it is over"
        ),
        pytest.param(
            update(vm(1), vm(2), vm(3), checks=[]), 0, 3, "AnalysisRunning", id="all have the template already"
        ),
        pytest.param(
            update(done=1, since=9, checks=[errors(result="Error"), smoke()], promote=f"{NAME}=all"),
            2,
            4,
            "UpdatingVMs",
            id="a user skips the analysis",
        ),
    ],
)
def test_an_update_with_an_analysis(observed: PoolSnapshot, updated: int, done: int, reason: str) -> None:
    planned = plan(observed, NOW)
    assert len([each for each in planned.actions if isinstance(each, Update)]) == updated
    status = status_of(observed)
    assert status.update.steps_done == done
    assert (not status.update.checks) == (done == 4), "checks are those of an update that goes on"
    assert progressing(observed)[1] == reason
    assert (status.current_revision == NAME) == (reason == "Complete"), "an update that is analysed is not complete"
    assert {each.revision: each.outcome for each in status.history} == (
        {NAME: "Complete"} if done == 4 and not updated else {}
    )


@pytest.mark.parametrize(
    ("observed", "reason", "words"),
    [
        pytest.param(update(checks=[failing(1), smoke()]), "", "", id="within the limit"),
        pytest.param(
            update(checks=[failing(2), smoke()]),
            "AnalysisFailed",
            "check errors failed 2 times, failureLimit is 1: result is 1",
            id="over the limit",
        ),
        pytest.param(
            update(checks=[GOOD, smoke(result="Failed", failed=1, message="Job j failed")]),
            "AnalysisFailed",
            "check smoke failed: Job j failed",
            id="a Job failed",
        ),
        pytest.param(update(done=4, checks=[failing(2)]), "", "", id="not after the update"),
        pytest.param(update(checks=[errors(result="Error", undecidedSince=ago(100))]), "", "", id="not undecided"),
        pytest.param(undecided(100), "", "", id="undecided at the deadline, without rollback"),
        pytest.param(
            undecided(100, rollback={}),
            "ProgressDeadlineExceeded",
            "check errors was not successful for 100 s: result is 1",
            id="undecided at the deadline, with rollback",
        ),
        pytest.param(undecided(99, rollback={}), "", "", id="undecided before the deadline"),
        pytest.param(
            undecided(100, rollback={}, measuredAt=ago(30)), "", "", id="the measurement at the deadline still waits"
        ),
        pytest.param(
            update(
                checks=[errors(result="Error", message="no", measuredAt=ago(1), undecidedSince=ago(100))], rollback={}
            ),
            "",
            "",
            id="no query had an answer",
        ),
        pytest.param(
            undecided(1, rollback={}, undecidedSince=ago(500)), "", "", id="the first answer after a long outage"
        ),
        pytest.param(update(checks=[errors(undecidedSince=ago(500))], rollback={}), "", "", id="the first query waits"),
        pytest.param(
            update(done=1, since=500, checks=[GOOD, smoke(job="", undecidedSince=ago(500))], rollback={}),
            "",
            "",
            id="a Job was never created",
        ),
        pytest.param(
            update(
                done=1,
                since=500,
                checks=[
                    GOOD,
                    smoke(result="Running", message="Job j is running", measuredAt=ago(1), unsuccessfulSince=ago(100)),
                ],
                rollback={},
            ),
            "ProgressDeadlineExceeded",
            "check smoke was not successful for 100 s: Job j is running",
            id="a Job runs until the deadline",
        ),
        pytest.param(
            update(checks=[errors(undecidedSince=ago(110))], rollback={}), "", "", id="the initial delay does not count"
        ),
    ],
)
def test_an_analysis_rolls_back(observed: PoolSnapshot, reason: str, words: str) -> None:
    found = abort_of(observed, NOW)
    assert ((found.reason, found.message) if found else ("", "")) == (reason, words)


def test_a_check_that_stays_undecided_stops_the_update_at_the_deadline() -> None:
    observed = update(checks=[errors(result="Error", message="no", measuredAt=ago(1), undecidedSince=ago(99))])
    assert plan(observed, NOW).again_seconds == 1
    observed = update(checks=[errors(result="Error", message="no", measuredAt=ago(1), undecidedSince=ago(100))])
    assert progressing(observed)[:2] == ("False", "ProgressDeadlineExceeded")
    paused = replace(observed.pool, spec=observed.pool.spec.model_copy(update={"paused": True}))
    paused_now = replace(observed, pool=paused)
    assert overdue(paused_now, NOW) == ""
    after = status_of(paused_now).update
    assert after.checks[0].undecided_since is None, "a pause ends the deadline"


def test_the_pool_is_looked_at_again_when_answers_roll_it_back() -> None:
    assert plan(undecided(99, rollback={}, undecidedSince=ago(500)), NOW).again_seconds == 1


def test_an_aborted_update_is_not_tried_again_until_a_retry_which_begins_from_the_first_step() -> None:
    observed = update(done=2, checks=[failing(2)])
    abort = abort_of(observed, NOW)
    rolled = replace(observed, revision=OLD, aborted=(REVISION, abort))
    status = status_of(rolled)
    assert [(each.revision, each.outcome, each.reason) for each in status.history] == [
        (NAME, "RolledBack", "AnalysisFailed")
    ]
    later = replace(observed, pool=replace(observed.pool, status=status))
    assert abort_of(later, NOW) == abort
    retried = replace(later, pool=replace(later.pool, retry=abort.time))
    assert abort_of(retried, NOW) is None
    again = status_of(retried)
    assert (again.update.steps_done, again.update.aborted) == (1, None), "one VM has the template already"
    assert not again.history


def test_queries_begin_with_the_first_available_vm() -> None:
    waiting = status_of(update(vm(1, ready=False), old(2), old(3))).update
    begun = status_of(update()).update
    assert [each.undecided_since for each in waiting.checks] == [None, None]
    assert begun.checks[0].undecided_since == ago(0)


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        pytest.param(update(checks=[errors(undecidedSince=ago(5)), smoke(job="")]), [15.0, None], id="initial delay"),
        pytest.param(update(checks=[errors(undecidedSince=ago(60))]), [0.0, None], id="the first measurement is due"),
        pytest.param(update(checks=[errors(measuredAt=ago(10))]), [20.0, None], id="the interval"),
        pytest.param(update(checks=[errors(), smoke(result="Running")]), [None, 0.0], id="a new Job"),
        pytest.param(
            update(checks=[errors(), smoke(result="Running", measuredAt=ago(2))]), [None, 3.0], id="a Job that runs"
        ),
        pytest.param(update(checks=[errors(), PASSED]), [None, None], id="a Job that has ended"),
        pytest.param(update(done=4), [], id="the update is over"),
        pytest.param(update(deleting=True), [], id="the pool is being deleted"),
    ],
)
def test_when_a_check_is_due(observed: PoolSnapshot, seconds: list[float | None]) -> None:
    assert [seconds_until_due(observed, each, NOW) for each in checks_of(observed)] == seconds


def test_measurements_change_the_state_of_their_check() -> None:
    before = UpdateProgress.model_validate({"revision": NAME, "checks": [errors(), smoke()]})

    def measured(*found: Measurement) -> list[tuple[int, int, str | None, str | None]]:
        after = with_measurements(before, found)
        return [(each.successful, each.failed, each.result, each.undecided_since) for each in after.checks]

    nothing = (0, 0, None, None)
    good = Measurement(NAME, "errors", "Successful", "fine", ago(3))
    bad = Measurement(NAME, "errors", "Failed", "bad", ago(2))
    assert measured(good, good) == [(2, 0, "Successful", None), nothing]
    assert measured(good, bad, replace(bad, time=ago(1))) == [(1, 2, "Failed", ago(2)), nothing]
    assert measured(bad, good) == [(1, 1, "Successful", None), nothing]
    assert measured(replace(good, revision="web-another")) == [nothing, nothing]
    assert measured(replace(good, check="smoke", job="j")) == [nothing, (1, 0, "Successful", None)]
    assert measured(replace(good, check="smoke", job="an earlier one")) == [nothing, nothing]


def test_only_answers_count_towards_a_rollback() -> None:
    before = UpdateProgress.model_validate({"revision": NAME, "checks": [errors(), smoke()]})

    def since(*found: Measurement) -> list[str | None]:
        return [each.unsuccessful_since for each in with_measurements(before, found).checks]

    bad = Measurement(NAME, "errors", "Inconclusive", "bad", ago(9))
    assert since(bad, replace(bad, time=ago(5))) == [ago(9), None]
    assert since(bad, replace(bad, result="Error"), replace(bad, time=ago(5))) == [ago(5), None]
    assert since(bad, replace(bad, result="Successful")) == [None, None]
    job = Measurement(NAME, "smoke", "Running", "runs", ago(9), "j")
    assert since(job) == [None, ago(9)]
    assert since(job, replace(job, answered=False)) == [None, None]


def test_an_analysis_creates_its_jobs_once() -> None:
    observed = update()
    planned = plan(observed, NOW)
    (job,) = (each for each in planned.actions if isinstance(each, RunJob))
    assert (job.check, job.cron_job, job.revision) == ("smoke", "smoke-test", NAME)
    status = pool_status(observed, planned, NOW)
    assert status.update.checks[1].job == job.name
    later = replace(observed, pool=replace(observed.pool, status=status))
    assert not [each for each in plan(later, NOW).actions if isinstance(each, RunJob)]
    without = pool_status(observed, replace(planned, actions=()), NOW)
    again = replace(observed, pool=replace(observed.pool, status=without))
    assert [each.name for each in plan(again, NOW).actions] == [job.name], "a refused Job is tried again by its name"


def test_a_job_that_was_deleted_is_created_again_and_each_analysis_has_its_own() -> None:
    gone = update(done=1, since=9, checks=[GOOD, smoke(result="Error")])
    (job,) = (each for each in plan(gone, NOW).actions if isinstance(each, RunJob))
    last = update(vm(1), vm(2), vm(3), done=2, checks=[GOOD, PASSED])
    (another,) = (each for each in plan(last, NOW).actions if isinstance(each, RunJob))
    assert job.name != another.name


def test_the_name_of_a_job_is_short() -> None:
    assert len(job_name("a" * 63, "c" * 30, "x")) <= 63


def test_the_reason_of_an_analysis_names_what_is_missing() -> None:
    observed = update(
        done=1, since=9, checks=[{**GOOD, "successful": 1, "message": "result is 0.01"}, smoke(message="")]
    )
    assert update_limit(observed, NOW).reason == (
        "step 2 of 4: the analysis waits for errors (1 of 2 successful: result is 0.01), smoke (Job j)"
    )


def test_a_plan_shows_the_analyses() -> None:
    shown = [(row["action"], row["vm"]) for row in rows(simulate(update(old(1), old(2), old(3)), NOW))]
    names = [vm for action, vm in shown if action == "Update"]
    assert len(names) == 3
    assert [action for action, _ in shown] == [
        "Update",
        "Restart",
        "Analyse",
        "Update",
        "Update",
        "Restart",
        "Restart",
        "Analyse",
    ]


def test_a_plan_goes_on_after_a_check_that_is_undecided() -> None:
    checks = [errors(result="Error", message="no answer", measuredAt=ago(1), undecidedSince=ago(1)), PASSED]
    found = list(rows(simulate(update(done=2, checks=checks), NOW)))
    assert (found[0]["action"], found[0]["reason"]) == ("Analyse", "check errors: Error: no answer")
    assert [row["action"] for row in found].count("Update") == 2
