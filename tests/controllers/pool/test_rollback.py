"""Updates that are aborted: when, and which template VMs have then. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.rollback import abort_of
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, old, snapshot, vm, vmi

Json = dict[str, Any]
NAME = REVISION.name
KNOWN = {"reason": "TooManyFailing", "message": "two fail", "time": ago(100)}


def broken(ordinal: int) -> VM:
    return vm(ordinal, ready=False, printable_status="ErrImagePull")


def three(
    *vms: VM, rollback: Json | None = None, stable: str = OLD.name, aborted: Json | None = None, **given: Any
) -> PoolSnapshot:
    """A pool of three whose update began 20 seconds ago."""
    update = {"revision": NAME, "aborted": aborted} if aborted else None
    status = {
        "currentRevision": stable,
        "updateRevision": NAME,
        "observedGeneration": 1,
        "unavailableReplicas": 1,
        "lastProgressTime": ago(20),
        **({"update": update} if update else {}),
    }
    spec = {"updateStrategy": {"proactive": {"rollback": rollback} if rollback is not None else {}}}
    pool = a_pool(3, progressDeadlineSeconds=10, maxUnavailable=3, status=status, **spec)
    return snapshot(replace(pool, **given), *vms)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(three(broken(1), old(2), old(3)), "", id="never unless it is asked for"),
        pytest.param(three(broken(1), old(2), old(3), rollback={}), "ProgressDeadlineExceeded", id="at the deadline"),
        pytest.param(three(vm(1), old(2), old(3), rollback={}), "", id="not while VMs become available"),
        pytest.param(
            three(broken(1), old(2), old(3), rollback={}, stable=NAME), "", id="not without a former template"
        ),
        pytest.param(
            three(broken(1), broken(2), old(3), rollback={"failureThreshold": 2}), "TooManyFailing", id="too many fail"
        ),
        pytest.param(
            three(
                vm(1, ready=False, vmi=vmi("web-1", revision=REVISION.label, phase="Failed")),
                vm(2, ready=False, start_failures=1),
                old(3),
                rollback={"failureThreshold": 2},
            ),
            "TooManyFailing",
            id="a VMI that fails, a start that fails",
        ),
        pytest.param(
            three(vm(1), old(2, ready=False, start_failures=1), old(3), rollback={"failureThreshold": 1}),
            "",
            id="a VM of the former template says nothing",
        ),
        pytest.param(three(vm(1), old(2), old(3), abort=NAME), "AbortedByUser", id="a user aborts it"),
        pytest.param(three(vm(1), old(2), old(3), abort="web-another"), "", id="a user aborted another one"),
        pytest.param(three(old(1), old(2), old(3), aborted=KNOWN), "TooManyFailing", id="it is not tried again"),
        pytest.param(three(old(1), old(2), old(3), aborted=KNOWN, retry=ago(100)), "", id="retried by a user"),
        pytest.param(
            three(old(1), old(2), old(3), aborted=KNOWN, retry=ago(500)), "TooManyFailing", id="an older retry"
        ),
    ],
)
def test_the_failures_for_which_an_update_is_aborted(observed: PoolSnapshot, reason: str) -> None:
    found = abort_of(observed, NOW)
    assert (found.reason if found else "") == reason


def rolled_back(observed: PoolSnapshot) -> PoolSnapshot:
    abort = abort_of(observed, NOW)
    assert abort is not None
    return replace(observed, revision=OLD, aborted=(REVISION, abort))


def test_vms_get_the_former_template_again() -> None:
    observed = rolled_back(three(broken(1), old(2), old(3), aborted=KNOWN))
    planned = plan(observed, NOW)
    assert [(each.verb, each.name) for each in planned.actions] == [("Update", "web-1")]
    status = pool_status(observed, planned, NOW)
    assert (status.update_revision, status.current_revision, status.updated_replicas) == (NAME, OLD.name, 1)
    assert status.update.aborted.time == KNOWN["time"]
    (progressing,) = (c for c in status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "UpdateAborted")
    assert progressing.message == "two fail; 2 of 3 VMs have the former template"


def test_the_former_template_is_kept_for_a_rollback() -> None:
    found = three(vm(1), vm(2), vm(3))
    pool = replace(found.pool, spec=found.pool.spec.model_copy(update={"revision_history_limit": 0}))
    pruned = [each.name for each in plan(replace(found, pool=pool), NOW).actions if each.verb == "PruneRevision"]
    assert OLD.name not in pruned
