"""Which tags are written on an instance, and how they are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.warmpool.backends import Change
from controllers.warmpool.ec2 import tags
from controllers.warmpool.warm_vm import CLAIM_KIND, NO_OWNER, Owner
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.ec2.fake_client import POOL, order

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLAIM = Owner(CLAIM_KIND, "mine", "claim-uid")
TAKEN = Change(WarmState.ALLOCATING, "claim-uid", CLAIM, annotations={meta.CLAIM_NAME: "mine"})


def instance(state: str = "running", **given: str) -> dict[str, Any]:
    carried = tags.new_tags(order(), "cluster", NOW) | given
    return {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "Tags": tags.to_aws(carried),
        "PrivateIpAddress": "10.0.0.1",
        "PublicIpAddress": "1.2.3.4",
        "LaunchTime": NOW,
    }


@pytest.mark.sentence("5.17", "5.28")
def test_the_tags_of_a_new_instance_are_read_as_a_warm_vm() -> None:
    m = tags.parse_warm_vm(instance())
    assert (m.key, m.uid, m.state, m.resource_version) == (("ns", "mac-1"), "i-1", WarmState.PROVISIONING, "1")
    assert (m.pool, m.pool_uid, m.owner) == ("mac", "pool-uid", POOL)
    assert (m.placement, m.template_hash, m.claim_uid, m.deleting) == ("subnet-a", "v1.abc", "", False)
    assert m.labels[tags.AGENT] == "TCP:8200"


@pytest.mark.sentence("5.21", "5.22", "5.33")
def test_the_tags_of_the_design_document_name_the_claim() -> None:
    before = tags.new_tags(order(), "cluster", NOW)
    assert before[tags.STATE] == "PENDING_WARMPOOL_PROVISIONING"
    assert [before[each] for each in tags.POD.values()] == ["", "", ""]
    taken = before | tags.changed_tags(before, TAKEN, NOW)
    assert taken[tags.STATE] == "PENDING_POD_PROVISIONING"
    assert [taken[each] for each in tags.POD.values()] == ["mine", "ns", "claim-uid"]
    used = taken | tags.changed_tags(taken, Change(WarmState.IN_USE), NOW)
    assert [used[each] for each in tags.POD.values()] == ["mine", "ns", "claim-uid"]
    back = taken | tags.changed_tags(taken, Change(WarmState.READY, "", POOL), NOW)
    assert [back[each] for each in tags.POD.values()] == ["", "", ""]


def test_the_tags_of_the_design_document_name_the_pod_of_a_claim() -> None:
    pod = {meta.POD_NAME: "web-0", meta.POD_UID: "pod-uid"}
    before = tags.new_tags(order(), "cluster", NOW)
    change = Change(WarmState.ALLOCATING, "claim-uid", CLAIM, annotations={meta.CLAIM_NAME: "web-0-1a2b", **pod})
    taken = before | tags.changed_tags(before, change, NOW)
    assert [taken[each] for each in tags.POD.values()] == ["web-0", "ns", "pod-uid"]
    back = taken | tags.changed_tags(taken, Change(WarmState.READY, "", POOL), NOW)
    assert [back[each] for each in tags.POD.values()] == ["", "", ""]
    again = back | tags.changed_tags(back, TAKEN, NOW)
    assert [again[each] for each in tags.POD.values()] == ["mine", "ns", "claim-uid"]


HOSTILE = {"WarmPool": "InUse", "Name": "x", "KubernetesPodUUID": "other", "team": "blue"}


def test_labels_of_claims_do_not_replace_reserved_tags() -> None:
    made = tags.new_tags(order(labels=HOSTILE, claim_uid="claim-uid", state=WarmState.ALLOCATING), "cluster", NOW)
    assert (made["Name"], made[tags.STATE], made["KubernetesPodUUID"]) == (
        "mac-1",
        WarmState.ALLOCATING.value,
        "claim-uid",
    )
    changed = tags.changed_tags(made, Change(labels=HOSTILE), NOW)
    assert changed.keys() & tags.RESERVED_TAGS == set(tags.POD.values())
    assert changed["KubernetesPodUUID"] == "claim-uid"
    assert (made["team"], changed["team"]) == ("blue", "blue")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(Change(), {tags.REVISION: "2"}, id="each write increments the revision"),
        pytest.param(Change(owner=NO_OWNER), {tags.OWNER: ""}, id="no owner"),
        pytest.param(Change(labels={meta.ORPHANED: "x"}), {meta.ORPHANED: "x"}, id="a label"),
        pytest.param(
            Change(annotations={meta.CHECK_FAILURES: None}), {meta.CHECK_FAILURES: ""}, id="a removed annotation"
        ),
        pytest.param(
            Change(WarmState.READY), {tags.STATE: "Ready", meta.STATE_SINCE: "2026-11-21T12:00:00Z"}, id="a state"
        ),
        pytest.param(
            Change(annotations={meta.STATE_REASON: "x" * 300}),
            {meta.STATE_REASON: "x" * 256},
            id="truncated to the limit of EC2",
        ),
    ],
)
def test_changed_tags(change: Change, found: dict[str, str]) -> None:
    assert found.items() <= tags.changed_tags(tags.new_tags(order(), "cluster", NOW), change, NOW).items()


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
@pytest.mark.sentence("5.23")
def test_states_of_ec2(state: str, there: bool, deleting: bool, phase: str | None) -> None:
    m, run = tags.parse_warm_vm(instance(state)), tags.parse_vmi(instance(state))
    assert (m is not None) == there
    assert m is None or m.deleting == deleting
    assert (run.phase if run is not None else None) == phase


def test_the_private_address_comes_first() -> None:
    run = tags.parse_vmi(instance())
    assert run.addresses == ("10.0.0.1", "1.2.3.4")


def test_instances_without_our_tags_are_ignored() -> None:
    assert tags.parse_warm_vm({"InstanceId": "i-9", "State": {"Name": "running"}}) is None


def test_client_tokens() -> None:
    assert tags.client_token(order(), "a") == tags.client_token(order(), "a")
    others = [
        tags.client_token(order("mac-2"), "a"),
        tags.client_token(order(), "b"),
        tags.client_token(order(claim_uid="c"), "a"),
    ]
    others.append(tags.client_token(order(placement={"name": "subnet-b"}), "a"))
    assert len({tags.client_token(order(), "a"), *others}) == 5


def test_tags_of_the_pool() -> None:
    chosen = {"team": "red", "Name": "mine", "WarmPool": "Ready", "poolhouse.dev/orphaned": "x", "aws:x": "y"}
    made = tags.new_tags(order(template={"imageID": "ami-1", "tags": chosen}), "cluster", NOW)
    assert made["team"] == "red"
    assert (made["Name"], made["WarmPool"]) == ("mac-1", "PENDING_WARMPOOL_PROVISIONING")
    assert made.keys().isdisjoint({"poolhouse.dev/orphaned", "aws:x"})


@pytest.mark.sentence("5.18")
def test_the_tag_of_the_design_document_has_its_states() -> None:
    assert tags.STATE == "WarmPool"
    assert {each.value for each in WarmState} == {
        "Ready",
        "InUse",
        "Unhealthy",
        "Unknown",
        "PENDING_WARMPOOL_PROVISIONING",
        "PENDING_STANDBY",
        "PENDING_POD_PROVISIONING",
        "PENDING_TERMINATION",
    }
