"""VMs that a pool makes while no webhook completes them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.shared import creation
from defaulter.contract import Defaulter, Problem, undefaulted_fields, with_firmware_ids
from kinds import meta
from runtime.resource import NAMESPACES, VMS
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.test_pool import condition, said, web
from tests.webhook.fake_defaulter import FakeDefaulter


@pytest.fixture
def defaulter() -> FakeDefaulter:
    return FakeDefaulter()


async def test_a_vm_is_made_complete(control_plane: Any, place: Place, defaulter: FakeDefaulter) -> None:
    await place.pool(creation.AT_ONCE + 2)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(*range(1, creation.AT_ONCE + 3)))
    made = (await place.machines()).values()
    assert all(undefaulted_fields(vm) == [] for vm in made)
    addresses = [vm["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"] for vm in made]
    assert len(set(addresses)) == len(addresses), "each has an identity of its own"


async def test_a_defaulter_that_is_away_holds_nobody_up_and_is_told_of(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    defaulter.away = "no route to host"
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    (vm,) = (await place.machines()).values()
    assert vm["metadata"]["annotations"][meta.UNDEFAULTED] == "no route to host"


async def test_a_template_that_the_defaulter_refuses_is_told_of(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    defaulter.refuses = lambda document: [Problem(path="spec.template.spec.domain.cpu", message="no such model")]
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(lambda: condition(place, "ReplicaFailure"), ("True", "FailedCreate"))
        await until(lambda: said(place, "ReplicaFailure", "no such model"), True)
        defaulter.refuses = lambda document: []
        await until(place.names, web(1))


async def test_a_namespace_that_opted_out_is_left_alone(
    control_plane: Any, place: Place, defaulter: FakeDefaulter
) -> None:
    labels = {"labels": {meta.DEFAULTING: meta.DISABLED}}
    await place.api.patch(NAMESPACES, None, place.namespace, {"metadata": labels})
    await place.pool(1)
    async with controller(control_plane.kubeconfig, defaulter=defaulter):
        await until(place.names, web(1))
    # Others share the control plane, and what they have left may still be there.
    assert [document for document, _, namespace, _ in defaulter.asked if namespace == place.namespace] == []


async def test_a_webhook_that_goes_in_the_middle_of_a_batch_leaves_no_vm_undecided(
    place: Place, defaulter: FakeDefaulter
) -> None:
    preparing = creation.DefaultingCreator(place.api, VMS, cast(Defaulter, defaulter), "", lambda: 0.0)

    def named(name: str) -> dict[str, Any]:
        metadata = {"namespace": place.namespace, "name": name}
        return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, **template()}

    present = (await defaulter.complete(named("a"), namespace=place.namespace)).object
    await preparing.create(present)
    (prepared,) = await preparing([named("b")])
    assert prepared == with_firmware_ids(named("b"), ""), "the last answer was complete, so a webhook is there"

    await preparing.create(named("b"))
    await preparing.create(named("c"))

    made = await place.machines()
    assert {name: undefaulted_fields(vm) for name, vm in made.items()} == {"a": [], "b": [], "c": []}
    generations = {name: vm["metadata"]["generation"] for name, vm in made.items()}
    assert generations == {"a": 1, "b": 2, "c": 1}, "one was stored before anybody knew, and mended at once"
