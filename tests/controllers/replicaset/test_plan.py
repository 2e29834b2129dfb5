"""The plan and the status of a replica set."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.actions import Action, Create
from controllers.replicaset.observe import ReplicaSetSnapshot, parse_replica_set
from controllers.replicaset.plan import PAUSES, invalid_spec_status, plan, replica_set_status
from controllers.sets.write_batches import Failure
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.replicaset import ReplicaSetStatus
from tests.controllers.replicaset.builders import (
    NAMES,
    NOW,
    a_set,
    ago,
    document,
    ended,
    orphan,
    snapshot,
    starting,
    vmi,
)

FIRST, SECOND, THIRD = NAMES[:3]


def told(action: Action) -> tuple[Any, ...]:
    return (action.verb, action.name, *([action.attempt] if isinstance(action, Create) and action.attempt else ()))


def creates(*names: str) -> list[tuple[str, str]]:
    return [("Create", name) for name in names]


def deletes(*names: str) -> list[tuple[str, str]]:
    return [("Delete", name) for name in names]


def row(observed: ReplicaSetSnapshot, expected: list[Any], sentence: str) -> Any:
    return pytest.param(observed, expected, id=sentence)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        row(snapshot(3), creates(FIRST, SECOND, THIRD), "a new set creates all its VMIs"),
        row(snapshot(2, vmi("a")), creates(FIRST), "missing VMIs are created"),
        row(snapshot(2, taken_names=[FIRST]), creates(SECOND, THIRD), "the names of other VMIs are not used"),
        row(snapshot(5, burst=2), creates(FIRST, SECOND), "never more creations at once than the burst"),
        row(snapshot(2, vmi("a"), starting("b")), [], "a VMI that starts counts"),
        row(
            snapshot(2, vmi("a"), vmi("b", deleting=True)),
            creates(FIRST),
            "a VMI that is being deleted is replaced at once",
        ),
        row(snapshot(2, vmi("a"), vmi("b", phase="Unknown")), creates(FIRST), "a VMI in the phase Unknown is replaced"),
        row(snapshot(1, synced=False), [], "nothing is created before the store shows the last writes"),
        row(snapshot(a_set(1, paused=True)), [], "a paused set creates nothing"),
        row(snapshot(a_set(1, deleting=True)), [], "a set that is being deleted creates nothing"),
        row(snapshot(0), [], "a set of 0 replicas creates nothing"),
    ],
)
@pytest.mark.sentence("2.1")
def test_scale_out(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert [told(action) for action in plan(observed, NOW).actions] == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        row(snapshot(1, vmi("a"), starting("b")), deletes("b"), "VMIs that are not ready are deleted first"),
        row(
            snapshot(1, vmi("a"), vmi("b", migrating=True, created_at="1"), starting("c", created_at="0")),
            deletes("c", "b"),
            "VMIs that migrate are deleted before other ready ones",
        ),
        row(
            snapshot(1, vmi("a", created_at="2"), vmi("b", created_at="3"), vmi("c", created_at="1")),
            deletes("b", "a"),
            "of ready VMIs, the newest are deleted first",
        ),
        row(
            snapshot(1, starting("a", created_at="1"), starting("b", created_at="2"), vmi("c", created_at="3")),
            deletes("b", "a"),
            "of VMIs that are not ready, the newest are deleted first",
        ),
        row(
            snapshot(1, vmi("a"), vmi("b", migrating=True, ready=False), vmi("c", migrating=True)),
            deletes("b", "c"),
            "a VMI that migrates and is not ready counts as not ready",
        ),
        row(snapshot(1, vmi("b"), vmi("a")), deletes("a"), "of VMIs of the same age, the first name is deleted"),
        row(
            snapshot(0, vmi("a"), vmi("b"), vmi("c"), burst=2),
            deletes("a", "b"),
            "never more deletions at once than the burst",
        ),
        row(
            snapshot(1, vmi("a"), vmi("b"), vmi("c", deleting=True)),
            deletes("a"),
            "a VMI that is being deleted is none of the excess VMIs",
        ),
        row(snapshot(1, vmi("a"), vmi("b", deleting=True)), [], "a deletion is not repeated"),
        row(snapshot(a_set(0, paused=True), vmi("a")), [], "a paused set deletes nothing"),
        row(
            snapshot(a_set(0, deleting=True), vmi("a")),
            [],
            "a set that is being deleted leaves its VMIs to the garbage collector",
        ),
        row(
            snapshot(1, vmi("a"), vmi("b", phase="Unknown", ready=False)),
            deletes("b"),
            "a VMI in the phase Unknown is deleted when its replacement is ready",
        ),
        row(
            snapshot(1, starting("a"), vmi("b", phase="Unknown", ready=False)),
            [],
            "a VMI in the phase Unknown stays until then, because it may come back",
        ),
        row(
            snapshot(0, vmi("a", phase="Unknown", ready=False)),
            deletes("a"),
            "a VMI in the phase Unknown is deleted if no VMI is wanted",
        ),
    ],
)
@pytest.mark.sentence("2.12")
def test_which_vmis_scale_in_deletes(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert [told(action) for action in plan(observed, NOW).actions] == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        row(
            snapshot(2, vmi("a"), vmi("b", labels={"app": "debugged"})),
            [("Release", "b"), ("Create", FIRST)],
            "a VMI whose labels no longer match is released and replaced",
        ),
        row(
            snapshot(1, vmi("a"), vmi("b", labels={}, deleting=True)),
            [],
            "a VMI that is being deleted is not released",
        ),
        row(snapshot(1, orphan("a")), [("Adopt", "a")], "an orphan with matching labels is adopted, and counts"),
        row(
            snapshot(1, vmi("a"), orphan("b", created_at="9")),
            [("Adopt", "b")],
            "an excess orphan is adopted before it can be deleted",
        ),
        row(
            snapshot(a_set(0, paused=True), orphan("a"), vmi("b", labels={})),
            [("Release", "b"), ("Adopt", "a")],
            "a paused set adopts and releases",
        ),
        row(snapshot(a_set(1, deleting=True), orphan("a")), [], "a set that is being deleted adopts nothing"),
    ],
)
@pytest.mark.sentence("2.16")
def test_adoption_and_release(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert [told(action) for action in plan(observed, NOW).actions] == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        row(snapshot(1, ended("a")), [("Delete", "a"), ("Create", FIRST)], "a failed VMI is deleted and replaced"),
        row(
            snapshot(1, ended("a", "Succeeded")),
            [("Delete", "a"), ("Create", FIRST)],
            "a VMI that succeeded is deleted and replaced",
        ),
        row(snapshot(1, vmi("b"), ended("a")), deletes("a"), "a failed VMI whose replacement exists is only deleted"),
        row(
            snapshot(0, ended("a", attempt=3, ran=1)),
            deletes("a"),
            "a failed VMI is deleted without a back-off if no VMI is wanted",
        ),
        row(snapshot(1, ended("a", deleting=True)), creates(FIRST), "the deletion of a failed VMI is not repeated"),
        row(
            snapshot(1, ended("a", ran=3)),
            [("Delete", "a"), ("Create", FIRST, 1)],
            "the first VMI that ends early is replaced at once, with its number of attempts",
        ),
        row(
            snapshot(1, ended("a", attempt=1, ran=3, ago_seconds=5)),
            [],
            "the second VMI that ends early stays for the back-off",
        ),
        row(
            snapshot(1, ended("a", attempt=1, ran=3, ago_seconds=10)),
            [("Delete", "a"), ("Create", FIRST, 2)],
            "the second VMI that ends early is replaced after the back-off",
        ),
        row(
            snapshot(1, ended("a", attempt=6, ran=3, ago_seconds=200)),
            [],
            "the back-off grows with the number of attempts",
        ),
        row(
            snapshot(1, ended("a", attempt=1, ran=3, ago_seconds=-60)),
            [],
            "the clock of its node may be ahead by a minute",
        ),
        row(
            snapshot(1, ended("a", attempt=1, ran=3, ago_seconds=-3600)),
            [("Delete", "a"), ("Create", FIRST, 2)],
            "a VMI that ended before the clock was set back waits no longer",
        ),
        row(
            snapshot(1, ended("a", attempt=6, ran=300)),
            [("Delete", "a"), ("Create", FIRST)],
            "a VMI that ran for a while resets the number of attempts",
        ),
        row(
            snapshot(2, ended("a", attempt=4, ran=3), vmi("b")),
            [],
            "a VMI in its back-off keeps its place",
        ),
        row(
            snapshot(2, ended("a", attempt=4, ran=3), vmi("b"), vmi("c")),
            deletes("a"),
            "a VMI in its back-off is deleted when its place is taken",
        ),
        row(
            snapshot(2, ended("a", attempt=1, ran=3, ago_seconds=99), ended("b", attempt=5, ran=3, ago_seconds=999)),
            [("Delete", "a"), ("Delete", "b"), ("Create", FIRST, 6), ("Create", SECOND, 2)],
            "each replacement has its own number of attempts",
        ),
        row(
            snapshot(1, ended("a", attempt=2, ran_at="", ended_at="", created_at="")),
            [("Delete", "a"), ("Create", FIRST, 3)],
            "a VMI without times is replaced at once",
        ),
        row(snapshot(a_set(1, paused=True), ended("a")), [], "a paused set keeps VMIs that have ended"),
    ],
)
def test_replacement_of_ended_vmis(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert [told(action) for action in plan(observed, NOW).actions] == expected


def test_the_set_is_requeued_for_the_end_of_a_back_off() -> None:
    found = plan(snapshot(1, ended("a", attempt=1, ran=3, ago_seconds=4)), NOW)
    assert found.again_seconds == pytest.approx(PAUSES.delay(1, "u-a") - 4)
    assert "a ended (Failed) early, and so did 1 before it" in str(found.waits[0])


def test_deletions_have_the_uid_and_resource_version_of_the_snapshot() -> None:
    (action,) = plan(snapshot(0, vmi("a", resource_version="41")), NOW).actions
    assert (action.uid, action.resource_version, action.reason) == ("u-a", "41", "1 exists, 0 are wanted")


REFUSED = Failure("FailureCreate", "no permission to create VMIs")


def said(observed: ReplicaSetSnapshot) -> ReplicaSetStatus:
    return replica_set_status(observed, plan(observed, NOW), NOW)


@pytest.mark.parametrize(
    ("observed", "replicas", "ready", "terminating"),
    [
        pytest.param(
            snapshot(3, vmi("a"), vmi("b"), starting("c")),
            3,
            2,
            0,
            id="all VMIs, and those that are ready",
            marks=pytest.mark.sentence("2.6"),
        ),
        pytest.param(
            snapshot(1, vmi("a"), ended("b")),
            1,
            1,
            0,
            id="VMIs that have ended do not count",
            marks=pytest.mark.sentence("2.5"),
        ),
        pytest.param(
            snapshot(1, vmi("a"), vmi("b", deleting=True)),
            1,
            1,
            1,
            id="VMIs that are being deleted are counted separately",
            marks=pytest.mark.sentence("2.18"),
        ),
        pytest.param(snapshot(1, vmi("a"), orphan("b")), 2, 2, 0, id="an orphan that is adopted counts"),
        pytest.param(snapshot(1, vmi("a"), vmi("b", labels={})), 1, 1, 0, id="a VMI that is released does not count"),
        pytest.param(
            snapshot(1, vmi("a", migrating=True)),
            1,
            1,
            0,
            id="a VMI that migrates is ready",
            marks=pytest.mark.sentence("2.7", "2.13"),
        ),
        pytest.param(
            snapshot(1, vmi("a"), vmi("b", phase="Unknown", ready=False)),
            2,
            1,
            0,
            id="a VMI in the phase Unknown counts",
            marks=pytest.mark.sentence("2.5"),
        ),
    ],
)
def test_which_vmis_the_status_counts(
    observed: ReplicaSetSnapshot, replicas: int, ready: int, terminating: int
) -> None:
    found = said(observed)
    assert (found.replicas, found.ready_replicas, found.terminating_replicas) == (replicas, ready, terminating)


def conditions(found: ReplicaSetStatus) -> list[tuple[Any, ...]]:
    return [(c.type, c.status, c.reason, c.message) for c in found.conditions if c.type.startswith("Replica")]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(snapshot(1, vmi("a")), [], id="at rest"),
        pytest.param(
            snapshot(1, failure=REFUSED),
            [("ReplicaFailure", "True", "FailureCreate", "no permission to create VMIs")],
            id="the message of the API server",
            marks=pytest.mark.sentence("2.9"),
        ),
        pytest.param(
            snapshot(a_set(1, paused=True)),
            [("ReplicaPaused", "True", "Paused", "spec.paused is true: the controller creates and deletes nothing")],
            id="paused",
        ),
        pytest.param(
            snapshot(1, ended("a", attempt=2, ran=3, reason="GuestPanicked")),
            [
                (
                    "ReplicaFailure",
                    "True",
                    "FailureStart",
                    "a ended (Failed: GuestPanicked) early, and so did 2 before it: it is replaced at 12:00:11 UTC",
                )
            ],
            id="VMIs that end again and again",
        ),
    ],
)
def test_the_conditions_of_failures_and_pauses(observed: ReplicaSetSnapshot, expected: list[Any]) -> None:
    assert conditions(said(observed)) == expected


def test_a_condition_with_another_reason_keeps_its_time() -> None:
    before = [{"type": "ReplicaFailure", "status": "True", "reason": "FailureDelete", "lastTransitionTime": ago(99)}]
    found = said(snapshot(a_set(1, status={"conditions": before}), failure=REFUSED)).conditions[0]
    assert (found.reason, found.last_transition_time) == ("FailureCreate", ago(99))


@pytest.mark.sentence("2.17", "2.19")
def test_the_conditions_of_a_set_without_failures() -> None:
    found = said(snapshot(1, vmi("a"))).json()["conditions"]
    assert {each["type"]: each["status"] for each in found} == {"Ready": "True"}
    assert all(each["lastTransitionTime"] for each in found)


def test_an_unchanged_status_is_equal() -> None:
    first = said(snapshot(a_set(1), vmi("a"), failure=REFUSED))
    again = said(snapshot(a_set(1, status=first.json()), vmi("a"), failure=REFUSED))
    assert again == first == a_set(1, status=first.json()).status


def test_the_label_selector_is_a_string() -> None:
    assert said(snapshot(1)).label_selector == "app=web"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": "some"}, "spec.replicas"),
        ({"selector": {"matchLabels": {"app": "db"}}}, "does not match"),
        ({"selector": {}}, "selects everything"),
    ],
)
def test_the_status_of_an_invalid_spec_keeps_its_counts_and_has_a_reason(spec: dict[str, Any], words: str) -> None:
    found = parse_replica_set(document(**{"status": {"replicas": 7}, **spec}))
    assert isinstance(found, InvalidSpec)
    written = invalid_spec_status(found, NOW)
    assert written.replicas == 7
    ((kind, _, reason, message),) = conditions(written)
    assert (kind, reason) == ("ReplicaFailure", "InvalidSpec")
    assert words in message


@pytest.mark.parametrize(
    ("message", "seconds", "state"),
    [
        pytest.param("exceeded quota: few", 86_400, "Reconciling", id="a quota may have room again"),
        pytest.param("no permission", 599, "Reconciling", id="tried again"),
        pytest.param("no permission", 600, "Stalled", id="tried again for ten minutes"),
    ],
)
def test_a_refusal_is_reconciled_until_it_needs_a_person(message: str, seconds: float, state: str) -> None:
    failure = Failure("FailureCreate", message)
    first = said(snapshot(1, failure=failure)).json()
    assert "Reconciling" in {each["type"] for each in first["conditions"]}
    for each in first["conditions"]:
        each["lastTransitionTime"] = ago(seconds)
    found = {each.type: each for each in said(snapshot(a_set(1, status=first), failure=failure)).conditions}
    assert found[state].status == "True"
    assert found["Ready"].message == failure.message


@pytest.mark.parametrize(
    ("vmis", "message"),
    [
        pytest.param(
            [starting(name, start_failure="ErrImagePull", message="no such image") for name in "ab"],
            "0 of 2 VMIs are ready; a: ErrImagePull: no such image",
            id="one cause",
        ),
        pytest.param(
            [starting("a", start_failure="Unschedulable"), starting("b", start_failure="ErrImagePull", message="no")],
            "0 of 2 VMIs are ready; a: Unschedulable; b: ErrImagePull: no",
            id="two causes",
        ),
        pytest.param([starting("a"), vmi("b")], "1 of 2 VMIs is ready", id="no cause yet"),
        pytest.param(
            [vmi("a", start_failure="x", ready=True), starting("b")],
            "1 of 2 VMIs is ready",
            id="the cause of a VMI that runs",
        ),
    ],
)
def test_the_set_says_why_its_vmis_do_not_start(vmis: list[VMI], message: str) -> None:
    ready = next(each for each in said(snapshot(2, *vmis)).conditions if each.type == "Ready")
    assert ready.message == message
