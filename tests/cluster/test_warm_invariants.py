"""The checker of invariants reports each violation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from poolhouse.api.kinds import meta
from tests.cluster.warm_invariants import InvariantChecker

Json = dict[str, Any]
Event = tuple[str, Json]


def vm(
    uid: str, state: str, claim: str = "", *, activated: bool = False, deleting: bool = False, owner: str = "p"
) -> Event:
    labels = {meta.WARM_STATE: state, meta.POOL_UID: "p"} | ({meta.CLAIM_UID: claim} if claim else {})
    metadata: Json = {"name": uid, "uid": uid, "labels": labels, "ownerReferences": [{"uid": claim or owner}]}
    metadata["annotations"] = {meta.ACTIVATED_AT: "now"} if activated else {}
    return "vm", {"metadata": metadata | ({"deletionTimestamp": "now"} if deleting else {})}


def claim(uid: str, phase: str, vm_uid: str = "", reason: str = "") -> Event:
    status: Json = {"phase": phase, "conditions": [{"type": "Ready", "reason": reason}]}
    if vm_uid:
        status["vmRef"] = {"uid": vm_uid, "name": vm_uid}
    if phase == "Ready":
        status["readyAt"] = "now"
    return "claim", {"metadata": {"name": uid, "uid": uid}, "status": status}


def violations(*events: Event, rest: bool = True, killed: Sequence[str] = ()) -> list[str]:
    checker, versions = InvariantChecker(max_total={"p": 2}, killed=set(killed)), count(1)
    vms: dict[str, Json] = {}
    for kind, document in events:
        document["metadata"]["resourceVersion"] = str(next(versions))
        if kind == "vm":
            checker.vm_event("MODIFIED", document)
            vms[document["metadata"]["uid"]] = document
        else:
            checker.claim_event("MODIFIED", document)
    if rest:
        checker.at_rest(list(vms.values()), {"p", "c", "d"})
    return checker.violations


GOOD: Sequence[Event] = (
    vm("m", "Ready"),
    claim("c", "Pending"),
    vm("m", "PENDING_POD_PROVISIONING", "c"),
    claim("c", "Bound", "m"),
    vm("m", "InUse", "c"),
    claim("c", "Ready", "m"),
)


def test_a_correct_history_has_no_violation() -> None:
    assert violations(*GOOD) == []


@pytest.mark.parametrize(
    ("number", "events"),
    [
        pytest.param("I1", [*GOOD, vm("m", "InUse", "d")], id="a second claim"),
        pytest.param("I2", [*GOOD, vm("n", "InUse", "c")], id="two VMs in use"),
        pytest.param("I2", [*GOOD, claim("c", "Ready", "n")], id="the VM of a Ready claim changes"),
        pytest.param(
            "I2",
            [vm("m", "Ready"), vm("n", "Ready"), vm("m", "x", "c", activated=True), vm("n", "x", "c", activated=True)],
            id="two VMs activated",
        ),
        pytest.param("I3", [*GOOD, claim("c", "Failed", "m", "VMLost")], id="deleted by a controller"),
        pytest.param("I4", [*GOOD, vm("m", "Ready")], id="Ready after use"),
        pytest.param("I5", [vm("a", "Ready"), vm("b", "Ready"), vm("c", "Ready")], id="more than maxTotal"),
        pytest.param("I6", [vm("a", "Ready", owner="nobody")], id="no owner"),
        pytest.param("I7", [claim("c", "Queued")], id="unfinished claim"),
        pytest.param(
            "I8", [*GOOD[:4], claim("c", "Ready", "m"), vm("m", "x", deleting=True)], id="Ready claim without its VM"
        ),
        pytest.param("I8", [*GOOD, claim("c", "Released", "m")], id="VM of a released claim"),
        pytest.param(
            "I9",
            [vm("m", "Ready"), vm("m", "InUse", "c"), claim("c", "Ready", "m")],
            id="activated before it was bound",
        ),
    ],
)
def test_each_violation_is_reported(number: str, events: Sequence[Event]) -> None:
    assert any(each.startswith(f"{number}:") for each in violations(*events))


@pytest.mark.parametrize(
    ("first", "killed", "is_wrong"),
    [
        pytest.param([*GOOD[:5], vm("m", "InUse", "c", deleting=True)], ["m"], False, id="a user deleted it in time"),
        pytest.param([*GOOD[:5], vm("m", "InUse", "c", deleting=True)], [], True, id="a controller deleted it"),
        pytest.param(GOOD[:5], ["m"], True, id="it is still there"),
        pytest.param([*GOOD, vm("m", "InUse", "c", deleting=True)], ["m"], True, id="the claim was Ready with it"),
    ],
)
def test_a_second_vm_of_a_claim_is_a_violation_unless_a_user_deleted_the_first(
    first: Sequence[Event], killed: Sequence[str], *, is_wrong: bool
) -> None:
    second = [vm("n", "PENDING_POD_PROVISIONING", "c"), claim("c", "Bound", "n"), vm("n", "InUse", "c")]
    found = violations(*first, *second, rest=False, killed=killed)
    assert any(each.startswith("I2: claim c has used") for each in found) is is_wrong


@pytest.mark.parametrize("late", [True, False])
def test_late_creations_of_a_stopped_controller_are_tolerated(late: bool) -> None:
    checker = InvariantChecker(max_total={"p": 2}, excess=True, late=lambda: late)
    for version, name in enumerate("abc", 1):
        _, document = vm(name, "Ready")
        document["metadata"]["resourceVersion"] = str(version)
        checker.vm_event("ADDED", document)
    assert bool(checker.violations) is not late
