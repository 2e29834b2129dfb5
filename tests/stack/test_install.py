from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.runtime.api import Api
from poolhouse.stack.components import StackError
from poolhouse.stack.install import ESTABLISH_SECONDS, SEEN, established, is_overdue, kubevirt_roles

NOW = parse_time("2026-01-31T12:00:00Z")


def may(role: str, verb: str, group: str, resource: str) -> bool:
    rules: list[dict[str, Any]] = next(each["rules"] for each in kubevirt_roles() if each["metadata"]["name"] == role)
    return any(verb in r["verbs"] and group in r["apiGroups"] and resource in r["resources"] for r in rules)


VMIS, MOVES = ("kubevirt.io", "virtualmachineinstances"), ("kubevirt.io", "virtualmachineinstancemigrations")
START, MIGRATE = (("subresources.kubevirt.io", f"virtualmachines/{verb}") for verb in ("start", "migrate"))


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        pytest.param("view", [("list", *VMIS), ("watch", *MOVES)], [("create", *VMIS), ("update", *START)], id="see"),
        pytest.param(
            "edit",
            [("create", *VMIS), ("update", *START), ("get", "cdi.kubevirt.io", "datavolumes")],
            [("create", *MOVES), ("update", *MIGRATE)],
            id="work",
        ),
        pytest.param("admin", [("deletecollection", *VMIS)], [("delete", *MOVES)], id="own"),
        pytest.param("migrate", [("create", *MOVES), ("update", *MIGRATE)], [("update", *START)], id="move"),
    ],
)
def test_rights_of_the_cluster_roles(role: str, allowed: list[Any], denied: list[Any]) -> None:
    assert [each for each in allowed if not may(f"kubevirt.io:{role}", *each)] == []
    assert [each for each in denied if may(f"kubevirt.io:{role}", *each)] == []


def test_all_roles_but_migrate_are_aggregated() -> None:
    labels = {each["metadata"]["name"]: set(each["metadata"]["labels"]) for each in kubevirt_roles()}
    for name in ("view", "edit", "admin"):
        assert f"rbac.authorization.k8s.io/aggregate-to-{name}" in labels[f"kubevirt.io:{name}"]
    assert labels["kubevirt.io:migrate"] == {"kubevirt.io"}


class RestartedServer(Api):
    """An API server that ended before it established the CRD. It does so when it sees an update."""

    def __init__(self, names_accepted: str) -> None:
        self._conditions = {"NamesAccepted": names_accepted, "Established": "False"}

    async def get(self, *_: Any) -> dict[str, Any]:
        conditions = [{"type": kind, "status": status, "message": "a"} for kind, status in self._conditions.items()]
        return {"metadata": {"resourceVersion": "7"}, "status": {"conditions": conditions}}

    async def patch(self, *_: Any, **__: Any) -> dict[str, Any]:
        self._conditions["Established"] = "True"
        return await self.get()


async def test_a_crd_that_an_interrupted_start_left_is_established() -> None:
    await established(RestartedServer("True"), "pools")


async def test_a_crd_whose_names_another_has_is_refused() -> None:
    with pytest.raises(StackError, match="pools is not served: a"):
        await established(RestartedServer("False"), "pools")


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def crd(*, accepted: str | None = None, seen: str | None = None) -> dict[str, Any]:
    conditions = [{"type": "NamesAccepted", "status": "True", "lastTransitionTime": accepted}] if accepted else []
    return {"metadata": {"annotations": {SEEN: seen} if seen else {}}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("found", "overdue"),
    [
        pytest.param({"metadata": {}}, False, id="the API server has not looked at it"),
        pytest.param(crd(accepted=ago(0)), False, id="the API server is at it"),
        pytest.param(crd(accepted=ago(ESTABLISH_SECONDS)), True, id="an earlier API server has left it"),
        pytest.param(crd(accepted=ago(60), seen=ago(1)), False, id="it was updated a moment ago"),
        pytest.param(crd(accepted=ago(60), seen=ago(ESTABLISH_SECONDS)), True, id="the update has not helped"),
        pytest.param(crd(accepted=ago(60), seen="gibberish"), True, id="somebody changed the annotation"),
    ],
)
def test_only_an_overdue_crd_is_updated(found: dict[str, Any], overdue: bool) -> None:
    """Each update of a CRD takes the API server about as long as establishing it."""
    assert is_overdue(found, NOW) is overdue
