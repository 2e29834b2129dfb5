"""What is done about a VM whose hardware may be undecided, and when nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.defaulting.apply import without_note
from controllers.defaulting.observe import Instance, Machine, State, machine
from controllers.defaulting.plan import RUNNING_SECONDS, Action, Complete, DropNote, Wait, plan
from kinds.meta import DEFAULTING, UNDEFAULTED

ELDER = "it is older than the webhook's registration"


def state(instance: Instance = "none", *, left_alone: str | None = None, **known: Any) -> State:
    given = {"generation": 1, "undefaulted": True, "noted": True, "deleting": False, "created": False, "state": ""}
    return State(Machine("shop", "web", **{**given, **known}), instance, left_alone)


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        pytest.param(state(), Complete("no instance of it exists"), id="before its first start"),
        pytest.param(state(noted=False), Complete("no instance of it exists"), id="also where nobody left a note"),
        pytest.param(state("going"), Complete("its instance is going"), id="at its stop, before the next start"),
        pytest.param(
            state("running"),
            Wait(RUNNING_SECONDS, "it runs: a change now would only say that it must be restarted"),
            id="never while it runs",
        ),
        pytest.param(
            state(undefaulted=False), DropNote("its hardware is decided"), id="a note that is not true any more"
        ),
        pytest.param(
            state("running", undefaulted=False),
            DropNote("its hardware is decided"),
            id="dropping a note changes no hardware and needs no stop",
        ),
        pytest.param(state(undefaulted=False, noted=False), Wait(None, "its hardware is decided"), id="nothing to do"),
        pytest.param(
            state(left_alone="its namespace opted out"),
            DropNote("its namespace opted out"),
            id="a note in a namespace that opted out since",
        ),
        pytest.param(state(left_alone=ELDER, noted=False), Wait(None, ELDER), id="who is not ours is not waited for"),
        pytest.param(
            state("running", left_alone=ELDER, noted=False), Wait(None, ELDER), id="nor is it looked at while it runs"
        ),
        pytest.param(state(deleting=True), Wait(None, "it is being deleted"), id="a VM that is being deleted"),
    ],
)
def test_plan(observed: State, action: Action) -> None:
    assert plan(observed) == action


def document(**changed: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web", "generation": 3, **changed.pop("metadata", {})}
    spec = {"running": True, "template": {"spec": {"domain": {"devices": {}}}}}
    return {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "metadata": metadata, "spec": spec, **changed}


def test_an_undecided_vm_is_pending() -> None:
    made = {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"tier": "web"}}
    found = machine(document(metadata=made, status={"created": True, "printableStatus": "Running"}))
    assert (found.since, found.labels) == ("2026-01-01T00:00:00Z", (("tier", "web"),))
    assert (found.pending, found.undefaulted, found.noted) == (True, True, False)
    assert (found.generation, found.created, found.state) == (3, True, "Running")


def test_a_note_alone_is_pending_too() -> None:
    labels = {DEFAULTING: "disabled"}
    found = machine(document(metadata={"labels": labels, "annotations": {UNDEFAULTED: "DefaulterUnavailable"}}))
    assert (found.pending, found.undefaulted) == (True, False)


def test_a_vm_that_opted_out_is_not_pending_whatever_it_does() -> None:
    labels = {DEFAULTING: "disabled"}
    views = [
        machine(document(metadata={"labels": labels, "generation": generation}, status=status))
        for generation, status in ((1, {}), (2, {"created": True}), (3, {"printableStatus": "Running"}))
    ]
    assert not views[0].pending
    assert len(set(views)) == 1


def test_a_vm_that_is_being_deleted_is_not_pending() -> None:
    assert not machine(document(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})).pending


def test_dropping_the_note_leaves_everything_else() -> None:
    noted = document(metadata={"annotations": {UNDEFAULTED: "x", "owner": "jane"}})
    assert without_note(noted) == document(metadata={"annotations": {"owner": "jane"}})
