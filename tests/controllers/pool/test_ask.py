"""What the webhook is told would be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from controllers.pool.ask import Ask
from controllers.pool.machine import VM
from controllers.pool.stores import Stores
from runtime.api import Api
from runtime.errors import ApiError, Forbidden, Unreachable
from tests.controllers.pool.builders import NOW, a_pool, document, machine

Json = dict[str, Any]


def stores(*machines: VM, pool: Any = None) -> Stores:
    found = Stores()
    for m in machines:
        found.machines.put(m.key, m)
    if pool is not None:
        found.pools.put(pool.key, pool)
    return found


class Reviews:
    """The one question that is put to the API server."""

    def __init__(self, allowed: bool | ApiError) -> None:
        self._allowed = allowed

    async def request(self, method: str, path: str, *, body: Json, token: str) -> Json:
        assert (method, path.endswith("/selfsubjectaccessreviews"), token) == ("POST", True, "token")
        asked = body["spec"]["resourceAttributes"]
        assert (asked["verb"], asked["resource"], asked["namespace"]) == ("list", "virtualmachines", "default")
        if isinstance(self._allowed, ApiError):
            raise self._allowed
        return {"status": {"allowed": self._allowed}}


async def asked(of: Stores, document: Json, allowed: bool | ApiError = True) -> tuple[int, Json]:
    return await Ask(cast(Api, Reviews(allowed)), of, 250, lambda: NOW)(document, "token")


async def test_a_new_pool_makes_its_vms_and_skips_names_that_are_taken() -> None:
    status, answer = await asked(stores(machine(1, owner="", owner_name="")), document(2))
    assert status == 200
    assert [(row["action"], row["vm"]) for row in answer["plan"]] == [("Create", "web-2"), ("Create", "web-3")]
    assert set(answer["plan"][0]) == {"action", "vm", "reason"}


async def test_a_pool_that_there_is_keeps_what_it_has() -> None:
    of = stores(machine(1), machine(2), pool=a_pool(2))
    _, answer = await asked(of, document(3))
    assert ("Create", "web-3") in [(row["action"], row["vm"]) for row in answer["plan"]]
    assert not [row for row in answer["plan"] if row["action"] == "Delete"]


async def test_a_new_pool_that_would_share_disks_with_another_is_told_so() -> None:
    other = replace(a_pool(1), name="other", uid="u-other", born="2026-02-01T00:00:00Z")
    _, answer = await asked(stores(pool=other), document(2))
    assert answer["plan"] == []
    assert "root is also pool other's" in answer["refused"]


async def test_asking_changes_nothing() -> None:
    of = stores(machine(1), pool=a_pool(1))
    await asked(of, document(0))
    known = of.pools.get(("default", "web"))
    assert known is not None
    assert known == a_pool(1)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        pytest.param({}, "metadata.name", id="no name"),
        pytest.param({"metadata": {"name": 7}}, "metadata.name", id="a name that is none"),
        pytest.param(document("many"), "spec", id="a spec that is none"),
    ],
)
async def test_what_is_no_pool_is_refused(body: Json, path: str) -> None:
    status, answer = await asked(stores(), body)
    assert (status, answer["problems"][0]["path"]) == (422, path)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(False, 403, id="one who may not see the VMs"),
        pytest.param(Forbidden("who?", status=401), 401, id="a token that nobody knows"),
        pytest.param(Unreachable("away"), 503, id="an API server that does not say"),
    ],
)
async def test_vms_are_named_only_to_who_may_see_them(allowed: bool | ApiError, expected: int) -> None:
    status, answer = await asked(stores(a_machine := machine(1), pool=a_pool(1)), document(0), allowed)
    assert status == expected
    assert a_machine.name not in str(answer)
