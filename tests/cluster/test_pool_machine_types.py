"""The machine type of a pool's VMs, against the real API server. The test stands in for admission, which replaces the
alias of each VM by the type that the nodes have at the time."""

from __future__ import annotations

from typing import Any

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMS
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.resting import rests

Json = dict[str, Any]
SURGE = {"proactive": {"maxSurge": 1}}


def halted(machine: str = "q35", **domain: Any) -> Json:
    found = template(running=False)
    found["spec"]["template"]["spec"]["domain"] |= {"machine": {"type": machine}, **domain}
    return found


def machine_type(vm: Json) -> Any:
    return at(vm, "spec", "template", "spec", "domain", "machine", "type")


async def types(place: Place) -> dict[str, Any]:
    return {name: machine_type(vm) for name, vm in (await place.vms()).items()}


async def admit(place: Place, name: str, machine: str) -> None:
    change = {"spec": {"template": {"spec": {"domain": {"machine": {"type": machine}}}}}}
    await place.api.patch(VMS, place.namespace, name, change)


async def pins(place: Place) -> set[Any]:
    revisions, _ = await place.api.list(CONTROLLER_REVISIONS, place.namespace)
    return {at(each, "metadata", "annotations", meta.MACHINE_TYPE) for each in revisions}


async def test_later_vms_of_a_revision_have_the_machine_type_of_the_first(control_plane: Any, place: Place) -> None:
    await place.pool(1, template=halted())
    async with controller(control_plane.kubeconfig) as running:
        await until(lambda: types(place), {"web-1": "q35"})
        await admit(place, "web-1", "pc-q35-9.0")
        await until(lambda: pins(place), {"pc-q35-9.0"})
        await place.change(replicas=2)
        await until(lambda: types(place), {"web-1": "pc-q35-9.0", "web-2": "pc-q35-9.0"})
        await rests(running.writes, 3)


async def test_a_revision_of_an_older_poolhouse_gets_the_type_of_its_vms_and_nothing_restarts(
    control_plane: Any, place: Place
) -> None:
    await place.pool(2, template=halted())
    async with controller(control_plane.kubeconfig):
        await until(lambda: types(place), {"web-1": "q35", "web-2": "q35"})
    await admit(place, "web-1", "pc-q35-9.0")
    await admit(place, "web-2", "pc-q35-9.0")
    before = {name: vm["metadata"]["resourceVersion"] for name, vm in (await place.vms()).items()}
    async with controller(control_plane.kubeconfig) as running:
        await until(lambda: pins(place), {"pc-q35-9.0"})
        await rests(running.writes, 3)
    assert {name: vm["metadata"]["resourceVersion"] for name, vm in (await place.vms()).items()} == before


async def test_a_rollback_gives_new_vms_the_older_type(control_plane: Any, place: Place) -> None:
    bigger = halted(resources={"requests": {"memory": "128Mi"}})
    await place.pool(1, template=halted(), updateStrategy=SURGE)
    async with controller(control_plane.kubeconfig):
        await until(place.names, ["web-1"])
        await admit(place, "web-1", "pc-q35-9.0")
        await until(lambda: pins(place), {"pc-q35-9.0"})
        # A user replaces the VM while the pool has the newer template.
        await place.change(replicas=0)
        await until(place.names, [])
        await place.change(replicas=1, template=bigger)
        await until(lambda: types(place), {"web-1": "q35"})
        await admit(place, "web-1", "pc-q35-9.2")
        await until(lambda: pins(place), {"pc-q35-9.0", "pc-q35-9.2"})
        await place.change(replicas=0)
        await until(place.names, [])
        await place.change(replicas=1, template=halted(resources=None))
        await until(lambda: types(place), {"web-1": "pc-q35-9.0"})
