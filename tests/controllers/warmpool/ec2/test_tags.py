"""What is written on an instance, and what is read from it again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.warmpool.backends import Change
from controllers.warmpool.ec2 import tags
from controllers.warmpool.warm_vm import CLAIM_KIND, NO_OWNER, Owner
from kinds import meta
from kinds.warm_states import WarmState
from tests.controllers.warmpool.ec2.cloud import POOL, order

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLAIM = Owner(CLAIM_KIND, "mine", "claim-uid")
TAKEN = Change(WarmState.ALLOCATING, "claim-uid", CLAIM, annotations={meta.CLAIM_NAME: "mine"})


def instance(state: str = "running", **given: str) -> dict[str, Any]:
    carried = tags.of_order(order(), "cluster", NOW) | given
    return {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "Tags": tags.written(carried),
        "PrivateIpAddress": "10.0.0.1",
        "PublicIpAddress": "1.2.3.4",
        "LaunchTime": NOW,
    }


def test_an_order_is_read_again_as_the_machine_that_it_is() -> None:
    m = tags.view(instance())
    assert m is not None
    assert (m.key, m.uid, m.state, m.resource_version) == (("ns", "mac-1"), "i-1", WarmState.PROVISIONING, "1")
    assert (m.pool, m.pool_uid, m.owner) == ("mac", "pool-uid", POOL)
    assert (m.placement, m.template_hash, m.claim_uid, m.deleting) == ("subnet-a", "v1.abc", "", False)
    assert m.labels[tags.AGENT] == "TCP:8200"


def test_the_documents_tags_say_whose_it_is() -> None:
    before = tags.of_order(order(), "cluster", NOW)
    assert before[tags.STATE] == "PENDING_WARMPOOL_PROVISIONING"
    assert [before[each] for each in tags.POD.values()] == ["", "", ""]
    taken = before | tags.of_change(before, TAKEN, NOW)
    assert taken[tags.STATE] == "PENDING_POD_PROVISIONING"
    assert [taken[each] for each in tags.POD.values()] == ["mine", "ns", "claim-uid"]
    used = taken | tags.of_change(taken, Change(WarmState.IN_USE), NOW)
    assert [used[each] for each in tags.POD.values()] == ["mine", "ns", "claim-uid"]
    back = taken | tags.of_change(taken, Change(WarmState.READY, "", POOL), NOW)
    assert [back[each] for each in tags.POD.values()] == ["", "", ""]


HOSTILE = {"WarmPool": "InUse", "Name": "x", "KubernetesPodUUID": "other", "team": "blue"}


def test_a_claims_labels_take_no_tag_of_ours() -> None:
    made = tags.of_order(order(labels=HOSTILE, claim_uid="claim-uid", state=WarmState.ALLOCATING), "cluster", NOW)
    assert (made["Name"], made[tags.STATE], made["KubernetesPodUUID"]) == (
        "mac-1",
        WarmState.ALLOCATING.value,
        "claim-uid",
    )
    changed = tags.of_change(made, Change(labels=HOSTILE), NOW)
    assert changed.keys() & tags.RESERVED_TAGS == set(tags.POD.values())
    assert changed["KubernetesPodUUID"] == "claim-uid"
    assert (made["team"], changed["team"]) == ("blue", "blue")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(Change(), {tags.REVISION: "2"}, id="each write is a revision"),
        pytest.param(Change(owner=NO_OWNER), {tags.OWNER: ""}, id="nobody's"),
        pytest.param(Change(labels={meta.ORPHANED: "x"}), {meta.ORPHANED: "x"}, id="a label"),
        pytest.param(Change(annotations={meta.CHECK_FAILURES: None}), {meta.CHECK_FAILURES: ""}, id="one that goes"),
        pytest.param(
            Change(WarmState.READY), {tags.STATE: "Ready", meta.STATE_SINCE: "2026-11-21T12:00:00Z"}, id="a state"
        ),
        pytest.param(
            Change(annotations={meta.STATE_REASON: "x" * 300}),
            {meta.STATE_REASON: "x" * 256},
            id="as long as EC2 takes",
        ),
    ],
)
def test_a_change_is_one_write(change: Change, found: dict[str, str]) -> None:
    assert found.items() <= tags.of_change(tags.of_order(order(), "cluster", NOW), change, NOW).items()


@pytest.mark.parametrize(
    ("state", "there", "deleting", "phase"),
    [
        ("pending", True, False, "Scheduling"),
        ("running", True, False, "Running"),
        ("stopped", True, False, None),
        ("shutting-down", True, True, None),
        ("terminated", False, False, None),
    ],
)
def test_ec2s_states_are_a_machines(state: str, there: bool, deleting: bool, phase: str | None) -> None:
    m, run = tags.view(instance(state)), tags.guest(instance(state))
    assert (m is not None) == there
    assert m is None or m.deleting == deleting
    assert (run.phase if run is not None else None) == phase


def test_addresses_are_the_private_one_first() -> None:
    run = tags.guest(instance())
    assert run is not None
    assert run.addresses == ("10.0.0.1", "1.2.3.4")


def test_an_instance_of_somebody_else_is_none() -> None:
    assert tags.view({"InstanceId": "i-9", "State": {"Name": "running"}}) is None


def test_the_same_order_has_the_same_token_and_no_other() -> None:
    assert tags.token(order(), "a") == tags.token(order(), "a")
    others = [tags.token(order("mac-2"), "a"), tags.token(order(), "b"), tags.token(order(claim_uid="c"), "a")]
    others.append(tags.token(order(placement={"name": "subnet-b"}), "a"))
    assert len({tags.token(order(), "a"), *others}) == 5
