"""What a plan says about the steps, the analysis and the rollback of an update. Each row is a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.describe import describe_update
from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.cli.plan import update_lines
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, snapshot, vm

Json = dict[str, Any]
QUERY: Json = {"query": "up", "successCondition": "result < 0.05", "failureCondition": "result > 2", "count": 3}
CHECKS: list[Json] = [
    {"name": "errors", "prometheus": {**QUERY, "failureLimit": 1}},
    {"name": "smoke", "job": {"cronJob": "test"}},
]


def four(*vms: Any, status: Json | None = None, **proactive: Any) -> PoolSnapshot:
    before = {"currentRevision": OLD.name, **(status or {})}
    pool = a_pool(4, status=before, updateStrategy={"proactive": proactive})
    return snapshot(pool, *(vms or [vm(n, revision=OLD.label) for n in range(1, 5)]))


@pytest.mark.parametrize(
    ("observed", "lines"),
    [
        pytest.param(four(*[vm(n) for n in range(1, 5)], rollback={}), [], id="nothing is updated"),
        pytest.param(four(), [], id="a plain update"),
        pytest.param(
            four(steps=[{"setReplicas": "25%"}, {"pause": {}}, {"setReplicas": 2}, {"pause": {"durationSeconds": 60}}]),
            [
                "step 1 of 4: 1 VM gets the template",
                "step 2 of 4: pause until a user promotes the update",
                "step 3 of 4: 2 VMs get the template",
                "step 4 of 4: pause of 60 s",
                "rollback: never; without progress for 600 s the update stops",
            ],
            id="steps",
        ),
        pytest.param(
            four(vm(1), *[vm(n, revision=OLD.label) for n in range(2, 5)], steps=[{"setReplicas": 1}]),
            [
                "step 1 of 1 (done): 1 VM gets the template",
                "rollback: never; without progress for 600 s the update stops",
            ],
            id="a step is done",
        ),
        pytest.param(
            four(partition="25%", rollback={"failureThreshold": 2}),
            [
                "partition: the old template stays on 1 VM",
                "rollback: if 2 VMs fail with the new template, or if no progress for 600 s",
            ],
            id="partition and rollback",
        ),
        pytest.param(
            four(analysis={"checks": CHECKS}),
            [
                "step 1 of 2: 4 VMs get the template",
                "step 2 of 2: the analysis must be successful",
                "analysis: errors: 3 times result < 0.05, and not result > 2, measured every 60 s",
                "analysis: smoke: a Job of CronJob test completes",
                "rollback: if check errors fails 2 times, or if check smoke fails",
            ],
            id="an analysis",
        ),
        pytest.param(
            four(status={"currentRevision": REVISION.name}, partition=1, analysis={"checks": CHECKS}),
            [],
            id="a return to the former template has no steps",
        ),
        pytest.param(
            four(
                status={
                    "update": {"revision": REVISION.name, "aborted": {"reason": "X", "message": "m", "time": ago(1)}}
                },
            ),
            [f"the update to {REVISION.name} is aborted: m"],
            id="an aborted update that is undone",
        ),
        pytest.param(
            four(
                vm(1),
                *[vm(n, revision=OLD.label) for n in range(2, 5)],
                status={
                    "update": {"revision": REVISION.name, "aborted": {"reason": "X", "message": "m", "time": ago(1)}}
                },
            ),
            [f"the update to {REVISION.name} is aborted: m"],
            id="an aborted update",
        ),
    ],
)
def test_what_a_plan_says_about_an_update(observed: PoolSnapshot, lines: list[str]) -> None:
    assert list(update_lines(describe_update(with_abort(observed, NOW), NOW) or {})) == lines
