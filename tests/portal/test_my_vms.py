"""What the page "My VMs" shows of claims and warm pools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from poolhouse.api.kinds import meta
from poolhouse.portal.my_vms import SETTLED_SECONDS, WAITING_SECONDS, Seen, page, vm_of

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
ANN, BOB = "oidc:ann", "oidc:bob"


def claim(name: str = "a", user: str = ANN, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": name, "annotations": {meta.REQUESTER: user}}
    return {"metadata": metadata, "spec": {"poolName": "desks", **(spec or {})}, "status": status}


def pool(name: str = "desks", policy: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"claimPolicy": policy or {}}, "status": status}


def shown(*claims: dict[str, Any], pools: tuple[dict[str, Any], ...] = (), user: str = ANN) -> dict[str, Any]:
    return page(Seen(user, claims, pools, frozenset({"shop"})), NOW)


def condition(type: str, reason: str, message: str) -> list[dict[str, str]]:
    return [{"type": type, "status": "False", "reason": reason, "message": message}]


BOUND = {"poolName": "desks", "vmRef": {"name": "desks-x"}}
READY = {**BOUND, "phase": "Ready", "addresses": ["10.0.0.9"], "expiresAt": "2026-12-01T13:30:00.000000Z"}


@pytest.mark.parametrize(
    ("given", "state", "text"),
    [
        pytest.param(claim(), "Waiting", "", id="a new claim"),
        pytest.param(
            claim(phase="Pending", queuePosition=2, conditions=condition("Bound", "PoolEmpty", "no VM is ready")),
            "Waiting",
            "Place 2 in the queue. no VM is ready",
            id="it waits in the queue",
        ),
        pytest.param(
            claim(phase="Bound", **BOUND, conditions=condition("Ready", "Starting", "the guest starts")),
            "Starting",
            "the guest starts",
            id="its VM starts",
        ),
        pytest.param(claim(**READY), "Ready", "", id="it has a VM"),
        pytest.param(
            claim(**READY, spec={"release": True}), "Ending", "The VM and its disks are being deleted.", id="released"
        ),
        pytest.param(
            claim(phase="Failed", conditions=condition("Bound", "PoolNotFound", "there is no pool desks")),
            "Failed",
            "there is no pool desks",
            id="it has failed",
        ),
    ],
)
def test_the_state_of_a_claim(given: dict[str, Any], state: str, text: str) -> None:
    (row,) = shown(given)["vms"]
    assert (row["state"], row["text"]) == (state, text)


def test_a_ready_vm_has_a_screen_an_address_and_an_end() -> None:
    (row,) = shown(claim(**READY))["vms"]
    assert (row["vm"], row["addresses"], row["left"]) == ("desks-x", "10.0.0.9", "1 hour 30 minutes")
    assert row["hours"]
    assert shown(claim(**{**READY, "expiresAt": None}))["vms"][0]["hours"] == (), "without an end, none is later"


@pytest.mark.parametrize(
    ("given", "vm"),
    [
        pytest.param(claim(**READY), "desks-x", id="ready"),
        pytest.param(claim(phase="Bound", **BOUND), "desks-x", id="a VM that starts shows how"),
        pytest.param(claim(**READY, spec={"release": True}), "", id="released"),
        pytest.param(claim(phase="Released", **BOUND), "", id="the record of a VM that is deleted"),
        pytest.param(claim(phase="Ready", instanceRef={"id": "i-1"}), "", id="an EC2 instance"),
        pytest.param(claim(), "", id="none yet"),
    ],
)
def test_which_claims_have_a_screen(given: dict[str, Any], vm: str) -> None:
    assert vm_of(given) == vm


def test_only_own_claims_that_have_not_ended_are_shown() -> None:
    others = (claim("b", BOB), claim("c", phase="Released"), claim("d", phase="Expired"), claim("e", user=""))
    assert [each["name"] for each in shown(claim(), *others)["vms"]] == ["a"]
    assert shown(claim("e", user=""), user="")["vms"] == [], "nobody has no claims"
    deleted = claim("f")
    deleted["metadata"]["deletionTimestamp"] = "2026-12-01T12:00:00Z"
    assert shown(deleted)["vms"] == []


def test_the_page_is_read_more_often_while_a_vm_is_awaited() -> None:
    assert shown(claim(**READY), claim("b", phase="Failed"))["seconds"] == SETTLED_SECONDS
    assert shown(claim(**READY), claim("b"))["seconds"] == WAITING_SECONDS


@pytest.mark.parametrize(
    ("given", "claims", "expected"),
    [
        pytest.param(pool(availableReplicas=2), (), {"ready": "2 VMs ready", "quota": "", "refused": ""}, id="ready"),
        pytest.param(pool(), (), {"ready": "None ready now: you may have to wait"}, id="empty"),
        pytest.param(
            pool(policy={"maxPerUser": 2, "defaultTTLSeconds": 1800}),
            (claim(**READY), claim("b", BOB, **READY)),
            {"quota": "You have 1 of at most 2", "time": "30 minutes", "refused": ""},
            id="the claims of others do not count",
        ),
        pytest.param(
            pool(policy={"maxPerUser": 1}),
            (claim(**READY),),
            {"refused": "You have taken 1 VM of this pool, which is the most that it gives one user."},
            id="the quota is used",
        ),
        pytest.param(
            pool(policy={"maxPerUser": 1}),
            (claim(phase="Failed"),),
            {"quota": "You have 0 of at most 1", "refused": ""},
            id="a claim that has failed holds none",
        ),
        pytest.param(
            pool(policy={"maxPerUser": 1}),
            (claim(),),
            {"refused": "You have taken 1 VM of this pool, which is the most that it gives one user."},
            id="a claim that the controllers have not seen yet",
        ),
        pytest.param(
            pool(policy={"maxPerUser": 0}),
            (),
            {"refused": "You have taken 0 VMs of this pool, which is the most that it gives one user."},
            id="a pool that gives none",
        ),
    ],
)
def test_what_a_user_sees_of_a_pool(
    given: dict[str, Any], claims: tuple[dict[str, Any], ...], expected: dict[str, str]
) -> None:
    (row,) = shown(*claims, pools=(given,))["pools"]
    assert {key: row[key] for key in expected} == expected


def test_a_pool_in_a_namespace_where_the_user_may_not_claim_says_so() -> None:
    (row,) = page(Seen(ANN, (), (pool(),), frozenset()), NOW)["pools"]
    assert row["refused"] == "You may not take a VM of this pool."
