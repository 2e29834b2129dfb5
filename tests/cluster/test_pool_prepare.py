"""VMs that a pool makes while no webhook completes them."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool import prepare
from defaulter.contract import Problem, undefaulted
from kinds import meta
from tests.cluster.pooling import Place, controller, until
from tests.cluster.test_pool import NAMESPACES, condition, place, web
from tests.webhook.stand_in import StandIn

__all__ = ["place"]


@pytest.fixture
def defaulter() -> StandIn:
    return StandIn()


async def test_a_vm_is_made_complete(control_plane: Any, place: Place, defaulter: StandIn) -> None:
    await place.pool(prepare.AT_ONCE + 2)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(*range(1, prepare.AT_ONCE + 3)))
    made = (await place.machines()).values()
    assert all(undefaulted(vm) == [] for vm in made)
    addresses = [vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] for vm in made]
    assert len(set(addresses)) == len(addresses), "each has an identity of its own"


async def test_a_defaulter_that_is_away_holds_nobody_up_and_is_told_of(
    control_plane: Any, place: Place, defaulter: StandIn
) -> None:
    defaulter.away = "no route to host"
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    (vm,) = (await place.machines()).values()
    assert vm["metadata"]["annotations"][meta.UNDEFAULTED] == "no route to host"


async def test_a_template_that_the_defaulter_refuses_is_told_of(
    control_plane: Any, place: Place, defaulter: StandIn
) -> None:
    defaulter.refuses = lambda document: [Problem(path="spec.template.spec.domain.cpu", message="no such model")]
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(lambda: condition(place, "ReplicaFailure"), ("True", "FailedCreate"))
        assert "no such model" in (await place.condition("ReplicaFailure"))["message"]
        defaulter.refuses = lambda document: []
        await until(place.names, web(1))


async def test_a_namespace_that_opted_out_is_left_alone(control_plane: Any, place: Place, defaulter: StandIn) -> None:
    labels = {"labels": {meta.DEFAULTING: meta.DISABLED}}
    await place.api.patch(NAMESPACES, None, place.namespace, {"metadata": labels})
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    assert defaulter.asked == []
