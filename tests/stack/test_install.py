from __future__ import annotations

from typing import Any

import pytest

from poolhouse.runtime.api import Api
from poolhouse.stack.components import StackError
from poolhouse.stack.install import established, kubevirt_roles


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
