"""What is kept of an instance, and what a set makes."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.actions import Create
from controllers.replicaset.instance import VMI, by_orphanage, by_owner, by_stem, parse_vmi
from controllers.replicaset.naming import LENGTH, LETTERS, base_name, free_names
from controllers.replicaset.template import build_vmi
from tests.controllers.replicaset.builders import a_set

Json = dict[str, Any]

OURS = {
    "apiVersion": "kubevirt.io/v1alpha2",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "web",
    "uid": "u-web",
    "controller": True,
}


def seen(owner: Json | None = None, status: Json | None = None, **metadata: Any) -> VMI:
    owners = {"ownerReferences": [owner]} if owner else {}
    return parse_vmi(
        {"metadata": {"namespace": "default", "name": "a", "uid": "u-a", **owners, **metadata}, "status": status or {}}
    )


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param(OURS, ("u-web", "web"), id="a set of any version"),
        pytest.param({**OURS, "apiVersion": "other.io/v1"}, ("u-web", ""), id="a set of somebody else's"),
        pytest.param({**OURS, "kind": "VirtualMachine"}, ("u-web", ""), id="a VM"),
        pytest.param({**OURS, "controller": False}, ("", ""), id="an owner that is no controller"),
        pytest.param(None, ("", ""), id="nobody"),
    ],
)
def test_whose_it_is(owner: Json | None, expected: tuple[str, str]) -> None:
    found = seen(owner)
    assert (found.owner, found.owner_name) == expected
    assert list(by_owner(found)) == (["u-web"] if expected[1] else [])


def test_what_is_somebody_elses_is_no_news_whatever_becomes_of_it() -> None:
    machine = {**OURS, "kind": "VirtualMachine"}
    one = seen(machine, {"phase": "Running"}, labels={"app": "web"}, resourceVersion="1")
    other = seen(machine, {"phase": "Failed"}, labels={"app": "db"}, resourceVersion="2")
    assert one == other


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        pytest.param({"phase": "Running"}, True, id="what runs is ready"),
        pytest.param({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, False, id="unless"),
        pytest.param({"phase": "Scheduled"}, False, id="what does not run is not"),
        pytest.param({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, True, id="it says so"),
    ],
)
def test_readiness(status: Json, ready: bool) -> None:
    assert seen(status=status).ready is ready


@pytest.mark.parametrize(
    ("state", "migrating"),
    [(None, False), ({"startTimestamp": "x"}, True), ({"completed": True}, False), ({"failed": True}, False)],
)
def test_migration(state: Json | None, migrating: bool) -> None:
    assert seen(status={"phase": "Running", "migrationState": state}).migrating is migrating


def test_when_it_ran_and_ended() -> None:
    reached = [{"phase": phase, "phaseTransitionTimestamp": phase} for phase in ("Pending", "Running", "Failed")]
    found = seen(status={"phase": "Failed", "reason": "Crashed", "phaseTransitionTimestamps": reached})
    assert (found.ran_at, found.ended_at, found.why, found.final) == ("Running", "Failed", "Crashed", True)


@pytest.mark.parametrize(
    ("given", "orphan"),
    [
        ({}, True),
        ({"owner": OURS}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"deletionTimestamp": "x"}, False),
    ],
)
def test_who_could_be_adopted(given: Json, orphan: bool) -> None:
    assert list(by_orphanage(seen(**given))) == (["default"] if orphan else [])


@pytest.mark.parametrize(("text", "attempt"), [("3", 3), ("", 0), ("-1", 0), ("many", 0), ("9" * 40, 0)])
def test_an_attempt_that_somebody_scribbled_on_is_the_first(text: str, attempt: int) -> None:
    assert seen(annotations={"poolhouse.dev/attempt": text}).attempt == attempt


# Names


def test_names_are_given_again_in_the_same_order() -> None:
    names = free_names("u-web", "web", (), 4)
    assert free_names("u-web", "web", {names[0], names[2]}, 2) == [names[1], names[3]]
    assert len(set(free_names("u-web", "web", (), 3000))) == 3000
    assert set(free_names("u-db", "web", (), 100)).isdisjoint(free_names("u-web", "web", (), 100))


def test_names_look_generated() -> None:
    for name in free_names("u-web", "we-b", (), 50):
        assert base_name(name) == "we-b"
        assert len(name.rpartition("-")[2]) == LENGTH
        assert set(name.rpartition("-")[2]) <= set(LETTERS)


@pytest.mark.parametrize(
    ("metadata", "stem"),
    [({}, "web"), ({"name": "test"}, "test"), ({"generateName": "gen-"}, "gen"), ({"name": "x" * 99}, "x" * 57)],
)
def test_instances_are_named_after_their_template_or_else_their_set(metadata: Json, stem: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}, **metadata}, "spec": {"domain": {}}}
    found = a_set(1, template=template)
    assert found.stem == stem
    (name,) = free_names(found.uid, found.stem, (), 1)
    assert len(name) <= 63
    assert list(by_stem(VMI("default", name, "u"))) == [("default", stem)]


# What is made


def test_an_instance_is_its_template_and_has_its_set_as_its_controller() -> None:
    labels, annotations = {"app": "web", "tier": "x"}, {"note": "y", "poolhouse.dev/attempt": "9"}
    template = {"metadata": {"labels": labels, "annotations": annotations, "name": "z"}, "spec": {"domain": {"a": [1]}}}
    found = a_set(1, template=template)
    made = build_vmi(found, Create("z-1", ""))
    owner = made["metadata"].pop("ownerReferences")
    assert made == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"namespace": "default", "name": "z-1", "labels": labels, "annotations": {"note": "y"}},
        "spec": {"domain": {"a": [1]}},
    }
    assert owner == [{**OURS, "apiVersion": "kubevirt.io/v1", "blockOwnerDeletion": True}]
    assert build_vmi(found, Create("z-1", "", attempt=2))["metadata"]["annotations"]["poolhouse.dev/attempt"] == "2"
    made["spec"]["domain"]["a"].append(2)
    assert found.spec.template["spec"] == {"domain": {"a": [1]}}, "no two share what one of them might change"
