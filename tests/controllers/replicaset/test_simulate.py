"""What a simulated replica set does, and what the endpoint answers."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.observe import ReplicaSetSnapshot, Stores
from controllers.replicaset.simulate import answer, hypothetical_snapshot, simulate
from controllers.sets.simulation import PlanEndpoint
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.runtime.errors import ApiError, Unauthorized, Unreachable
from poolhouse.runtime.resource import VMIS
from tests.controllers.replicaset.builders import NAMES, NOW, a_set, document, orphan, starting, vmi
from tests.controllers.reviews import Reviews
from tests.cost import instructions
from tests.planning import InlinePlanner

Json = dict[str, Any]


def stores(*vmis: VMI, exists: bool = True) -> Stores:
    found = Stores()
    for i in vmis:
        found.vmis.put(i.key, i)
    if exists:
        found.sets.put(("default", "web"), a_set(2))
    return found


async def asked(of: Stores | None, document: Json, allowed: bool | ApiError = True) -> tuple[int, Json]:
    endpoint = PlanEndpoint(Reviews(VMIS.plural, allowed, NOW), VMIS, REPLICA_SET, InlinePlanner(), answer)
    if of is not None:
        endpoint.observe = lambda given: hypothetical_snapshot(of, given, 250)
    return await endpoint(document, "token")


async def steps(of: Stores, document: Json) -> list[tuple[str, str]]:
    status, answer = await asked(of, document)
    assert status == 200
    assert all(set(row) == {"action", "vm", "reason"} for row in answer["plan"])
    return [(row["action"], row["vm"]) for row in answer["plan"]]


async def test_simulated_scale_in() -> None:
    there = stores(vmi("a", created_at="1"), vmi("b", created_at="2"), starting("c"))
    assert await steps(there, document(1)) == [("Delete", "c"), ("Delete", "b")]


async def test_simulated_scale_out() -> None:
    assert await steps(stores(vmi("a")), document(3)) == [("Create", NAMES[0]), ("Create", NAMES[1])]


async def test_an_adopted_vmi_may_be_deleted_next() -> None:
    there = stores(vmi("a", created_at="1"), orphan("b", created_at="2"))
    assert await steps(there, document(1)) == [("Adopt", "b"), ("Delete", "b")]


async def test_a_set_that_does_not_exist_has_no_names() -> None:
    assert await steps(stores(exists=False), document(2)) == [("Create", "web-*")] * 2


async def test_a_plan_that_goes_on() -> None:
    status, answer = await asked(stores(), document(10**9))
    assert (status, len(answer["plan"]), answer["complete"]) == (200, 1000, False)
    status, answer = await asked(stores(), document(3))
    assert (status, answer["complete"]) == (200, True)


async def test_an_empty_plan() -> None:
    assert await steps(stores(vmi("a")), document(1)) == []


@pytest.mark.parametrize("replicas", [pytest.param(2, id="scale-out"), pytest.param(0, id="scale-in")])
def test_a_simulation_of_four_times_the_vmis_costs_four_times_as_much(replicas: int) -> None:
    def cost(count: int) -> int:
        there = stores(*(vmi(f"vmi-{number}") for number in range(count)))
        observed = hypothetical_snapshot(there, document(replicas * count), 10**6)
        assert isinstance(observed, ReplicaSetSnapshot)
        return instructions(lambda: simulate(observed, NOW))

    cost(1)  # fills caches
    assert cost(80) < 4.2 * cost(20)


@pytest.mark.parametrize(
    ("of", "sent", "allowed", "status"),
    [
        pytest.param(None, document(1), True, 503, id="another replica leads"),
        pytest.param(stores(), {"metadata": {}}, True, 422, id="no name"),
        pytest.param(stores(), document("many"), True, 422, id="no valid set"),
        pytest.param(stores(), document(1), False, 403, id="a user who may not list VMIs"),
        pytest.param(stores(), document(1), Unauthorized("who?", status=401), 401, id="an unknown user"),
        pytest.param(stores(), document(1), Unreachable("away"), 503, id="the API server does not answer"),
    ],
)
async def test_requests_without_a_plan(of: Stores | None, sent: Json, allowed: bool | ApiError, status: int) -> None:
    found, answer = await asked(of, sent, allowed)
    assert found == status
    assert answer["problems"][0]["message"]
