"""What a warm pool says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.warmpool.events import status_events
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import misfit_status, status
from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import NO_OWNER
from kinds.warm_states import WarmState
from kinds.warmpool import WarmPoolStatus
from tests.controllers.warmpool.builders import (
    CORDONED,
    NOW,
    OTHER_TEMPLATE,
    SILENT,
    a_guest,
    a_pool,
    ago,
    failing,
    machine,
    state,
)

NEW = WarmState.PROVISIONING
OLD = a_pool(template=OTHER_TEMPLATE)
BROKEN = {"vmi": a_guest(trouble="ErrImagePull", message="not found", phase="Scheduling", holds=frozenset())}
ABROAD = {"vmi": a_guest(trouble="Unschedulable", message="0/2 nodes", phase="Scheduling", holds=frozenset())}


def test_machines_are_counted_by_what_they_are() -> None:
    pool = a_pool(3, placements=[{"name": "east"}, {"name": "west"}])
    there = [
        machine("a", of=pool, placement="east"),
        machine("b", of=pool, placement="west", node=CORDONED),
        machine("c", NEW, of=pool, placement="west"),
        machine("d", WarmState.STANDING_BY, of=pool, placement="east"),
        machine("e", WarmState.UNHEALTHY, of=pool, placement="east"),
        machine("f", WarmState.UNKNOWN, of=pool, placement="east", node=SILENT),
        machine("g", WarmState.ALLOCATING, of=pool),
        machine("h", WarmState.IN_USE, of=pool),
        machine("i", of=pool, deleting=True),
        machine("j", of=pool, orphaned="TemplateChanged", owner=NO_OWNER),
        machine("k", of=OLD, placement="default"),
    ]
    found = status(state(pool, *there, demand=2), NOW)
    assert (found.available_replicas, found.ready_replicas, found.replicas) == (2, 3, 6)
    assert (found.provisioning, found.allocating, found.claimed) == (2, 1, 1)
    assert (found.unhealthy, found.unknown, found.terminating, found.orphaned) == (1, 1, 1, 1)
    assert (found.queued_claims, found.updated_replicas) == (2, 5)
    assert {p.name: (p.replicas, p.ready) for p in found.placements} == {
        "east": (3, 1),
        "west": (2, 0),
        "default": (1, 1),
    }
    assert found.label_selector == "poolhouse.dev/warm-pool=web"


def conditions(observed: WarmPoolSnapshot) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status(observed, NOW).conditions}


OVERDUE = {"templateHash": a_pool().template_hash, "lastProgressTime": ago(700)}
FAILED = FailureBackoff(2, "FailedCreate", "no", ago(-5))
FULL = FailureBackoff(2, "CapacityExhausted", "exceeded quota", ago(-5))


@pytest.mark.parametrize(
    ("observed", "kind", "expected"),
    [
        pytest.param(state(2, machine("a"), machine("b")), "Available", ("True", "EnoughMachines"), id="enough"),
        pytest.param(state(4, machine("a")), "Available", ("False", "Filling"), id="too few yet"),
        pytest.param(state(1), "Available", ("False", "Filling"), id="none is never enough"),
        pytest.param(state(0), "Available", ("True", "EnoughMachines"), id="unless none is wanted"),
        pytest.param(
            state(4, machine("a", NEW, **ABROAD)), "Available", ("False", "InsufficientCapacity"), id="no room"
        ),
        pytest.param(state(4, failures=FULL), "Available", ("False", "InsufficientCapacity"), id="no quota"),
        pytest.param(state(2, machine("a"), machine("b")), "Progressing", ("True", "Complete"), id="complete"),
        pytest.param(state(2, machine("a")), "Progressing", ("True", "Filling"), id="filling"),
        pytest.param(state(1, machine("a", of=OLD)), "Progressing", ("True", "RollingOut"), id="rolling"),
        pytest.param(state(a_pool(2, paused=True)), "Progressing", ("False", "Paused"), id="paused"),
        *(
            pytest.param(
                state(
                    a_pool(3, maxTotal=3), machine("a"), machine("b", WarmState.IN_USE), machine("c", WarmState.IN_USE)
                ),
                kind,
                ("False", "PoolFull"),
                id=f"as many as it may have: {kind}",
            )
            for kind in ("Available", "Progressing")
        ),
        pytest.param(
            state(a_pool(2, maxTotal=2), machine("a"), machine("b", NEW)),
            "Progressing",
            ("True", "Filling"),
            id="full and still on its way",
        ),
        pytest.param(state(2, failures=FAILED), "Progressing", ("False", "FailedCreate"), id="refused"),
        pytest.param(
            state(a_pool(2, status=OVERDUE), machine("a", of=OLD), machine("b", NEW, **BROKEN)),
            "Progressing",
            ("False", "ProgressDeadlineExceeded"),
            id="stuck",
        ),
        pytest.param(state(2, failures=FAILED), "Degraded", ("True", "FailedCreate"), id="degraded by refusals"),
        pytest.param(
            state(2, machine("a", NEW, **BROKEN)), "Degraded", ("True", "MachinesFailing"), id="degraded by one"
        ),
        pytest.param(
            state(9, *(machine(f"b{n}", NEW, **BROKEN) for n in range(5))),
            "Degraded",
            ("True", "BreakerOpen"),
            id="degraded by many",
        ),
        pytest.param(
            state(1, machine("a", WarmState.UNHEALTHY), health={"a": failing()}),
            "Degraded",
            ("True", "MassFailure"),
            id="more are ill than well",
        ),
        *(
            pytest.param(
                state(1, machine("a", WarmState.UNKNOWN, node=SILENT)),
                kind,
                (said, "MachinesUnknown"),
                id=f"unknown: {kind}",
            )
            for kind, said in (("Available", "False"), ("Progressing", "True"), ("Degraded", "True"))
        ),
        pytest.param(state(1, machine("a", owner=NO_OWNER)), "Degraded", ("True", "LabelsContradict"), id="a forgery"),
        pytest.param(state(1, machine("a", of=OLD)), "RolloutComplete", ("False", "RollingOut"), id="not rolled out"),
        pytest.param(state(1, machine("a")), "RolloutComplete", ("True", "Complete"), id="rolled out"),
        pytest.param(state(a_pool(1, default=True)), "Default", ("True", "Elected"), id="elected"),
        pytest.param(
            state(a_pool(1, default=True), default=a_pool(uid="older")),
            "Default",
            ("False", "DefaultConflict"),
            id="not",
        ),
        pytest.param(state(1, default=None), "Default", ("False", "NoDefaultPool"), id="nobody is"),
    ],
)
def test_conditions(observed: WarmPoolSnapshot, kind: str, expected: tuple[str, str]) -> None:
    assert conditions(observed)[kind] == expected


@pytest.mark.parametrize(
    ("observed", "kind", "message"),
    [
        pytest.param(
            state(2, machine("a", WarmState.UNKNOWN, node=SILENT), machine("b")),
            "Degraded",
            "1 machine can't be checked: node node-1 does not answer",
            id="which node",
        ),
        pytest.param(
            state(2, machine("a", NEW, **BROKEN)), "Degraded", "web-a fails to start: ErrImagePull: not found", id="one"
        ),
        pytest.param(
            state(3, machine("a", NEW, **BROKEN), machine("b", NEW, **BROKEN)),
            "Degraded",
            "2 machines fail to start, 2 of them with ErrImagePull: not found",
            id="several",
        ),
        pytest.param(
            state(1, hindrance="EC2 answered RequestLimitExceeded"),
            "Progressing",
            "0 of 1 machines are there; EC2 answered RequestLimitExceeded",
            id="what is in the way",
        ),
    ],
)
def test_a_condition_says_who_and_why(observed: WarmPoolSnapshot, kind: str, message: str) -> None:
    assert next(c.message for c in status(observed, NOW).conditions if c.type == kind) == message


def test_what_was_never_wrong_is_not_mentioned() -> None:
    assert set(conditions(state(1, machine("a")))) == {"Valid", "Available", "Progressing", "RolloutComplete"}


def test_a_status_that_has_not_changed_is_equal_a_year_later() -> None:
    first = status(state(1, machine("a")), NOW)
    again = a_pool(1, status=first.json())
    assert status(state(again, machine("a")), NOW.replace(year=2027)) == first


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        pytest.param(
            {"replicas": "2", "template": {"spec": {}}, "standby": {"mode": "Asleep"}}, "standby.mode", id="bad"
        ),
        pytest.param({"replicas": 1}, "exactly one of template and ec2", id="nothing to make"),
    ],
)
def test_a_spec_that_is_none_freezes_the_pool_and_says_why(spec: dict[str, Any], what: str) -> None:
    before = WarmPoolStatus(available_replicas=3).json()
    found = parse_warm_pool({"metadata": {"name": "web", "uid": "u"}, "spec": spec, "status": before})
    assert isinstance(found, InvalidWarmPool)
    said = misfit_status(found, NOW)
    assert {c.type: c.status for c in said.conditions} == {"Valid": "False", "Progressing": "False"}
    assert what in said.conditions[0].message
    assert said.available_replicas == 3


def told(before: WarmPoolSnapshot, after: WarmPoolSnapshot) -> list[str]:
    return [each.reason for each in status_events(status(before, NOW), status(after, NOW))]


WELL = state(1, machine("a"))
BAD = state(9, *(machine(f"b{n}", NEW, **BROKEN) for n in range(5)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(WELL, WELL, [], id="nothing new is nothing said"),
        pytest.param(WELL, state(1), ["PoolEmpty"], id="empty"),
        pytest.param(WELL, BAD, ["BreakerOpen", "PoolEmpty"], id="the breaker opens"),
        pytest.param(BAD, WELL, ["BreakerClosed"], id="and closes"),
        pytest.param(WELL, state(1, machine("a", of=OLD)), ["RolloutStarted"], id="a rollout"),
        pytest.param(state(1, machine("a", of=OLD)), WELL, ["RolloutComplete"], id="is complete"),
        pytest.param(state(4), state(4, failures=FULL), ["CapacityExhausted"], id="no room"),
    ],
)
def test_news(before: WarmPoolSnapshot, after: WarmPoolSnapshot, expected: list[str]) -> None:
    assert told(before, after) == expected


def test_the_first_status_of_a_pool_says_only_what_is_wrong() -> None:
    assert list(status_events(WarmPoolStatus(), status(WELL, NOW))) == []
