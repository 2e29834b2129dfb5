"""The fuzzer: its corpus has no finding, and each oracle finds what it is for."""

from __future__ import annotations

import json
from asyncio import Runner
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controllers.pool.stores import Stores
from tests.fuzz.__main__ import CORPUS, table
from tests.fuzz.campaign import Campaign, attempt
from tests.fuzz.growth_targets import Costs
from tests.fuzz.oracles import Finding, check_has_path, check_status, check_values_kept, schema_violations
from tests.fuzz.structures import STRUCTURES, Structure
from tests.fuzz.targets import Target, all_targets

Json = dict[str, Any]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    with all_targets(tmp_path_factory.mktemp("fuzz"), libvirt=False) as found:
        yield {target.name: target for target in found}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_the_corpus_has_no_finding(targets: dict[str, Target], path: Path) -> None:
    name = path.stem if path.stem in targets else "admission"  # the inputs for libvirt pass without libvirt too
    for given in json.loads(path.read_text()):
        assert attempt(targets[name], given) is None, given


def test_a_seed_gives_the_same_inputs(targets: dict[str, Target]) -> None:
    for target in targets.values():
        assert target.generate(Random("a")) == target.generate(Random("a"))


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_most_structures_are_valid(structure: Structure) -> None:
    """Otherwise the fuzzer reaches admission only."""
    random, kind = Random("a"), structure.kind
    made = [kind.normalize(structure.generate(random)) for _ in range(100)]
    assert sum(not kind.problems(each) for each in made) > 50


class Broken:
    name, share = "broken", 1

    def __init__(self, fault: Any) -> None:
        self._fault = fault

    def generate(self, random: Random) -> Json:
        return {}

    def repair(self, given: Json) -> Json | None:
        return given

    def run(self, given: Json) -> None:
        self._fault()


def _never_ends() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (_never_ends, "hang"),
        (lambda: {}["a"], "crash"),
        (lambda: check_status(503, b""), "5xx"),
        (lambda: check_has_path([{"path": "", "message": "no"}]), "no path"),
        (lambda: check_values_kept({"spec": {"a": 1}}, {"spec": {"a": 2}}), "value changed"),
        (lambda: check_values_kept({"spec": {"a": 1}}, {"spec": {}}), "value changed"),
    ],
)
def test_a_fault_is_found_counted_and_stored(tmp_path: Path, fault: Any, kind: Any) -> None:
    campaign = Campaign([Broken(fault)], "a", tmp_path, cpu_seconds=0.05)
    campaign.run(inputs=2, seconds=60)
    assert campaign.figures.found == {("broken", kind): 2}
    (stored,) = tmp_path.glob("broken-*.json")
    assert kind in json.loads(stored.read_text())["finding"]
    assert "broken" in table(campaign.figures)


def _for_each(times: int) -> None:
    for _ in range(times):
        pass


@pytest.mark.parametrize(
    ("cost", "found"),
    [
        pytest.param(lambda spec, vms: spec * vms, "", id="linear in both"),
        pytest.param(lambda spec, vms: vms * vms, "4 times the VMs", id="quadratic in VMs"),
        pytest.param(lambda spec, vms: spec * spec, "4 times the copies", id="quadratic in the spec"),
    ],
)
def test_a_reconcile_that_grows_faster_than_its_pool_is_found(cost: Any, found: str) -> None:
    def reconcile(stores: Stores, document: Json) -> None:
        _for_each(cost(len(document["spec"]["maintenanceWindows"]), len(stores.vms.all())))

    document = STRUCTURES["windows"].generate(Random("a"))
    document["spec"]["maintenanceWindows"] = [{"schedule": "0 3 * * 6", "durationSeconds": 60}]
    given = {"document": document, "path": ["maintenanceWindows", 0], "how": 0, "count": 4}
    with Runner() as runner:
        finding = attempt(Costs(runner, reconcile), {**given, "replicas": 1, "states": ["ready"]})
    assert (found in finding.message) if found and finding else finding is None and not found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"spec": {"machine": {"type": "q35"}}}, {"spec": {"machine": {"type": "pc-q35-7.2"}}}),
        ({"spec": {"labels": {"a": True}, "b": 3.0, "c": 0}}, {"spec": {"labels": {"a": "true"}, "b": 3}}),
        ({"metadata": {"annotations": {"poolhouse.dev/requester": "joe"}}}, {"metadata": {}}),
    ],
)
def test_conversions_are_no_findings(before: Json, after: Json) -> None:
    check_values_kept(before, after)


def test_a_value_of_the_stored_object_is_not_the_authors() -> None:
    check_values_kept({"spec": {"a": 1}}, {"spec": {"a": 2}}, {"spec": {"a": 1}})
    with pytest.raises(Finding):
        check_values_kept({"spec": {"a": 1}}, {"spec": {"a": 2}}, {"spec": {"a": 3}})


SCHEMA: Json = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]*$"},
        "count": {"type": "integer", "minimum": 0, "format": "int32"},
        "kind": {"type": "string", "enum": ["A"]},
        "either": {"x-kubernetes-int-or-string": True},
        "items": {"type": "array", "x-kubernetes-list-map-keys": ["id"], "items": {"type": "object"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@pytest.mark.parametrize(
    ("value", "violation"),
    [
        ({}, ".name: missing"),
        ({"name": "abcd"}, ".name: 4 entries or characters"),
        ({"name": "A"}, ".name: 'A' does not match"),
        ({"name": "a", "count": -1}, ".count: -1 is out of bounds"),
        ({"name": "a", "count": 2**31}, ".count: 2147483648 has more than 32 bits"),
        ({"name": "a", "count": 1.5}, ".count: 1.5 is no integer"),
        ({"name": "a", "kind": "B"}, ".kind: 'B' is none of"),
        ({"name": "a", "either": True}, ".either: True is neither"),
        ({"name": "a", "items": [{"id": 1}, {"id": 1}]}, ".items: duplicate keys"),
        ({"name": "a", "labels": {"b": 1}}, ".labels['b']: 1 is no string"),
        ({"name": "a", "labels": None}, ".labels: null"),
        ({"name": "a", "other": 1}, ".other: unknown field"),
    ],
)
def test_each_rule_of_a_schema_is_checked(value: Json, violation: str) -> None:
    (found,) = schema_violations(SCHEMA, value)
    assert found.startswith(violation)


def test_a_valid_value_has_no_violation() -> None:
    assert not list(schema_violations(SCHEMA, {"name": "a", "count": 1, "either": "1%", "labels": {"a": "b"}}))
