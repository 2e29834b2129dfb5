"""What the webhook is told would be done."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool import kept, machine, observe
from controllers.pool.ask import Ask
from controllers.pool.observe import Stores
from runtime.store import Store
from tests.controllers.pool.builders import NOW, a_pool, document
from tests.controllers.pool.builders import machine as a_machine

Json = dict[str, Any]


def stores(*machines: machine.Machine, pool: Any = None) -> Stores:
    found = Stores(
        pools=Store({"disk": observe.by_disk}),
        machines=Store({"owner": machine.by_owner, "stem": machine.by_stem}),
        revisions=Store({"owner": observe.by_owner}),
        guests=Store(),
        kept=Store({"namespace": kept.by_namespace}),
    )
    for m in machines:
        found.machines.put(m.key, m)
    if pool is not None:
        found.pools.put(pool.key, pool)
    return found


async def asked(of: Stores, document: Json) -> tuple[int, Json]:
    return await Ask(of, 250, lambda: NOW)(document)


async def test_a_new_pool_makes_its_vms_and_skips_names_that_are_taken() -> None:
    status, answer = await asked(stores(a_machine(1, owner="", owner_name="")), document(2))
    assert status == 200
    assert [(row["action"], row["vm"]) for row in answer["plan"]] == [("Create", "web-2"), ("Create", "web-3")]
    assert set(answer["plan"][0]) == {"action", "vm", "reason"}


async def test_a_pool_that_there_is_keeps_what_it_has() -> None:
    of = stores(a_machine(1), a_machine(2), pool=a_pool(2))
    _, answer = await asked(of, document(3))
    assert ("Create", "web-3") in [(row["action"], row["vm"]) for row in answer["plan"]]
    assert not [row for row in answer["plan"] if row["action"] == "Delete"]


async def test_asking_changes_nothing() -> None:
    of = stores(a_machine(1), pool=a_pool(1))
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
