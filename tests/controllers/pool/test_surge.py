"""Updates with maxSurge: new VMs are ready before old ones go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Create, Delete
from controllers.pool.plan import plan
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.surge import extra_vms
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool import UpdateAbort
from tests.controllers.pool.builders import NOW, OLD, REVISION, a_pool, ago, old, outline, snapshot, vm, vmi

Json = dict[str, Any]


def surging(*vms: VM, replicas: int = 3, spec: Json | None = None, max_surge: Any = 1, **given: Any) -> PoolSnapshot:
    proactive = {"maxSurge": max_surge, "selectionPolicy": {"basePolicy": "Oldest"}, **given.pop("proactive", {})}
    scale_in = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
    pool = a_pool(replicas, updateStrategy={"proactive": proactive}, scaleInStrategy=scale_in, **(spec or {}))
    return snapshot(pool, *vms, **given)


STARTING = {"vmi_exists": False, "vmi": None, "ready": False}
THREE = (old(1), old(2), old(3))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(surging(vm(1), vm(2), vm(3)), [], id="nothing to update"),
        pytest.param(surging(*THREE), [("create", "web-4")], id="an extra VM is created first"),
        pytest.param(surging(*THREE, vm(4, **STARTING)), [], id="no VM is deleted until the extra one is ready"),
        pytest.param(
            surging(*THREE, vm(4)), [("delete", "web-1")], id="an old VM is deleted once the extra one is ready"
        ),
        pytest.param(surging(old(2), old(3), vm(4)), [("create", "web-1")], id="a free name is taken"),
        pytest.param(surging(vm(1), vm(2), old(3), vm(4)), [("delete", "web-3")], id="the last one"),
        pytest.param(
            surging(*THREE, max_surge="50%"), [("create", "web-4"), ("create", "web-5")], id="a percentage, rounded up"
        ),
        pytest.param(surging(*THREE, vm(4), vm(5), max_surge=2), [("delete", "web-1"), ("delete", "web-2")], id="two"),
        pytest.param(surging(*THREE, vm(4), vm(5, **STARTING), max_surge=2), [("delete", "web-1")], id="one is ready"),
        pytest.param(
            surging(old(1), old(2), old(3, ready=False, start_failures=1), vm(4)),
            [("delete", "web-3")],
            id="an old one that is not available goes first",
        ),
        pytest.param(
            surging(old(1, scale_in="Protect"), vm(2), vm(3)),
            [("Update", "web-1")],
            id="a protected VM is updated in place",
        ),
        pytest.param(surging(*THREE, spec={"paused": True}), [], id="a paused pool creates nothing"),
        pytest.param(surging(*THREE, replicas=2), [("delete", "web-1")], id="scale-in takes an old one"),
        pytest.param(
            surging(*THREE, vm(4), replicas=2), [("delete", "web-1")], id="scale-in during an update, within the budget"
        ),
        pytest.param(
            surging(*(vm(n, revision="light") for n in (1, 2, 3))), ["Update"] * 3, id="no restart, no VM more"
        ),
        pytest.param(
            surging(*THREE, vm(4), vm(5), proactive={"partition": 2}, max_surge=2),
            [("delete", "web-1")],
            id="a partition keeps its VMs",
        ),
        pytest.param(surging(old(2), old(3), vm(4), proactive={"partition": 2}), [], id="a partition creates no more"),
        pytest.param(
            surging(*THREE, proactive={"steps": [{"setReplicas": 1}, {"pause": {}}]}, max_surge=2),
            [("create", "web-4")],
            id="a step allows one",
        ),
        pytest.param(
            surging(
                vm(1, scale_in="Protect", vmi=vmi("web-1", revision=OLD.label)),
                old(2),
                old(3),
                proactive={"steps": [{"setReplicas": 1}, {"pause": {}}]},
            ),
            [("Restart", "web-1")],
            id="a protected VM that lacks a restart has the place of a step",
        ),
    ],
)
def test_plan(found: PoolSnapshot, expected: list[Any]) -> None:
    actions = [outline(each) or (type(each).__name__, each.name) for each in plan(found, NOW).actions]
    if expected[:1] == ["Update"]:
        assert [each[0] for each in actions] == expected
    else:
        assert actions == expected


@pytest.mark.parametrize("max_surge", [1, 2, "100%"])
@pytest.mark.parametrize("replicas", [1, 3, 7])
def test_an_update_never_has_fewer_available_vms_nor_more_than_allowed(replicas: int, max_surge: Any) -> None:
    vms = [old(n) for n in range(1, replicas + 1)]
    found = surging(*vms, replicas=replicas, max_surge=max_surge)
    seen = simulate(found, NOW)
    assert seen.complete
    limit = replicas + (replicas if max_surge == "100%" else max_surge)
    count = replicas
    for step in seen.steps:
        for action in step.actions:
            count += isinstance(action, Create) - isinstance(action, Delete)
            assert replicas <= count <= limit
    assert count == replicas
    assert sum(isinstance(each, Create) for step in seen.steps for each in step.actions) == replicas


def test_disks_of_another_entry_replace_the_vm() -> None:
    wanted = replace(REVISION, disks=(("root", "h2"),))
    vms = [vm(n, disk_templates="root=h1") for n in (1, 2, 3)]
    found = surging(*vms, revision=wanted, revisions=(wanted,))
    assert [outline(each) for each in plan(found, NOW).actions] == [("create", "web-4")]
    message = {c.type: c.message for c in pool_status(found, plan(found, NOW), NOW).conditions}["DisksOutdated"]
    assert "Updates replace 3 VMs" in str(message)


def test_a_vm_of_an_aborted_update_goes_and_no_other_comes() -> None:
    abort = UpdateAbort(reason="Aborted", time=ago(1))
    failing = vm(4, **{**STARTING, "start_failures": 2})
    found = surging(*THREE, failing, revision=OLD, aborted=(REVISION, abort))
    assert [outline(each) for each in plan(found, NOW).actions] == [("delete", "web-4")]


def test_a_vm_that_does_not_start_stops_the_update_at_the_deadline() -> None:
    before = {
        "observedGeneration": 1,
        "updateRevision": REVISION.name,
        "lastProgressTime": ago(700),
        "replicas": 4,
        "unavailableReplicas": 1,
    }
    found = surging(*THREE, vm(4, **STARTING), spec={"status": before}, max_surge=3)
    assert not plan(found, NOW).actions
    assert extra_vms(found, NOW) == 3


def test_a_vm_that_lacks_a_restart_keeps_its_place_in_a_step_while_no_vm_more_is_allowed() -> None:
    restarts = vm(1, vmi=vmi("web-1", revision=OLD.label))
    status = {"status": {"currentRevision": OLD.name}}
    found = surging(restarts, old(2), spec=status, proactive={"steps": [{"setReplicas": 1}, {"pause": {}}]})
    assert extra_vms(found, NOW) == 0
    (created,) = (each for each in plan(found, NOW).actions if isinstance(each, Create))
    assert (created.name, created.revision) == ("web-3", OLD.name)


def test_status_and_waits_say_what_goes_on() -> None:
    found = surging(*THREE, vm(4, **STARTING))
    decided = plan(found, NOW)
    assert not decided.blocked
    assert {each.name for each in decided.waits} == {"web-1", "web-2", "web-3"}
    assert "3 VMs are available, 3 must stay available" in decided.waits[0].reason
    status = pool_status(found, decided, NOW)
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (4, 1, 3)
    conditions = {each.type: each for each in status.conditions}
    assert conditions["Progressing"].reason == "UpdatingVMs"
    assert conditions["Available"].status == "True"


def test_a_vm_that_is_updated_in_place_waits_while_others_above_replicas_have_the_template() -> None:
    waits = plan(surging(vm(1), vm(2), vm(3), old(4, scale_in="Protect")), NOW).waits
    assert [(each.name, each.reason) for each in waits] == [("web-4", "enough VMs have the template")]


def test_the_vm_that_replaces_one_without_a_restart_gets_the_new_template() -> None:
    unstarted = vm(3, vmi=vmi("web-3", revision=OLD.label))
    found = surging(vm(1), vm(2), unstarted, spec={"status": {"currentRevision": OLD.name}})
    (create,) = plan(found, NOW).actions
    assert isinstance(create, Create)
    assert create.revision == REVISION.name, "a VM with the former template would be deleted and created again for ever"
