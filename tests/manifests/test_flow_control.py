"""Priority levels of an API server on one machine: what tenants wait for."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.manifests.flow_control import for_one_machine

Json = dict[str, Any]
VM = ("kubevirt.io", "virtualmachines")
POOL = ("kubevirt.io", "virtualmachinepools")
WARM_POOL = ("poolhouse.dev", "virtualmachinewarmpools")
CLAIM = ("poolhouse.dev", "virtualmachineclaims")


def schema_for(verb: str, group: str, resource: str) -> Json | None:
    """The FlowSchema of a request by an account of any tenant."""
    schemas = [each["spec"] for each in for_one_machine() if each["kind"] == "FlowSchema"]
    for schema in sorted(schemas, key=lambda schema: int(schema["matchingPrecedence"])):
        (rules,) = schema["rules"]
        (rule,) = rules["resourceRules"]
        is_meant = {group, "*"} & {*rule["apiGroups"]} and {resource, "*"} & {*rule["resources"]}
        if rules["subjects"][0]["kind"] == "Group" and verb in rule["verbs"] and is_meant:
            return schema
    return None


def level_for(verb: str, group: str, resource: str) -> Any:
    schema = schema_for(verb, group, resource)
    return schema and schema["priorityLevelConfiguration"]["name"]


@pytest.mark.parametrize("resource", [VM, POOL, CLAIM])
@pytest.mark.parametrize("verb", ["list", "create", "update", "patch", "delete", "deletecollection"])
def test_tenants_take_turns_with_few_requests_at_once(verb: str, resource: tuple[str, str]) -> None:
    found = schema_for(verb, *resource)
    assert found["distinguisherMethod"] == {"type": "ByNamespace"}
    levels = {each["metadata"]["name"]: each["spec"] for each in for_one_machine() if "limited" in each["spec"]}
    limited = levels[found["priorityLevelConfiguration"]["name"]]["limited"]
    assert (limited["borrowingLimitPercent"], limited["lendablePercent"]) == (0, 0)


@pytest.mark.parametrize("verb", ["get", "watch"])
def test_an_open_console_or_watch_takes_no_place_of_another_tenant(verb: str) -> None:
    assert level_for(verb, *VM) is None


def test_short_writes_wait_neither_for_lists_nor_for_dry_runs_of_templates_nor_for_deletions_of_collections() -> None:
    requests = [("create", VM), ("create", CLAIM), ("create", POOL), ("list", POOL), ("deletecollection", CLAIM)]
    assert len({level_for(verb, *resource) for verb, resource in requests}) == len(requests)
    assert level_for("patch", *WARM_POOL) == level_for("patch", *POOL)
    assert level_for("list", *CLAIM) == level_for("list", *POOL)
    assert level_for("deletecollection", *CLAIM) == level_for("deletecollection", *VM)
