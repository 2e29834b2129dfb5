"""The notary itself: each invariant is broken once, and it says so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from kinds import meta
from tests.cluster.notary import Notary

Json = dict[str, Any]
Event = tuple[str, Json]


def vm(uid: str, state: str, claim: str = "", *, woken: bool = False, going: bool = False, owner: str = "p") -> Event:
    labels = {meta.WARM_STATE: state, meta.POOL_UID: "p"} | ({meta.CLAIM_UID: claim} if claim else {})
    metadata: Json = {"name": uid, "uid": uid, "labels": labels, "ownerReferences": [{"uid": claim or owner}]}
    metadata["annotations"] = {meta.ACTIVATED_AT: "now"} if woken else {}
    return "vm", {"metadata": metadata | ({"deletionTimestamp": "now"} if going else {})}


def claim(uid: str, phase: str, machine: str = "", reason: str = "") -> Event:
    status: Json = {"phase": phase, "conditions": [{"type": "Ready", "reason": reason}]}
    if machine:
        status["vmRef"] = {"uid": machine, "name": machine}
    if phase == "Ready":
        status["readyAt"] = "now"
    return "claim", {"metadata": {"name": uid, "uid": uid}, "status": status}


def told(*events: Event, rest: bool = True) -> list[str]:
    notary, versions = Notary(max_total={"p": 2}), count(1)
    machines: dict[str, Json] = {}
    for kind, document in events:
        document["metadata"]["resourceVersion"] = str(next(versions))
        if kind == "vm":
            notary.machine("MODIFIED", document)
            machines[document["metadata"]["uid"]] = document
        else:
            notary.claim("MODIFIED", document)
    if rest:
        notary.at_rest(list(machines.values()), {"p", "c", "d"})
    return notary.wrong


GOOD: Sequence[Event] = (
    vm("m", "Ready"),
    claim("c", "Pending"),
    vm("m", "PENDING_POD_PROVISIONING", "c"),
    claim("c", "Bound", "m"),
    vm("m", "InUse", "c"),
    claim("c", "Ready", "m"),
)


def test_what_is_right_is_right() -> None:
    assert told(*GOOD) == []


@pytest.mark.parametrize(
    ("number", "events"),
    [
        pytest.param("I1", [*GOOD, vm("m", "InUse", "d")], id="a second claim"),
        pytest.param("I2", [*GOOD, vm("n", "InUse", "c")], id="two in use"),
        pytest.param("I2", [*GOOD, claim("c", "Ready", "n")], id="another one behind its user's back"),
        pytest.param(
            "I2",
            [vm("m", "Ready"), vm("n", "Ready"), vm("m", "x", "c", woken=True), vm("n", "x", "c", woken=True)],
            id="two awake",
        ),
        pytest.param("I3", [*GOOD, claim("c", "Failed", "m", "VMLost")], id="deleted by nobody known"),
        pytest.param("I4", [*GOOD, vm("m", "Ready")], id="ready again"),
        pytest.param("I5", [vm("a", "Ready"), vm("b", "Ready"), vm("c", "Ready")], id="too many"),
        pytest.param("I6", [vm("a", "Ready", owner="nobody")], id="belongs to nobody"),
        pytest.param("I7", [claim("c", "Queued")], id="waits for ever"),
        pytest.param("I8", [*GOOD[:4], claim("c", "Ready", "m"), vm("m", "x", going=True)], id="none of its own"),
        pytest.param("I8", [*GOOD, claim("c", "Released", "m")], id="a machine of a claim that has none"),
        pytest.param("I9", [vm("m", "Ready"), vm("m", "InUse", "c"), claim("c", "Ready", "m")], id="too early"),
    ],
)
def test_what_is_wrong_is_said(number: str, events: Sequence[Event]) -> None:
    assert any(each.startswith(f"{number}:") for each in told(*events))


@pytest.mark.parametrize("late", [True, False])
def test_what_a_controller_that_is_gone_asked_for_may_come_late(late: bool) -> None:
    notary = Notary(max_total={"p": 2}, excess=True, late=lambda: late)
    for version, name in enumerate("abc", 1):
        _, document = vm(name, "Ready")
        document["metadata"]["resourceVersion"] = str(version)
        notary.machine("ADDED", document)
    assert bool(notary.wrong) is not late
