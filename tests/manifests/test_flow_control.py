"""Priority levels of an API server on one machine: what tenants wait for."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.manifests.flow_control import for_one_machine

Json = dict[str, Any]


def schemas_for(verb: str) -> list[Json]:
    """The FlowSchemas for requests of any account with this verb."""
    schemas = [each["spec"] for each in for_one_machine() if each["kind"] == "FlowSchema"]
    rules = [(spec, rule) for spec in schemas for rule in spec["rules"]]
    return [
        spec
        for spec, rule in rules
        if rule["subjects"][0]["kind"] == "Group" and verb in rule["resourceRules"][0]["verbs"]
    ]


@pytest.mark.parametrize("verb", ["list", "create", "update", "patch", "delete", "deletecollection"])
def test_tenants_take_turns_with_few_requests_at_once(verb: str) -> None:
    (found,) = schemas_for(verb)
    assert found["distinguisherMethod"] == {"type": "ByNamespace"}
    levels = {each["metadata"]["name"]: each["spec"] for each in for_one_machine() if "limited" in each["spec"]}
    limited = levels[found["priorityLevelConfiguration"]["name"]]["limited"]
    assert (limited["borrowingLimitPercent"], limited["lendablePercent"]) == (0, 0)


@pytest.mark.parametrize("verb", ["get", "watch"])
def test_an_open_console_or_watch_takes_no_place_of_another_tenant(verb: str) -> None:
    assert schemas_for(verb) == []


def test_writes_do_not_wait_for_lists() -> None:
    levels = [schemas_for(verb)[0]["priorityLevelConfiguration"]["name"] for verb in ("create", "list")]
    assert len(set(levels)) == 2
