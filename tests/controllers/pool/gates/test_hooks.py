"""VMs that wait for lifecycle hooks before the pool stops them. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.pool.actions import Delete, EndHold, Hold, SetInService
from controllers.pool.gates.disruptions import Disruption
from controllers.pool.gates.hooks import after_hooks, pending_hooks
from controllers.pool.plan import plan
from controllers.pool.rules.holds import set_in_service
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.template import build_vm, vmi_metadata
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM, LifecycleHold, parse_vm
from poolhouse.api.kinds import meta
from tests.controllers.pool.builders import NOW, REVISION, a_pool, ago, done, halted, snapshot, vm, vmi

Json = dict[str, Any]
DRAIN: Json = {"name": "drain", "transition": "Terminating", "timeoutSeconds": 600}
NOTIFY: Json = {"name": "notify", "transition": "Terminating", "timeoutSeconds": 600, "defaultResult": "Continue"}
QUIESCE: Json = {"name": "quiesce", "transition": "Restarting", "timeoutSeconds": 600}
NEWEST = {"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}}
OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}


LAST = "9999-12-31T23:59:59Z"


def at(seconds: float) -> str:
    return ago(-seconds)


def serving(ordinal: int, *, revision: str = REVISION.label, **given: Any) -> VM:
    """A VM whose VMI has the label that Services select."""
    run = vmi(f"web-{ordinal}", revision=revision)
    run.labels[meta.IN_SERVICE] = "true"
    return vm(ordinal, created_at=f"2026-01-{ordinal:02}", vmi=run, **given)


def held(ordinal: int, transition: str = "Terminating", *, revision: str = REVISION.label, **given: Any) -> VM:
    hooks = {"drain": at(600)} if transition == "Terminating" else {"quiesce": at(600)}
    facts: Json = {"since": ago(0), "vmi_uid": f"run-web-{ordinal}", **given.pop("hold", {})}
    hold = LifecycleHold(transition, hooks=tuple((facts.pop("hooks", hooks)).items()), **facts)
    run = vmi(f"web-{ordinal}", revision=revision, **given.pop("run", {}))
    return vm(ordinal, created_at=f"2026-01-{ordinal:02}", vmi=run, hold=hold, **given)


def using_replaced_disk(ordinal: int) -> VM:
    found = serving(ordinal, replaced_disks="old=h1")
    assert found.vmi is not None
    return replace(found, vmi=replace(found.vmi, disks=("old",)))


def pool(replicas: int, *vms: VM, hooks: Any = (DRAIN, QUIESCE), **given: Any) -> PoolSnapshot:
    spec: Json = {"scaleInStrategy": NEWEST, "updateStrategy": OLDEST, "lifecycleHooks": list(hooks), **given}
    return snapshot(a_pool(replicas, **spec), *vms)


FAILING: Json = {"ready": False, "start_failures": 3}


def after_failure(observed: PoolSnapshot) -> PoolSnapshot:
    """The plan does not end with the first step that has actions."""
    return replace(observed, failure=Failure("FailedCreate", "exceeded quota"))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool(2, serving(1), serving(2)), [], id="nothing to do"),
        pytest.param(
            pool(1, serving(1), serving(2), maxUnavailable=2),
            [("Hold", "web-2")],
            id="a VM is held before its deletion",
        ),
        pytest.param(
            pool(1, serving(1), serving(2), hooks=[QUIESCE]),
            [("Delete", "web-2")],
            id="hooks of restarts delay no deletion",
        ),
        pytest.param(pool(1, serving(1), held(2)), [], id="a held VM is not deleted"),
        pytest.param(
            pool(1, serving(1), held(2, hold={"hooks": {}})),
            [("Delete", "web-2")],
            id="it is deleted once its hooks have ended",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"hooks": {"drain": at(-1)}})),
            [("Delete", "web-2")],
            id="it is deleted after the timeout",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"hooks": {"drain": at(-1), "notify": at(9)}}), hooks=[DRAIN, NOTIFY]),
            [("Delete", "web-2")],
            id="a hook that times out with Abandon ends the wait for the others",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"hooks": {"drain": at(9), "notify": at(-1)}}), hooks=[DRAIN, NOTIFY]),
            [],
            id="a hook that times out with Continue leaves the others",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"hooks": {"drain": at(9), "notify": "Abandon"}}), hooks=[DRAIN, NOTIFY]),
            [("Delete", "web-2")],
            id="a hook that its owner abandons ends the wait for the others",
        ),
        pytest.param(
            pool(1, serving(1), held(2), hooks=[QUIESCE]),
            [("Delete", "web-2")],
            id="a hook that the pool lost holds nothing",
        ),
        pytest.param(
            pool(2, serving(1), held(2)), [("EndHold", "web-2")], id="a VM that stays after all is no longer held"
        ),
        pytest.param(
            pool(2, serving(1), held(2, scale_in="Protect"), serving(3)),
            [("EndHold", "web-2"), ("Hold", "web-3")],
            id="a VM that becomes protected is no longer held, and another one is",
        ),
        pytest.param(
            pool(2, held(1), serving(2), serving(3)),
            [],
            id="a held VM stays the choice, though the policy prefers another",
        ),
        pytest.param(
            pool(1, held(1), serving(2), serving(3), serving(4), maxUnavailable=1),
            [("Hold", "web-4"), ("Hold", "web-3")],
            id="scale-in goes on with other VMs",
        ),
        pytest.param(
            pool(2, held(1, "Restarting", revision="r0", hold={"vmi_uid": "run-before"}), serving(2)),
            [("EndHold", "web-1"), ("SetInService", "web-1"), ("Hold", "web-1")],
            id="a VM that was restarted, and must be restarted again, is held again",
        ),
        pytest.param(
            pool(
                3,
                held(4),
                serving(1, ready=False),
                serving(2),
                serving(3),
                serving(5),
                maxUnavailable=1,
                scaleInStrategy=OLDEST,
            ),
            [("Hold", "web-1")],
            id="a held VM is not available, so only a VM that is down goes with it",
        ),
        pytest.param(
            pool(2, serving(1, revision="r0"), serving(2, revision="r0"), maxUnavailable=1),
            [("Hold", "web-1")],
            id="a VM that has the template is held before its restart",
        ),
        pytest.param(
            pool(1, replace(serving(1, revision="r0"), revision="r0")),
            [("Update", "web-1")],
            id="it gets the template without a hold, which stops nothing",
        ),
        pytest.param(
            pool(2, held(1, "Restarting", revision="r0"), serving(2, revision="r0"), maxUnavailable=1),
            [],
            id="a VM that is held before its restart counts towards maxUnavailable",
        ),
        pytest.param(
            pool(3, held(1, "Restarting", revision="r0"), serving(2, revision="r0"), serving(3), maxUnavailable=2),
            [("Hold", "web-2")],
            id="the update goes on with others within maxUnavailable",
        ),
        pytest.param(
            pool(1, held(1, "Restarting", revision="r0", hold={"hooks": {}})),
            [("Restart", "web-1")],
            id="it restarts once its hooks have ended",
        ),
        pytest.param(
            pool(1, held(1, "Restarting", hold={"vmi_uid": "the VMI before"})),
            [("EndHold", "web-1"), ("SetInService", "web-1")],
            id="after the restart the VM is not held, and returns to its Services",
        ),
        pytest.param(
            pool(1, held(1, "Restarting", run={"deleted_at": ago(1)})), [], id="while it stops, the VM is still held"
        ),
        pytest.param(
            pool(1, held(1, "Restarting")), [("EndHold", "web-1")], id="a restart that became unnecessary ends the hold"
        ),
        pytest.param(
            pool(1, held(1, "Restarting", revision="r0"), updateStrategy={"opportunistic": {}}),
            [("EndHold", "web-1")],
            id="a strategy that restarts no VM ends the hold",
        ),
        pytest.param(
            pool(1, held(2, "Restarting", revision="r0"), serving(1)),
            [("Hold", "web-2")],
            id="a VM that is held before a restart is held again before its deletion",
        ),
        pytest.param(
            pool(2, serving(1, ready=False, start_failures=3), serving(2), autohealing={}, maxUnavailable=2),
            [("Hold", "web-1")],
            id="a VM is held before healing deletes it",
        ),
        pytest.param(
            pool(
                2,
                held(1, ready=False, start_failures=3),
                serving(2, ready=False, start_failures=9),
                autohealing={},
                maxUnavailable=1,
            ),
            [],
            id="a VM that is held before healing takes its part of maxUnavailable, though another fails more",
        ),
        pytest.param(
            pool(2, held(1, start_failures=0), serving(2), autohealing={}),
            [("EndHold", "web-1")],
            id="a VM that recovers is no longer held",
        ),
        pytest.param(
            pool(1, serving(1), using_replaced_disk(2)),
            [("Hold", "web-2")],
            id="a VM keeps the disk that it runs from while it is held",
        ),
        pytest.param(pool(1, serving(1), held(2), paused=True), [], id="a paused pool ends no hold"),
        pytest.param(
            pool(1, vm(1)), [("SetInService", "web-1")], id="VMs of a pool that gets hooks get the label of Services"
        ),
        pytest.param(pool(0, halted(1)), [("Hold", "web-1")], id="a halted VM is held before its deletion too"),
        pytest.param(
            after_failure(pool(1, serving(1), serving(2, **FAILING), autohealing={}, maxUnavailable=2)),
            [("Hold", "web-2")],
            id="after a failure, healing waits for the hold that scale-in begins in the same plan",
        ),
        pytest.param(
            after_failure(pool(1, serving(1), held(2, hold={"hooks": {}}, **FAILING), autohealing={})),
            [("Delete", "web-2")],
            id="after a failure, a VM whose hooks have ended is deleted once",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"since": "yesterday", "hooks": {"drain": "soon"}})),
            [("Delete", "web-2")],
            id="a hold with damaged times ends",
        ),
        pytest.param(
            pool(1, serving(1), held(2, hold={"since": LAST, "hooks": {"drain": LAST}})),
            [("Delete", "web-2")],
            id="a hold with times that are too late to compute with ends",
        ),
    ],
)
def test_which_vms_are_held(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert done(observed) == expected


@pytest.mark.parametrize(
    ("value", "since", "seconds"),
    [
        pytest.param(at(600), 0, 600, id="the time of the annotation"),
        pytest.param(at(30), 570, 30, id="until the timeout"),
        pytest.param(at(600), 570, 30, id="a later time in the annotation does not extend the hold"),
        pytest.param("soon", 100, 500, id="a damaged time counts as the timeout"),
    ],
)
def test_when_a_hook_times_out(value: str, since: float, seconds: float) -> None:
    observed = pool(1, serving(1), held(2, hold={"hooks": {"drain": value}, "since": ago(since)}))
    (hook,) = pending_hooks(observed, observed.vms[1], NOW)
    assert hook.ends_at == NOW + timedelta(seconds=seconds)
    assert plan(observed, NOW).again_seconds == seconds


REQUEST = f"web-r1={ago(60)}"
TAKEN = VMSnapshot("default", "before", "s", "web", "web-1", "u-web-1", "r1", update=1, created_at=ago(120), ready=True)
BEGUN = VMRestore("default", "restore", "r", "web", "web-1", "u-web-1", REQUEST, "before")


def restoring(machine: VM, **given: Any) -> PoolSnapshot:
    """A pool of one VM that is to get the state of a snapshot."""
    observed = replace(pool(1, machine), vm_snapshots=(TAKEN,), **given)
    return replace(observed, pool=replace(observed.pool, restore=REQUEST))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(restoring(serving(1, updates=1)), [("Hold", "web-1")], id="a VM is held before its restore"),
        pytest.param(
            restoring(halted(1, updates=1)), [("Restore", "web-1")], id="a halted VM is not stopped, so not held"
        ),
        pytest.param(
            restoring(held(1, "Restarting", updates=1), restores=(BEGUN,)),
            [],
            id="a VM stays held until KubeVirt stops it for its restore",
        ),
    ],
)
def test_hooks_before_restores(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert done(observed) == expected


def test_no_hook_lasts_longer_than_48_hours() -> None:
    hook = {**DRAIN, "timeoutSeconds": 172_800}
    observed = pool(1, serving(1), held(2, hold={"hooks": {"drain": at(999_999)}}), hooks=[hook])
    assert plan(observed, NOW).again_seconds == 48 * 3600


def test_a_hold_names_its_hooks_with_their_times() -> None:
    observed = pool(1, serving(1), serving(2), hooks=[DRAIN, NOTIFY, QUIESCE])
    (hold,) = plan(observed, NOW).actions
    assert isinstance(hold, Hold)
    assert (hold.transition, hold.vmi_uid, hold.since) == ("Terminating", "run-web-2", at(0))
    assert hold.hooks == (("drain", at(600)), ("notify", at(600)))


def test_the_next_transition_removes_the_hooks_of_the_former() -> None:
    (hold,) = plan(pool(1, held(2, "Restarting", revision="r0"), serving(1)), NOW).actions
    assert isinstance(hold, Hold)
    assert hold.former == ("quiesce",)


def test_the_reason_says_which_hook_timed_out() -> None:
    (delete,) = plan(pool(1, serving(1), held(2, hold={"hooks": {"drain": at(-1)}})), NOW).actions
    assert delete.reason.endswith("; lifecycle hook drain timed out")


def test_a_held_vm_waits_with_the_name_of_its_hook() -> None:
    (wait,) = plan(pool(1, serving(1), held(2)), NOW).waits
    assert (wait.name, wait.reason) == ("web-2", f"lifecycle hooks hold it: drain (until {at(600)})")


def test_the_status_counts_held_vms_and_the_condition_names_them() -> None:
    observed = pool(2, serving(1), serving(2), held(3))
    status = pool_status(observed, plan(observed, NOW), NOW)
    (condition,) = (each for each in status.conditions if each.type == "VMsHeld")
    assert (status.held_replicas, status.available_replicas) == (1, 2)
    assert condition.message == "1 VM waits for lifecycle hooks: web-3 (drain)"


def test_the_progress_deadline_does_not_run_while_a_vm_is_held() -> None:
    status = {
        "updateRevision": "web-r1",
        "observedGeneration": 1,
        "lastProgressTime": ago(7200),
        "unavailableReplicas": 1,
    }
    waiting = pool(2, held(1, "Restarting", revision="r0"), serving(2, revision="r0"), status=status, maxUnavailable=1)
    found = pool_status(waiting, plan(waiting, NOW), NOW)
    (condition,) = (each for each in found.conditions if each.type == "Progressing")
    assert condition.reason == "UpdatingVMs"
    assert found.last_progress_time == at(0)  # the number of held VMs has changed


def test_the_simulation_assumes_that_hooks_end() -> None:
    found = simulate(pool(1, serving(1), serving(2)), NOW)
    assert [(row["action"], row["vm"]) for row in rows(found)] == [("Hold", "web-2"), ("Delete", "web-2")]
    assert found.complete


def test_the_simulation_of_an_update_holds_each_vm_before_its_restart() -> None:
    found = simulate(pool(2, serving(1, revision="r0"), serving(2, revision="r0"), maxUnavailable=1), NOW)
    assert [(row["action"], row["vm"]) for row in rows(found)] == [
        ("Hold", "web-1"),
        ("Restart", "web-1"),
        ("Hold", "web-2"),
        ("Restart", "web-2"),
    ]


def test_a_hold_is_read_from_the_vm() -> None:
    annotations = {meta.TRANSITION_SINCE: at(0), meta.TRANSITION_VMI: "u", f"{meta.HOOK_PREFIX}drain": at(600)}
    metadata = {"name": "web-1", "labels": {meta.TRANSITION: "Terminating"}, "annotations": annotations}
    assert parse_vm({"metadata": metadata}).hold == LifecycleHold("Terminating", at(0), "u", (("drain", at(600)),))


def test_new_vms_start_in_service_but_a_change_of_labels_does_not_write_it() -> None:
    observed = pool(1)
    built = build_vm(observed.pool, 1, REVISION)
    assert built["spec"]["template"]["metadata"]["labels"][meta.IN_SERVICE] == "true"
    assert meta.IN_SERVICE not in vmi_metadata(observed.pool, 1, REVISION)["labels"]
    assert meta.IN_SERVICE not in build_vm(a_pool(1), 1, REVISION)["spec"]["template"]["metadata"]["labels"]


def test_the_label_of_a_vmi_follows_the_hold() -> None:
    seen = pool(2, serving(1, hold=held(1).hold), held(2), serving(3))
    labels = [each for each in plan(seen, NOW).actions if isinstance(each, SetInService)]
    assert [(each.name, each.in_service) for each in labels] == [("web-1", False)]
    assert not [each for each in plan(pool(1, serving(1)), NOW).actions if isinstance(each, EndHold | SetInService)]


def test_all_values_of_a_hold() -> None:
    former = held(1, "Restarting", revision=REVISION.label)
    deletion = Delete("web-1", "u-web-1", "7", "1 VM too many", False, False)
    stop = Disruption(former, "ScaleIn", lambda: deletion)
    both = pool(1, former, hooks=(DRAIN, {**NOTIFY, "timeoutSeconds": 60}, QUIESCE))
    ends = (("drain", at(600)), ("notify", at(60)))
    reason = "1 VM too many; it waits for drain, notify"
    assert after_hooks(both, stop, deletion, NOW) == Hold(
        "web-1", "u-web-1", "7", "Terminating", "run-web-1", ago(0), ends, ("quiesce",), reason, False
    )
    assert after_hooks(pool(1, former, hooks=(QUIESCE,)), stop, deletion, NOW) == deletion
    assert former.vmi is not None
    starting = replace(former, hold=None, vmi=replace(former.vmi, ready=False))
    hold = after_hooks(both, replace(stop, vm=starting), deletion, NOW)
    assert isinstance(hold, Hold)
    assert hold.spares_available, "the VM may become available before the write"
    hold = after_hooks(both, replace(stop, vm=replace(starting, vmi=None)), deletion, NOW)
    assert isinstance(hold, Hold)
    assert (hold.vmi_uid, hold.spares_available) == ("", False), "a VM without a VMI is held before its deletion too"


@pytest.mark.parametrize(
    ("found", "waiting", "early"),
    [
        pytest.param(held(1), f"lifecycle hooks hold it: drain (until {at(600)})", "", id="pending"),
        pytest.param(held(1, hold={"hooks": {}}), "", "", id="all have ended"),
        pytest.param(
            held(1, hold={"hooks": {"drain": at(0)}}), "", "; lifecycle hook drain timed out", id="at its time"
        ),
        pytest.param(
            held(1, hold={"hooks": {"drain": "Abandon"}}), "", "; lifecycle hook drain was abandoned", id="abandoned"
        ),
        pytest.param(
            held(1, hold={"hooks": {"drain": at(9999)}}),
            f"lifecycle hooks hold it: drain (until {at(600)})",
            "",
            id="no later than its timeout",
        ),
        pytest.param(
            held(1, hold={"hooks": {"drain": "soon"}}),
            f"lifecycle hooks hold it: drain (until {at(600)})",
            "",
            id="a damaged time",
        ),
        pytest.param(
            held(1, hold={"hooks": {"drain": at(0), "notify": "Abandon"}}),
            "",
            "; lifecycle hook drain timed out, notify was abandoned",
            id="two hooks",
        ),
        pytest.param(held(1, hold={"hooks": {"gone": at(600)}}), "", "", id="a hook that the pool no longer has"),
    ],
)
def test_what_a_held_vm_waits_for(found: VM, waiting: str, early: str) -> None:
    deletion = Delete("web-1", "u-web-1", "7", "too many", False, False)
    observed = pool(1, found, hooks=(DRAIN, NOTIFY, QUIESCE))
    answer = after_hooks(observed, Disruption(found, "ScaleIn", lambda: deletion), deletion, NOW)
    assert answer == (waiting or replace(deletion, reason=f"too many{early}"))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            pool(1, held(1)),
            EndHold("web-1", "u-web-1", "7", ("drain",), "it is not deleted any more"),
            id="it is wanted again",
        ),
        pytest.param(
            pool(1, held(1, "Restarting")),
            EndHold("web-1", "u-web-1", "7", ("quiesce",), "it is not restarted any more"),
            id="its restart became unnecessary",
        ),
        pytest.param(
            pool(1, held(1, "Restarting", hold={"vmi_uid": "former"})),
            EndHold("web-1", "u-web-1", "7", ("quiesce",), "it was restarted"),
            id="it has another VMI",
        ),
    ],
)
def test_holds_end_for_a_reason(observed: PoolSnapshot, expected: EndHold) -> None:
    assert expected in plan(observed, NOW).actions


def test_the_label_of_services_changes_for_a_reason() -> None:
    unlabelled, labelled = vm(1), replace(serving(2), hold=held(2).hold)
    found = list(set_in_service(pool(2, unlabelled, labelled, serving(3), held(4)), NOW))
    assert found == [
        SetInService("web-1", "run-web-1", True, "it is not held"),
        SetInService("web-2", "run-web-2", False, "it is held for lifecycle hooks"),
    ]
